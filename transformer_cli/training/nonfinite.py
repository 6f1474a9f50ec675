"""Updates whose loss or gradient is not a finite number; and how the loss of each update is read without a wait."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from transformer_cli.data.transfer import copies_asynchronously


class Polled(NamedTuple):
    """An update as it is read: how many were skipped, and its loss and gradient norm."""

    in_a_row: int
    in_all: int
    step: int  # 0: none has been read yet
    loss: float
    grad_norm: float


class NonFiniteTracker:
    """Counts the updates that were skipped because their loss was not finite: in a row, and in all.

    After `limit` in a row every update is skipped, so that the weights stay what they were when the first one was.
    """

    def __init__(self, device: torch.device, *, limit: int) -> None:
        self.limit = limit
        self.in_a_row, self.in_all = torch.zeros(2, dtype=torch.int64, device=device)
        self.last = torch.zeros((), dtype=torch.bool, device=device)  # whether the last update was skipped
        self._step, self._values = 0, torch.zeros(2, device=device)
        is_asynchronous = copies_asynchronously(device)
        self._seen = torch.zeros(3, dtype=torch.int64, pin_memory=is_asynchronous)
        self._seen_values = torch.zeros(2, pin_memory=is_asynchronous)
        self._is_copied = torch.Event(device) if is_asynchronous else None

    def add(self, finite: Tensor, step: int, *, loss: Tensor, grad_norm: Tensor) -> None:
        self.last = ~finite | (self.in_a_row >= self.limit)
        self.in_a_row = (self.in_a_row + 1) * self.last
        self.in_all = self.in_all + self.last
        self._step, self._values = step, torch.stack((loss.float(), grad_norm.float()))

    def poll(self) -> Polled:
        """The last update on a CPU; on a GPU the one of the call before, so that the CPU need not wait."""
        now = torch.stack((self.in_a_row, self.in_all, torch.full_like(self.in_all, self._step)))
        if self._is_copied is None:
            return Polled(*now.tolist(), *self._values.tolist())
        self._is_copied.synchronize()
        polled = Polled(*self._seen.tolist(), *self._seen_values.tolist())
        self._seen.copy_(now, non_blocking=True)
        self._seen_values.copy_(self._values, non_blocking=True)
        self._is_copied.record()
        return polled

    def counts(self) -> list[int]:
        """The number of skipped updates, in a row and in total."""
        return [int(self.in_a_row), int(self.in_all)]

    def unread(self) -> list[float | None] | None:
        """Step, loss and gradient norm of the last update, where the next `poll` is the first that gives it; JSON.

        A gradient norm that is not finite, as fp16 has at times, is None. So is all, where the loss is not.
        """
        loss, grad_norm = self._values.tolist()
        if self._is_copied is None or not math.isfinite(loss):
            return None
        return [self._step, loss, grad_norm if math.isfinite(grad_norm) else None]

    def restore(self, counts: Sequence[int], unread: Sequence[float | None] | None = None) -> None:
        """The inverse of `counts` and `unread`."""
        self.in_a_row, self.in_all = torch.tensor(counts, dtype=torch.int64, device=self.in_all.device)
        step, *numbers = unread or (0, 0.0, 0.0)
        values = [math.inf if number is None else number for number in numbers]
        self._step, self._values = int(step or 0), torch.tensor(values, device=self.in_all.device)
        if self._is_copied is not None:
            self._is_copied.synchronize()  # what is still being copied would overwrite this
        self._seen.copy_(torch.tensor([*counts, self._step]))
        self._seen_values.copy_(torch.tensor(values))
