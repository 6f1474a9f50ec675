"""The task of tagging: a label for each word."""

from collections.abc import Iterator, Sequence
from typing import Any

from transformer_cli.config.evaluate import EvaluateConfig
from transformer_cli.config.tasks import ACCURACY, Task, TextKind
from transformer_cli.config.train import TrainConfig


class Tagging(Task):
    """Each word of a sentence gets a label."""

    text, model, what, command = TextKind.labelled_words, "tagger", "a tagger", "tag"
    also_from = ("transformer", "classifier")
    metric, counted, unit = ACCURACY, "words", "words"
    most_epochs, fewest_updates = 20, 500
    recipe = "tags"

    def validator(self, config: TrainConfig, prepared: Any, device: Any) -> Any:
        from transformer_cli.addons.tagging.validator import TagValidator

        return TagValidator(config, prepared, device)

    def evaluate(self, config: EvaluateConfig, opened: Any, device: Any) -> None:
        from transformer_cli.addons.tagging.evaluate_words import run

        run(config, opened.models, opened.paths, device)

    def report(
        self, config: TrainConfig, prepared: Any, result: Any, device: Any
    ) -> tuple[dict[str, float | None], str]:
        from transformer_cli.addons.tagging.evaluate_words import report_training

        return report_training(config, prepared, result, device)

    def evaluate_files(self, config: EvaluateConfig, hypotheses: Sequence[Any]) -> None:
        from transformer_cli.addons.tagging.score_labels import score_labels

        (lines,) = hypotheses
        score_labels(config, lines)

    def next_commands(self, config: TrainConfig, which: str) -> Iterator[str]:
        yield f"tfm tag{which} < sentences.txt"
