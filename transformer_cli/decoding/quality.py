"""Quality flags of degenerate outputs that need no knowledge of the language: repetition and copies."""

import re
import unicodedata
from difflib import SequenceMatcher

_STUTTER = re.compile(r"(\S{2,12}?)\1{3}")
_MANY = 3  # times in a row: a loop, where several words do it; a single one may (very, very, very)

COPIED_WORDS = 4  # what is shorter may be a name, or the same in both languages
COPIED_SHARE = 0.8

# Both searches take a time quadratic in the words. A line of many thousand must end within seconds too.
LONGEST_LOOP = 200  # words that a loop may have: a line of up to three times as many is searched for every loop
COMPARED_WORDS = 1000  # at the beginning of text and source; of what follows only the number of shared words counts


def repeats_itself(text: str, source: str) -> bool:
    """Whether `text` repeats itself in a loop, and its source does not.

    A loop is a run of words that occurs three times in a row, or four times if it is a single word, or, within a
    word, two letters or more four times in a row (Schlittenlittenlittenlitten). A run has at most `LONGEST_LOOP` words.
    """
    return _loops(text) and not _loops(source)


def _loops(text: str) -> bool:
    words = _words(text)
    if any(_STUTTER.search(word) for word in words if len(word) >= 8):  # which most words have not
        return True
    if len(words) - len(set(words)) < _MANY:  # no word four times, no two of them three times each
        return False
    for period in range(1, min(len(words) // _MANY, LONGEST_LOOP) + 1):
        wanted = period * (_MANY - 1 if period > 1 else _MANY)  # consecutive words that equal the word at this distance
        equal = 0
        for one, other in zip(words, words[period:], strict=False):
            equal = equal + 1 if one == other else 0
            if equal == wanted:
                return True
    return False


def _words(text: str) -> list[str]:
    """Letters with their marks, as the vowel signs of Hindi. Numbers repeat where nothing is wrong (3 000 000 000)."""
    return text.lower().translate(_LETTERS).split()


class _Letters(dict[int, str]):
    """Letters and marks as themselves and every other sign as a space, by code point, as `str.translate` reads it."""

    def __missing__(self, code: int) -> str:
        sign = chr(code) if unicodedata.category(chr(code))[0] in "LM" else " "
        return self.setdefault(code, sign) if len(self) < _MOST_LETTERS else sign


_LETTERS = _Letters()
_MOST_LETTERS = 100_000  # that are kept: more than any text has


def copied(text: str, source: str) -> bool:
    """Whether `text` is its source, but for upper case and one word in five; both have four words or more.

    The order of the words is compared in the first `COMPARED_WORDS` of each.
    """
    words, source_words = text.lower().split(), source.lower().split()
    if min(len(words), len(source_words)) < COPIED_WORDS:
        return False
    in_source = set(source_words)
    most = sum(map(in_source.__contains__, words))  # that can be matched; few, in nearly every translation
    if 2 * most < COPIED_SHARE * (len(words) + len(source_words)):
        return False
    matcher = SequenceMatcher(None, source_words[:COMPARED_WORDS], words[:COMPARED_WORDS], autojunk=False)
    return matcher.ratio() >= COPIED_SHARE
