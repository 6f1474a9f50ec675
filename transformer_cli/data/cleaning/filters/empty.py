"""Pairs of which one side has no letters, and the other has several words."""

from transformer_cli.data.cleaning.base import FILTERS, Filter, PairTexts, Verdict, drop
from transformer_cli.data.normalization import has_letters

_WORDS, _LETTERS = 3, 10  # of the other side, from which it is a sentence


@FILTERS.register("empty")
class Empty(Filter):
    what = "with nothing to read on one side"
    is_auto = True

    def apply(self, text: PairTexts) -> Verdict:
        return drop([_is_empty(source, target) or _is_empty(target, source) for source, target in text.each()])


def _is_empty(side: str, other: str) -> bool:
    if has_letters(side) or not has_letters(other):
        return False
    n_letters = sum(map(str.isalpha, other))
    return n_letters >= _LETTERS and (len(other.split()) >= _WORDS or not other.isascii()) and not _numbers(side)


def _numbers(side: str) -> bool:
    return any(map(str.isdigit, side))
