"""Pairs with a side in another language than its own."""

from collections.abc import Sequence

import numpy as np

from transformer_cli.data.checks.profiles import Floats
from transformer_cli.data.cleaning.base import FILTERS, Filter, Languages, Mask, PairTexts, Verdict, certainty, drop
from transformer_cli.data.cleaning.sides import SPREAD_OF_MAD, LineScores, SideProfiles
from transformer_cli.data.language_identification import identifier
from transformer_cli.languages import iso_639_1

_CLEARLY = 0.3  # nats a trigram: a line is in the language of the other side
_EVIDENCE = 4.0  # nats of the whole line
_UNUSUAL = 2.5  # standard deviations below the median of the lines of one length: only those are identified
_LETTERS = 15  # in a line that is judged: fewer are a name as often as a sentence
_IDENTIFIED = 300  # lines of the sample, by which the declared language is checked
_LONGEST = 300  # characters of a line that are read
# Languages that the identification takes for each other in short lines.
_ALIKE = (
    {"no", "nn", "da", "sv"},
    {"hr", "bs", "sr", "sl", "mk", "bg"},
    {"cs", "sk"},
    {"id", "ms", "jv"},
    {"es", "gl", "ca", "an", "oc", "pt"},
    {"ru", "uk", "be"},
    {"fa", "ps", "ur", "ar"},
    {"hi", "ne", "mr"},
    {"zh", "ja"},
    {"nl", "af"},
    {"de", "lb"},
    {"it", "la"},
    {"az", "tr"},
    {"kk", "ky"},
    {"xh", "zu"},
)


@FILTERS.register("language")
class Language(Filter):
    """Lines in the language of the other side are found by profiles of the text, others by identification.

    The threshold is the confidence of the identification. Short lines are never identified, and languages that it
    takes for each other are not distinguished.
    """

    what = "with a side in another language"
    threshold, high = 0.7, 1.0
    is_auto = True

    def __init__(self, languages: Languages, threshold: float | None) -> None:
        super().__init__(languages, threshold)
        self._own = _labels(languages.source), _labels(languages.target)

    def learn(self, text: PairTexts) -> None:
        text = self.words_of(text)
        self._sides = SideProfiles(text)
        self._usual = [_usual(scores) for scores in self._sides.scores(text)]
        every = 1 + len(text) // _IDENTIFIED
        source, target = self._own
        self._own = self._trusted(text.sources[::every], source), self._trusted(text.targets[::every], target)

    def apply(self, text: PairTexts) -> Verdict:
        text = self.words_of(text)
        sources, targets = self._sides.scores(text)
        found = self._evidence(sources, targets) > _EVIDENCE
        for lines, scores, usual, own in zip(
            (text.sources, text.targets), (sources, targets), self._usual, self._own, strict=True
        ):
            if own:
                for index in np.flatnonzero(~found & _is_unusual(scores, usual)).tolist():
                    found[index] = self._foreign(lines[index], own) > 0
        return drop(found)

    def suspicion(self, text: PairTexts) -> Floats:
        """The evidence for the language of the other side, or else the confidence of the identification."""
        text = self.words_of(text)
        evidence = self._evidence(*self._sides.scores(text))
        found = certainty(evidence - _EVIDENCE)
        for index in np.flatnonzero(evidence <= _EVIDENCE).tolist():
            sides = zip((text.sources[index], text.targets[index]), self._own, strict=True)
            found[index] = max((self._foreign(line, own) for line, own in sides if own), default=0.0)
        return found

    def _evidence(self, sources: LineScores, targets: LineScores) -> Floats:
        """Nats by which a side is in the language of the other; 0 where it is not clearly so."""
        if not self._sides.are_apart:
            return np.zeros(len(sources.odds))
        of_source = np.where((sources.odds < -_CLEARLY) & (sources.n >= _LETTERS), -sources.evidence, 0)
        of_target = np.where((targets.odds > _CLEARLY) & (targets.n >= _LETTERS), targets.evidence, 0)
        evidence: Floats = np.maximum(of_source, of_target)
        return evidence

    def _trusted(self, lines: Sequence[str], own: frozenset[str]) -> frozenset[str]:
        """`own`, or nothing where most lines are identified as another language: it is declared wrongly, of which
        another check warns, or the identification does not know it."""
        n_foreign = sum(self._foreign(line, own) > 0 for line in lines)
        return own if 2 * n_foreign <= len(lines) else frozenset()

    def _foreign(self, line: str, own: frozenset[str]) -> float:
        """The confidence with which a line is identified as another language than `own`; 0 below the threshold."""
        if sum(map(str.isalpha, line)) < _LETTERS:
            return 0.0
        label, confidence = identifier().classify(line[:_LONGEST])
        assert self.limit is not None
        return float(confidence) if label not in own and confidence >= self.limit else 0.0


def _labels(language: str) -> frozenset[str]:
    """What the identification may call a language; nothing where it does not know it."""
    code = iso_639_1(language) if language else ""
    if code not in identifier().labels:
        return frozenset()
    return frozenset({code}.union(*(group for group in _ALIKE if code in group)))


def _usual(scores: LineScores) -> dict[int, float]:
    """The score from which a line of a length is usual in its side."""
    classes = _classes(scores)
    usual = {}
    for one in np.unique(classes).tolist():
        own = scores.own[classes == one]
        middle = np.median(own)
        usual[one] = float(middle - _UNUSUAL * SPREAD_OF_MAD * np.median(np.abs(own - middle)))
    return usual


def _is_unusual(scores: LineScores, usual: dict[int, float]) -> Mask:
    classes = _classes(scores)
    limits = np.full(len(classes), np.inf)  # a length that the sample does not have
    for one, limit in usual.items():
        limits[classes == one] = limit
    found: Mask = scores.own < limits
    return found


def _classes(scores: LineScores) -> Floats:
    classes: Floats = np.floor(np.log2(np.maximum(scores.n, 1)))
    return classes
