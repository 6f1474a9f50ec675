"""A lexicon of word translations, estimated on the text itself: IBM model 1 (Brown et al. 1993) in both directions.

Counts are discounted by one, so that a pair is no evidence for itself: words that met once translate nothing. What is
left tells unrelated lines from translations in texts of some thousand pairs and more.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from transformer_cli.data.checks.profiles import Floats
from transformer_cli.data.cleaning.base import PairTexts

Ints = npt.NDArray[np.int64]

# A letter of a script without spaces between words is a word, and so is a run of letters or of digits, or a line end.
_WORD = re.compile(
    "[\n\t]|[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]|[^\\W\\d_]+|\\d+"
)
BITS = 16
_ID_BITS = 32  # of a word beside its line
_MOST_WORDS = (1 << BITS) - 1  # of a side, the most frequent ones
_MOST_IN_LINE = 16  # of which the rarest count: they say most
_MOST_LINKS = 5_000_000  # between words of the pairs that it is estimated on
_ITERATIONS = 4
_UNKNOWN, _LINE_END, _TOKEN_END = -1, -2, -3  # in place of the number of a word
_DISCOUNT = 1.0
_BACKOFF = 0.3  # probability of a word that no word of the other side explains
_PAIRS_AT_A_TIME = 5_000


@dataclass(frozen=True)
class Words:
    """The words of some lines of one side, joined: those of line i are n[i] from starts[i] on, by rising number."""

    ids: Ints
    n: Ints

    @cached_property
    def starts(self) -> Ints:
        starts: Ints = np.cumsum(self.n) - self.n
        return starts

    def at(self, lines: Ints) -> "Words":
        """The words of the lines at these indices."""
        n = self.n[lines]
        first = np.repeat(self.starts[lines] - (np.cumsum(n) - n), n)
        return Words(self.ids[first + np.arange(int(n.sum()))], n)


class Lexicon:
    """Translation probabilities of words, and the score of a pair by them."""

    def __init__(self, vocabularies: tuple[dict[str, int], dict[str, int]], sources: Words, targets: Words) -> None:
        self._vocabularies = vocabularies
        n_pairs = int(np.searchsorted(np.cumsum(sources.n * targets.n), _MOST_LINKS))
        sources, targets = (side.at(np.arange(min(n_pairs, len(side.n)))) for side in (sources, targets))
        self._frequencies = _frequencies(sources.ids), _frequencies(targets.ids)
        links = Links(sources, targets)
        keys, link = np.unique(links.keys, return_inverse=True)
        source, target = keys >> BITS, keys & _MOST_WORDS
        forward = _probabilities(link, links.target_place, source, len(targets.ids))
        backward = _probabilities(link, links.source_place, target, len(sources.ids))
        known = (forward > 0) | (backward > 0)  # most words met but once, and say nothing
        self._table = _Table(keys[known], np.stack([forward[known], backward[known]]))

    def words(self, text: PairTexts) -> tuple[Words, Words]:
        """The words of both sides that the lexicon knows."""
        sources, targets = self._vocabularies
        return _words(text.sources, sources), _words(text.targets, targets)

    def scores(self, sources: Words, targets: Words) -> Floats:
        """The score of each pair: by how much, in nats a word, each side is likelier beside the other than alone.

        It is NaN for a pair of which a side has no word that the lexicon knows.
        """
        is_known = (sources.n > 0) & (targets.n > 0)
        scores = np.full(len(is_known), np.nan)
        pairs = np.flatnonzero(is_known)
        for first in range(0, len(pairs), _PAIRS_AT_A_TIME):
            some = pairs[first : first + _PAIRS_AT_A_TIME]
            scores[some] = self._scores(sources.at(some), targets.at(some))
        return scores

    def _scores(self, sources: Words, targets: Words) -> Floats:
        links = Links(sources, targets)
        forward, backward = self._table.find(links.keys)
        source_frequencies, target_frequencies = self._frequencies
        by_target = np.maximum.reduceat(forward, links.first_of_target) / target_frequencies[targets.ids]
        by_source = np.maximum.reduceat(backward[links.by_source], links.first_of_source)
        by_source /= source_frequencies[sources.ids]
        total: Floats = np.zeros(len(sources.n))
        for words, ratios in ((targets, by_target), (sources, by_source)):
            gains = np.log(_BACKOFF + (1 - _BACKOFF) * ratios)
            total += np.add.reduceat(gains, words.starts) / words.n
        return total


def estimated(text: PairTexts, partners: Ints | None = None) -> tuple[Lexicon, Words, Words]:
    """A lexicon of a text, and the words of its two sides.

    Each source is trained beside the target that has its number in `partners`; by default its own.
    """
    (source_vocabulary, sources), (target_vocabulary, targets) = (
        _vocabulary(side) for side in (text.sources, text.targets)
    )
    beside = targets if partners is None else targets.at(partners)
    return Lexicon((source_vocabulary, target_vocabulary), sources, beside), sources, targets


class Links:
    """Each target word of a pair with each of its source words. All pairs have words on both sides."""

    def __init__(self, sources: Words, targets: Words) -> None:
        per_pair = sources.n * targets.n
        pair_starts = np.cumsum(per_pair) - per_pair
        within = np.arange(int(per_pair.sum())) - np.repeat(pair_starts, per_pair)
        n_sources = np.repeat(sources.n, per_pair)
        self.target_place = np.repeat(targets.starts, per_pair) + within // n_sources
        self.source_place = np.repeat(sources.starts, per_pair) + within % n_sources
        self.keys: Ints = (sources.ids[self.source_place] << BITS) | targets.ids[self.target_place]
        self._within, self._per_pair, self._pair_starts = within, per_pair, pair_starts
        self._sources, self._targets = sources, targets

    @property
    def first_of_target(self) -> Ints:
        """The first link of each target word: its links stand together."""
        n_links = np.repeat(self._sources.n, self._targets.n)
        first: Ints = np.cumsum(n_links) - n_links
        return first

    @property
    def by_source(self) -> Ints:
        """The links in an order in which those of each source word stand together."""
        n_targets = np.repeat(self._targets.n, self._per_pair)
        n_sources = np.repeat(self._sources.n, self._per_pair)
        order: Ints = np.repeat(self._pair_starts, self._per_pair)
        order += (self._within % n_targets) * n_sources + self._within // n_targets
        return order

    @property
    def first_of_source(self) -> Ints:
        n_links = np.repeat(self._targets.n, self._sources.n)
        first: Ints = np.cumsum(n_links) - n_links
        return first


class _Table:
    """Probabilities by the pair of words: a hash table of one entry a place. The likelier of two keys has the place."""

    def __init__(self, keys: Ints, probabilities: Floats) -> None:
        self._shift = np.uint64(64 - max(10, int(np.ceil(np.log2(max(1, 8 * len(keys)))))))
        places = self._places(keys)
        order = np.argsort(probabilities.max(axis=0), kind="stable") if len(keys) else np.arange(0)
        size = 1 << (64 - int(self._shift))
        self._keys, self._values = np.full(size, -1, np.int64), np.zeros((size, 2))
        self._keys[places[order]] = keys[order]  # of equal places the last is kept
        self._values[places[order]] = probabilities[:, order].T

    def find(self, keys: Ints) -> Floats:
        """Both probabilities of each pair of words, 0 for one that is not there."""
        places = self._places(keys)
        known = np.flatnonzero(self._keys[places] == keys)  # few: most words beside a word do not translate it
        found: Floats = np.zeros((2, len(keys)))
        found[:, known] = self._values[places[known]].T
        return found

    def _places(self, keys: Ints) -> Ints:
        places: Ints = ((keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> self._shift).astype(np.int64)
        return places


def _words(lines: Sequence[str], vocabulary: dict[str, int]) -> Words:
    """The words of each line that a vocabulary has: at most _MOST_IN_LINE, the rarest."""
    tokens, places = _tokens(lines)
    words = _WORD.findall("\t".join(tokens))
    numbers = np.fromiter(map(vocabulary.get, words, repeat(_UNKNOWN)), np.int64, len(words))
    return _as_words(_in_text(numbers, places), len(lines))


def _as_words(ids: Ints, n_lines: int) -> Words:
    line, ids = _once_a_line(ids)
    n = np.bincount(line, minlength=n_lines)
    kept = np.cumsum(n)[line] - np.arange(len(line)) <= _MOST_IN_LINE
    return Words(ids[kept], np.minimum(n, _MOST_IN_LINE))


def _tokens(lines: Sequence[str]) -> tuple[list[str], Ints]:
    """What stands between spaces, each different one once, and the index of each of the text; a line end is one, too.

    So a word that stands often is found once.
    """
    text = " \n ".join(lines).lower().replace("\t", " ").split(" ")
    numbers = dict.fromkeys(text)
    tokens = list(numbers)
    indices = dict(zip(tokens, range(len(tokens)), strict=True))
    return tokens, np.fromiter(map(indices.__getitem__, text), np.int64, len(text))


def _in_text(words: Ints, places: Ints) -> Ints:
    """The words of the text, by those of its different tokens, which have _TOKEN_END in between."""
    ends = np.flatnonzero(words == _TOKEN_END)
    n = np.diff(ends, prepend=-1, append=len(words)) - 1
    return Words(words[words != _TOKEN_END], n).at(places).ids


def _once_a_line(ids: Ints) -> tuple[Ints, Ints]:
    """The line and the number of each different word of a line, both rising."""
    is_word = ids >= 0
    keys = np.sort((np.cumsum(ids == _LINE_END)[is_word] << _ID_BITS) | ids[is_word])
    keys = keys[np.diff(keys, prepend=-1) != 0]  # as np.unique, in a hundredth of its time
    return keys >> _ID_BITS, keys & ((1 << _ID_BITS) - 1)


def _vocabulary(lines: Sequence[str]) -> tuple[dict[str, int], Words]:
    """The words that occur in at least two lines, by falling frequency, and the ends; and the words of each line."""
    tokens, places = _tokens(lines)
    found = _WORD.findall("\t".join(tokens))
    ends = {"\n": _LINE_END, "\t": _TOKEN_END}
    words = [word for word in dict.fromkeys(found) if word not in ends]
    numbers = dict(zip(words, range(len(words)), strict=True)) | ends
    ids = _in_text(np.fromiter(map(numbers.__getitem__, found), np.int64, len(found)), places)
    counts = np.bincount(_once_a_line(ids)[1], minlength=len(words)).tolist()
    common = sorted((-n, word) for n, word in zip(counts, words, strict=True) if n > 1)
    vocabulary = {word: number for number, (_, word) in enumerate(common[:_MOST_WORDS])} | ends
    renumbered = np.array([vocabulary.get(word, _UNKNOWN) for word in words] + [_LINE_END, _UNKNOWN])
    return vocabulary, _as_words(renumbered[ids], len(lines))


def _frequencies(ids: Ints) -> Floats:
    counts = np.bincount(ids, minlength=1 << BITS) + 0.5
    frequencies: Floats = counts / counts.sum()
    return frequencies


def _probabilities(link: Ints, explained: Ints, explains: Ints, n_explained: int) -> Floats:
    """Expectation-maximisation of IBM model 1 without the empty word, on links between words of pairs.

    `link` numbers the pair of words of each link, `explained` its place in the text that is generated, and `explains`
    has the generating word of each pair of words.
    """
    probabilities: Floats = np.ones(len(explains))
    counts: npt.NDArray[Any] = probabilities
    totals: npt.NDArray[Any] = probabilities
    for _ in range(_ITERATIONS):
        shares = probabilities[link]
        shares /= np.bincount(explained, shares, minlength=n_explained)[explained]
        counts = np.bincount(link, shares, minlength=len(explains))
        totals = np.bincount(explains, counts, minlength=1 << BITS)
        probabilities = counts / totals[explains]
    discounted = np.maximum(counts - _DISCOUNT, 0)
    result: Floats = discounted / np.maximum(totals[explains] - _DISCOUNT, _DISCOUNT)
    return result
