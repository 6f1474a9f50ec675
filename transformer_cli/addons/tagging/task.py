"""The task of tagging: a label for each word."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from transformer_cli.addons.tagging.words import split_words
from transformer_cli.config.data import DataConfig
from transformer_cli.config.evaluate import EvaluateConfig
from transformer_cli.config.tasks import ACCURACY, Reported, Task
from transformer_cli.config.train import TrainConfig
from transformer_cli.errors import DataError


class Tagging(Task):
    """Each word of a sentence gets a label."""

    has_labels, has_words, reader, page = True, True, "conll", "tagging"
    files = "a file with a word and its label a line, as in data.train=train.conll"
    leak = "training sentences are sentences of it", "with the same labels"
    model, what, command = "tagger", "a tagger", "tag"
    also_from = ("transformer", "classifier", "encoder", "decoder")
    metric, counted, unit = ACCURACY, "words", "words"
    most_epochs, fewest_updates = 20, 500
    recipe = "tags"

    def labels_of(self, target: str) -> list[str]:
        return split_words(target)

    def find_labels(self, targets: Iterable[str]) -> list[str]:
        from transformer_cli.addons.tagging.encoding import find_word_labels

        return find_word_labels(targets)

    def label_faults(self, counts: Counter[str]) -> Iterable[str]:
        from transformer_cli.addons.classification.labels import label_faults

        return label_faults(counts, of_lines=False)

    def scored_text(self, text: Any, labels: Sequence[str], split: str, config: DataConfig) -> Any:
        if not text.sources:
            raise DataError(f"data.{split}: holds no sentence. Name a file with a word and its label a line")
        return text

    def encode(
        self, text: Any, tokenizers: Any, labels: Sequence[str], config: DataConfig, report: Any, **how: Any
    ) -> Any:
        from transformer_cli.addons.tagging.encoding import encoded_words

        return encoded_words(text, tokenizers, labels, config, report, **how)

    def labeller(self, model: Any, device: Any, batch_tokens: Any) -> Any:
        from transformer_cli.addons.tagging.labeller import WordLabeller

        return WordLabeller(model, device, batch_tokens)

    def validator(self, config: TrainConfig, prepared: Any, device: Any) -> Any:
        from transformer_cli.addons.tagging.validator import TagValidator

        return TagValidator(config, prepared, device)

    def evaluate(self, config: EvaluateConfig, opened: Any, device: Any) -> None:
        from transformer_cli.addons.tagging.evaluate_words import run

        run(config, opened.models, opened.paths, device)

    def report(self, config: TrainConfig, prepared: Any, result: Any, device: Any) -> Reported:
        from transformer_cli.addons.tagging.evaluate_words import report_training

        return report_training(config, prepared, result, device)

    def evaluate_files(self, config: EvaluateConfig, hypotheses: Sequence[Any]) -> None:
        from transformer_cli.addons.tagging.score_labels import score_labels

        (lines,) = hypotheses
        score_labels(config, lines)

    def next_commands(self, config: TrainConfig, which: str) -> Iterator[str]:
        yield f"tfm tag{which} < sentences.txt"
