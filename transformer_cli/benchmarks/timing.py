"""Contestants timed in turn, so that what disturbs the machine disturbs all of them alike."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Spread:
    """The middle of several measurements and the quartiles around it."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        low, median, high = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
        return cls(low, median, high)

    def shown(self, pattern: str = ",.0f") -> str:
        return f"{self.median:{pattern}} ({self.low:{pattern}} to {self.high:{pattern}})"


def ratio(of: Sequence[float], to: Sequence[float]) -> Spread:
    """How many times as large `of` is as `to`, round by round."""
    return Spread.of([one / other for one, other in zip(of, to, strict=True)])


def finish(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Of one call, to the end."""
    finish(device)
    start = time.perf_counter()
    work()
    finish(device)
    return time.perf_counter() - start


def in_turn(
    contestants: Mapping[str, Callable[[], object]], *, rounds: int, device: torch.device
) -> dict[str, list[float]]:
    """Seconds of each contestant in each of `rounds`, after one round that is not counted."""
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, work in contestants.items():
            taken = seconds(work, device)
            if number:
                found[name].append(taken)
    return found


def best(work: Callable[[], object], device: torch.device, *, budget_s: float = 0.2, least: int = 3) -> float:
    """Seconds of the quickest of several calls: what the machine can do when nothing disturbs it."""
    work()
    found: list[float] = []
    while len(found) < least or sum(found) < budget_s:
        found.append(seconds(work, device))
    return min(found)
