"""Pairs of an unlikely length ratio."""

from dataclasses import dataclass

import numpy as np

from transformer_cli.data.cache import Array
from transformer_cli.data.checks.profiles import Floats

SAMPLE = 100_000  # pairs of a split that are examined one by one
UNLIKELY_RATIO = 6.0  # robust standard deviations from the usual ratio of lengths
_N_WORST = 10
_LENGTHS_AT_A_TIME = 1 << 16


def spread(n: int) -> Array:
    """At most SAMPLE indices below `n`, at equal distances."""
    return np.arange(min(n, SAMPLE)) * n // max(1, min(n, SAMPLE))


def length_outliers(source_lengths: Array, target_lengths: Array) -> tuple[int, list[int]]:
    """The number of pairs that deviate by more than UNLIKELY_RATIO, and the indices of the worst."""
    usual = LengthRatio.of(source_lengths, target_lengths)
    n_outliers, worst = 0, np.empty(0, np.int64)
    deviations = np.empty(0)  # of the worst
    for first in range(0, len(source_lengths), _LENGTHS_AT_A_TIME):
        part = slice(first, first + _LENGTHS_AT_A_TIME)
        found = np.abs(usual.deviations(source_lengths[part], target_lengths[part]))
        outliers = np.flatnonzero(found > UNLIKELY_RATIO)
        n_outliers += len(outliers)
        worst, deviations = np.append(worst, first + outliers), np.append(deviations, found[outliers])
        kept = np.argsort(-deviations, kind="stable")[:_N_WORST]
        worst, deviations = worst[kept], deviations[kept]
    return n_outliers, worst.tolist()


@dataclass(frozen=True)
class LengthRatio:
    """The usual ratio of the lengths of two sides, and how far pairs are from it (Gale and Church 1993)."""

    ratio: float
    middle: float
    scale: float

    @classmethod
    def of(cls, source_lengths: Array, target_lengths: Array) -> "LengthRatio":
        """The length ratio of a text; of a large one, by pairs at equal distances.

        The scale is the median absolute deviation, so that the outliers do not hide themselves.
        """
        chosen = spread(len(source_lengths))
        source, target = source_lengths[chosen], target_lengths[chosen]
        real = (source > 0) & (target > 0)
        if not real.any():
            return cls(1.0, 0.0, 1.0)
        source, target = source[real] + 1.0, target[real] + 1.0
        ratio = float(target.sum() / source.sum())
        raw = _out_of_ratio(source, target, ratio)
        middle = float(np.median(raw))
        # 1.4826 of it is the standard deviation of a normal distribution; copies deviate by nothing at all.
        return cls(ratio, middle, max(1.4826 * float(np.median(np.abs(raw - middle))), 0.1))

    def deviations(self, source_lengths: Array, target_lengths: Array) -> Floats:
        """How far each pair is from the usual ratio, in robust standard deviations.

        Blank sides count as nothing unusual: they are reported as blank.
        """
        source, target = source_lengths + 1.0, target_lengths + 1.0
        found = (_out_of_ratio(source, target, self.ratio) - self.middle) / self.scale
        found[(source_lengths == 0) | (target_lengths == 0)] = 0
        return found


def _out_of_ratio(source: Floats, target: Floats, ratio: float) -> Floats:
    """The excess of the targets' lengths; the variance of a translation's length grows with the length."""
    expected = source * ratio
    found: Floats = (target - expected) / np.sqrt((target + expected) / 2)
    return found
