"""Sequence layouts: how the rows of a tensor are divided into sentences. Positions and attention depend on it.

Shapes: B batch, K tokens of all sentences, L length, N sentences, H heads, E head width.
Masks are boolean, True where a query may attend.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from transformer_cli.data.transfer import to_device

LengthGroups: TypeAlias = Sequence[tuple[int, int]]  # consecutive sentences of one length: their number, their length


class SequenceLayout(Protocol):
    """The position of each token in its sentence."""

    @property
    def max_length(self) -> int:
        """An upper bound of the tokens of a sentence."""

    @property
    def positions(self) -> slice | Tensor:
        """The position of each row of a tensor, as an index into a table."""


@dataclass(frozen=True)
class PaddedLayout:
    """One sentence a row, [B, L, …], padded at its end: for search, rescoring and pictures."""

    length: int
    mask_B11L: Tensor | None = None  # None: nothing is padding
    offset: int = 0  # position of the first column

    @property
    def max_length(self) -> int:
        return self.offset + self.length

    @property
    def positions(self) -> slice:
        return slice(self.offset, self.max_length)


@dataclass(frozen=True)
class Buckets:
    """Consecutive sentences in buckets, each padded to the length of its bucket: P slots in all, for K tokens."""

    shapes: LengthGroups  # of each bucket: sentences, and their padded length
    slots_K: Tensor  # int64, where each token is
    is_real_P: Tensor  # False: padding

    @classmethod
    def of(cls, shapes: LengthGroups, slots_K: Tensor) -> "Buckets":
        none_P = torch.zeros(sum(n * length for n, length in shapes), dtype=torch.bool, device=slots_K.device)
        return cls(shapes, slots_K, none_P.index_fill(0, slots_K, True))

    def twice(self) -> "Buckets":
        """The buckets of the batch concatenated with itself."""
        slots_K = torch.cat([self.slots_K, self.slots_K + len(self.is_real_P)])
        return Buckets([*self.shapes, *self.shapes], slots_K, self.is_real_P.repeat(2))

    def pad(self, x_KHE: Tensor) -> list[Tensor]:
        """Each bucket, [N, H, L, E], with zeros in the padding."""
        padded_PHE = x_KHE.new_zeros(len(self.is_real_P), *x_KHE.shape[1:]).index_copy(0, self.slots_K, x_KHE)
        return split_groups(padded_PHE, self.shapes)

    def unpad(self, buckets: Sequence[Tensor]) -> Tensor:
        """The inverse of `pad`."""
        return concatenate_groups(buckets).index_select(0, self.slots_K)

    def masks_N11L(self) -> list[Tensor]:
        """The mask of the keys of each bucket."""
        parts = torch.split(self.is_real_P, [n * length for n, length in self.shapes])
        return [part.view(n, 1, 1, length) for part, (n, length) in zip(parts, self.shapes, strict=True)]


@dataclass(frozen=True)
class PackedLayout:
    """Sentences one after another without padding, [K, …]: for training.

    Their lengths are known on the host, as `groups`, or on the device, as `cu_seqlens_N`: int32, [N + 1], the offset
    of each sentence and the end of the last one. A compiled model needs the latter: its graph serves all lengths.
    With `buckets` attention pads the sentences to a few lengths. Those of source and target describe the same pairs.
    """

    max_length: int
    positions: Tensor  # [K]
    groups: LengthGroups | None = None
    cu_seqlens_N: Tensor | None = None
    buckets: Buckets | None = None

    @classmethod
    def of_groups(cls, groups: LengthGroups, device: torch.device) -> "PackedLayout":
        positions_K = torch.cat([torch.arange(length).repeat(n_sentences) for n_sentences, length in groups])
        longest = max(length for _, length in groups)
        return cls(longest, to_device(positions_K, device), groups=groups)

    def twice(self) -> "PackedLayout":
        """The layout of the batch concatenated with itself."""
        starts_N, buckets = self.cu_seqlens_N, self.buckets
        return PackedLayout(
            self.max_length,
            self.positions.repeat(2),
            groups=None if self.groups is None else [*self.groups, *self.groups],
            cu_seqlens_N=None if starts_N is None else torch.cat([starts_N, starts_N[1:] + starts_N[-1]]),
            buckets=None if buckets is None else buckets.twice(),
        )


AttentionLayout: TypeAlias = PaddedLayout | PackedLayout


def split_groups(x_KHE: Tensor, groups: LengthGroups) -> list[Tensor]:
    """Each group of sentences of one length, [N, H, L, E]."""
    parts = torch.split(x_KHE, [n_sentences * length for n_sentences, length in groups])
    return [torch.unflatten(part, 0, (n, -1)).transpose(1, 2) for part, (n, _) in zip(parts, groups, strict=True)]


def concatenate_groups(groups: Sequence[Tensor]) -> Tensor:
    """The inverse of `split_groups`."""
    return torch.cat([group_NHLE.transpose(1, 2).flatten(0, 1) for group_NHLE in groups])
