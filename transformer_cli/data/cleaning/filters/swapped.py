"""Pairs whose sides are exchanged, which are put right."""

import numpy as np

from transformer_cli.data.cleaning.base import FILTERS, Filter, PairTexts, Verdict
from transformer_cli.data.cleaning.sides import SideProfiles

_CLEARLY = 0.15  # nats a trigram by which each side must be in the language of the other


@FILTERS.register("swapped")
class Swapped(Filter):
    """The threshold is the evidence for it, in nats of both lines together."""

    what = "with their sides exchanged"
    repair = "with their sides exchanged, which were put right"
    threshold, low = 6, 0
    is_auto = True

    def learn(self, text: PairTexts) -> None:
        self._sides = SideProfiles(self.words_of(text))

    def apply(self, text: PairTexts) -> Verdict:
        verdict = Verdict(np.zeros(len(text), np.bool_))
        if self._sides.are_apart:
            sources, targets = self._sides.scores(self.words_of(text))
            found = (sources.odds < -_CLEARLY) & (targets.odds > _CLEARLY)
            assert self.limit is not None
            for index in np.flatnonzero(found & (targets.evidence - sources.evidence > self.limit)).tolist():
                verdict.repaired[index] = text.targets[index], text.sources[index]
        return verdict
