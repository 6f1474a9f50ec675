"""Language identification between the two sides of a corpus, by character trigrams of the corpus itself.

A profile counts the character trigrams of either side of some parallel text. The score of a line is the mean log-odds
of its trigrams, in nats: positive for the source side, negative for the target side.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

MIN_PROFILE = 200  # pairs; too few for a language profile otherwise
SEPARABLE = 0.8  # share of pairs whose sides are classified as two languages: 98 % in real corpora, 50 % by chance

_BINS_LOG2 = 18  # trigrams are hashed into so many bins; a collision only blurs a score a little
_SMOOTHING = 0.5  # added to each count, so that an unseen trigram counts for neither side
_LINES_AT_A_TIME = 10_000
_END = ord("\n")

Floats = NDArray[np.float64]


class Profiles:
    """The trigrams of the two sides of a text."""

    def __init__(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        self._odds = log_frequencies(sources) - log_frequencies(targets)

    def scores(self, lines: Sequence[str]) -> Floats:
        """The score of each line; 0 for one without text."""
        scores = np.zeros(len(lines))
        for first, n_lines, line, trigram in trigrams(lines):
            totals = np.bincount(line, self._odds[trigram], minlength=n_lines)
            scores[first : first + n_lines] = totals / np.maximum(np.bincount(line, minlength=n_lines), 1)
        return scores


def cross_scores(sources: Sequence[str], targets: Sequence[str]) -> tuple[Floats, Floats]:
    """Scores of both sides of a text by its own profiles: each half by that of the other, which has not seen it."""
    source_scores, target_scores = np.zeros(len(sources)), np.zeros(len(targets))
    for half, other in ((0, 1), (1, 0)):
        profiles = Profiles(sources[other::2], targets[other::2])
        source_scores[half::2] = profiles.scores(sources[half::2])
        target_scores[half::2] = profiles.scores(targets[half::2])
    return source_scores, target_scores


def log_frequencies(lines: Sequence[str]) -> Floats:
    """The log relative frequency of each bin of trigrams."""
    counts = np.full(1 << _BINS_LOG2, _SMOOTHING)
    for _, _, _, trigram in trigrams(lines):
        counts += np.bincount(trigram, minlength=len(counts))
    frequencies: Floats = np.log(counts / counts.sum())
    return frequencies


def trigrams(lines: Sequence[str]) -> Iterator[tuple[int, int, NDArray[np.int64], NDArray[np.int64]]]:
    """The trigrams of some lines at a time: first line, number of lines, and each trigram's line (from 0) and bin."""
    for first in range(0, len(lines), _LINES_AT_A_TIME):
        chunk = lines[first : first + _LINES_AT_A_TIME]
        text = "".join(f" {line.strip().lower()} \n" for line in chunk)
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.uint64)
        is_end = codes == _END
        line = np.cumsum(is_end) - is_end  # an end belongs to the line that it ends
        whole = (line[:-2] == line[2:]) & ~is_end[2:]
        mixed = (codes[:-2] * np.uint64(0x9E3779B97F4A7C15)) ^ (codes[1:-1] * np.uint64(0xC2B2AE3D27D4EB4F))
        mixed = (mixed ^ codes[2:]) * np.uint64(0x165667B19E3779F9)
        trigram = (mixed >> np.uint64(64 - _BINS_LOG2)).astype(np.int64)
        yield first, len(chunk), line[:-2][whole], trigram[whole]
