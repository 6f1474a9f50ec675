"""The task of language modelling: text is continued; and what it shares with other tasks of text alone."""

from collections.abc import Iterator, Sequence
from typing import Any

from transformer_cli.config.evaluate import EvaluateConfig
from transformer_cli.config.tasks import NLL, Reported, Task
from transformer_cli.config.train import TrainConfig
from transformer_cli.errors import ConfigError


class TextTask(Task):
    """A model of text without a source is scored by how probable it finds each token; its checkpoints, too."""

    has_source, reader, files = False, "plain", "a text file, as in data.train=corpus.txt"
    leak = "training lines are lines of it", "the same"
    metric = NLL

    def measure(self) -> Any:
        """The function from `ModelFile`, `TextSet`, device and `DecodeConfig` to the `TextSums` of a test set."""
        raise self._lacks("measure")

    def evaluate(self, config: EvaluateConfig, opened: Any, device: Any) -> None:
        from transformer_cli.addons.language_models.evaluate_text import evaluate_text

        evaluate_text(config, opened.models, opened.paths, device, self.measure())

    def report(self, config: TrainConfig, prepared: Any, result: Any, device: Any) -> Reported:
        from transformer_cli.addons.language_models.evaluate_text import report_training

        return report_training(config, prepared, result, device, self.measure())

    def evaluate_files(self, config: EvaluateConfig, hypotheses: Sequence[Any]) -> None:
        assert config.data is not None
        raise ConfigError(
            f"data={config.data.name}: text for {self.what}, which translates nothing. Choose parallel text"
        )


class LanguageModelling(TextTask):
    """Text is continued; checkpoints are ranked by their perplexity."""

    model, what, command = "decoder", "a language model", "generate"
    most_epochs, fewest_updates = 10, 1000
    recipe = "text"

    def validator(self, config: TrainConfig, prepared: Any, device: Any) -> Any:
        from transformer_cli.addons.language_models.validator import LanguageModelValidator

        return LanguageModelValidator(config, prepared, device)

    def measure(self) -> Any:
        from transformer_cli.addons.language_models.evaluate_text import measure

        return measure

    def next_commands(self, config: TrainConfig, which: str) -> Iterator[str]:
        yield f'tfm generate{which} "The beginning"'
