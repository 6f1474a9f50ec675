"""Power-law fits of a cost by size, and the size at which one cost exceeds another."""

import math
from collections.abc import Sequence

import numpy as np


def upper(sizes: Sequence[int]) -> list[int]:
    """The larger half of the sizes, at least two: there the fastest-growing term dominates."""
    return sorted(sizes)[-max(2, math.ceil(len(sizes) / 2)) :]


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """p in cost ≈ c · sizeᵖ, by least squares on the logarithms."""
    x, y = np.log(sizes), np.log(costs)
    x = x - x.mean()
    return float(x @ y / (x @ x))


def crossover(sizes: Sequence[float], costs: Sequence[float], others: Sequence[float]) -> float:
    """The size from which `costs` stay above `others`, by log-log interpolation.

    0 if they always are above, infinity if they are not at the largest size.
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
