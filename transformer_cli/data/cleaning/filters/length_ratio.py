"""Pairs whose sides have lengths that translations of this text do not have."""

import numpy as np

from transformer_cli.data.checks.profiles import Floats
from transformer_cli.data.cleaning.base import FILTERS, Filter, PairTexts, Verdict, certainty, drop
from transformer_cli.data.cleaning.sides import SPREAD_OF_MAD

_FEW = 200  # pairs of similar length, fewer of which say nothing of their spread


@FILTERS.register("length_ratio")
class LengthRatio(Filter):
    """The ratio of characters and its spread follow from the text, for each class of length.

    The threshold is in standard deviations, as the median absolute deviation gives them.
    """

    what = "with an unlikely length ratio"
    threshold, low = 6, 1
    is_auto = True

    def learn(self, text: PairTexts) -> None:
        ratios, classes = _ratios(self.words_of(text))
        self._middle: dict[int, tuple[float, float]] = {}
        for one in np.unique(classes).tolist():
            here = ratios[classes == one]
            if len(here) >= _FEW:
                middle = float(np.median(here))
                self._middle[one] = middle, SPREAD_OF_MAD * float(np.median(np.abs(here - middle)))

    def apply(self, text: PairTexts) -> Verdict:
        return drop(self._deviations(text) > 1)

    def suspicion(self, text: PairTexts) -> Floats:
        return certainty(self._deviations(text) - 1)

    def _deviations(self, text: PairTexts) -> Floats:
        """How far each ratio is from that of its class, in units of the threshold; 0 where the class is too small."""
        ratios, classes = _ratios(self.words_of(text))
        found: Floats = np.zeros(len(text))
        if self._middle:
            classes = np.clip(classes, min(self._middle), max(self._middle))
        assert self.limit is not None
        for one, (middle, spread) in self._middle.items():
            here = classes == one
            found[here] = np.abs(ratios[here] - middle) / (self.limit * max(spread, 0.05))
        return found


def _ratios(text: PairTexts) -> tuple[Floats, Floats]:
    """The log ratio of each pair, and its class: octaves of the longer side."""
    sources, targets = (np.fromiter(map(len, side), np.float64, len(text)) for side in (text.sources, text.targets))
    ratios: Floats = np.log((targets + 1) / (sources + 1))
    classes: Floats = np.floor(np.log2(np.maximum(np.maximum(sources, targets), 1)))
    return ratios, classes
