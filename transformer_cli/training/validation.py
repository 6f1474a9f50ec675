"""Dev scores: the negative log-likelihood of all dev pairs, and the metrics of the task.

Shapes: T target tokens of a batch, V vocabulary.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_cli.config.checks import AUTO
from transformer_cli.config.compose import to_plain
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.model import Positions
from transformer_cli.config.tasks import ACCURACY, BLEU
from transformer_cli.config.train import TrainConfig, ranking_metric
from transformer_cli.data.batching import micro_batches
from transformer_cli.data.cache import EncodedCorpus
from transformer_cli.data.context import ContextEncoder, without_breaks
from transformer_cli.data.corpus import ParallelText, text_sha256
from transformer_cli.data.prepare import Prepared
from transformer_cli.data.sentences import share_of_several, translates_letterless
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.decoding.torch_engine import torch_translator
from transformer_cli.decoding.training_text import TrainingText
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.evaluation.metrics import METRICS, MetricSettings, MetricUnavailable, Score, Translations
from transformer_cli.evaluation.tokenization import PLAIN, warn_of_script
from transformer_cli.inference.batch_invariance import check_batch_invariance
from transformer_cli.logs import LOGGER
from transformer_cli.models.device import release_cpu_memory
from transformer_cli.models.kernel_choice import choose_kernel
from transformer_cli.models.transformer import Model, Transformer
from transformer_cli.training.dev_metrics import (
    CHRF,
    EVAL_LINES,
    METRIC,
    chrf_decides,
    dev_metrics,
    dev_tokens,
    ranked_by,
)
from transformer_cli.training.forward import predict_batch
from transformer_cli.training.precision import choose_dtype

LONGEST_PICTURE = 24  # tokens
IGNORED = -100  # the target of a word whose label the model does not have: torch's cross entropy leaves it out

Rank = tuple[float, float]  # of an evaluation: the higher, the better; the second number decides between equals


@dataclass(frozen=True)
class Trust:
    """How far a dev score decides; beyond that the NLL does, which every target token of the dev set has a part in.

    Scores below `floor` come from a few chance matches, and two that differ by no more than `noise` are a tie.
    """

    floor: float
    noise: float

    def order(self, rank: Rank, highest: float) -> tuple[float, ...]:
        """The higher, the better, where `highest` is the best score until now.

        Ties are with the highest score, not with that of the best checkpoint: many small steps down are none.
        """
        score, negative_nll = rank
        if highest < self.floor or score >= highest - self.noise:
            return 1.0, negative_nll, score
        return 0.0, score, negative_nll


@dataclass(frozen=True)
class Sample:
    """One dev sentence: its source, its reference, and the output of the model."""

    source: str
    reference: str
    output: str


@dataclass(frozen=True)
class DevScores:
    """Scores of every task; a language model has no others."""

    nll: float  # nats per target token

    @property
    def summary(self) -> str:
        """One line for the log."""
        return f"nll {self.nll:.3f}, perplexity {perplexity(self.nll):.4g}"

    def rank(self, metric: str) -> Rank:
        """The rank by the metric with this name; the NLL decides between equals."""
        return -self.nll, 0.0

    def as_dict(self) -> dict[str, Any]:
        """The entries of metrics.jsonl; a NaN is left out, as JSON has none."""
        numbers = {"dev_nll": self.nll, "dev_ppl": perplexity(self.nll), **self._of_the_task()}
        return {name: value for name, value in numbers.items() if math.isfinite(value)}

    def _of_the_task(self) -> dict[str, float]:
        return {}


LABELS = {"bleu": "BLEU", "spbleu": "spBLEU", "chrf": "chrF", "chrf++": "chrF++", "ter": "TER"}  # where people read


@dataclass(frozen=True)
class TranslationScores(DevScores):
    scores: Mapping[str, Score]  # by the name of the metric: `train.metrics`, with chrF in place of a missing BLEU
    translations: list[str]
    parts: Mapping[str, Mapping[str, Score]] = field(default_factory=dict)  # of each corpus of the dev set, by its name

    @property
    def summary(self) -> str:
        shown = [f"{score.name} {score.value:.{score.digits}f} ({score.signature})" for score in self.scores.values()]
        of_parts = "".join(
            f"; {part} {', '.join(f'{score.value:.{score.digits}f}' for score in scores.values())}"
            for part, scores in self.parts.items()
        )
        return f"{', '.join([f'nll {self.nll:.3f}', *shown])}{of_parts}"

    def rank(self, metric: str) -> Rank:
        if metric in self.scores:
            return _signed(self.scores[metric]), -self.nll
        return -self.nll, _signed(next(iter(self.scores.values()))) if self.scores else 0.0

    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), **{f"{name}_signature": score.signature for name, score in self.scores.items()}}

    def _of_the_task(self) -> dict[str, float]:
        of_parts = {
            f"dev_{name} {part}": score.value for part, scores in self.parts.items() for name, score in scores.items()
        }
        return {**{f"dev_{name}": score.value for name, score in self.scores.items()}, **of_parts}


def _signed(score: Score) -> float:
    """The higher, the better."""
    return score.value if score.higher_is_better else -score.value


# Of each metric: the score below which a few chance matches decide, and its noise times the square root of the number
# of lines, for which docs/training.md has the measurement. Of equal accuracies the NLL decides.
TRUSTED = {BLEU: (5.0, 10.0), CHRF: (20.0, 7.0), ACCURACY: (0.0, 0.0)}

Autocast = Callable[[], AbstractContextManager[Any]]


class Validator(ABC):
    """Scores a model on the dev set."""

    def __init__(self, config: TrainConfig, prepared: Prepared, device: torch.device) -> None:
        self.config, self.tokenizers, self.device = config, prepared.tokenizers, device
        self.dev = prepared.dev
        self.multi_sentence_share: float | None = None  # of the training text, where that is translated
        self.translates_letterless = False
        self.text = prepared.dev.first(config.train.eval_lines)
        self.corpus = self.encode(prepared.dev)
        indices = np.arange(len(self.corpus))
        self.batches = micro_batches(
            self.corpus, indices, self.tokenizers, max_tokens=config.train.max_tokens_per_microbatch
        )

    def check(self, model: Model) -> None:
        """Raise ConfigError for a model whose dev scores cannot be computed."""
        return

    @abstractmethod
    def encode(self, text: ParallelText) -> EncodedCorpus:
        """The dev set as token ids, made as those of the training text."""

    def ranked_by(self) -> dict[str, Any]:
        """All that a rank depends on beside the model: ranks compare where this is the same."""
        config, dev_sha256 = to_plain(self.config), text_sha256(self.dev)
        found = ranked_by(config, metric=self.metric_signature(), dev_sha256=dev_sha256, n_dev=len(self.dev))
        if EVAL_LINES in found and self.text.parts and not self.config.data.all_tags and len(self.text) < len(self.dev):
            found[EVAL_LINES] = [part.n for part in self.text.parts]
        return found

    @property
    def metric_name(self) -> str:
        """The metric of a rank: that of train.best_metric, if it can be computed."""
        return ranking_metric(self.config.train, self.config.data.trained)

    @property
    def trust(self) -> Trust | None:
        """How far the metric of a rank decides; None where train.best_metric names it, and it decides alone."""
        if self.config.train.best_metric != AUTO or self.metric_name not in TRUSTED:
            return None
        floor, deviation = TRUSTED[self.metric_name]
        return Trust(floor, deviation / math.sqrt(len(self.text)))

    def metric_signature(self) -> str:
        """The metric of a rank with its tokenization."""
        return self.metric_name

    def keep_metric(self, state: Mapping[str, Any]) -> bool:
        """Rank by the metric of a run's earlier ranks, as its checkpoint says; whether that is another one."""
        return False

    def score(self, model: Model, autocast: Autocast, between: Callable[[], None] = lambda: None) -> DevScores:
        """`between` is called after every batch, and may raise to end it."""
        model.eval()
        try:
            return self._score(model, self._nll(model, autocast, between), autocast, between)
        finally:
            model.train()

    def nll(self, model: Model, autocast: Autocast, between: Callable[[], None] = lambda: None) -> float:
        """Nats per target token, without a translation."""
        model.eval()
        try:
            return self._nll(model, autocast, between)
        finally:
            model.train()

    @abstractmethod
    def _score(self, model: Model, nll: float, autocast: Autocast, between: Callable[[], None]) -> DevScores:
        """The metrics of the task, beside the NLL."""

    def samples(self, scores: DevScores) -> Sequence[Sample]:
        """The outputs for the first dev pairs, where they are text."""
        return []

    def attention(self, model: Model) -> dict[str, list[Tensor]]:
        """Attention weights of every layer for one dev pair that is short enough for a picture."""
        corpus = self.corpus
        longest = np.maximum(corpus.source_lengths, corpus.target_lengths)
        short = np.flatnonzero(longest <= LONGEST_PICTURE)
        index = short[:1] if len(short) else np.argmin(longest, keepdims=True)
        (batch,) = micro_batches(corpus, index, self.tokenizers, max_tokens=1)
        batch = batch.to(self.device)
        model.eval()
        weights = model.attention_weights(*self._inputs(batch.source_S[None], batch.target_in_T[None]))
        model.train()
        return {name: layers for name, layers in weights.items() if layers}

    def _inputs(self, source_BS: Tensor, target_in_BT: Tensor) -> Sequence[Tensor]:
        """The arguments of the model's `forward`: what each of its stacks reads."""
        read_by = {"encoder": source_BS, "decoder": target_in_BT}
        return [read_by[stack] for stack in self.config.data.trained.stacks]

    @torch.no_grad()
    def _nll(self, model: Model, autocast: Autocast, between: Callable[[], None]) -> float:
        kernel = choose_kernel(self.config.model, self.device, choose_dtype(self.config.train.precision, self.device))
        sums: list[Tensor] = []
        for batch in self.batches:
            with autocast():
                logits_TV, targets_T = predict_batch(model, batch, self.device, kernel)
            sums.append(F.cross_entropy(logits_TV.float(), targets_T, reduction="sum"))
            between()
        del logits_TV
        release_cpu_memory()  # which the search after this has no use for
        n_targets = sum(batch.n_target_tokens for batch in self.batches)
        return float(sum(torch.stack(sums).tolist())) / (n_targets - int((self.corpus.target_ids == IGNORED).sum()))


