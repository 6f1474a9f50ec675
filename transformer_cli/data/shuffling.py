"""Shuffles and mixtures of which any place is found without the others."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from transformer_cli.data.cache import Array

_ROUNDS = 4  # of the network that shuffles
_PURPOSE_OF_PARTS = 2 << 128  # where its stream of raw bits begins; those of an epoch begin elsewhere


class Part(NamedTuple):
    """Sentences that stand together in a corpus, and how often an epoch goes through them."""

    n_pairs: int
    times: float


class Mix:
    """An epoch as a row of places, so many for each part, and which sentence has which place.

    A part is gone through in an order of its own, again and again, and each epoch goes on where the last one ended:
    at half a time an epoch, two epochs have every sentence.
    """

    def __init__(self, parts: Sequence[Part], seed: int) -> None:
        self._seed = seed
        self._sizes = np.array([part.n_pairs for part in parts])
        self._places = np.array([round(part.n_pairs * part.times) for part in parts])
        self.n_pairs = int(self._places.sum())

    def total(self, lengths: Array) -> int:
        """Tokens of an epoch, on average where a part is not gone through a whole number of times."""
        ends = np.cumsum(self._sizes).tolist()
        columns = zip(ends, self._sizes.tolist(), self._places.tolist(), strict=True)
        parts = [(int(lengths[end - size : end].sum(dtype=np.int64)), size, n) for end, size, n in columns if size]
        return sum(tokens * n // size for tokens, size, n in parts)

    def sentences(self, places: Array, epoch: int) -> Array:
        """The sentences at `places`, which are in order, in an epoch."""
        found = []
        bounds = np.searchsorted(places, np.concatenate(([0], np.cumsum(self._places))))
        starts = [np.cumsum(counts) - counts for counts in (self._places, self._sizes)]
        for part, (n_places, size) in enumerate(zip(self._places.tolist(), self._sizes.tolist(), strict=True)):
            since_start = places[bounds[part] : bounds[part + 1]] - starts[0][part] + epoch * n_places
            if len(since_start):
                random = np.random.Philox(key=np.array([self._seed, part], np.uint64), counter=_PURPOSE_OF_PARTS)
                found.append(starts[1][part] + permuted(since_start % size, size, random))
        return np.concatenate(found)


def mixed(tokens: Sequence[int], weights: Sequence[float], temperature: float) -> list[float]:
    """How often an epoch goes through corpora of so many tokens.

    Their shares are as weight × tokens^(1 / temperature), and an epoch has as many tokens as with a temperature of 1,
    where it goes through each corpus as often as its weight says.
    """
    flat = [weight * n ** (1 / temperature - 1) if n else 0.0 for weight, n in zip(weights, tokens, strict=True)]
    wanted, without = (sum(n * times for n, times in zip(tokens, all, strict=True)) for all in (weights, flat))
    return [times * wanted / without for times in flat] if temperature != 1 else list(weights)


def shuffled(n: int, random: np.random.Philox) -> Array:
    """A permutation of 0..n-1 made of raw bits, which NumPy promises never to change, unlike its own shuffles."""
    return np.argsort(random.random_raw(n), kind="stable")


def permuted(positions: Array, n: int, random: np.random.Philox) -> Array:
    """What a shuffle of 0..n-1 has at `positions`, without the rest of it.

    A Feistel network over the numbers of two digits to the base √n, rounded up; what comes out beyond n goes through
    it again (cycle walking, Black and Rogaway 2002).
    """
    base = np.uint64(math.isqrt(n - 1) + 1)
    keys = random.random_raw(_ROUNDS)

    def once(values: Array) -> Array:
        high: Array = values // base
        low: Array = values % base
        for key in keys:
            high, low = low, (high + stirred(low ^ key) % base) % base
        return high * base + low

    values = once(positions.astype(np.uint64))
    while (beyond := np.flatnonzero(values >= n)).size:
        values[beyond] = once(values[beyond])
    return values.astype(np.int64)


def stirred(values: Array) -> Array:
    """Each of `values` with its bits stirred, as SplitMix64 does it (Steele, Lea and Flood 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = values ^ (values >> np.uint64(31))
    return mixed
