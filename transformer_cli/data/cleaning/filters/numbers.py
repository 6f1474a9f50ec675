"""Pairs whose numbers differ. Good translations write numbers out and reckon units, so auto does without it."""

import re

from transformer_cli.data.cleaning.base import FILTERS, Filter, PairTexts, Verdict, drop

_NUMBER = re.compile(r"\d+(?:[.,'\u00a0\u202f ]\d{3}(?!\d))*(?:[.,]\d+)?")


@FILTERS.register("numbers")
class Numbers(Filter):
    """The threshold is the share of the numbers of both sides that may be on one side only."""

    what = "with other numbers on the two sides"
    threshold, high = 0.5, 1.0

    def apply(self, text: PairTexts) -> Verdict:
        assert self.limit is not None
        return drop([_share_apart(source, target) > self.limit for source, target in self.words_of(text).each()])


def _share_apart(source: str, target: str) -> float:
    """The share of the numbers that only one side has; 0 where a side has none, which may have written them out."""
    sides = [{re.sub(r"\D", "", number) for number in _NUMBER.findall(side)} for side in (source, target)]
    if not all(sides):
        return 0.0
    return 1 - len(sides[0] & sides[1]) / len(sides[0] | sides[1])
