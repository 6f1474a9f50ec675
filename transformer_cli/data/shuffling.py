"""Pseudorandom permutations and mixtures of corpora with random access: any position is computed without the others."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from transformer_cli.data.cache import Array

_ROUNDS = 4  # of the Feistel network
_PURPOSE_OF_PARTS = 2 << 128  # counter of its random bits, apart from those of an epoch


class Part(NamedTuple):
    """A corpus of the training text, and how often an epoch contains it."""

    n_pairs: int
    times: float


class Mixture:
    """A mixture of corpora: an epoch is a sequence of slots, a number for each part, and a sentence for each slot.

    Each part has one permutation, which is repeated; an epoch continues where the previous one ended: at half a time
    an epoch, two epochs contain every sentence.
    """

    def __init__(self, parts: Sequence[Part], seed: int) -> None:
        self._seed = seed
        self._sizes = np.array([part.n_pairs for part in parts])
        self._slots = np.array([round(part.n_pairs * part.times) for part in parts])
        self.n_pairs = int(self._slots.sum())

    def total(self, lengths: Array) -> int:
        """Tokens of an epoch; an average where a part is not repeated a whole number of times."""
        ends = np.cumsum(self._sizes).tolist()
        columns = zip(ends, self._sizes.tolist(), self._slots.tolist(), strict=True)
        parts = [(int(lengths[end - size : end].sum(dtype=np.int64)), size, n) for end, size, n in columns if size]
        return sum(tokens * n // size for tokens, size, n in parts)

    def sentences(self, slots: Array, epoch: int) -> Array:
        """The sentences of an epoch at `slots`, which are sorted."""
        found = []
        bounds = np.searchsorted(slots, np.concatenate(([0], np.cumsum(self._slots))))
        starts = [np.cumsum(counts) - counts for counts in (self._slots, self._sizes)]
        for part, (n_slots, size) in enumerate(zip(self._slots.tolist(), self._sizes.tolist(), strict=True)):
            since_start = slots[bounds[part] : bounds[part + 1]] - starts[0][part] + epoch * n_slots
            if len(since_start):
                random = np.random.Philox(key=np.array([self._seed, part], np.uint64), counter=_PURPOSE_OF_PARTS)
                found.append(starts[1][part] + permutation_at(since_start % size, size, random))
        return np.concatenate(found)


def times_per_epoch(tokens: Sequence[int], weights: Sequence[float], temperature: float) -> list[float]:
    """How often an epoch contains each corpus, given their numbers of tokens (temperature sampling).

    Shares are proportional to weight × tokens^(1 / temperature); the tokens of an epoch are those of temperature 1,
    where each corpus is repeated by its weight.
    """
    flat = [weight * n ** (1 / temperature - 1) if n else 0.0 for weight, n in zip(weights, tokens, strict=True)]
    wanted, without = (sum(n * times for n, times in zip(tokens, all, strict=True)) for all in (weights, flat))
    return [times * wanted / without for times in flat] if temperature != 1 else list(weights)


def shuffled(n: int, random: np.random.Philox) -> Array:
    """A permutation of 0..n-1 from raw bits, which NumPy promises never to change, unlike its own shuffles."""
    return np.argsort(random.random_raw(n), kind="stable")


def permutation_at(positions: Array, n: int, random: np.random.Philox) -> Array:
    """The values at `positions` of a pseudorandom permutation of 0..n-1.

    A Feistel network over numbers of two digits to the base √n, rounded up; values from n on are permuted again
    (cycle walking, Black and Rogaway 2002).
    """
    base = np.uint64(math.isqrt(n - 1) + 1)
    keys = random.random_raw(_ROUNDS)

    def once(values: Array) -> Array:
        high: Array = values // base
        low: Array = values % base
        for key in keys:
            high, low = low, (high + splitmix64(low ^ key) % base) % base
        return high * base + low

    values = once(positions.astype(np.uint64))
    while (beyond := np.flatnonzero(values >= n)).size:
        values[beyond] = once(values[beyond])
    return values.astype(np.int64)


def splitmix64(values: Array) -> Array:
    """The mixing function of SplitMix64 (Steele, Lea and Flood 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = values ^ (values >> np.uint64(31))
    return mixed
