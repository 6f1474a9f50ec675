"""Statistics of sentence lengths: pairs of an unlikely length ratio, and stretches that are not aligned."""

from dataclasses import dataclass

import numpy as np

from transformer_cli.data.cache import Array
from transformer_cli.data.checks.profiles import Floats

SAMPLE = 100_000  # pairs of a split that are examined one by one

UNLIKELY_RATIO = 6.0  # robust standard deviations from the usual ratio of lengths
_N_WORST = 10
_LENGTHS_AT_A_TIME = 1 << 16
WINDOW = 500  # pairs in a row whose lengths are correlated
MIN_WINDOW = 200
MAX_LAG = 3  # lines by which one side may have slipped
_ALIGNED = 0.5  # correlation of log lengths; 0.51 at least in sound text
UNRELATED = 0.3  # 0.28 at most between unrelated sentences
LAG_MARGIN = 0.2  # by which the correlation must be better elsewhere


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


def alignment_slips(source_lengths: Array, target_lengths: Array) -> list[tuple[int, int]]:
    """Starts of the windows of pairs whose lengths are uncorrelated, with the lag at which they correlate (0 for none).

    Lengths of translations correlate, those of unrelated sentences do not. The lag is positive if
    targets come too late.
    """
    n, slips = len(source_lengths), []
    for start in range(0, n, WINDOW):
        end = min(n, start + WINDOW)
        if end - start < MIN_WINDOW:
            break
        # Only the window is held as logarithms, with what may have slipped into it.
        around = slice(max(0, start - MAX_LAG), end + MAX_LAG)
        source, target = np.log1p(source_lengths[around]), np.log1p(target_lengths[around])
        begin, stop = start - around.start, end - around.start
        aligned = _correlation(source, target, begin, stop, 0)
        if aligned > _ALIGNED:
            continue
        lags = range(-MAX_LAG, MAX_LAG + 1)
        best, lag = max((_correlation(source, target, begin, stop, lag), lag) for lag in lags)
        if best > aligned + LAG_MARGIN:
            slips.append((start, lag))
        elif aligned < UNRELATED and _varies(source[begin:stop]) and _varies(target[begin:stop]):
            slips.append((start, 0))
    return slips


def _correlation(source: Floats, target: Floats, start: int, end: int, lag: int) -> float:
    """The correlation of source lines start..end with the target lines `lag` further on."""
    first, last = max(start, -lag, 0), min(end, len(source) - max(lag, 0))
    a, b = source[first:last], target[first + lag : last + lag]
    return float(np.corrcoef(a, b)[0, 1]) if _varies(a) and _varies(b) else 0.0


def _varies(log_lengths: Floats) -> bool:
    return bool(log_lengths.std() > 0.1)  # lines of one length, give or take a tenth, have no correlation to lose
