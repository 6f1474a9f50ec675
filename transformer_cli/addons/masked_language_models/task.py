"""The task of masked language modelling: masked tokens are predicted from both sides."""

from collections.abc import Iterator
from typing import Any

from transformer_cli.addons.language_models.task import TextTask
from transformer_cli.config.train import TrainConfig

MASK_TOKENS = "mask_tokens"  # the change of the training text


class MaskedLanguageModelling(TextTask):
    """Masked tokens are predicted; checkpoints are ranked by their NLL on a dev set that is masked once."""

    model, what, command = "encoder", "a masked language model", "fill"
    also_from = ("transformer", "classifier", "tagger", "decoder")
    unit, page = "masked tokens", "filling"
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

    def measure(self) -> Any:
        from transformer_cli.addons.masked_language_models.evaluate_masked import measure_masked

        return measure_masked

    def next_commands(self, config: TrainConfig, which: str) -> Iterator[str]:
        yield f'tfm fill{which} "A text with a [mask]."'
