"""How the rows of a tensor are made up of sentences: all that positions and attention have to know.

Shapes: B batch, K rows of all sentences, S source, T target, L either length, H heads, E head width, N sentences.
Masks are boolean, True where a query may look, and may be None where everything is real.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Runs = Sequence[tuple[int, int]]  # neighbours of one length: sentences, and tokens of each


class Places(ABC):
    """Where tokens stand in their sentences."""

    @property
    @abstractmethod
    def longest(self) -> int:
        """Tokens of the longest sentence, as far as it is known."""

    @property
    @abstractmethod
    def positions(self) -> slice | Tensor:
        """Where each row of a tensor stands in its sentence, to index a table with."""


@dataclass(frozen=True)
class Newest(Places):
    """The same place for all rows, which the device knows: kernels that are recorded once serve every place."""

    position_1: Tensor
    bound: int  # tokens of the longest sentence that will come to it

    @property
    def longest(self) -> int:
        return self.bound

    @property
    def positions(self) -> Tensor:
        return self.position_1


class Sentences(Places):
    """Of one side."""

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

    def attend(
        self, keys: "Padded", q_BTHE: Tensor, k_BSHE: Tensor, v_BSHE: Tensor, *, dropout: float, causal: bool
    ) -> Tensor:
        q_BHTE, k_BHSE, v_BHSE = (x.transpose(1, 2) for x in (q_BTHE, k_BSHE, v_BSHE))
        mask = None if causal else keys.mask_B11L
        return F.scaled_dot_product_attention(q_BHTE, k_BHSE, v_BHSE, mask, dropout, is_causal=causal).transpose(1, 2)


@dataclass(frozen=True)
class Packed(Sentences):
    """Sentences one after another without padding, [K, …]: what training has.

    Attention takes each of the `runs` at once. Those of source and target are of the same pairs.
    """

    runs: Runs
    device: torch.device

    @property
    def longest(self) -> int:
        return max(length for _, length in self.runs)

    @cached_property
    def positions(self) -> Tensor:
        each = [torch.arange(length).repeat(n_sentences) for n_sentences, length in self.runs]
        return torch.cat(each).to(self.device, non_blocking=True)

    def attend(
        self, keys: "Packed", q_KHE: Tensor, k_KHE: Tensor, v_KHE: Tensor, *, dropout: float, causal: bool
    ) -> Tensor:
        return attend_runs(q_KHE, k_KHE, v_KHE, self.runs, keys.runs, dropout=dropout, causal=causal)


def attend_runs(
    q_THE: Tensor, k_SHE: Tensor, v_SHE: Tensor, runs: Runs, key_runs: Runs, *, dropout: float, causal: bool
) -> Tensor:
    """Attention of packed sentences, one run after another."""
    each = zip(split_runs(q_THE, runs), split_runs(k_SHE, key_runs), split_runs(v_SHE, key_runs), strict=True)
    return join_runs([F.scaled_dot_product_attention(*run, None, dropout, is_causal=causal) for run in each])


def split_runs(x_LHE: Tensor, runs: Runs) -> list[Tensor]:
    """Each run, [N, H, L, E]."""
    parts = torch.split(x_LHE, [n_sentences * length for n_sentences, length in runs])
    return [torch.unflatten(part, 0, (n, -1)).transpose(1, 2) for part, (n, _) in zip(parts, runs, strict=True)]


def join_runs(runs: Sequence[Tensor]) -> Tensor:
    """The inverse of `split_runs`."""
    return torch.cat([run_NHLE.transpose(1, 2).flatten(0, 1) for run_NHLE in runs])
