"""A dry run: the largest batches that a run can meet, and updates with them, before it starts.

It uses the trainer, the batches and the schedule of training itself, and writes nothing.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from transformer_cli.config.train import TrainConfig
from transformer_cli.data.batching import Batch, micro_batches
from transformer_cli.data.cache import Array, EncodedCorpus
from transformer_cli.data.feed import Feed
from transformer_cli.data.prepare import Prepared
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.errors import EnvironmentFault
from transformer_cli.training.schedules import build_schedule
from transformer_cli.training.trainer import Trainer

FEW_SENTENCES = 8
WORST_SECONDS = 20.0  # a batch that would take longer is not tried: the device is too slow for the run anyway


@dataclass(frozen=True)
class BatchShape:
    """Rows and length of a batch whose source and target sentences are all equally long."""

    rows: int
    length: int

    @property
    def tokens(self) -> int:
        return self.rows * self.length

    def __str__(self) -> str:
        return f"{self.rows:,} × {self.length:,} tokens a side"


class DryRun:
    """A trainer at step 0. Raises what `Trainer` raises, and RuntimeError without enough memory."""

    def __init__(self, config: TrainConfig, prepared: Prepared, device: torch.device) -> None:
        self.config, self.tokenizers, self.device = config, prepared.tokenizers, device
        self.trainer = Trainer(config, prepared.tokenizers, device)
        self.schedule = build_schedule(config.schedule, d_model=config.model.d_model, max_steps=config.train.max_steps)
        self.feed = Feed(config, prepared)
        self.corpus = self.feed.pairs(1)  # changed as they are for training
        self.trainer.expect(self.feed.expected(), longest=self.feed.longest)
        self.seconds_per_token = 0.0  # of the last update
        self.is_finite = True

    def run(self, batches: Sequence[Batch], *, step: int = 1) -> float:
        """One update; the seconds that it took, to the end. OutOfMemoryError where training would split batches."""
        start, n_splits = time.perf_counter(), self.trainer.n_splits
        try:
            stats = self.trainer.train_step(batches, step=step, lr=self.schedule(step))
        except EnvironmentFault as fault:  # for a single sentence
            raise torch.OutOfMemoryError from fault
        if self.trainer.n_splits > n_splits:
            raise torch.OutOfMemoryError
        _finish(self.device)
        seconds = time.perf_counter() - start
        self.is_finite = self.is_finite and bool(stats.finite)
        self.seconds_per_token = seconds / n_tokens_of(batches)
        return seconds

    def warm_up(self) -> None:
        """Updates of a few sentences: the optimizer allocates its state, and the speed becomes known."""
        for n_sentences in (FEW_SENTENCES, FEW_SENTENCES, 8 * FEW_SENTENCES):  # the first pays for all that is loaded
            few, limit = np.arange(min(n_sentences, len(self.corpus))), self.config.train.max_tokens_per_microbatch
            batches = micro_batches(self.corpus, few, self.tokenizers, max_tokens=limit)
            if n_tokens_of(batches) * self.seconds_per_token < WORST_SECONDS:
                self.run(batches)


def worst_shapes(longest: int, max_tokens: int) -> list[BatchShape]:
    """The batches that take most memory of all that `micro_batches` can make of sentences up to `longest` tokens.

    That is the longest sentence on both sides, as often as it fits in; where it leaves much of `max_tokens` unused,
    also shorter sentences that use them.
    """
    rows = max(1, max_tokens // longest)
    shapes = [BatchShape(rows, longest)]
    fuller = BatchShape(rows + 1, max_tokens // (rows + 1))
    if fuller.tokens > 1.1 * shapes[0].tokens:
        shapes.append(fuller)
    return shapes


def batch_of(shape: BatchShape, corpus: EncodedCorpus, tokenizers: Tokenizers) -> Batch:
    """A batch of `shape` without padding, of the corpus's own tokens and made by the code that makes every batch."""

    def side(ids: Array, end_ids: list[int]) -> list[Array]:
        if not len(ids):  # the source of a language model
            return [ids] * shape.rows
        filled = np.resize(ids[: shape.tokens], shape.tokens)
        if end_ids:
            filled[shape.length - 1 :: shape.length] = end_ids
        return list(filled.reshape(shape.rows, shape.length))

    sources = side(corpus.source_ids, tokenizers.source.end_ids)
    if tokenizers.labels or corpus.word_ends is not None:
        # What is classified has one target each, an answer two, and a word is one token at least; masks are a share of
        # the tokens.
        n_targets = int(corpus.target_lengths[0])
        if corpus.word_ends is not None:
            n_targets = max(1, shape.length - len(tokenizers.source.end_ids))
            if not tokenizers.labels:
                n_targets = -(-n_targets * len(corpus.target_ids) // len(corpus.source_ids))
        labels = np.resize(corpus.target_ids, (shape.rows, n_targets))
        if corpus.word_ends is None and n_targets > 1:
            labels = labels % shape.length  # they are positions in the source
        word_ends = None if corpus.word_ends is None else [np.arange(n_targets)] * shape.rows
        full = EncodedCorpus.of(sources, list(labels), word_ends)
    else:
        full = EncodedCorpus.of(sources, side(corpus.target_ids, tokenizers.target.end_ids))
    (batch,) = micro_batches(full, np.arange(shape.rows), tokenizers, max_tokens=shape.tokens)
    return batch


def n_tokens_of(batches: Sequence[Batch]) -> int:
    return sum(batch.n_tokens for batch in batches)


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
