"""Pairs of sentences as filters get them, and what a filter does to them."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from transformer_cli.data.numbered_tags import without_tags
from transformer_cli.data.readers.base import Pair

Mask = npt.NDArray[np.bool_]

_AWAY = 7  # places between a target and the one that takes its place, by length: copies of a pair are beside it


@dataclass
class PairTexts:
    """Pairs without tags, and the number of each in its corpus: those that no earlier filter has dropped."""

    sources: list[str]
    targets: list[str]
    numbers: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sources)

    def each(self) -> Iterator[Pair]:
        return zip(self.sources, self.targets, strict=True)

    def first(self, n: int) -> "PairTexts":
        return PairTexts(self.sources[:n], self.targets[:n], self.numbers[:n])

    def without_tags(self) -> "PairTexts":
        """The texts without numbered inline tags."""
        return PairTexts(list(map(without_tags, self.sources)), list(map(without_tags, self.targets)), self.numbers)

    def pick(self, mask: Mask) -> "PairTexts":
        indices = np.flatnonzero(mask).tolist()
        return PairTexts([self.sources[i] for i in indices], [self.targets[i] for i in indices], self.numbers[mask])


def unrelated_targets(text: PairTexts) -> npt.NDArray[np.int64]:
    """The index of another pair for each, whose target is nearly as long, and hardly ever its translation."""
    order = np.argsort(np.fromiter(map(len, text.targets), np.int64, len(text)), kind="stable")
    others = np.empty(len(text), np.int64)
    others[order] = np.roll(order, _AWAY)
    return others


@dataclass
class Verdict:
    """The pairs that a filter drops, and those that it repairs, by their index with what they become.

    `partners` has the index of the pair whose target a repaired pair gets, where it gets that of another.
    """

    dropped: Mask
    repaired: dict[int, Pair] = field(default_factory=dict)
    partners: dict[int, int] = field(default_factory=dict)