class TranslationValidator(Validator):
    """Computes the NLL, and metrics of translations by the Translator that `tfm translate` uses.

    Where BLEU cannot be computed, chrF takes its place.
    """

    def __init__(self, config: TrainConfig, prepared: Prepared, device: torch.device) -> None:
        super().__init__(config, prepared, device)
        self.tokens = dev_tokens(config.data)
        self.by_chrf = bool(self.tokens.missing) and BLEU in dev_metrics(config)
        if self.by_chrf:
            LOGGER.warning("%s. %s", self.tokens.missing, chrf_decides(config))
        else:
            warn_of_script([self.text.targets], self.tokens, where="data.dev", key="data.bleu_tokenize=")
        self._check_metrics()
        language = config.data.source_lang
        self.multi_sentence_share = share_of_several(prepared.train, prepared.tokenizers.source, language)
        self.translates_letterless = translates_letterless(prepared.train, prepared.tokenizers)

    @property
    def metric_name(self) -> str:
        name = super().metric_name
        return CHRF if self.by_chrf and name == BLEU else name

    @property
    def metrics(self) -> list[str]:
        """The metrics that are computed: with chrF in place of a missing BLEU."""
        names = dev_metrics(self.config)
        return list(dict.fromkeys(CHRF if self.by_chrf and name == BLEU else name for name in names))

    def metric_signature(self) -> str:
        is_plain = self.metric_name != BLEU or self.tokens.bleu == PLAIN.bleu
        return self.metric_name if is_plain else f"{self.metric_name} in tokens of {self.tokens.bleu}"

    def keep_metric(self, state: Mapping[str, Any]) -> bool:
        ranked_by, before = state["ranked_by"], state["config"]["train"]["best_metric"]
        is_other = ranked_by[METRIC] == CHRF and before in (BLEU, AUTO) and self.metric_name == BLEU
        if is_other and self.config.data.bleu_tokenize is None:
            self.by_chrf = True
            LOGGER.warning(
                "BLEU in tokens of %s could be computed now, but this run goes on with chrF, by which its checkpoints"
                " are ranked. Set data.bleu_tokenize=%s to rank by BLEU from here on",
                *(self.tokens.bleu, self.tokens.bleu),
            )
        return is_other and self.by_chrf

    def _check_metrics(self) -> None:
        """Raise ConfigError for a metric without a score here, before hours of training."""
        first = self.text.first(1)
        for name in self.metrics:
            try:
                if not METRICS[name](
                    Translations(first.targets, [first.targets], first.sources), self.metric_settings()
                ):
                    data = self.config.data
                    raise MetricUnavailable(name, f"says nothing about {data.source_lang} → {data.target_lang}")
            except MetricUnavailable as unavailable:
                raise ConfigError(
                    f"train.metrics={name}: {unavailable.reason}. Leave it out of train.metrics and train.best_metric"
                ) from unavailable

    def metric_settings(self, language: str = "") -> MetricSettings:
        """The metric settings of the whole dev set, or of a part of it in one language."""
        data = self.config.data
        tokens = dev_tokens(data, language) if language else self.tokens
        return MetricSettings(tokens, data.source_lang, language or data.target_lang, self.config)

    def encode(self, text: ParallelText) -> EncodedCorpus:
        data = self.config.data
        return encode_pairs(
            text,
            self.tokenizers,
            max_length=data.max_length,
            truncate_source=data.truncate_source,
            n_context=data.context_sentences,
        )

    def _score(self, model: Model, nll: float, autocast: Autocast, between: Callable[[], None]) -> DevScores:
        return self._scored(nll, self.translate(model, self.config.decode, between))

    def _scored(self, nll: float, translations: list[str]) -> TranslationScores:
        scores = self._scores(translations, self.text, self.metric_settings())
        return TranslationScores(nll, scores, translations, self._of_parts(translations))

    def check(self, model: Model) -> None:
        if not isinstance(model, Transformer):
            raise ConfigError(
                f"model.name={self.config.model.name}: a {type(model).__name__} is no Transformer, so no search can"
                " translate with it. Make it a subclass, or give its task a validator of its own"
            )
        if self.config.decode.batch_invariant:
            check_batch_invariance(model, self.device)

    def translate(self, model: Model, decode: DecodeConfig, between: Callable[[], None]) -> list[str]:
        """The translations of the dev lines by this search."""
        assert isinstance(model, Transformer)
        data, table = self.config.data, self.config.model
        text = TrainingText(
            source_lang=data.source_lang,
            target_lang=data.target_lang,
            max_length=data.max_length,
            truncates=data.truncate_source,
            multi_sentence_share=self.multi_sentence_share,
            translates_letterless=self.translates_letterless,
            max_positions=table.max_positions if table.positions is Positions.learned else None,
            context_sentences=data.context_sentences,
        )
        translator = torch_translator(
            model, self.tokenizers, decode, device=self.device, seed=self.config.seed, text=text
        )
        translated = translator.translate(
            self.text.sources, on_progress=lambda n_lines: between(), contexts=self.text.contexts or None
        )
        return [line.text for line in translated]

    def by_length_penalty(
        self, model: Model, nll: float, between: Callable[[], None]
    ) -> list[tuple[float, TranslationScores, float]]:
        """Each of train.length_penalties with its scores and the seconds of its search; the NLL is that of all."""
        model.eval()
        try:
            found = []
            for alpha in self.config.train.length_penalties:
                decode, start = replace(self.config.decode, length_penalty=alpha), time.perf_counter()
                translations = self.translate(model, decode, between)
                seconds = time.perf_counter() - start
                found.append((alpha, self._scored(nll, translations), seconds))
            return found
        finally:
            model.train()

    def _scores(self, translations: Sequence[str], text: ParallelText, settings: MetricSettings) -> dict[str, Score]:
        given = Translations(translations, [text.targets], text.sources)
        names = self.metrics
        if settings.tokens.missing:
            names = list(dict.fromkeys(CHRF if name == BLEU else name for name in names))
        return {name: METRICS[name](given, settings)[0] for name in names}

    def _of_parts(self, translations: Sequence[str]) -> dict[str, dict[str, Score]]:
        """The scores of each part of the dev set, by the tokenizer of its language."""
        found: dict[str, dict[str, Score]] = {}
        start = 0
        for part in self.text.parts:
            rows = slice(start, start + part.n)
            text = ParallelText(self.text.sources[rows], self.text.targets[rows])
            found[part.name] = self._scores(translations[rows], text, self.metric_settings(part.target_lang))
            start += part.n
        return found

    def samples(self, scores: DevScores) -> Sequence[Sample]:
        assert isinstance(scores, TranslationScores)
        rows = zip(self.text.sources, self.text.targets, scores.translations, strict=True)
        return [Sample(*row) for row in islice(rows, self.config.train.samples)]


