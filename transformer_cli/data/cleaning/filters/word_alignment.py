"""Pairs of which hardly a word of one side is a translation of a word of the other, and blocks of shifted lines.

How far apart the scores of unrelated lines and of translations are follows from the text: unrelated lines are made of
it by giving each source the target of another pair of the same length. Where the two cannot be distinguished, as in
small texts, nothing is dropped.
"""

from dataclasses import dataclass

import numpy as np

from transformer_cli.data.checks.profiles import Floats
from transformer_cli.data.cleaning.base import FILTERS, Filter, Mask, PairTexts, Verdict, certainty, unrelated_targets
from transformer_cli.data.cleaning.lexicon import Ints, Words, estimated

_FEW = 300  # pairs of a class of length, fewer of which say nothing of their scores
_EVERY = 33  # pairs of which one is made unrelated
# Of the scores of unrelated lines: limits that are tried. All pairs up to the median are taken for unrelated.
_QUANTILES = [0.5 + 0.01 * number for number in range(46)]
_PARTS = (0.5, 0.75)  # of the scores of unrelated lines, which hardly a translation has: how many there are follows
_SEEN = 0.9  # of the pairs of a class that must be one or the other: translations by their scores, or unrelated
_MOST_UNRELATED = 0.4  # of the pairs of a class: with more, the scores say nothing
_MAX_LAG = 3  # lines by which a block may be shifted
_NEAR, _SUPPORT = 5, 3  # lines on each side, of which so many must have slipped by the same lag


@dataclass(frozen=True)
class _Limits:
    """Scores below `unrelated` are those of unrelated lines, and above `related` those of translations.

    `spread` is that of the lower half of the unrelated ones.
    """

    unrelated: float
    related: float
    spread: float


@FILTERS.register("word_alignment")
class WordAlignment(Filter):
    """The threshold is the share of the dropped pairs that must be unrelated, as estimated from their scores."""

    what = "with unrelated words on the two sides"
    repair = "paired again, in blocks in which one side was shifted by a few lines"
    threshold, low, high = 0.955, 0.5, 1.0
    is_auto = True

    def learn(self, text: PairTexts) -> None:
        """Learn a lexicon from text of which a few pairs are made unrelated, and what scores these get."""
        text = self.words_of(text)
        self._limits: dict[int, _Limits] = {}
        if len(text) < _FEW:
            return
        other = unrelated_targets(text)
        made = np.arange(len(text)) % _EVERY == 0
        self._lexicon, sources, targets = estimated(text, np.where(made, other, np.arange(len(text))))
        others = targets.at(other)
        scores, unrelated = self._lexicon.scores(sources, targets), self._lexicon.scores(sources, others)
        # An unrelated pair of the text that trains the lexicon has a higher score than another one.
        unrelated += np.nanmedian(unrelated[made]) - np.nanmedian(unrelated[~made])
        classes, other_classes = _classes(sources, targets), _classes(sources, others)
        assert self.limit is not None
        for one in np.unique(classes).tolist():
            here, there = scores[~made & (classes == one)], unrelated[other_classes == one]
            if min(len(here), len(there)) >= _FEW and one > 0:
                limits = _limits(here, there, self.limit)
                if limits is not None:
                    self._limits[one] = limits

    def apply(self, text: PairTexts) -> Verdict:
        if not self._limits:
            return Verdict(np.zeros(len(text), np.bool_))
        sources, targets = self._lexicon.words(self.words_of(text))
        found = self._compare(sources, targets, unrelated=True)
        verdict = Verdict(found)
        rows = np.flatnonzero(found)
        if len(rows) < _SUPPORT:
            return verdict
        for row, other in self._slipped(rows, sources, targets, text.numbers):
            verdict.repaired[row] = text.sources[row], text.targets[other]
            verdict.partners[row] = other
            verdict.dropped[row] = False
        return verdict

    def suspicion(self, text: PairTexts) -> Floats:
        """Certainty grows with the distance of the score of a pair from those of translations."""
        sources, targets = self._lexicon.words(self.words_of(text))
        scores, classes = self._lexicon.scores(sources, targets), _classes(sources, targets)
        excess: Floats = np.zeros(len(text))
        for one, limits in self._limits.items():
            here = classes == one
            excess[here] = (limits.unrelated - scores[here]) / limits.spread
        return certainty(excess)

    def _compare(self, sources: Words, targets: Words, *, unrelated: bool) -> Mask:
        """A mask of the pairs that have the score of unrelated lines, or else of translations."""
        scores, classes = self._lexicon.scores(sources, targets), _classes(sources, targets)
        found = np.zeros(len(scores), np.bool_)
        for one, limits in self._limits.items():
            here = classes == one
            found[here] = scores[here] < limits.unrelated if unrelated else scores[here] > limits.related
        return found

    def _slipped(self, rows: Ints, sources: Words, targets: Words, numbers: Ints) -> list[tuple[int, int]]:
        """Rows among the unrelated `rows`, each with that of its translation, which is another of them."""
        lags = np.zeros(len(rows), np.int64)
        others = np.zeros(len(rows), np.int64)
        for lag in sorted(range(-_MAX_LAG, _MAX_LAG + 1), key=abs):
            place = np.minimum(np.searchsorted(numbers[rows], numbers[rows] + lag), len(rows) - 1)
            is_there = (numbers[rows[place]] == numbers[rows] + lag) & (lags == 0) & (lag != 0)
            some = np.flatnonzero(is_there)
            fits = self._compare(sources.at(rows[some]), targets.at(rows[place[some]]), unrelated=False)
            lags[some[fits]], others[some[fits]] = lag, rows[place[some[fits]]]
        slipped = []
        for index in np.flatnonzero(lags).tolist():
            near = np.abs(numbers[rows] - numbers[rows[index]]) <= _NEAR
            if (lags[near] == lags[index]).sum() > _SUPPORT:
                slipped.append((int(rows[index]), int(others[index])))
        return slipped


def _classes(sources: Words, targets: Words) -> Ints:
    """Octaves of the number of known words of the shorter side; 0 for a pair without."""
    shorter = np.minimum(sources.n, targets.n)
    classes: Ints = np.where(shorter > 0, np.floor(np.log2(np.maximum(shorter, 1))).astype(np.int64) + 1, 0)
    return classes


def _limits(scores: Floats, unrelated: Floats, precision: float) -> _Limits | None:
    """The limits of a class of pairs with these scores, by those of unrelated lines; None where they are not apart."""
    edges = np.quantile(unrelated, _QUANTILES)
    middle = edges[0]
    share = min(float((scores <= np.quantile(unrelated, part)).mean()) / part for part in _PARTS)
    is_related = float((scores > np.quantile(unrelated, 0.95)).mean())
    if share > _MOST_UNRELATED or is_related + share < _SEEN:
        return None
    limit = middle
    for high in edges[1:]:
        expected = share * len(scores) * float((unrelated <= high).mean())
        if expected + expected**0.5 >= precision * int((scores <= high).sum()):
            limit = high  # the last one that fits: counts of few pairs vary
    spread = max(float(middle - np.quantile(unrelated, 0.05)), 0.01)
    return _Limits(float(limit), float(np.quantile(unrelated, 0.995)), spread)
