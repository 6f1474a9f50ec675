"""Saving while training goes on: the tensors are copied, and a thread writes the copies."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType

import torch
from torch import Tensor

from transformer_cli.data.transfer import copies_asynchronously
from transformer_cli.errors import EnvironmentFault, TfmError
from transformer_cli.logs import LOGGER
from transformer_cli.training.checkpoints import Checkpoint, CheckpointStore
from transformer_cli.training.lora import MergedWeights, is_frozen

MAX_FAILURES = 3  # in a row, before training stops


class Copies:
    """Memory on the CPU for one copy of the tensors, taken once: to touch new memory costs more than to copy."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    @property
    def has_memory(self) -> bool:
        return bool(self._buffers)

    def of(self, tensors: Mapping[str, Tensor], prefix: str) -> Mapping[str, Tensor]:
        """The tensors as they are now. From a GPU they arrive when its queued work is done.

        A later call overwrites what an earlier one with the same `prefix` has given. What is frozen is not copied.
        """
        if isinstance(tensors, MergedWeights):
            return replace(tensors, tensors=self.of(tensors.tensors, prefix))
        return {
            name: tensor.detach() if tensor.is_cpu and is_frozen(tensor) else self._copy(f"{prefix}/{name}", tensor)
            for name, tensor in tensors.items()
        }

    def _copy(self, key: str, tensor: Tensor) -> Tensor:
        is_asynchronous = copies_asynchronously(tensor.device)
        if key not in self._buffers:
            self._buffers[key] = torch.zeros(tensor.shape, dtype=tensor.dtype, pin_memory=is_asynchronous)
        return self._buffers[key].copy_(tensor.detach(), non_blocking=is_asynchronous)


class Saver:
    """Publishes checkpoints one after another, each with what has to follow it.

    A save that fails is logged, and tried again when the next one is due. After MAX_FAILURES in a row `check`, `save`
    and `wait` raise EnvironmentFault.
    """

    def __init__(self, store: CheckpointStore, device: torch.device) -> None:
        self.store, self.device = store, device
        self.n_failures = 0  # in a row
        self.failed_steps: set[int] = set()
        self._copies = Copies()
        self._thread: threading.Thread | None = None
        self._fault: BaseException | None = None

    def __enter__(self) -> "Saver":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not isinstance(error, KeyboardInterrupt):  # a second signal does not wait
            self.join()

    @property
    def has_memory(self) -> bool:
        return self._copies.has_memory

    def reserve(self, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> None:
        """Take the memory for the copies now, so that the first save takes no longer than the others."""
        self._copies.of(model, "model")
        self._copies.of(optimizer, "optimizer")

    def save(self, checkpoint: Checkpoint, afterwards: Callable[[], None], *, since: float | None = None) -> None:
        """Copy the tensors of `checkpoint` and return; meanwhile it is published, and then `afterwards` called.

        If the save before is not over yet, wait for it: they are published in order. The pause that is logged began at
        `since`, by time.perf_counter.
        """
        self.check()
        start = since if since is not None else time.perf_counter()
        self.join()
        copied = replace(
            checkpoint,
            model=replace(checkpoint.model, weights=self._copies.of(checkpoint.model.weights, "model")),
            optimizer=self._copies.of(checkpoint.optimizer, "optimizer"),
        )
        is_copied = torch.Event(self.device) if copies_asynchronously(self.device) else None
        if is_copied is not None:
            is_copied.record()
        pause_ms = 1000 * (time.perf_counter() - start)
        self._thread = threading.Thread(
            target=self._publish, args=(copied, afterwards, is_copied, pause_ms), name="tfm-saver", daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Waits until the last save is over. Raises what has gone wrong with it."""
        self.join()
        if self.n_failures:
            assert self._fault is not None
            raise self._fault
        self.check()

    def check(self) -> None:
        """Raise EnvironmentFault if saving has failed too often, and whatever else has gone wrong in the thread."""
        if self._fault is not None and (self.n_failures >= MAX_FAILURES or not isinstance(self._fault, TfmError)):
            raise self._fault

    def join(self) -> None:
        """Waits until the last save is over, well or not."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _publish(
        self,
        checkpoint: Checkpoint,
        afterwards: Callable[[], None],
        is_copied: torch.Event | None,
        pause_ms: float,
    ) -> None:
        start = time.perf_counter()
        try:
            if is_copied is not None:
                is_copied.synchronize()
            self.store.save(checkpoint)
            self.n_failures = 0
            self.failed_steps.discard(checkpoint.step)
            seconds = time.perf_counter() - start
            LOGGER.info("step %d: saved in %.1f s; training paused for %.0f ms", checkpoint.step, seconds, pause_ms)
        except EnvironmentFault as fault:
            self._fault = fault
            self.n_failures += 1
            self.failed_steps.add(checkpoint.step)
            count = f"failure {self.n_failures} of {MAX_FAILURES} in a row"
            LOGGER.warning("step %d is not saved (%s): %s", checkpoint.step, count, fault)
        except BaseException as error:
            self._fault = error
        else:
            self._follow_up(afterwards)

    def _follow_up(self, afterwards: Callable[[], None]) -> None:
        try:
            afterwards()
        except EnvironmentFault as fault:
            LOGGER.warning("%s", fault)  # the checkpoint is safe, and the next save tidies again
        except BaseException as error:
            self._fault = error
