"""Dev scores: the negative log-likelihood of all dev pairs, and BLEU by the Translator that `tfm translate` uses.

Shapes: T target tokens of a batch, V vocabulary.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_cli.data.batching import Batch, micro_batches
from transformer_cli.data.cache import EncodedCorpus
from transformer_cli.data.corpus import ParallelText
from transformer_cli.data.prepare import Prepared
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.decoding.translator import Translator
from transformer_cli.errors import DataError
from transformer_cli.evaluation.metrics import Score, bleu
from transformer_cli.logs import LOGGER
from transformer_cli.models.sentences import Packed
from transformer_cli.models.transformer import Transformer
from transformer_cli.schema import Metric, TrainConfig

LONGEST_PICTURE = 24  # tokens

Rank = tuple[float, float]  # of an evaluation: the higher, the better; the second number decides between equals


@dataclass(frozen=True)
class DevScores:
    nll: float  # nats per target token
    bleu: Score
    translations: list[str]

    def rank(self, metric: Metric) -> Rank:
        return (self.bleu.value, -self.nll) if metric is Metric.bleu else (-self.nll, self.bleu.value)

    def as_dict(self) -> dict[str, Any]:
        """What is written down; a number that is none is left out, as JSON has no word for it."""
        numbers = {"dev_nll": self.nll, "dev_ppl": perplexity(self.nll), "dev_bleu": self.bleu.value}
        finite = {name: value for name, value in numbers.items() if math.isfinite(value)}
        return {**finite, "bleu_signature": self.bleu.signature}


class Validator:
    """Scores a model on the dev set, always in the same way."""

    def __init__(self, config: TrainConfig, prepared: Prepared, device: torch.device) -> None:
        self.config, self.tokenizers, self.device = config, prepared.tokenizers, device
        self.text = prepared.dev.pick(range(min(len(prepared.dev), config.train.eval_lines)))
        self.corpus = encode_pairs(prepared.dev, prepared.tokenizers, max_length=config.data.max_length)
        indices = np.arange(len(self.corpus))
        self.batches = micro_batches(self.corpus, indices, self.tokenizers, max_tokens=config.train.tokens_per_batch)

    def score(
        self,
        model: Transformer,
        autocast: Callable[[], AbstractContextManager[Any]],
        between: Callable[[], None] = lambda: None,
    ) -> DevScores:
        """`between` is called after every batch, and may raise to end it."""
        model.eval()
        try:
            nll = self._nll(model, autocast, between)
            translator = Translator(
                model, self.tokenizers, self.config.decode, device=self.device, seed=self.config.seed
            )
            translated = translator.translate(self.text.sources, on_progress=lambda n_lines: between())
        finally:
            model.train()
        translations = [line.text for line in translated]
        return DevScores(nll, bleu(translations, [self.text.targets]), translations)

    def nll(
        self,
        model: Transformer,
        autocast: Callable[[], AbstractContextManager[Any]],
        between: Callable[[], None] = lambda: None,
    ) -> float:
        """Nats per target token alone: what `score` says of it, without a translation."""
        model.eval()
        try:
            return self._nll(model, autocast, between)
        finally:
            model.train()

    def examples(self, scores: DevScores) -> Iterator[tuple[str, str, str]]:
        """Source, reference and translation of the first dev pairs."""
        rows = zip(self.text.sources, self.text.targets, scores.translations, strict=True)
        return islice(rows, self.config.train.samples)

    def attention(self, model: Transformer) -> dict[str, list[Tensor]]:
        """The weights of every layer for one dev pair that is short enough to be looked at."""
        corpus = self.corpus
        longest = np.maximum(corpus.source_lengths, corpus.target_lengths)
        short = np.flatnonzero(longest <= LONGEST_PICTURE)
        index = short[:1] if len(short) else np.argmin(longest, keepdims=True)
        (batch,) = micro_batches(corpus, index, self.tokenizers, max_tokens=1)
        batch = batch.to(self.device)
        model.eval()
        weights = model.attention_weights(batch.source_S[None], batch.target_in_T[None])
        model.train()
        return weights

    @torch.no_grad()
    def _nll(
        self,
        model: Transformer,
        autocast: Callable[[], AbstractContextManager[Any]],
        between: Callable[[], None],
    ) -> float:
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for batch in self.batches:
            with autocast():
                logits_TV, targets_T = predict(model, batch, self.device)
            total += F.cross_entropy(logits_TV.float(), targets_T, reduction="sum")
            between()
        return total.item() / sum(batch.n_target_tokens for batch in self.batches)


def predict(model: Transformer, batch: Batch, device: torch.device) -> tuple[Tensor, Tensor]:
    """Logits at the target tokens of a batch on the CPU, [T, V], and those tokens, on `device`."""
    source = Packed([(run.n_pairs, run.source_length) for run in batch.runs], device)
    target = Packed([(run.n_pairs, run.target_length) for run in batch.runs], device)
    batch = batch.to(device)
    return model.predict(batch.source_S, source, batch.target_in_T, target), batch.target_out_T


def perplexity(nll: float) -> float:
    return math.exp(min(nll, 100))  # an untrained model's must not overflow


def encode_pairs(text: ParallelText, tokenizers: Tokenizers, *, max_length: int) -> EncodedCorpus:
    """The pairs as training has them, with EOS; those that it would have dropped as too long are left out."""
    sources, targets = _encode(tokenizers.source, text.sources), _encode(tokenizers.target, text.targets)
    pairs = [pair for pair in zip(sources, targets, strict=True) if max(map(len, pair)) <= max_length]
    if len(pairs) < len(text):
        n_long = len(text) - len(pairs)
        LOGGER.warning("%d dev pairs exceed data.max_length=%d tokens; dev NLL leaves them out", n_long, max_length)
    if not pairs:
        raise DataError(f"data.dev: none of {len(text)} pairs is within data.max_length={max_length}. Raise it")
    return EncodedCorpus.of([source for source, _ in pairs], [target for _, target in pairs])


def _encode(tokenizer: Tokenizer, lines: Sequence[str]) -> list[list[int]]:
    return [[*ids, tokenizer.eos_id] for ids in tokenizer.encode(lines)]


def shown(scores: dict[str, Any]) -> str:
    """Scores for a log line."""
    return ", ".join(f"{name} {value:.4g}" for name, value in scores.items() if isinstance(value, float))
