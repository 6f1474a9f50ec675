"""Updates whose loss or gradient is not a finite number."""

from collections.abc import Sequence

import torch
from torch import Tensor

from transformer_cli.data.transfer import copies_asynchronously


class NonFiniteTracker:
    """Counts the updates that were skipped because their loss was not finite: in a row, and in all.

    After `limit` in a row every update is skipped, so that the weights stay what they were when the first one was.
    """

    def __init__(self, device: torch.device, *, limit: int) -> None:
        self.limit = limit
        self.in_a_row, self.in_all = torch.zeros(2, dtype=torch.int64, device=device)
        self.last = torch.zeros((), dtype=torch.bool, device=device)  # whether the last update was skipped
        self._seen = torch.zeros(3, dtype=torch.int64, pin_memory=copies_asynchronously(device))
        self._is_copied = torch.Event(device) if copies_asynchronously(device) else None

    def add(self, finite: Tensor, step: int) -> None:
        self.last = ~finite | (self.in_a_row >= self.limit)
        self.in_a_row = (self.in_a_row + 1) * self.last
        self.in_all = self.in_all + self.last
        self._step = step

    def poll(self) -> tuple[int, int, int]:
        """(in a row, in all, step) on a CPU; on a GPU as they were one call ago, so that the CPU need not wait."""
        now = torch.stack((self.in_a_row, self.in_all, torch.full_like(self.in_all, self._step)))
        if self._is_copied is None:
            in_a_row, in_all, step = now.tolist()
        else:
            self._is_copied.synchronize()
            in_a_row, in_all, step = self._seen.tolist()
            self._seen.copy_(now, non_blocking=True)
            self._is_copied.record()
        return in_a_row, in_all, step

    def counts(self) -> list[int]:
        """The number of skipped updates, in a row and in total."""
        return [int(self.in_a_row), int(self.in_all)]

    def restore(self, counts: Sequence[int]) -> None:
        """The inverse of `counts`."""
        self.in_a_row, self.in_all = torch.tensor(counts, dtype=torch.int64, device=self.in_all.device)
