"""Batches padded to a few fixed sizes (buckets): all batches of one size run the graph compiled for it.

The padding consists of whole sentences whose targets are ignored by the loss; sentences do not attend to each other.
Padding outside of all sentences would be memory that kernels never write, and could hold NaN.

Shapes: S source and T target tokens, N + 1 offsets at which the N sentences start and the last one ends.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from transformer_cli.data.batching import Batch
from transformer_cli.data.cache import Array

IGNORE_INDEX = -1  # target of a padded token: no loss, as `ignore_index` of torch
ROUND = 128  # tokens: what matrix products work on at once
GOOD_FILL = 0.98
MOST_SIZES = 4  # to compile for


class Sizes(NamedTuple):
    """Size of a padded batch: tokens of each side, sentences, and the maximum length of a sentence."""

    source: int
    target: int
    n_pairs: int
    longest: int

    @property
    def n_tokens(self) -> int:
        """The number of tokens of both sides."""
        return self.source + self.target

    @classmethod
    def of(cls, batch: Batch) -> "Sizes":
        """Exactly those of `batch`."""
        longest = max(max(run.source_length, run.target_length) for run in batch.runs)
        return cls(len(batch.source_S), batch.n_target_tokens, batch.n_pairs, longest)

    @classmethod
    def around(cls, group: Sequence["Sizes"], *, longest: int) -> "Sizes":
        """Nearly the smallest size that holds each of `group`, and sentences of up to `longest` tokens."""
        source, target, _, own_longest = map(max, zip(*group, strict=True))
        found = cls(_up(source), _up(target), 0, max(longest, own_longest))
        for one in group:
            while found.n_in_tail(one) is None:  # one side has too little left for the sentences of the other
                if found.source - one.source < found.target - one.target:
                    found = found._replace(source=found.source + ROUND)
                else:
                    found = found._replace(target=found.target + ROUND)
        return found._replace(n_pairs=_up(max(one.n_pairs + (found.n_in_tail(one) or 0) for one in group)))

    def n_in_tail(self, taken: "Sizes") -> int | None:
        """Sentences of padding beside `taken`; None if they do not fit.

        A pair has at least one token on either side, because some kernels do not support empty sequences; only a
        language model has none on the source side.
        """
        left = [all_ - its for all_, its in zip(self[:2], taken[:2], strict=True) if all_]
        n_pairs = -(-max(left) // self.longest)
        return n_pairs if min(left) >= n_pairs else None

    def hold(self, taken: "Sizes") -> bool:
        n_in_tail = self.n_in_tail(taken) if taken.longest <= self.longest else None
        return n_in_tail is not None and taken.n_pairs + n_in_tail <= self.n_pairs


def constant_sizes(expected: Iterable[Sizes], *, longest: int) -> list[Sizes]:
    """The fewest sizes for batches like those `expected` that need little padding, smallest first."""
    ordered = sorted(expected, key=lambda sizes: sizes.n_tokens)
    n_tokens = sum(sizes.n_tokens for sizes in ordered)
    best: list[Sizes] = []
    least = math.inf
    for n_sizes in range(1, min(MOST_SIZES, len(ordered)) + 1):
        cuts = [n * len(ordered) // n_sizes for n in range(n_sizes + 1)]
        found = [Sizes.around(ordered[start:end], longest=longest) for start, end in pairwise(cuts)]
        n_padded = sum(
            sizes.n_tokens * (end - start) for sizes, (start, end) in zip(found, pairwise(cuts), strict=True)
        )
        if n_padded < least:
            best, least = found, n_padded
        if n_tokens >= GOOD_FILL * n_padded:
            break
    source, target, n_pairs, longest = map(max, zip(*best, strict=True))
    n_pairs, *more = (_up(n + n // 8) for n in (n_pairs, source, target))
    return [*best, Sizes(more[0], more[1], n_pairs, longest)]  # the last one for larger batches than expected


def size_for(batch: Batch, among: list[Sizes]) -> Sizes:
    """The first of the fixed sizes that holds `batch`, or its exact size if it is too large, or less than half of it.

    Sizes are never added later: they would depend on earlier batches, which a resumed run does not repeat.
    """
    taken = Sizes.of(batch)
    fitting = next((sizes for sizes in among if sizes.hold(taken)), None)
    return fitting if fitting is not None and 2 * taken.n_tokens > fitting.n_tokens else taken


def _up(n: int) -> int:
    return -(-n // ROUND) * ROUND


@dataclass(frozen=True)
class Side:
    """Positions and offsets of the sentences of one side."""

    positions: Tensor  # of each token in its sentence
    starts: Tensor  # N + 1, of the sentences and of the end


@dataclass(frozen=True)
class PaddedTensors:
    """Views of a padded batch in one contiguous int32 tensor."""

    source_S: Tensor
    target_in_T: Tensor
    target_out_T: Tensor  # IGNORE_INDEX in the padding
    source: Side
    target: Side

    @classmethod
    def of(cls, memory: Tensor, sizes: Sizes) -> "PaddedTensors":
        """The views of `memory`, which `padded` returned."""
        n = sizes.n_pairs + 1
        lengths = [sizes.source] * 2 + [sizes.target] * 3 + [n, n]
        source_S, positions_S, in_T, out_T, positions_T, starts_source, starts_target = torch.split(memory, lengths)
        return cls(source_S, in_T, out_T, Side(positions_S, starts_source), Side(positions_T, starts_target))


@dataclass(frozen=True)
class FixedSizeBatch(Batch):
    """A batch together with its padded tensors; its halves are plain batches."""

    sizes: Sizes
    memory: Tensor  # as `padded` returns it, and pinned for a GPU

    @classmethod
    def of(cls, batch: Batch, sizes: Sizes, memory: Tensor) -> Self:
        tensors = batch.source_S, batch.target_in_T, batch.target_out_T
        return cls(*tensors, batch.runs, sizes, memory, links_2L=batch.links_2L)


def padded(batch: Batch, sizes: Sizes) -> Tensor:
    """`batch` padded to `sizes`, in the layout of `PaddedTensors.of`: one tensor, for one copy to the device."""
    n_in_tail = sizes.n_in_tail(Sizes.of(batch))
    assert n_in_tail is not None, f"{Sizes.of(batch)} does not fit into {sizes}"
    n_pairs = [run.n_pairs for run in batch.runs]
    memory = torch.empty(2 * sizes.source + 3 * sizes.target + 2 * (sizes.n_pairs + 1), dtype=torch.int32)
    into = PaddedTensors.of(memory, sizes)
    _fill(into.source_S, batch.source_S, batch.source_S[-1] if len(batch.source_S) else 0)
    _fill(into.target_in_T, batch.target_in_T, batch.target_in_T[-1])
    _fill(into.target_out_T, batch.target_out_T, IGNORE_INDEX)
    _place(into.source, np.repeat([run.source_length for run in batch.runs], n_pairs), n_in_tail)
    _place(into.target, np.repeat([run.target_length for run in batch.runs], n_pairs), n_in_tail)
    return memory


def _fill(into: Tensor, tokens: Tensor, rest: Tensor | int) -> None:
    into[: len(tokens)] = tokens
    into[len(tokens) :] = rest


def _place(into: Side, lengths: Array, n_in_tail: int) -> None:
    """Write positions and offsets; unused sentences are empty, and at the end."""
    n_tokens = len(into.positions)
    left = n_tokens - int(lengths.sum())
    tail = np.diff(left * np.arange(n_in_tail + 1) // max(1, n_in_tail))
    lengths = np.concatenate([lengths, tail, np.zeros(len(into.starts) - 1 - len(lengths) - n_in_tail, np.int64)])
    ends = np.cumsum(lengths)
    into.starts[0] = 0
    into.starts[1:] = torch.from_numpy(ends)
    into.positions[:] = torch.from_numpy(np.arange(n_tokens) - np.repeat(ends - lengths, lengths))
