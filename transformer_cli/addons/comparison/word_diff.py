"""The words in which two translations of a line differ, and which of these words are in a reference.

Words are runs of letters and digits; every other sign is a word of its own, and so is every character of a script that
is written without blanks between words.
"""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import groupby

_WITHOUT_BLANKS = ("CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
_ZERO_WIDTH_JOINER = "\N{ZERO WIDTH JOINER}"  # several emoji in one


class Mark(Enum):
    """What a stretch of a translation is, beside another translation of the same line."""

    same = "same"  # in both, in this order
    in_reference = "in_reference"  # only in this one, and in a reference
    not_in_reference = "not_in_reference"


class _Kind(Enum):
    blank = 0
    letter = 1
    alone = 2
    joins = 3  # belongs to the character before it: accents, vowel signs


@dataclass(frozen=True)
class Stretch:
    """Adjacent words of one mark, with the blanks between them."""

    text: str
    mark: Mark


def mark_differences(first: str, second: str, references: Sequence[str]) -> tuple[list[Stretch], list[Stretch]]:
    """Both translations of a line in stretches, whose texts together are the translation.

    As few words as possible are marked as different: all but a longest common subsequence of both.

    A word is in a reference as often as in BLEU's clipped counts: those that both translations have are counted first.
    """
    tokens = [words_and_blanks(text) for text in (first, second)]
    words = [[token for token in one if not token.isspace()] for one in tokens]
    is_common = _common(*words)
    expected: Counter[str] = Counter()
    for reference in references:
        expected |= Counter(words_and_blanks(reference))
    marks = [_marks(*one, expected.copy()) for one in zip(words, is_common, strict=True)]
    return _joined(tokens[0], marks[0]), _joined(tokens[1], marks[1])


def _marks(words: Sequence[str], is_common: Sequence[bool], expected: Counter[str]) -> list[Mark]:
    expected.subtract(word for word, common in zip(words, is_common, strict=True) if common)
    marks = []
    for word, common in zip(words, is_common, strict=True):
        if common:
            marks.append(Mark.same)
            continue
        marks.append(Mark.in_reference if expected[word] > 0 else Mark.not_in_reference)
        expected[word] -= 1
    return marks


def words_and_blanks(text: str) -> list[str]:
    """Words and blanks, which together are the text."""
    tokens: list[str] = []
    last = _Kind.alone
    for character in text:
        kind = _kind(character)
        is_joined = kind is _Kind.joins or (tokens and tokens[-1].endswith(_ZERO_WIDTH_JOINER))
        if is_joined and tokens and last is not _Kind.blank:
            tokens[-1] += character
            continue
        if tokens and kind is last and kind in (_Kind.blank, _Kind.letter):
            tokens[-1] += character
        else:
            tokens.append(character)
        last = _Kind.letter if kind is _Kind.joins else kind
    return tokens


@lru_cache(maxsize=100_000)
def _kind(character: str) -> _Kind:
    category = unicodedata.category(character)
    if character.isspace():
        return _Kind.blank
    is_skin_tone = "\U0001f3fb" <= character <= "\U0001f3ff"
    if category[0] == "M" or is_skin_tone or character in (_ZERO_WIDTH_JOINER, "\N{ZERO WIDTH NON-JOINER}"):
        return _Kind.joins
    is_letter = category[0] in "LN" and not unicodedata.name(character, "").startswith(_WITHOUT_BLANKS)
    return _Kind.letter if is_letter else _Kind.alone


def _common(words: Sequence[str], others: Sequence[str]) -> tuple[list[bool], list[bool]]:
    """Whether each of `words`, and of `others`, belongs to the longest common subsequence that ends last in both.

    A table of its length for all prefixes of both, a bit per cell, is filled a row at a time (Hyyrö 2004): bit i of
    row j is 0 where words[:i + 1] has one more word in common with others[:j] than words[:i].
    """
    places: dict[str, int] = {}
    for i, word in enumerate(words):
        places[word] = places.get(word, 0) | 1 << i
    everything = (1 << len(words)) - 1
    rows = [everything]
    for other in others:
        row = rows[-1]
        matches = row & places.get(other, 0)
        rows.append((row + matches | row - matches) & everything)
    found = [False] * len(words), [False] * len(others)
    i, j = len(words), len(others)
    while i and j:
        if words[i - 1] == others[j - 1]:
            i, j = i - 1, j - 1
            found[0][i] = found[1][j] = True
        elif rows[j] >> (i - 1) & 1:
            i -= 1
        else:
            j -= 1
    return found


def _joined(tokens: Sequence[str], marks: Sequence[Mark]) -> list[Stretch]:
    """Blanks belong to the words around them where these have one mark, and are the same in both elsewhere."""
    of_words = iter(marks)
    marked: list[Mark | None] = [None if token.isspace() else next(of_words) for token in tokens]
    for i, mark in enumerate(marked):
        if mark is None:
            before, after = (marked[i - 1] if i else None), (marked[i + 1] if i + 1 < len(marked) else None)
            marked[i] = before if before is after and before is not None else Mark.same
    pairs = zip(tokens, marked, strict=True)
    return [
        Stretch("".join(token for token, _ in group), mark)
        for mark, group in groupby(pairs, key=lambda pair: pair[1])
        if mark is not None
    ]
