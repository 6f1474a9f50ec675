"""The processes that train together: one by itself, or those that torchrun has started.

Every rank holds the whole model. What the ranks tell each other while they work goes through collectives (gloo on CPUs,
NCCL between GPUs); what one of them does alone, like preparing data, reading a checkpoint or translating the dev set,
through torchrun's key-value store, where nobody is in a hurry. The first rank composes, reads, writes and speaks.
"""

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from transformer_cli.errors import ElsewhereError, EnvironmentFault, LostRankError, TfmError
from transformer_cli.training.signals import StopRequest

ROLL_CALL_S = 5.0  # for those that are left, once a rank is missing
GRACE_S = 20.0  # of the 30 s that torchrun gives between SIGTERM and SIGKILL


class Ranks:
    """This process's place among those that train together."""

    def __init__(
        self,
        request: StopRequest,
        *,
        rank: int = 0,
        world_size: int = 1,
        store: dist.Store | None = None,  # type: ignore[name-defined]  # torch does not list it
        timeout_s: float = 0.0,
    ) -> None:
        self.request, self.rank, self.world_size, self.timeout_s = request, rank, world_size, timeout_s
        self.stop_signal = 0  # which all ranks have agreed on
        self._store = store

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def own(self, device: torch.device) -> torch.device:
        """This rank's GPU, if `device` is one."""
        if device.type == "cuda" and self.world_size > 1:
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(device)
        return device

    def agree(self, step: int) -> None:
        """Wait until every rank has come to `step`; from there on `stop_signal` is the same on all of them.

        Raises LostRankError naming the rank that does not come, ElsewhereError for one that has met a fault.
        """
        self.stop_signal = self.request.signal
        if self._store is not None:
            self._say(f"at/{self.rank}", str(step))
            signum = torch.tensor(self.stop_signal)
            self._together(lambda: dist.all_reduce(signum, dist.ReduceOp.MAX), step)
            self.stop_signal = int(signum)

    def add_up(self, tensors: Sequence[Tensor], step: int) -> None:
        """Replace each tensor, float32 and on this rank's device, by its sum over the ranks. Raises as `agree` does."""
        if self._store is None:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        self._together(lambda: dist.all_reduce(flat), step)
        for tensor, total in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(total.view_as(tensor))

    def spread(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite the tensors with the first rank's."""
        for tensor in tensors if self._store is not None else ():
            self._together(lambda tensor=tensor: dist.broadcast(tensor, src=0), 0)  # type: ignore[misc]

    def share(self, key: str, text: str | None) -> str:
        """The text that the first rank gives under `key`; the others pass None and wait for it as long as it takes."""
        if self._store is None:
            assert text is not None
            return text
        if text is not None:
            self._say(f"shared/{key}", text)
            return text
        return self._await(f"shared/{key}")

    def is_asked_to_stop(self) -> bool:
        """Whether this rank, or one that waits in `share`, was asked to stop."""
        return self.request.signal != 0 or (self._store is not None and self._store.check(["stop"]))

    def leave(self, error: TfmError) -> None:
        """Tell the others why this rank ends."""
        if self._store is not None and not isinstance(error, ElsewhereError) and error.speaks is None:
            with suppress(RuntimeError):
                self._store.set("fault", f"{error.exit_code} {error}")

    def _say(self, key: str, text: str) -> None:
        assert self._store is not None
        try:
            self._store.set(key, text)
        except RuntimeError as error:
            raise self._out_of_touch(error) from error

    def _await(self, key: str) -> str:
        assert self._store is not None
        asked_at = None
        while True:
            try:
                if self._store.check([key]):
                    return str(self._store.get(key), "utf-8")
                self._refuse_fault()
                if self.request.signal and asked_at is None:
                    asked_at = time.monotonic()
                    self._store.set("stop", "")
            except RuntimeError as error:
                raise self._out_of_touch(error) from error
            if asked_at is not None and time.monotonic() - asked_at > GRACE_S:
                raise self._missing([0], f"has not answered for {GRACE_S:.0f} s", speaks=self.rank == 1)
            time.sleep(0.05)

    def _together(self, collective: Callable[[], object], step: int) -> None:
        start = time.monotonic()
        try:
            collective()
        except RuntimeError as error:
            waited_s = time.monotonic() - start
            if "timed out" in str(error).lower() or waited_s >= self.timeout_s:
                what = f"has not reached step {step} for {waited_s:.0f} s"
            else:
                what = f"is gone, at step {step}"
            raise self._who_is_missing(what, error) from error

    def _who_is_missing(self, what: str, error: RuntimeError) -> TfmError:
        """Hold a roll call through the store."""
        assert self._store is not None
        try:
            self._refuse_fault()
            with suppress(RuntimeError, AssertionError):
                dist.destroy_process_group()  # closes the connections: who still waits for an answer wakes up
            self._store.set(f"left/{self.rank}", "")
            deadline, left = time.monotonic() + ROLL_CALL_S, {self.rank}
            while len(left) < self.world_size and time.monotonic() < deadline:
                left = {rank for rank in range(self.world_size) if self._store.check([f"left/{rank}"])}
                time.sleep(0.05)
            self._refuse_fault()
        except ElsewhereError as elsewhere:
            return elsewhere
        except RuntimeError as lost:
            return self._out_of_touch(lost)
        missing = [rank for rank in range(self.world_size) if rank not in left]
        if not missing:
            return self._out_of_touch(error)
        return self._missing(missing, what, speaks=self.rank == min(left))

    def _refuse_fault(self) -> None:
        """Raise ElsewhereError if another rank has told why it left."""
        assert self._store is not None
        if self._store.check(["fault"]):
            code, _, message = str(self._store.get("fault"), "utf-8").partition(" ")
            raise ElsewhereError(message, int(code))

    def _missing(self, ranks: list[int], what: str, *, speaks: bool) -> LostRankError:
        names = " and ".join(f"rank {rank} ({self._where(rank)})" for rank in ranks)
        return _spoken(LostRankError(f"{names} {what}. Look at its log, then run the same command again"), speaks)

    def _where(self, rank: int) -> str:
        assert self._store is not None
        with suppress(RuntimeError):
            if self._store.check([f"where/{rank}"]):
                return str(self._store.get(f"where/{rank}"), "utf-8")
        return "unknown"

    def _out_of_touch(self, error: RuntimeError) -> LostRankError:
        what = str(error).split("\n")[0]
        return _spoken(LostRankError(f"rank {self.rank}: cannot reach the others ({what}). Run the same command again"))


def _spoken(error: LostRankError, speaks: bool = True) -> LostRankError:
    error.speaks = speaks
    return error


@contextmanager
def join_ranks(request: StopRequest, *, device_type: str, timeout_s: float) -> Iterator[Ranks]:
    """Meet the other processes that torchrun has started, if it has; whatever ends this rank ends them with its code.

    Raises EnvironmentFault when torchrun's variables are wrong or the others cannot be reached.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1":
        yield Ranks(request)
        return
    try:
        store, rank, world_size = next(rendezvous("env://", timeout=timedelta(seconds=timeout_s)))
        backend = "cpu:gloo,cuda:nccl" if device_type == "cuda" else "gloo"
        dist.init_process_group(
            backend, store=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=timeout_s)
        )
        store.set(f"where/{rank}", f"process {os.getpid()} on {socket.gethostname()}")
    except (ValueError, KeyError, RuntimeError) as error:
        what = " ".join(str(error).split())[:200]
        raise EnvironmentFault(
            f"cannot meet the other ranks ({what})."
            " Start all of them with torchrun, on a free --master-port and with the same --nnodes and --nproc-per-node"
        ) from error
    ranks = Ranks(request, rank=rank, world_size=world_size, store=store, timeout_s=timeout_s)
    try:
        yield ranks
    except TfmError as error:
        ranks.leave(error)
        raise
    finally:
        with suppress(RuntimeError, AssertionError):  # it may have been closed to wake the others up
            dist.destroy_process_group()
