"""Folds of the training text, one of which is the test set of a run (data.fold)."""

import hashlib
from dataclasses import dataclass

from transformer_cli.config.checks import part_of
from transformer_cli.config.data import DataConfig


@dataclass(frozen=True)
class Fold:
    """Fold `number` of `n`, counted from 1."""

    number: int
    n: int
    seed: int

    def has(self, sentence: str) -> bool:
        """Whether a source sentence, without tags and in its canonical form, is in the fold.

        That depends on the sentence, the seed and the number of folds alone, not on the other text.
        """
        digest = hashlib.blake2b(f"{self.seed} fold\n{sentence}".encode()).digest()
        return int.from_bytes(digest) % self.n == self.number - 1

    def __str__(self) -> str:
        return f"{self.number}/{self.n}"


def fold_of(config: DataConfig) -> Fold | None:
    """The fold that is the test set; None where there is none."""
    found = None if config.fold is None else part_of(config.fold)
    return None if found is None else Fold(*found, config.seed)
