"""Minimum error rate training (Och 2003): the weights of features with which the best of each list score highest.

Along a line of weights, w + γ·d, the score of each candidate is a straight line in γ, so that which of a list is the
best changes at a few values of γ: the corners of the upper envelope. Between two of all lists' corners nothing
changes, and the metric is computed there from sums of counts, once for each interval: the best γ is found exactly.

Shapes: L lists, C candidates of all lists one after another, F features.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
_GAIN = 1e-9  # a smaller one is rounding
_ROUNDS = 100  # over all directions, at most; a few do


@dataclass(frozen=True)
class Lists:
    """Candidates of several lists: features, the counts of the metric, and where each list begins and ends."""

    features_CF: FloatArray
    counts: FloatArray  # [C, counts of the metric]
    starts: Sequence[int]  # of each list, and the end of the last
    score_of: Callable[[Sequence[float]], float]  # from sums of counts; higher is better

    def best(self, weights_F: FloatArray) -> list[int]:
        """The best candidate of each list, counted within the list; of equal ones the first."""
        return best_of(self.features_CF, self.starts, weights_F)

    def score(self, weights_F: FloatArray) -> float:
        rows = np.add(self.starts[:-1], self.best(weights_F))
        return self.score_of(self.counts[rows].sum(0).tolist())


def best_of(features_CF: FloatArray, starts: Sequence[int], weights_F: FloatArray) -> list[int]:
    """The best candidate of each list, counted within the list; of equal ones the first."""
    totals_C = features_CF @ weights_F
    return [int(np.argmax(totals_C[a:b])) for a, b in pairwise(starts)]


def envelope(offsets: FloatArray, slopes: FloatArray) -> tuple[list[int], list[float]]:
    """The lines offset + γ·slope that are the highest somewhere, from γ = -∞ on, and where each gives way to the next.

    Of equal lines the first.
    """
    order = sorted(range(len(slopes)), key=lambda i: (slopes[i], -offsets[i], i))
    lines: list[int] = []
    corners: list[float] = []
    for i in order:
        if lines and slopes[i] == slopes[lines[-1]]:
            continue  # parallel, and not higher
        while lines:
            last = lines[-1]
            corner = (offsets[last] - offsets[i]) / (slopes[i] - slopes[last])
            if not corners or corner > corners[-1]:
                break
            lines.pop()
            corners.pop()
        if lines:
            corners.append(float(corner))
        lines.append(i)
    return lines, corners


def best_step(lists: Lists, weights_F: FloatArray, direction_F: FloatArray) -> tuple[float, float]:
    """The γ with the highest score of weights + γ·direction, in the middle of its interval, and that score.

    Of equal scores that of the interval with γ = 0, then the widest.
    """
    offsets_C, slopes_C = lists.features_CF @ weights_F, lists.features_CF @ direction_F
    changes: list[tuple[float, int, int]] = []  # γ, the candidate that gives way, and the one that follows
    rows = []
    for start, end in pairwise(lists.starts):
        lines, corners = envelope(offsets_C[start:end], slopes_C[start:end])
        rows.append(start + lines[0])
        changes += [
            (corner, start + one, start + other) for corner, (one, other) in zip(corners, pairwise(lines), strict=True)
        ]
    changes.sort()
    sums = lists.counts[rows].sum(0)
    low, best = -np.inf, (-np.inf, False, 0.0, 0.0)
    for n in range(len(changes) + 1):
        high = changes[n][0] if n < len(changes) else np.inf
        if high > low:
            found = (lists.score_of(sums.tolist()), low < 0 < high, high - low, _middle(low, high))
            best = max(best, found, key=lambda one: (round(one[0], 9), *one[1:3]))
            low = high
        if n < len(changes):
            _, one, other = changes[n]
            sums = sums + (lists.counts[other] - lists.counts[one])
    return best[3], best[0]


def _middle(low: float, high: float) -> float:
    if low < 0 < high:
        return 0.0
    if np.isinf(low):
        return high - 1 - abs(high) / 2
    return low + 1 + abs(low) / 2 if np.isinf(high) else (low + high) / 2


def tune(lists: Lists, starts: Sequence[FloatArray]) -> tuple[FloatArray, float]:
    """The best weights that coordinate ascent finds from one of the `starts`, and their score; of equal ones the first.

    Weights are as large as they come out of the search: only their ratios matter.
    """
    found = [_ascend(lists, start) for start in starts]
    return max(found, key=lambda one: one[1])


def _ascend(lists: Lists, weights_F: FloatArray) -> tuple[FloatArray, float]:
    score = lists.score(weights_F)
    for _ in range(_ROUNDS):
        before = score
        for axis in range(len(weights_F)):
            direction_F = np.zeros_like(weights_F)
            direction_F[axis] = 1.0
            step, _ = best_step(lists, weights_F, direction_F)
            moved_F = weights_F + step * direction_F
            after = lists.score(moved_F)  # as it will be used: a tie may fall otherwise than along the line
            if after > score + _GAIN:
                weights_F, score = moved_F, after
        if score <= before + _GAIN:
            break
    return weights_F, score


def starting_points(features_CF: FloatArray, first: FloatArray, n: int, seed: int) -> list[FloatArray]:
    """`first`, and `n` drawn ones in which the features count alike: a normal draw over their standard deviation."""
    spread_F = features_CF.std(0)
    spread_F[spread_F == 0] = 1.0
    draw = np.random.default_rng(seed)
    return [first, *(draw.standard_normal(len(first)) / spread_F for _ in range(n))]