def make_validator(config: TrainConfig, prepared: Prepared, device: torch.device) -> Validator:
    validator: Validator = config.data.trained.validator(config, prepared, device)
    return validator


def perplexity(nll: float) -> float:
    return math.exp(min(nll, 100))  # an untrained model's must not overflow


def encode_pairs(
    text: ParallelText, tokenizers: Tokenizers, *, max_length: int, truncate_source: bool = False, n_context: int = 0
) -> EncodedCorpus:
    """The pairs as token ids with EOS, without those that are too long for training.

    With `n_context`, sources have their contexts before them, of as many sentences.
    """
    encoded = tokenizers.encode_targets(text.sources, text.targets, as_written=True)
    targets = [[*ids, *tokenizers.target.end_ids] for ids in encoded]
    sources = encoded_lines(tokenizers.source, text.sources)
    if n_context and text.contexts:
        context, end_ids = ContextEncoder(tokenizers.source, n_context), tokenizers.source.end_ids
        plain = tokenizers.source.encode(list(map(without_breaks, text.sources)), as_written=True)
        longest = max_length - len(end_ids)
        sources = [[*ids, *end_ids] for ids in context.put_before(plain, text.contexts, longest, as_written=True)]
    if truncate_source:
        n_end = len(tokenizers.source.end_ids)
        sources = [
            ids if len(ids) <= max_length else [*ids[: max_length - n_end], *tokenizers.source.end_ids]
            for ids in sources
        ]
    return within_length(list(zip(sources, targets, strict=True)), max_length=max_length)


def within_length(pairs: Sequence[tuple[list[int], list[int]]], *, max_length: int) -> EncodedCorpus:
    kept = [pair for pair in pairs if max(map(len, pair)) <= max_length]
    if len(kept) < len(pairs):
        n_long = len(pairs) - len(kept)
        LOGGER.warning("%d dev pairs exceed data.max_length=%d tokens; dev NLL leaves them out", n_long, max_length)
    if not kept:
        raise DataError(f"data.dev: none of {len(pairs)} pairs is within data.max_length={max_length}. Raise it")
    return EncodedCorpus.of([source for source, _ in kept], [target for _, target in kept])


def encoded_lines(tokenizer: Tokenizer, lines: Sequence[str]) -> list[list[int]]:
    return [[*ids, *tokenizer.end_ids] for ids in tokenizer.encode(lines, as_written=True)]


def format_scores(scores: dict[str, Any]) -> str:
    """Scores for a log line."""
    return ", ".join(f"{name} {value:.4g}" for name, value in scores.items() if isinstance(value, float))
