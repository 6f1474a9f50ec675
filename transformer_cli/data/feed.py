"""What each update of a run learns from."""

import numpy as np

from transformer_cli.data.batching import Batch, BatchPlan, micro_batches
from transformer_cli.data.cache import EncodedCorpus
from transformer_cli.data.prepare import Prepared
from transformer_cli.schema import TrainConfig


class Feed:
    """The sentences of every update as pairs and as batches: a pure function of the step, counted from 1.

    Threads may share it.
    """

    def __init__(self, config: TrainConfig, prepared: Prepared) -> None:
        self._corpus, self._tokenizers = prepared.train, prepared.tokenizers
        self._max_tokens = config.train.tokens_per_batch
        self.plan = BatchPlan(
            self._corpus.source_lengths,
            self._corpus.target_lengths,
            tokens_per_update=config.train.tokens_per_update,
            seed=config.seed,
            parts=prepared.parts,
        )

    def pairs(self, step: int) -> EncodedCorpus:
        """Those of an update, in memory."""
        return self._corpus.pick(self.plan.update(step - 1))

    def batches(self, step: int) -> list[Batch]:
        """Those of an update."""
        pairs = self.pairs(step)
        return micro_batches(pairs, np.arange(len(pairs)), self._tokenizers, max_tokens=self._max_tokens)
