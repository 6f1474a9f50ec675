"""Sentences of words, each with a label: as one line of text a side, and as token ids.

A side is its words, or their labels, with a tab between two. Each word is tokenized by itself.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from transformer_cli.data.tokenizer import Tokenizer

SEPARATOR = "\t"
_MOST_WORDS = 1_000_000  # different ones whose ids are kept
_SPACES = re.compile("[ \t\r\v\f]+")  # no others: a no-break space is part of a word, as in 10 000


def join_words(words: Iterable[str]) -> str:
    return SEPARATOR.join(words)


def split_words(text: str) -> list[str]:
    """The words of what `join_words` made; none of an empty text."""
    return text.split(SEPARATOR) if text else []


def words_of_line(line: str) -> list[str]:
    """The words of a line as people write it: what spaces and tabs divide."""
    return [word for word in _SPACES.split(line) if word]


class WordEncoder:
    """Encodes words one by one, each different one once."""

    def __init__(self, tokenizer: Tokenizer, *, as_written: bool = False) -> None:
        self.tokenizer, self.as_written = tokenizer, as_written
        self._ids: dict[str, list[int]] = {}

    def encode(self, sentences: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        """The ids of each word of each sentence; <unk> for a word of which the tokenizer leaves nothing."""
        new = list(dict.fromkeys(word for words in sentences for word in words if word not in self._ids))
        if len(self._ids) + len(new) > _MOST_WORDS:
            self._ids, new = {}, list(dict.fromkeys(word for words in sentences for word in words))
        n_prefix = len(self.tokenizer.prefix_ids)  # a language tag, which no word has
        for word, ids in zip(new, self.tokenizer.encode(new, as_written=self.as_written), strict=True):
            self._ids[word] = ids[n_prefix:] or [self.tokenizer.unk_id]
        return [[self._ids[word] for word in words] for words in sentences]


@dataclass(frozen=True)
class Window:
    """Consecutive words of a sentence that are read together, and which of them are labelled from this reading."""

    first: int
    end: int
    labelled: range


def windows(lengths: Sequence[int], longest: int) -> list[Window]:
    """Windows of at most `longest` tokens over words of so many tokens each, or of a single word.

    A sentence that is short enough is one. The windows of a longer one overlap by about half, and a word is labelled
    where it has the most words on the side that has fewer.
    """
    bounds: list[tuple[int, int]] = []
    first, n_words = 0, len(lengths)
    while True:
        end, n_tokens = first, 0
        while end < n_words and (end == first or n_tokens + lengths[end] <= longest):
            n_tokens += lengths[end]
            end += 1
        bounds.append((first, end))
        if end >= n_words:
            break
        first = max(first + 1, (first + end + 1) // 2)
    found: list[Window] = []
    labelled = 0
    for i, (first, end) in enumerate(bounds):
        # From the middle of the overlap on, words are nearer to the middle of the next window.
        until = (bounds[i + 1][0] + end) // 2 if i + 1 < len(bounds) else n_words
        until = max(until, labelled, bounds[i + 1][0] if i + 1 < len(bounds) else 0)
        found.append(Window(first, end, range(labelled, until)))
        labelled = until
    return found
