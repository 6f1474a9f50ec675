"""How a cost grows: the exponent of a power law, and the size at which one cost overtakes another."""

import math
from collections.abc import Sequence

import numpy as np


def upper(sizes: Sequence[int]) -> list[int]:
    """The larger half, of two at least: what dominates there is what grows fastest."""
    return sorted(sizes)[-max(2, math.ceil(len(sizes) / 2)) :]


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """p of cost ≈ c · sizeᵖ: the slope of least squares through the logarithms."""
    x, y = np.log(sizes), np.log(costs)
    x = x - x.mean()
    return float(x @ y / (x @ x))


def crossover(sizes: Sequence[float], costs: Sequence[float], others: Sequence[float]) -> float:
    """The size from which `costs` are above `others` for good, on straight lines between the logarithms.

    0 where they always are, infinity where they are not at the largest size.
    """
    above = np.log(costs) - np.log(others)
    if above[-1] <= 0:
        return math.inf
    below = np.flatnonzero(above <= 0)
    if not len(below):
        return 0.0
    last = below[-1]
    share = above[last] / (above[last] - above[last + 1])
    return float(sizes[last] * (sizes[last + 1] / sizes[last]) ** share)
