"""Timing in interleaved rounds, so that other load on the machine affects all implementations equally."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

CALLS_ON_GPU = 10
MIN_S = 0.05  # seconds per implementation and round

Name = TypeVar("Name")


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of several measurements."""

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
        """The median ± half the interquartile range, relative to the median."""
        return f"{self.median:,.0f} ± {(self.high - self.low) / 2 / self.median:.0%}"


def ratio(of: Sequence[float], to: Sequence[float]) -> Spread:
    """The spread of the ratios of each round."""
    return Spread.of([one / other for one, other in zip(of, to, strict=True)])


def finish(device: torch.device) -> None:
    """Wait for the device to complete its queue."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(work: Callable[[], object], device: torch.device, clock: Callable[[], float] = time.perf_counter) -> float:
    """Wall-clock time of one call, synchronized with the device."""
    finish(device)
    start = clock()
    work()
    finish(device)
    return clock() - start


def in_turn(
    implementations: Mapping[Name, Callable[[], object]],
    *,
    rounds: int,
    device: torch.device,
    min_s: float = MIN_S,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[Name, list[float]]:
    """Seconds per call of each implementation in each of `rounds`, after a warm-up.

    Short calls are repeated for at least `min_s` in a round.
    """
    found: dict[Name, list[float]] = {name: [] for name in implementations}
    calls: dict[Name, int] = {}
    for name, work in implementations.items():
        work()
        calls[name] = max(1, round(min_s / seconds(work, device)))
    for _ in range(rounds):
        for name, work in implementations.items():
            found[name].append(seconds(repeated(work, calls[name]), device, clock) / calls[name])
    return found


def repeated(work: Callable[[], object], n: int) -> Callable[[], None]:
    def several() -> None:
        for _ in range(n):
            work()

    return several


def best(work: Callable[[], object], device: torch.device, *, budget_s: float = 0.2, min_calls: int = 3) -> float:
    """Seconds of the fastest of several calls.

    On a GPU, several calls are queued at once, so that launch overhead is hidden.
    """
    calls = CALLS_ON_GPU if device.type == "cuda" else 1
    work()
    found: list[float] = []
    while len(found) < min_calls or calls * sum(found) < budget_s:
        found.append(seconds(repeated(work, calls), device) / calls)
    return min(found)
