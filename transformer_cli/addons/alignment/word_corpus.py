"""A text and its translation as ids of their words, for the aligner, without a tokenizer.

Punctuation beside a word is a token of its own, words are in lower case, and punctuation within a word divides it.
WordLinks between tokens become links between the words that white space divides.
"""

import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, groupby
from pathlib import Path
from zlib import crc32

import numpy as np

from transformer_cli.data.aligner import Aligner
from transformer_cli.data.cache import Array, CorpusWriter, EncodedCorpus
from transformer_cli.data.encoding import chunks

WordLinks = list[tuple[int, int]]

_WORD, _BESIDE, _ALONE = range(3)  # kinds of tokens; punctuation stands beside a word, or between white space
_MOST_WORDS = 1 << 20  # different ones of a side that have an id of their own, so that memory is bounded
_CACHED = 1 << 17
_PAIRS_AT_A_TIME = 10_000
_PLACE_TYPE = np.dtype("<u4")


def tokens_of(word: str) -> list[tuple[str, int]]:
    """The tokens of a word between white space, each with its kind."""
    parts = [(mark, "".join(part)) for mark, part in groupby(word.lower(), _mark)]
    texts = [i for i, (mark, _) in enumerate(parts) if not mark]
    if not texts:
        return [(mark, _ALONE) for mark, _ in parts]
    return [
        (mark or text, _BESIDE if mark else _WORD)
        for i, (mark, text) in enumerate(parts)
        if not mark or not texts[0] < i < texts[-1]
    ]


def _mark(character: str) -> str:
    """A punctuation mark or symbol itself; of others nothing. A mark that is repeated is one token."""
    return character if unicodedata.category(character)[0] in "PS" else ""


class _Side:
    """The tokens of one side. `places` of a token is the number of its word times 4, and its kind."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._of_word: Callable[[str], list[tuple[int, int]]] = lru_cache(_CACHED)(self._encoded)

    def _encoded(self, word: str) -> list[tuple[int, int]]:
        return [(self._id(token), kind) for token, kind in tokens_of(word)]

    def _id(self, token: str) -> int:
        found = self._ids.get(token)
        if found is not None:
            return found
        if len(self._ids) == _MOST_WORDS:
            return crc32(token.encode()) % _MOST_WORDS
        return self._ids.setdefault(token, len(self._ids))

    def encode(self, lines: Iterable[str]) -> tuple[Array, Array, Array]:
        """The ids of all lines, the number of tokens of each, and the places of all tokens."""
        rows = [
            [(i, n << 2 | kind) for n, word in enumerate(line.split()) for i, kind in self._of_word(word)]
            for line in lines
        ]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        both = np.array(list(chain.from_iterable(rows)), np.int64).reshape(-1, 2)
        return both[:, 0], lengths, both[:, 1]


@dataclass(frozen=True)
class WordCorpus:
    """The pairs of two texts, mapped into memory."""

    pairs: EncodedCorpus
    source_places: Array
    target_places: Array

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]], folder: Path) -> "WordCorpus":
        """Write the ids of `pairs` to `folder`, which is empty."""
        source, target = _Side(), _Side()
        names = folder / "source.places", folder / "target.places"
        with (
            CorpusWriter(folder, source_vocab_size=_MOST_WORDS, target_vocab_size=_MOST_WORDS) as writer,
            names[0].open("wb") as of_source,
            names[1].open("wb") as of_target,
        ):
            for some in chunks(pairs, _PAIRS_AT_A_TIME):
                sources, targets = source.encode(one for one, _ in some), target.encode(one for _, one in some)
                writer.write(sources[:2], targets[:2])
                of_source.write(sources[2].astype(_PLACE_TYPE).tobytes())
                of_target.write(targets[2].astype(_PLACE_TYPE).tobytes())
        written = EncodedCorpus.open(folder, source_vocab_size=_MOST_WORDS, target_vocab_size=_MOST_WORDS)
        return cls(written, *map(_mapped, names))

    @property
    def has_text(self) -> bool:
        """Whether a pair has words on both sides."""
        return bool(np.any((self.pairs.source_lengths > 0) & (self.pairs.target_lengths > 0)))

    def links(self, scratch: Path) -> Iterator[WordLinks]:
        """The links between the words of each pair, by rising source word; the models are estimated at once."""
        return self._of_words(Aligner(self.pairs, ((), ()), scratch))

    def _of_words(self, aligner: Aligner) -> Iterator[WordLinks]:
        first = 0
        for sources, targets, n in aligner.links():
            pair = np.repeat(np.arange(len(n)), n)
            source = self.source_places[self.pairs.source_offsets[first + pair] + sources]
            target = self.target_places[self.pairs.target_offsets[first + pair] + targets]
            kept = are_of_words(source & 3, target & 3)
            rows = np.stack([pair, source >> 2, target >> 2], axis=1)[kept]
            yield from _by_pair(np.unique(rows, axis=0), len(n))
            first += len(n)


def are_of_words(source: Array, target: Array) -> Array:
    """A mask of the links that link their words, by the kinds of both tokens.

    Two commas that stand beside words say nothing of these, and a comma beside a word is a translation of none.
    """
    is_beside = (source == _BESIDE).astype(np.int8) + (target == _BESIDE)
    has_mark = (source == _ALONE) | (target == _ALONE)
    kept: Array = (is_beside == 0) | ((is_beside == 1) & has_mark)
    return kept


def _by_pair(rows: Array, n_pairs: int) -> Iterator[WordLinks]:
    ends = np.searchsorted(rows[:, 0], np.arange(1, n_pairs))
    for of_pair in np.split(rows[:, 1:], ends):
        yield [(i, j) for i, j in of_pair.tolist()]


def _mapped(path: Path) -> Array:
    if not path.stat().st_size:
        return np.empty(0, _PLACE_TYPE)
    return np.memmap(path, _PLACE_TYPE, "r").view(np.ndarray)
