"""The ids of a sentence of words, each of which is tokenized by itself."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class EncodedWords:
    """The ids of a sentence, without EOS, and the position of the last token of each word in it."""

    ids: list[int]
    word_ends: list[int]


def in_a_row(words: Iterable[Sequence[int]]) -> EncodedWords:
    """The ids of words as a sentence."""
    ids: list[int] = []
    ends: list[int] = []
    for word in words:
        ids += word
        ends.append(len(ids) - 1)
    return EncodedWords(ids, ends)
