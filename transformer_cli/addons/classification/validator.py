"""Dev scores of a classifier."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from transformer_cli.addons.classification.scores import accuracy, macro_f1
from transformer_cli.addons.embedding.encode import ask_each, encode_whole
from transformer_cli.config.tasks import ACCURACY
from transformer_cli.data.cache import EncodedCorpus
from transformer_cli.data.corpus import ParallelText
from transformer_cli.models.transformer import Model
from transformer_cli.training.validation import Autocast, DevScores, Rank, Sample, Validator


@dataclass(frozen=True)
class ClassScores(DevScores):
    """The dev scores of a classifier; the NLL is in nats per sentence."""

    accuracy: float  # percent
    macro_f1: float  # percent
    predicted: list[str]

    @property
    def summary(self) -> str:
        return f"nll {self.nll:.3f}, accuracy {self.accuracy:.2f}, macro-F1 {self.macro_f1:.2f}"

    def rank(self, metric: str) -> Rank:
        return (self.accuracy, -self.nll) if metric == ACCURACY else (-self.nll, self.accuracy)

    def _of_the_task(self) -> dict[str, float]:
        return {"dev_accuracy": self.accuracy, "dev_macro_f1": self.macro_f1}


class ClassValidator(Validator):
    """Computes the NLL, accuracy and macro-F1 on the whole dev set; long sentences are truncated."""

    def encode(self, text: ParallelText) -> EncodedCorpus:
        labels = self.tokenizers.labels
        sources = self._ids(text)
        return EncodedCorpus.of(sources, [[labels.index(label)] for label in text.targets])

    def _ids(self, text: ParallelText) -> list[list[int]]:
        data = self.config.data
        return encode_whole(self.tokenizers.source, text.sources, max_length=data.max_length, n_texts=data.n_texts)

    def _score(self, model: Model, nll: float, autocast: Autocast, between: Callable[[], None]) -> DevScores:
        tokenizer, config = self.tokenizers.source, self.config
        logits = ask_each(
            model,
            self._ids(self.text),
            pad_id=tokenizer.pad_id,
            device=self.device,
            batch_tokens=config.decode.batch_tokens,
            between=lambda n_sentences: between(),
        )
        predicted = [self.tokenizers.labels[int(logits_C.argmax())] for logits_C in logits]
        wanted = self.text.targets
        return ClassScores(nll, accuracy(predicted, wanted), macro_f1(predicted, wanted), predicted)

    def samples(self, scores: DevScores) -> Sequence[Sample]:
        assert isinstance(scores, ClassScores)
        rows = zip(self.text.sources, self.text.targets, scores.predicted, strict=True)
        return [Sample(*row) for row in islice(rows, self.config.train.samples)]
