"""The batches of each update of a run."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from transformer_cli.config.train import TrainConfig
from transformer_cli.data.batching import Batch, BatchPlan, micro_batches, updates_per_epoch
from transformer_cli.data.cache import Array, EncodedCorpus, same_ids
from transformer_cli.data.pair_changes import PAIR_CHANGES, pair_changes
from transformer_cli.data.prepare import Prepared
from transformer_cli.data.shuffling import Mixture
from transformer_cli.data.subwords import resegmented, sentence_seeds

_SAMPLED = 50  # updates


@dataclass(frozen=True)
class Epoch:
    """One pass over the training pairs, as often over each as `data.weights` and `data.temperature` say."""

    n_pairs: int
    n_tokens: int  # target tokens; of sentences that are classified, source tokens
    longest: int  # of these, in a sentence

    def updates(self, tokens_per_update: int) -> int:
        return updates_per_epoch(self.n_tokens, self.longest, tokens_per_update)


def epoch_of(config: TrainConfig, prepared: Prepared) -> Epoch:
    lengths = _counted_lengths(config, prepared.train)
    longest = int(lengths.max())
    if not prepared.parts:
        return Epoch(len(lengths), int(lengths.sum(dtype=np.int64)), longest)
    mixture = Mixture(prepared.parts, config.seed)
    return Epoch(mixture.n_pairs, mixture.total(lengths), longest)


def _counted_lengths(config: TrainConfig, corpus: EncodedCorpus) -> Array:
    """The lengths that tokens_per_update counts: of the targets, in classification of the sources."""
    return corpus.source_lengths if config.data.trained.labels_lines else corpus.target_lengths


class Feed:
    """The sentences of every update as pairs and as batches: a pure function of the step, counted from 1.

    With `data.augment`, `data.changes` and `data.subword_dropout` the text and the pieces of a pair depend on the seed,
    the epoch and its place in the corpus. The plan goes by the lengths that are stored, so that an update has some
    more tokens then; a batch has no more than it may. Threads may share a feed.
    """

    def __init__(self, config: TrainConfig, prepared: Prepared) -> None:
        self._corpus, self._tokenizers, self._seed = prepared.train, prepared.tokenizers, config.seed
        self._dropout, self._max_length = config.data.subword_dropout, config.data.max_length
        self._max_tokens = config.train.max_tokens_per_microbatch
        self.plan = BatchPlan(
            self._corpus.source_lengths,
            _counted_lengths(config, self._corpus),
            tokens_per_update=config.train.tokens_per_update,
            seed=config.seed,
            parts=prepared.parts,
        )
        self._changes = [PAIR_CHANGES[name](config, prepared) for name in pair_changes(config.data)]

    @property
    def longest(self) -> int:
        """Tokens of the longest sentence that there can be."""
        if self._dropout or self._changes:
            return self._max_length
        return int(max(self._corpus.source_lengths.max(), self._corpus.target_lengths.max()))

    def pairs(self, step: int) -> EncodedCorpus:
        """The pairs of an update, in memory."""
        return self._pairs(self.plan.update(step - 1), epoch=(step - 1) // self.plan.updates_per_epoch)

    def batches(self, step: int) -> list[Batch]:
        """The batches of an update."""
        pairs = self.pairs(step)
        return micro_batches(pairs, np.arange(len(pairs)), self._tokenizers, max_tokens=self._max_tokens)

    def expected(self) -> Iterator[Batch]:
        """The batches of some updates, from which fixed batch sizes are chosen."""
        return (batch for step in range(1, _SAMPLED + 1) for batch in self.batches(step))

    def _pairs(self, indices: Array, *, epoch: int) -> EncodedCorpus:
        pairs = stored = self._corpus.pick(indices)
        for change in self._changes:
            pairs = change(pairs, indices, epoch=epoch)
        if stored.alignment is not None and pairs is not stored:
            unchanged = same_ids(pairs, stored)
            pairs = replace(pairs, alignment=stored.alignment.only(unchanged))  # links are of the tokens as prepared
        if not self._dropout:
            return pairs
        seeds = sentence_seeds(indices, seed=self._seed, epoch=epoch)
        return resegmented(pairs, self._tokenizers, seeds, dropout=self._dropout, max_length=self._max_length)
