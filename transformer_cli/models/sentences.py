"""How the rows of a tensor are made up of sentences: all that positions and attention have to know.

Shapes: B batch, K rows of all sentences, S source, T target, L either length, H heads, E head width, N sentences.
Masks are boolean, True where a query may look, and may be None where everything is real.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class Sentences(ABC):
    """Of one side."""

    @property
    @abstractmethod
    def longest(self) -> int:
        """Tokens of the longest sentence, as far as it is known."""

    @property
    @abstractmethod
    def positions(self) -> slice | Tensor:
        """Where each row of a tensor stands in its sentence, to index a table with."""

    @abstractmethod
    def attend(self, keys: Any, q: Tensor, k: Tensor, v: Tensor, *, dropout: float, causal: bool) -> Tensor:
        """What the queries of these sentences take from the keys and values of theirs in `keys`, […, H, E]."""


@dataclass(frozen=True)
class Padded(Sentences):
    """One sentence a row, [B, L, …], padded at its end: what a search and a picture have."""

    length: int
    mask_B11L: Tensor | None = None
    first: int = 0  # position of the first column

    @property
    def longest(self) -> int:
        return self.first + self.length

    @property
    def positions(self) -> slice:
        return slice(self.first, self.longest)

    def select(self, sentences_B: Tensor) -> "Padded":
        """Some of the rows, by their numbers."""
        return self if self.mask_B11L is None else replace(self, mask_B11L=self.mask_B11L[sentences_B])

    def attend(
        self, keys: "Padded", q_BTHE: Tensor, k_BSHE: Tensor, v_BSHE: Tensor, *, dropout: float, causal: bool
    ) -> Tensor:
        q_BHTE, k_BHSE, v_BHSE = (x.transpose(1, 2) for x in (q_BTHE, k_BSHE, v_BSHE))
        mask = None if causal else keys.mask_B11L
        return F.scaled_dot_product_attention(q_BHTE, k_BHSE, v_BHSE, mask, dropout, is_causal=causal).transpose(1, 2)


@dataclass(frozen=True)
class Packed(Sentences):
    """Sentences one after another without padding, [K, …]: what training has.

    `runs` are neighbours of one length, as (sentences, tokens of each): attention takes each run at once. The runs of
    source and target are those of the same pairs.
    """

    runs: Sequence[tuple[int, int]]
    device: torch.device

    @property
    def longest(self) -> int:
        return max(length for _, length in self.runs)

    @cached_property
    def positions(self) -> Tensor:
        each = [torch.arange(length).repeat(n_sentences) for n_sentences, length in self.runs]
        return torch.cat(each).to(self.device, non_blocking=True)

    @cached_property
    def sizes(self) -> list[int]:
        """Rows of each run."""
        return [n_sentences * length for n_sentences, length in self.runs]

    def attend(
        self, keys: "Packed", q_KHE: Tensor, k_KHE: Tensor, v_KHE: Tensor, *, dropout: float, causal: bool
    ) -> Tensor:
        parts = (torch.split(x, sentences.sizes) for x, sentences in ((q_KHE, self), (k_KHE, keys), (v_KHE, keys)))
        found = []
        for (n_sentences, _), *run in zip(self.runs, *parts, strict=True):
            q_NHTE, k_NHSE, v_NHSE = (x.unflatten(0, (n_sentences, -1)).transpose(1, 2) for x in run)
            y_NHTE = F.scaled_dot_product_attention(q_NHTE, k_NHSE, v_NHSE, None, dropout, is_causal=causal)
            found.append(y_NHTE.transpose(1, 2).flatten(0, 1))
        return torch.cat(found)
