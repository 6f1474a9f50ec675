"""Dev scores of a tagger."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from transformer_cli.addons.tagging.entities import are_bio, entity_f1, first_few, warn_not_bio
from transformer_cli.addons.tagging.tagger import Tagger
from transformer_cli.addons.tagging.word_labels import word_accuracy
from transformer_cli.addons.tagging.word_tagger import sentence_windows, tag_words
from transformer_cli.addons.tagging.words import WordEncoder, split_words
from transformer_cli.config.tasks import ACCURACY
from transformer_cli.data.cache import EncodedCorpus
from transformer_cli.data.corpus import ParallelText
from transformer_cli.data.words import in_a_row
from transformer_cli.errors import DataError
from transformer_cli.logs import LOGGER
from transformer_cli.models.transformer import Model
from transformer_cli.training.validation import IGNORED, Autocast, DevScores, Rank, Sample, Validator


@dataclass(frozen=True)
class TagScores(DevScores):
    """The dev scores of a tagger; the NLL is in nats per word."""

    accuracy: float  # of words, in percent
    entity_f1: float | None  # percent; None where the labels are not BIO
    predicted: list[list[str]]

    @property
    def summary(self) -> str:
        entities = "" if self.entity_f1 is None else f", entity F1 {self.entity_f1:.2f}"
        return f"nll {self.nll:.3f}, accuracy {self.accuracy:.2f}{entities}"

    def rank(self, metric: str) -> Rank:
        return (self.accuracy, -self.nll) if metric == ACCURACY else (-self.nll, self.accuracy)

    def _of_the_task(self) -> dict[str, float]:
        return {"dev_accuracy": self.accuracy, **({} if self.entity_f1 is None else {"dev_entity_f1": self.entity_f1})}


class TagValidator(Validator):
    """Computes the NLL, word accuracy and, for BIO labels, F1 of the entities.

    Words with labels that are not in the training text have no NLL, and count as wrong.
    """

    def encode(self, text: ParallelText) -> EncodedCorpus:
        tokenizer, max_length = self.tokenizers.source, self.config.data.max_length
        numbers = {label: i for i, label in enumerate(self.tokenizers.labels)}
        self.words = WordEncoder(tokenizer).encode([split_words(source) for source in text.sources])
        self.wanted = [split_words(target) for target in text.targets]
        unknown = Counter(label for labels in self.wanted for label in labels if label not in numbers)
        if unknown.total() == sum(map(len, self.wanted)):
            raise DataError(
                f"data.dev: none of its labels is in the training text: {first_few(list(unknown))}. Name files with"
                " labels of the same kind, or correct data.columns"
            )
        if unknown:
            n_words, names = unknown.total(), [label for label, _ in unknown.most_common()]
            LOGGER.warning(
                "data.dev: %s labels that the training text does not have: %s. They count as wrong in the accuracy,"
                " and are left out of the nll",
                f"{n_words:,} word{'s have' if n_words > 1 else ' has'}",
                first_few(names),
            )
        self.has_entities = are_bio(self.tokenizers.labels)
        if self.has_entities:
            warn_not_bio([*self.tokenizers.labels, *unknown], "data.dev")
        sources, labels, ends = [], [], []
        for words, wanted in zip(self.words, self.wanted, strict=True):
            for window, _ in sentence_windows(words, tokenizer, max_length=max_length):
                chosen = slice(window.labelled.start, window.labelled.stop)
                room = max_length - len(tokenizer.end_ids)
                encoded = in_a_row([ids[:room] for ids in words[chosen]])
                sources.append([*encoded.ids, *tokenizer.end_ids])
                labels.append([numbers.get(label, IGNORED) for label in wanted[chosen]])
                ends.append(encoded.word_ends)
        return EncodedCorpus.of(sources, labels, ends)

    def _score(self, model: Model, nll: float, autocast: Autocast, between: Callable[[], None]) -> DevScores:
        assert isinstance(model, Tagger)
        logits = tag_words(
            model,
            self.words,
            self.tokenizers.source,
            pooling=model.pooling,
            max_length=self.config.data.max_length,
            device=self.device,
            batch_tokens=self.config.decode.batch_tokens,
            between=lambda n_sentences: between(),
        )
        labels = self.tokenizers.labels
        predicted = [[labels[i] for i in logits_TC.argmax(dim=-1).tolist()] for logits_TC in logits]
        f1 = entity_f1(predicted, self.wanted) if self.has_entities else None
        return TagScores(nll, word_accuracy(predicted, self.wanted), f1, predicted)

    def samples(self, scores: DevScores) -> Sequence[Sample]:
        assert isinstance(scores, TagScores)
        rows = islice(zip(self.text.sources, self.wanted, scores.predicted, strict=True), self.config.train.samples)
        return [Sample(" ".join(split_words(source)), " ".join(w), " ".join(p)) for source, w, p in rows]
