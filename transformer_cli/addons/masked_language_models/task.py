"""The task of masked language modelling: masked tokens are predicted from both sides."""

from collections.abc import Iterator, Sequence
from typing import Any

from transformer_cli.config.evaluate import EvaluateConfig
from transformer_cli.config.tasks import NLL, Task
from transformer_cli.config.train import TrainConfig
from transformer_cli.errors import ConfigError

MASK_TOKENS = "mask_tokens"  # the change of the training text


class MaskedLanguageModelling(Task):
    """Masked tokens are predicted; checkpoints are ranked by their NLL on a dev set that is masked once."""

    has_source, reader, files = False, "plain", "a text file, as in data.train=corpus.txt"
    leak = "training lines are lines of it", "the same"
    model, what, command = "encoder", "a masked language model", "fill"
    also_from = ("transformer", "classifier", "tagger", "decoder")
    metric, unit, page = NLL, "masked tokens", "filling"
    most_epochs, fewest_updates = 40, 1000
    recipe = "masked_text"
    changes = (MASK_TOKENS,)

    @property
    def stacks(self) -> list[str]:
        return ["encoder"]

    @property
    def begins(self) -> bool:
        return True

    def validator(self, config: TrainConfig, prepared: Any, device: Any) -> Any:
        from transformer_cli.addons.masked_language_models.validator import MaskedValidator

        return MaskedValidator(config, prepared, device)

    def evaluate(self, config: EvaluateConfig, opened: Any, device: Any) -> None:
        from transformer_cli.addons.masked_language_models.evaluate_masked import run

        run(config, opened.models, opened.paths, device)

    def report(
        self, config: TrainConfig, prepared: Any, result: Any, device: Any
    ) -> tuple[dict[str, float | None], str]:
        from transformer_cli.addons.masked_language_models.evaluate_masked import report_training

        return report_training(config, prepared, result, device)

    def evaluate_files(self, config: EvaluateConfig, hypotheses: Sequence[Any]) -> None:
        assert config.data is not None
        raise ConfigError(
            f"data={config.data.name}: text for a masked language model, which translates nothing. Choose parallel text"
        )

    def next_commands(self, config: TrainConfig, which: str) -> Iterator[str]:
        yield f'tfm fill{which} "A text with a [mask]."'
