"""Stretches of a parallel text that are not aligned, by the lengths of its sentences."""

import numpy as np

from transformer_cli.data.cache import Array
from transformer_cli.data.checks.profiles import Floats

WINDOW = 500  # pairs in a row whose lengths are correlated
MIN_WINDOW = 200
MAX_LAG = 3  # lines by which one side may have slipped
_ALIGNED = 0.5  # correlation of log lengths; 0.51 at least in sound text
UNRELATED = 0.3  # 0.28 at most between unrelated sentences
LAG_MARGIN = 0.2  # by which the correlation must be better elsewhere


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


def shown_lag(lag: int) -> str:
    return f"targets are {abs(lag)} line{'s' if abs(lag) > 1 else ''} {'late' if lag > 0 else 'early'}"


def _correlation(source: Floats, target: Floats, start: int, end: int, lag: int) -> float:
    """The correlation of source lines start..end with the target lines `lag` further on."""
    first, last = max(start, -lag, 0), min(end, len(source) - max(lag, 0))
    a, b = source[first:last], target[first + lag : last + lag]
    return float(np.corrcoef(a, b)[0, 1]) if _varies(a) and _varies(b) else 0.0


def _varies(log_lengths: Floats) -> bool:
    return bool(log_lengths.std() > 0.1)  # lines of one length, give or take a tenth, have no correlation to lose
