"""Batches of encoded sentences: which pairs make up update n, and their layout in tensors.

Shapes: S source and T target tokens of all pairs of a batch, L links between them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from transformer_cli.data.cache import Alignment, Array, EncodedCorpus, gather
from transformer_cli.data.shuffling import Mixture, Part, permutation_at, shuffled
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.data.transfer import to_device

_GROUPS_PER_UPDATE = 8  # different lengths in an update, and still long runs of one length
_TOKENS_PER_GROUP = 1024  # at least
_GROUPED_BELOW = 16_384  # target tokens of an update
_PAIRS_PER_WINDOW = 1 << 17  # at most: sentences are sorted by length inside shuffled windows of this size


class Run(NamedTuple):
    """Consecutive pairs with the same source length and the same target length."""

    n_pairs: int
    source_length: int
    target_length: int


@dataclass(frozen=True)
class Batch:
    """Concatenated pairs without padding; the decoder reads `target_in` and predicts `target_out`.

    Where words have labels, these are `target_out`, and `target_in` is the position of the last token of each word.
    """

    source_S: Tensor
    target_in_T: Tensor
    target_out_T: Tensor
    runs: list[Run]
    # Target and source tokens that are linked, as indices into the above, by rising target; None: not aligned.
    links_2L: Tensor | None = field(default=None, kw_only=True)

    @property
    def n_pairs(self) -> int:
        return sum(run.n_pairs for run in self.runs)

    @property
    def n_tokens(self) -> int:
        """The number of tokens of both sides."""
        return len(self.source_S) + self.n_target_tokens

    @property
    def n_target_tokens(self) -> int:
        return len(self.target_out_T)

    @property
    def n_linked(self) -> int:
        """The number of target tokens that have a link."""
        return 0 if self.links_2L is None else len(torch.unique_consecutive(self.links_2L[0]))

    def to(self, device: torch.device) -> "Batch":
        """This batch on `device`."""
        source_S, in_T, out_T = (to_device(x, device) for x in (self.source_S, self.target_in_T, self.target_out_T))
        return Batch(source_S, in_T, out_T, self.runs)

    def halves(self) -> tuple["Batch", "Batch"]:
        """The first half of the pairs, and the others."""
        wanted = self.n_pairs // 2
        first: list[Run] = []
        second: list[Run] = []
        for run in self.runs:
            taken = min(run.n_pairs, wanted - sum(one.n_pairs for one in first))
            first += [run._replace(n_pairs=taken)] if taken else []
            second += [run._replace(n_pairs=run.n_pairs - taken)] if taken < run.n_pairs else []
        s, t = (
            sum(run.n_pairs * run.source_length for run in first),
            sum(run.n_pairs * run.target_length for run in first),
        )
        links: tuple[Tensor | None, Tensor | None] = (None, None)
        if self.links_2L is not None:
            is_first_L = self.links_2L[0] < t
            links = self.links_2L[:, is_first_L], self.links_2L[:, ~is_first_L] - torch.tensor([[t], [s]])
        return (
            Batch(self.source_S[:s], self.target_in_T[:t], self.target_out_T[:t], first, links_2L=links[0]),
            Batch(self.source_S[s:], self.target_in_T[t:], self.target_out_T[t:], second, links_2L=links[1]),
        )

    def pairs(self) -> Iterator[tuple[list[int], list[int]]]:
        """Source and target ids of each pair, both with EOS."""
        s = t = 0
        for n_pairs, source_length, target_length in self.runs:
            for _ in range(n_pairs):
                yield self.source_S[s : s + source_length].tolist(), self.target_out_T[t : t + target_length].tolist()
                s, t = s + source_length, t + target_length


class BatchPlan:
    """The sentences of every update, a pure function of (seed, step): there is no state to save or restore.

    An epoch is a permutation of all sentences, cut into shuffled windows. A window is sorted by length and cut at equal
    numbers of target tokens into groups of similar length, and an update is a few of its groups drawn at random. Large
    updates are cut from the permutation itself: they hold sentences of each length anyway, and nearly equal numbers of
    source tokens, which batches of fixed size need. Each window is computed on its own: random access to any step
    takes constant time, and memory does not grow with the corpus.
    Every epoch has the same number of updates and every sentence exactly once, or those of each of `parts` as often as
    its `times` requires. Updates are nearly equal parts of the epoch, as close to `tokens_per_update` as possible.
    """

    def __init__(
        self,
        source_lengths: Array,
        target_lengths: Array,
        *,
        tokens_per_update: int,
        seed: int,
        parts: Sequence[Part] = (),
        pairs_per_window: int = _PAIRS_PER_WINDOW,
    ) -> None:
        assert len(source_lengths) == len(target_lengths) > 0
        assert sum(part.n_pairs for part in parts) in (0, len(target_lengths))
        self._source_lengths, self._target_lengths, self._seed = source_lengths, target_lengths, seed
        self._mixture = Mixture(parts, seed) if parts else None
        longest, total = int(target_lengths.max()), int(target_lengths.sum(dtype=np.int64))
        self._n_pairs = len(target_lengths)  # of an epoch, as all below
        if self._mixture is not None:
            self._n_pairs, total = self._mixture.n_pairs, self._mixture.total(target_lengths)
        assert 0 < longest <= tokens_per_update, f"a target of {longest} tokens in updates of {tokens_per_update}"
        self.updates_per_epoch = updates_per_epoch(total, longest, tokens_per_update)
        self.tokens_per_update = total / self.updates_per_epoch
        group = max(longest, _TOKENS_PER_GROUP)
        self._is_grouped = self.tokens_per_update < _GROUPED_BELOW
        self._groups_per_update = 1
        if self._is_grouped:
            self._groups_per_update = max(1, min(_GROUPS_PER_UPDATE, int(self.tokens_per_update) // group))
        self._n_windows = min(self.updates_per_epoch, -(-self._n_pairs // pairs_per_window))
        nothing = np.empty(0, np.int64)
        self._made = ((-1, -1), nothing, nothing)  # the latest window; one attribute, since threads may share a plan

    def update(self, step: int) -> Array:
        """Indices of the sentences of update `step`, counted from 0 over the whole run."""
        epoch, position = divmod(step, self.updates_per_epoch)
        window = ((position + 1) * self._n_windows - 1) // self.updates_per_epoch
        made, order, bounds = self._made
        if (epoch, window) != made:
            order, bounds = self._window(epoch, window)
            self._made = (epoch, window), order, bounds
        first = (position - self._first_update(window)) * self._groups_per_update
        return order[bounds[first] : bounds[first + self._groups_per_update]]

    def _first_update(self, window: int) -> int:
        return window * self.updates_per_epoch // self._n_windows

    def _window(self, epoch: int, window: int) -> tuple[Array, Array]:
        """The window's sentences, group after group, and where each group starts."""
        updates = self._first_update(window), self._first_update(window + 1)
        pairs = [update * self._n_pairs // self.updates_per_epoch for update in updates]
        members = np.sort(permutation_at(np.arange(*pairs), self._n_pairs, self._random(epoch, 0, 1)))
        if self._mixture is not None:
            members = self._mixture.sentences(members, epoch)
        random = self._random(epoch, window, 0)
        order = members[shuffled(len(members), random)]
        if self._is_grouped:
            order = order[np.lexsort((self._target_lengths[order], self._source_lengths[order]))]

        n_groups = self._groups_per_update * (updates[1] - updates[0])
        sizes = _equal_parts(self._target_lengths[order], n_groups)
        # Shuffle the groups; within a group the order stays.
        place = shuffled(n_groups, random)
        rank = np.repeat(np.argsort(place), sizes)
        return order[np.argsort(rank, kind="stable")], np.concatenate(([0], np.cumsum(sizes[place])))

    def _random(self, epoch: int, window: int, purpose: int) -> np.random.Philox:
        """Independent random bits for each combination of the arguments."""
        key, counter = np.array([self._seed, epoch], np.uint64), np.array([0, 0, purpose, window], np.uint64)
        return np.random.Philox(key=key, counter=counter)


def updates_per_epoch(n_tokens: int, longest: int, tokens_per_update: int) -> int:
    """The updates per epoch, so that each has at least the tokens of the longest sentence."""
    return max(1, min(round(n_tokens / tokens_per_update), n_tokens // longest))


def _equal_parts(lengths: Array, n: int) -> Array:
    """How many sentences, one after another, go into each of `n` parts of nearly equal tokens; none is empty."""
    lengths = lengths.astype(np.int64)
    part = (np.cumsum(lengths) - lengths) * n // lengths.sum()
    numbers = np.arange(n)
    starts = np.searchsorted(part, numbers)
    starts = np.maximum.accumulate(starts - numbers) + numbers  # these two lines keep parts from being empty
    starts = np.minimum(starts, len(lengths) - n + numbers)
    return np.diff(np.append(starts, len(lengths)))


def micro_batches(corpus: EncodedCorpus, indices: Array, tokenizers: Tokenizers, *, max_tokens: int) -> list[Batch]:
    """The sentences at `indices` as batches of at most `max_tokens` tokens a side, or a single pair.

    Batches hold sentences of similar length; their number is minimal, and their sizes are nearly equal.
    """
    source_lengths, target_lengths = corpus.source_lengths[indices], corpus.target_lengths[indices]
    order = np.lexsort((target_lengths, source_lengths))
    ends = [np.cumsum(lengths[order], dtype=np.int64) for lengths in (source_lengths, target_lengths)]
    return [_batch(corpus, indices[order[rows]], tokenizers) for rows in _cuts(ends, max_tokens)]


def _cuts(ends: Sequence[Array], max_tokens: int) -> list[slice]:
    """The fewest slices of consecutive rows that have at most `max_tokens` tokens a side, or a single row.

    `ends` counts each side's tokens up to each row's end. The largest slice is within 1 % of the least possible: ranks
    that share the slices wait little for each other.
    """
    cuts = _greedy_cuts(ends, max_tokens)
    low, high = max(int(side[-1]) for side in ends) // len(cuts), max_tokens
    while high - low > 1 + high // 100:
        limit = (low + high) // 2
        tried = _greedy_cuts(ends, limit)
        if len(tried) > len(cuts):
            low = limit
        else:
            high, cuts = limit, tried
    return cuts


def _greedy_cuts(ends: Sequence[Array], limit: int) -> list[slice]:
    """Slices cut greedily: each takes as many rows as the limit allows."""
    cuts, start, n_rows = [], 0, len(ends[0])
    while start < n_rows:
        before = [side[start - 1] if start else 0 for side in ends]
        most = min(
            int(np.searchsorted(side, first + limit, side="right")) for side, first in zip(ends, before, strict=True)
        )
        cuts.append(slice(start, max(start + 1, most)))
        start = cuts[-1].stop
    return cuts


def _batch(corpus: EncodedCorpus, indices: Array, tokenizers: Tokenizers) -> Batch:
    sides = source_lengths, target_lengths = corpus.source_lengths[indices], corpus.target_lengths[indices]
    source_S = gather(corpus.source_ids, corpus.source_offsets[indices], source_lengths).astype(np.int64)
    target_T = gather(corpus.target_ids, corpus.target_offsets[indices], target_lengths).astype(np.int64)
    if corpus.word_ends is not None:
        target_in_T = gather(corpus.word_ends, corpus.target_offsets[indices], target_lengths).astype(np.int64)
    else:
        target_in_T = np.roll(target_T, 1)
        target_in_T[np.cumsum(target_lengths) - target_lengths] = tokenizers.target.bos_id
    return Batch(
        source_S=torch.from_numpy(source_S),
        target_in_T=torch.from_numpy(target_in_T),
        target_out_T=torch.from_numpy(target_T),
        runs=_runs(source_lengths, target_lengths),
        links_2L=None if corpus.alignment is None else _links(corpus.alignment.pick(indices), sides),
    )


def _links(alignment: Alignment, sides: Sequence[Array]) -> Tensor:
    """`Batch.links_2L` of all pairs of a batch, whose source and target lengths are `sides`."""
    n = np.diff(alignment.offsets)
    source, target = (np.repeat(np.cumsum(lengths, dtype=np.int64) - lengths, n) for lengths in sides)
    return torch.from_numpy(np.stack([alignment.targets + target, alignment.sources + source]))


def _runs(source_lengths: Array, target_lengths: Array) -> list[Run]:
    changes = np.flatnonzero((np.diff(source_lengths) != 0) | (np.diff(target_lengths) != 0)) + 1
    starts = np.concatenate(([0], changes))
    sizes = np.diff(np.append(starts, len(source_lengths)))
    columns = (sizes.tolist(), source_lengths[starts].tolist(), target_lengths[starts].tolist())
    return [Run(*run) for run in zip(*columns, strict=True)]
