"""Contestants timed in turn, so that what disturbs the machine disturbs all of them alike."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

CALLS_ON_GPU = 10
LEAST_S = 0.05  # that a contestant works for in a round

Name = TypeVar("Name")


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
        return f"{self.median:{pattern}} ({self.low:{pattern}}–{self.high:{pattern}})"

    def shown_briefly(self) -> str:
        """With half the distance between the quartiles, as a part of the median."""
        return f"{self.median:,.0f} ± {(self.high - self.low) / 2 / self.median:.0%}"


def ratio(of: Sequence[float], to: Sequence[float]) -> Spread:
    """How many times as large `of` is as `to`, round by round."""
    return Spread.of([one / other for one, other in zip(of, to, strict=True)])


def finish(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(work: Callable[[], object], device: torch.device, clock: Callable[[], float] = time.perf_counter) -> float:
    """Of one call, to the end."""
    finish(device)
    start = clock()
    work()
    finish(device)
    return clock() - start


def in_turn(
    contestants: Mapping[Name, Callable[[], object]],
    *,
    rounds: int,
    device: torch.device,
    least_s: float = LEAST_S,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[Name, list[float]]:
    """Seconds of a call of each contestant in each of `rounds`, after calls that are not counted.

    What takes less than a clock and a scheduler can be trusted with is called several times in a round.
    """
    found: dict[Name, list[float]] = {name: [] for name in contestants}
    calls: dict[Name, int] = {}
    for name, work in contestants.items():
        work()
        calls[name] = max(1, round(least_s / seconds(work, device)))
    for _ in range(rounds):
        for name, work in contestants.items():
            found[name].append(seconds(repeated(work, calls[name]), device, clock) / calls[name])
    return found


def repeated(work: Callable[[], object], n: int) -> Callable[[], None]:
    def several() -> None:
        for _ in range(n):
            work()

    return several


def best(work: Callable[[], object], device: torch.device, *, budget_s: float = 0.2, least: int = 3) -> float:
    """Seconds of the quickest of several calls: what the machine can do when nothing disturbs it.

    A GPU is given several calls at once, so that it never waits for the next one.
    """
    calls = CALLS_ON_GPU if device.type == "cuda" else 1
    work()
    found: list[float] = []
    while len(found) < least or calls * sum(found) < budget_s:
        found.append(seconds(repeated(work, calls), device) / calls)
    return min(found)
