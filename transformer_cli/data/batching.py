"""Encoded sentences to batches: which pairs make up update n, and how they are padded.

B sentences of a batch, S source and T target length.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from transformer_cli.data.cache import Array, EncodedCorpus
from transformer_cli.data.tokenizer import Tokenizers

_GROUPS_PER_UPDATE = 8  # mixed lengths in an update, and still little padding in each micro-batch
_TOKENS_PER_GROUP = 1024  # at least: a smaller one cannot fill a micro-batch without padding
_UPDATES_PER_WINDOW = 100  # sentences are sorted by length inside shuffled windows of this size


@dataclass(frozen=True)
class Batch:
    """Padded pairs. Masks are True at real tokens; the decoder reads `target_in` and predicts `target_out`."""

    source_BS: Tensor
    target_in_BT: Tensor
    target_out_BT: Tensor
    source_mask_BS: Tensor
    target_mask_BT: Tensor
    n_target_tokens: int

    def to(self, device: torch.device) -> "Batch":
        """This batch on `device`; a copy to a GPU goes through pinned memory and is not waited for."""

        def move(tensor: Tensor) -> Tensor:
            return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)

        return Batch(
            source_BS=move(self.source_BS),
            target_in_BT=move(self.target_in_BT),
            target_out_BT=move(self.target_out_BT),
            source_mask_BS=move(self.source_mask_BS),
            target_mask_BT=move(self.target_mask_BT),
            n_target_tokens=self.n_target_tokens,
        )

    def rows(self, which: slice) -> "Batch":
        """Some of the pairs, padded as before."""
        return Batch(
            source_BS=self.source_BS[which],
            target_in_BT=self.target_in_BT[which],
            target_out_BT=self.target_out_BT[which],
            source_mask_BS=self.source_mask_BS[which],
            target_mask_BT=self.target_mask_BT[which],
            n_target_tokens=int(self.target_mask_BT[which].sum()),
        )


class BatchPlan:
    """The sentences of every update, a pure function of (seed, step): there is no state to save or restore.

    An epoch is a shuffle of all sentences, sorted by length inside large windows, and cut at equal numbers of target
    tokens into groups of like length; an update is a handful of groups drawn at random. As the cuts fall at fixed
    fractions of the epoch's tokens, every epoch has the same number of updates and every sentence exactly once.
    An update is as near to `tokens_per_update` as equal parts of the corpus come, and no smaller than a sentence.
    """

    def __init__(self, source_lengths: Array, target_lengths: Array, *, tokens_per_update: int, seed: int) -> None:
        assert len(source_lengths) == len(target_lengths) > 0
        self._source_lengths, self._target_lengths, self._seed = source_lengths, target_lengths, seed
        longest, total = int(target_lengths.max()), int(target_lengths.sum(dtype=np.int64))
        assert 0 < longest <= tokens_per_update, f"a target of {longest} tokens in updates of {tokens_per_update}"
        # A part of the epoch that is as large as the longest sentence cannot come out empty.
        self.updates_per_epoch = max(1, min(round(total / tokens_per_update), total // longest))
        tokens_in_update = total // self.updates_per_epoch
        group = max(longest, _TOKENS_PER_GROUP)
        self._groups_per_update = max(1, min(_GROUPS_PER_UPDATE, tokens_in_update // group))
        self._n_groups = self._groups_per_update * self.updates_per_epoch
        self._total = total
        self._epoch = -1  # of the two arrays below
        self._order = self._bounds = np.empty(0, np.int64)

    def update(self, step: int) -> Array:
        """Indices of the sentences of update `step`, counted from 0 over the whole run."""
        epoch, position = divmod(step, self.updates_per_epoch)
        if epoch != self._epoch:
            self._order, self._bounds = self._plan(epoch)
            self._epoch = epoch
        first = position * self._groups_per_update
        return self._order[self._bounds[first] : self._bounds[first + self._groups_per_update]]

    def _plan(self, epoch: int) -> tuple[Array, Array]:
        """The epoch's sentences, group after group, and where each group starts."""
        random = np.random.Philox(key=np.array([self._seed, epoch], np.uint64))
        order = _shuffled(len(self._target_lengths), random)
        n_windows = -(-self.updates_per_epoch // _UPDATES_PER_WINDOW)
        window = np.arange(len(order)) * n_windows // len(order)
        order = order[np.lexsort((self._target_lengths[order], self._source_lengths[order], window))]

        lengths = self._target_lengths[order].astype(np.int64)
        group = (np.cumsum(lengths) - lengths) * self._n_groups // self._total
        # Put the groups in random order; inside a group the order stays.
        rank = np.argsort(_shuffled(self._n_groups, random))
        order = order[np.argsort(rank[group], kind="stable")]
        sizes = np.bincount(rank[group], minlength=self._n_groups)
        return order, np.concatenate(([0], np.cumsum(sizes)))


def _shuffled(n: int, random: np.random.Philox) -> Array:
    """A permutation of 0..n-1 made of raw bits, which NumPy promises never to change, unlike its own shuffles."""
    return np.argsort(random.random_raw(n), kind="stable")


def micro_batches(corpus: EncodedCorpus, indices: Array, tokenizers: Tokenizers, *, max_cells: int) -> list[Batch]:
    """The sentences at `indices` as padded batches of at most `max_cells` cells a side (rows × longest).

    Sentences of like length come together. One that is longer than `max_cells` makes a batch of its own.
    """
    source_lengths, target_lengths = corpus.source_lengths[indices], corpus.target_lengths[indices]
    longer = np.maximum(source_lengths, target_lengths)
    order = np.lexsort((source_lengths + target_lengths, longer))
    return [_batch(corpus, indices[order[rows]], tokenizers) for rows in _cuts(longer[order], max_cells)]


def _cuts(lengths: Array, max_cells: int) -> Iterator[slice]:
    """Slices of consecutive rows whose rows × longest stays within `max_cells`; `lengths` are in ascending order."""
    start = 0
    while start < len(lengths):
        cells = lengths[start:] * np.arange(1, len(lengths) - start + 1)  # of a batch up to each row; it only grows
        end = start + max(1, int(np.searchsorted(cells, max_cells, side="right")))
        yield slice(start, end)
        start = end


def _batch(corpus: EncodedCorpus, indices: Array, tokenizers: Tokenizers) -> Batch:
    source, target = tokenizers.source, tokenizers.target
    source_BS, source_mask_BS = _padded(corpus.source_ids, corpus.source_offsets, indices, source.pad_id)
    target_BT, target_mask_BT = _padded(corpus.target_ids, corpus.target_offsets, indices, target.pad_id)
    shifted_BT = np.roll(target_BT, 1, axis=1)
    shifted_BT[:, 0] = target.bos_id
    return Batch(
        source_BS=torch.from_numpy(source_BS),
        target_in_BT=torch.from_numpy(np.where(target_mask_BT, shifted_BT, target.pad_id)),
        target_out_BT=torch.from_numpy(target_BT),
        source_mask_BS=torch.from_numpy(source_mask_BS),
        target_mask_BT=torch.from_numpy(target_mask_BT),
        n_target_tokens=int(target_mask_BT.sum()),
    )


def _padded(ids: Array, offsets: Array, indices: Array, pad_id: int) -> tuple[Array, Array]:
    """The sentences at `indices` as rows of one int64 array, and a mask that is True at their tokens."""
    starts, ends = offsets[indices], offsets[indices + 1]
    positions_BL = starts[:, None] + np.arange((ends - starts).max())
    mask_BL = positions_BL < ends[:, None]
    rows_BL = np.full(positions_BL.shape, pad_id, np.int64)
    rows_BL[mask_BL] = ids[positions_BL[mask_BL]]
    return rows_BL, mask_BL
