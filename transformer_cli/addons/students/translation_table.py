"""A table of the target tokens that translate source tokens: IBM model 1 (Brown et al. 1993) on the tokens of a text.

Links are counted a piece of the text at a time, so that memory grows with the different pairs of tokens alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from transformer_cli.data.cleaning.lexicon import BITS, Ints, Links, Words
from transformer_cli.decoding.shortlist import Shortlist, Tokens

MOST_PIECES = 1 << BITS  # of a vocabulary
_ITERATIONS = 4
_LINKS_AT_A_TIME = 2_000_000


@dataclass(frozen=True)
class TranslationTable:
    """How often each pair of tokens is expected to be linked, and how often each target token stands in the text."""

    keys: Ints  # source token · 2^16 + target token, rising
    counts: np.ndarray
    target_counts: Ints

    def shortlist(self, n_source: int, *, n_frequent: int, n_best: int) -> Shortlist:
        """The `n_frequent` tokens of the highest counts, and for each of `n_source` tokens its `n_best` likeliest."""
        order = np.argsort(-self.target_counts, kind="stable")[:n_frequent]
        frequent = np.sort(order[self.target_counts[order] > 0])
        source, target = self.keys >> BITS, self.keys & (MOST_PIECES - 1)
        by_count = np.lexsort((target, -self.counts, source))  # of equals, the lower token
        source, target, counts = source[by_count], target[by_count], self.counts[by_count]
        n_of_each = np.bincount(source, minlength=n_source)
        place = np.arange(len(source)) - np.repeat(np.cumsum(n_of_each) - n_of_each, n_of_each)
        kept = (place < n_best) & (counts > 0)
        source, target = source[kept], target[kept]
        rising = np.lexsort((target, source))
        starts = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=n_source))])
        return Shortlist(frequent.astype(np.int64), starts.astype(np.int64), target[rising].astype(np.int64))


def translation_table(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> TranslationTable:
    """The table of a text, given as the ids of its pairs. A token that a line has several times counts once."""
    pairs = [(sorted(set(source)), sorted(set(target))) for source, target in pairs if source and target]
    keys: Ints = np.empty(0, np.int64)
    for links in _links(pairs):
        keys = np.union1d(keys, links.keys)
    probabilities, counts = np.ones(len(keys)), np.zeros(len(keys))
    source = keys >> BITS
    for _ in range(_ITERATIONS):
        counts = np.zeros(len(keys))
        for links in _links(pairs):
            link = np.searchsorted(keys, links.keys)
            shares = probabilities[link]
            shares /= np.bincount(links.target_place, shares)[links.target_place]
            counts += np.bincount(link, shares, minlength=len(keys))
        probabilities = counts / np.bincount(source, counts, minlength=MOST_PIECES)[source]
    targets = np.concatenate([np.empty(0, np.int64), *(np.array(target) for _, target in pairs)])
    return TranslationTable(keys, counts, np.bincount(targets, minlength=1))


def _links(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Iterator[Links]:
    """The links of all pairs, some at a time."""
    some: list[tuple[Sequence[int], Sequence[int]]] = []
    n_links = 0
    for pair in pairs:
        some.append(pair)
        n_links += len(pair[0]) * len(pair[1])
        if n_links >= _LINKS_AT_A_TIME:
            yield _links_of(some)
            some, n_links = [], 0
    if some:
        yield _links_of(some)


def _links_of(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Links:
    sides = []
    for side in (0, 1):
        lines = [pair[side] for pair in pairs]
        n = np.array([len(line) for line in lines])
        sides.append(Words(np.fromiter((i for line in lines for i in line), np.int64, int(n.sum())), n))
    return Links(*sides)


def unwritable(shortlist: Shortlist, source: Sequence[int], target: Sequence[int]) -> list[int]:
    """The tokens of a translation that are not in the list of its source."""
    allowed: Tokens = shortlist.of(source)
    return [i for i, is_there in zip(target, np.isin(target, allowed), strict=True) if not is_there]
