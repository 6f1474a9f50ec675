"""The two sides of a text as languages: which of them a line is written in, by the character trigrams of the text."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from transformer_cli.data.checks.profiles import MIN_PROFILE, SEPARABLE, Floats, log_frequencies, trigrams
from transformer_cli.data.cleaning.base import PairTexts

SPREAD_OF_MAD = 1.4826  # the standard deviation of a normal distribution whose median absolute deviation is 1
_PROFILE = 20_000  # pairs that a profile is made of


@dataclass(frozen=True)
class LineScores:
    """Scores of lines, in nats a trigram: `odds` are positive for the source side, `own` is of the side they are on."""

    odds: Floats
    own: Floats
    n: Floats  # trigrams

    @property
    def evidence(self) -> Floats:
        """Nats for the source side, of the whole line; trigrams overlap, so that each counts a third."""
        scores: Floats = self.odds * self.n / 3
        return scores


class SideProfiles:
    """Profiles of the two sides of a text; `are_apart` says whether these distinguish them."""

    def __init__(self, text: PairTexts) -> None:
        every = 1 + len(text) // _PROFILE
        self._logs = log_frequencies(text.sources[::every]), log_frequencies(text.targets[::every])
        text = PairTexts(text.sources[::every], text.targets[::every], text.numbers[::every])
        sources, targets = self.scores(text)
        self.are_apart = bool(len(text) >= MIN_PROFILE and (sources.odds * targets.odds < 0).mean() >= SEPARABLE)

    def scores(self, text: PairTexts) -> tuple[LineScores, LineScores]:
        """The scores of both sides of some pairs."""
        return self._scores(text.sources, 0), self._scores(text.targets, 1)

    def _scores(self, lines: Sequence[str], side: int) -> LineScores:
        of_source, of_target, n = np.zeros(len(lines)), np.zeros(len(lines)), np.zeros(len(lines))
        for first, n_lines, line, trigram in trigrams(lines):
            here = slice(first, first + n_lines)
            n[here] = np.bincount(line, minlength=n_lines)
            for logs, totals in zip(self._logs, (of_source, of_target), strict=True):
                totals[here] = np.bincount(line, logs[trigram], minlength=n_lines)
        of_source, of_target = of_source / np.maximum(n, 1), of_target / np.maximum(n, 1)
        return LineScores(of_source - of_target, (of_source, of_target)[side], n)
