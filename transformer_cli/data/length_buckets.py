"""Length buckets: the pairs of a batch in a few groups, each padded to the lengths of its longest sentences.

For attention on a GPU that has no kernel for packed sentences: a kernel call for each bucket instead of each length.

Shapes: S source and T target tokens, C chunks of consecutive pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from transformer_cli.data.batching import Batch, Run
from transformer_cli.data.cache import Array
from transformer_cli.data.fixed_size import FixedSizeBatch, Sizes, padded

MOST_BUCKETS = 8
NEARLY_LEAST = 1.05  # padded tokens, by those of MOST_BUCKETS: attention is a small part of all work
MULTIPLE = 8  # tokens: rows of a mask that some kernels need
CHUNKS = 64  # that bounds are chosen among


@dataclass(frozen=True)
class BucketedBatch(FixedSizeBatch):
    """A batch of exactly its own size; behind its tensors in `memory` are the padded places of its tokens."""

    buckets: list[Run]

    @property
    def slots(self) -> tuple[Tensor, Tensor]:
        """The position of each source and target token among the padded ones: views of `memory`, in int32."""
        lengths = [len(self.source_S), len(self.target_in_T)]
        source, target = torch.split(self.memory[len(self.memory) - sum(lengths) :], lengths)
        return source, target


def bucketed(batch: Batch) -> BucketedBatch:
    buckets = length_buckets(batch.runs)
    slots = padded_places(batch.runs, buckets)
    sizes = Sizes.of(batch)
    memory = torch.cat([padded(batch, sizes), *map(torch.from_numpy, slots)])
    tensors = batch.source_S, batch.target_in_T, batch.target_out_T
    return BucketedBatch(*tensors, batch.runs, sizes, memory, buckets, links_2L=batch.links_2L)


def padded_places(runs: Sequence[Run], buckets: Sequence[Run]) -> list[Array]:
    """The position of each source and target token among the padded ones of `buckets`, in int32."""
    n_pairs, n_padded = ([one.n_pairs for one in some] for some in (runs, buckets))
    return [
        _slots(np.repeat([run[side] for run in runs], n_pairs), np.repeat([one[side] for one in buckets], n_padded))
        for side in (1, 2)
    ]


def length_buckets(runs: Sequence[Run]) -> list[Run]:
    """Consecutive pairs with the lengths that they are padded to: as few buckets as need little padding."""
    columns = np.array(runs, dtype=np.int64)
    sizes, lengths = columns[:, 0], -(-columns[:, 1:] // MULTIPLE) * MULTIPLE
    bounds = np.unique(np.arange(CHUNKS + 1) * len(runs) // CHUNKS)
    ends = np.concatenate([[0], np.cumsum(sizes)])[bounds]
    longest = np.maximum.reduceat(lengths, bounds[:-1])  # [C, 2]
    cost = _costs(np.diff(ends), longest)
    ways = [(sum(int(cost[start, end - 1]) for start, end in pairwise(cuts)), cuts) for cuts in _best_cuts(cost)]
    cuts = next(cuts for n_padded, cuts in ways if n_padded <= NEARLY_LEAST * ways[-1][0])
    return [
        Run(int(ends[end] - ends[start]), *map(int, longest[start:end].max(axis=0))) for start, end in pairwise(cuts)
    ]


def _costs(sizes: Array, longest: Array) -> Array:
    """[C, C]: the padded tokens of both sides in a bucket from one chunk to another."""
    found = np.full((len(sizes), len(sizes)), np.iinfo(np.int64).max // 2)
    for first in range(len(sizes)):
        width = np.maximum.accumulate(longest[first:], axis=0).sum(axis=1)
        found[first, first:] = np.cumsum(sizes[first:]) * width
    return found


def _best_cuts(cost: Array) -> list[list[int]]:
    """The cheapest bounds of 1, 2, … buckets."""
    n_chunks = len(cost)
    best, before = [cost[0]], [np.zeros(n_chunks, np.int64)]  # by the last chunk: the cost, the last bucket's first
    for _ in range(min(MOST_BUCKETS, n_chunks) - 1):
        total = best[-1][:-1, None] + cost[1:]  # [the last chunk before, the last chunk]
        before.append(np.concatenate([[0], total.argmin(axis=0)[1:] + 1]))
        best.append(np.concatenate([best[-1][:1], total.min(axis=0)[1:]]))
    found = []
    for n_buckets in range(1, len(best) + 1):
        cuts = [n_chunks]
        for level in reversed(range(n_buckets)):
            cuts.append(int(before[level][cuts[-1] - 1]))
        found.append(sorted(set(cuts) | {0}))
    return found


def _slots(lengths: Array, padded_lengths: Array) -> Array:
    """The positions of the tokens of sentences of `lengths` when each is padded to its `padded_lengths`."""
    starts = np.cumsum(padded_lengths) - padded_lengths
    within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    found: Array = (np.repeat(starts, lengths) + within).astype(np.int32)
    return found
