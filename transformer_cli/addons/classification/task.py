"""The task of classification: a label for each line."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from transformer_cli.config.data import DataConfig
from transformer_cli.config.evaluate import EvaluateConfig
from transformer_cli.config.tasks import ACCURACY, Reported, Task
from transformer_cli.config.train import TrainConfig


class Classification(Task):
    """A line gets a class, or a pair of texts does."""

    has_labels, reader, page = True, "columns", "classifying"
    files = "a table of label<TAB>text, as in data.train=train.tsv"
    leak = "training lines have a sentence of it", "with the same label"
    model, what, command = "classifier", "a classifier", "classify"
    also_from = ("transformer", "encoder", "decoder")
    metric, unit = ACCURACY, "sentences"
    most_epochs, fewest_updates = 12, 300
    recipe = "labels"

    def recipe_of(self, n_columns: int) -> str | None:
        return "pairs" if self.recipe == "labels" and n_columns == 3 else self.recipe

    def find_labels(self, targets: Iterable[str]) -> list[str]:
        from transformer_cli.addons.classification.labels import find_labels

        return find_labels(targets)

    def label_faults(self, counts: Counter[str]) -> Iterable[str]:
        from transformer_cli.addons.classification.labels import label_faults

        return label_faults(counts, of_lines=True)

    def scored_text(self, text: Any, labels: Sequence[str], split: str, config: DataConfig) -> Any:
        from transformer_cli.addons.classification.labels import without_blank

        named = getattr(config, split)
        return without_blank(text, labels, where=named if isinstance(named, str) else f"data.{split}")

    def labeller(self, model: Any, device: Any, batch_tokens: Any) -> Any:
        from transformer_cli.addons.classification.labeller import TextLabeller

        return TextLabeller(model, device, batch_tokens)

    def validator(self, config: TrainConfig, prepared: Any, device: Any) -> Any:
        from transformer_cli.addons.classification.validator import ClassValidator

        return ClassValidator(config, prepared, device)

    def evaluate(self, config: EvaluateConfig, opened: Any, device: Any) -> None:
        from transformer_cli.addons.classification.evaluate_classes import run

        run(config, opened.models, opened.paths, device)

    def report(self, config: TrainConfig, prepared: Any, result: Any, device: Any) -> Reported:
        from transformer_cli.addons.classification.evaluate_classes import report_training

        return report_training(config, prepared, result, device)

    def evaluate_files(self, config: EvaluateConfig, hypotheses: Sequence[Any]) -> None:
        from transformer_cli.addons.classification.score_labels import score_labels

        (lines,) = hypotheses
        score_labels(config, lines)

    def next_commands(self, config: TrainConfig, which: str) -> Iterator[str]:
        of_pairs = "pairs.txt    (first<TAB>second on each line)" if config.data.n_texts == 2 else "lines.txt"
        yield f"tfm classify{which} < {of_pairs}"
