"""The task of language modelling: text is continued."""

from collections.abc import Iterator, Sequence
from typing import Any

from transformer_cli.config.evaluate import EvaluateConfig
from transformer_cli.config.tasks import NLL, Task
from transformer_cli.config.train import TrainConfig
from transformer_cli.errors import ConfigError


class LanguageModelling(Task):
    """Text is continued; checkpoints are ranked by their perplexity."""

    has_source, reader, files = False, "plain", "a text file, as in data.train=corpus.txt"
    leak = "training lines are lines of it", "the same"
    model, what, command = "decoder", "a language model", "generate"
    metric = NLL
    most_epochs, fewest_updates = 10, 1000
    recipe = "text"

    def validator(self, config: TrainConfig, prepared: Any, device: Any) -> Any:
        from transformer_cli.addons.language_models.validator import LanguageModelValidator

        return LanguageModelValidator(config, prepared, device)

    def evaluate(self, config: EvaluateConfig, opened: Any, device: Any) -> None:
        from transformer_cli.addons.language_models.evaluate_text import run

        run(config, opened.models, opened.paths, device)

    def report(
        self, config: TrainConfig, prepared: Any, result: Any, device: Any
    ) -> tuple[dict[str, float | None], str]:
        from transformer_cli.addons.language_models.evaluate_text import report_training

        return report_training(config, prepared, result, device)

    def evaluate_files(self, config: EvaluateConfig, hypotheses: Sequence[Any]) -> None:
        assert config.data is not None
        raise ConfigError(
            f"data={config.data.name}: text for a language model, which translates nothing. Choose parallel text"
        )

    def next_commands(self, config: TrainConfig, which: str) -> Iterator[str]:
        yield f'tfm generate{which} "The beginning"'
