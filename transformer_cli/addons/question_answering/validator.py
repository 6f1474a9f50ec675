"""Dev scores of an answer extractor."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from transformer_cli.addons.question_answering.answerer import PassageReader
from transformer_cli.addons.question_answering.encoding import Example, examples, refuse_unfit, window_size
from transformer_cli.addons.question_answering.questions import ENDS_OR_NONE, F1, Question
from transformer_cli.addons.question_answering.scores import mean_scores
from transformer_cli.addons.question_answering.tokens import PassageEncoder
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.cache import EncodedCorpus
from transformer_cli.data.corpus import ParallelText
from transformer_cli.data.prepare import Prepared
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.models.transformer import Model
from transformer_cli.training.validation import IGNORED, Autocast, DevScores, Rank, Sample, Validator


@dataclass(frozen=True)
class SpanScores(DevScores):
    """The dev scores of an answer extractor; the NLL is in nats per end of an answer."""

    exact_match: float  # percent
    f1: float  # percent
    predicted: list[str]

    @property
    def summary(self) -> str:
        return f"nll {self.nll:.3f}, exact match {self.exact_match:.2f}, F1 {self.f1:.2f}"

    def rank(self, metric: str) -> Rank:
        return (self.f1, -self.nll) if metric == F1 else (-self.nll, self.f1)

    def _of_the_task(self) -> dict[str, float]:
        return {"dev_exact_match": self.exact_match, "dev_f1": self.f1}


class SpanValidator(Validator):
    """Computes the NLL of all windows, exact match and F1.

    An answer that does not stand where the corpus says is scored by its text, and has no NLL.
    """

    def __init__(self, config: TrainConfig, prepared: Prepared, device: torch.device) -> None:
        refuse_unfit(config.data)
        if config.train.label_smoothing:
            raise ConfigError(
                f"train.label_smoothing={config.train.label_smoothing:g}: would have tokens of the question for answers"
                f" (data.task={config.data.task}). Set train.label_smoothing=0"
            )
        super().__init__(config, prepared, device)

    def encode(self, text: ParallelText) -> EncodedCorpus:
        encoder, size = PassageEncoder(self.tokenizers.source), window_size(self.config.data)
        dev = [Question.of(*pair) for pair in text.each()]
        asked = encoder.questions([one.question for one in dev])
        passages = encoder.passages([one.passage for one in dev])
        found: list[Example] = []
        for one, ids, tokens in zip(dev, asked, passages, strict=True):
            ends: Any = (IGNORED, IGNORED) if one.answers and not one.placed else None
            found += examples(one, ids, tokens, size, encoder, ends)
        if all(one.ends == (IGNORED, IGNORED) for one in found):
            raise DataError("data.dev: no answer stands at its answer_start. Correct the offsets: they are code points")
        return EncodedCorpus.of([one.ids for one in found], [one.ends for one in found])

    def _score(self, model: Model, nll: float, autocast: Autocast, between: Callable[[], None]) -> DevScores:
        reading = PassageReader(
            model,
            self.tokenizers.source,
            window_size(self.config.data),
            may_find_none=self.tokenizers.labels == ENDS_OR_NONE,
            device=self.device,
            batch_tokens=self.config.decode.batch_tokens,
            between=between,
        )
        dev = [Question.of(*pair) for pair in self.text.each()]
        predicted = [one.text for one in reading.answers([(one.question, one.passage) for one in dev])]
        scores = mean_scores(predicted, [[answer.text for answer in one.answers] for one in dev])
        return SpanScores(nll, *scores, predicted)

    def samples(self, scores: DevScores) -> Sequence[Sample]:
        assert isinstance(scores, SpanScores)
        rows = islice(zip(self.text.each(), scores.predicted, strict=True), self.config.train.samples)
        found = [(Question.of(*pair), predicted) for pair, predicted in rows]
        return [Sample(q.question, " / ".join(a.text for a in q.answers), predicted) for q, predicted in found]
