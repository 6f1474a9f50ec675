"""Pairs whose sides are the same sentence: it was not translated."""

import re

from transformer_cli.data.cleaning.base import FILTERS, Filter, PairTexts, Verdict, drop

_NOT_LETTERS = re.compile(r"[\W\d_]+")
_WORD = re.compile(r"[^\W\d_]+")
_CASELESS = 8  # letters of a script without capitals that stand for a sentence


@FILTERS.register("copies")
class Copies(Filter):
    """The threshold is the number of words in small letters from which a copy is a sentence, and no name or title."""

    what = "with the same sentence on both sides"
    threshold, low = 3, 1
    is_auto = True

    def apply(self, text: PairTexts) -> Verdict:
        assert self.limit is not None
        return drop([_is_copy(source, target, self.limit) for source, target in text.each()])


def _is_copy(source: str, target: str, n_words: float) -> bool:
    first = _WORD.search(source)
    if first is None or (first[0] not in target and first[0].casefold() not in target.casefold()):
        return False  # as most are, which saves time
    if source != target and _NOT_LETTERS.sub("", source).casefold() != _NOT_LETTERS.sub("", target).casefold():
        return False
    words = _WORD.findall(source)
    n_small = sum(word[0].islower() for word in words)
    n_caseless = sum(sum(letter.lower() == letter.upper() for letter in word) for word in words)
    return n_small >= n_words or n_caseless >= _CASELESS
