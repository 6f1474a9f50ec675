"""What this add-on brings."""

from typing import TYPE_CHECKING, Any

from transformer_cli.addons.masked_language_models.keys import FillConfig, Masking
from transformer_cli.addons.masked_language_models.task import MASK_TOKENS, MaskedLanguageModelling
from transformer_cli.command import Command, register
from transformer_cli.config.model import ModelConfig, Vocabulary
from transformer_cli.config.tasks import TASKS
from transformer_cli.data.pair_changes import PAIR_CHANGES
from transformer_cli.models.registry import MODELS

if TYPE_CHECKING:
    from transformer_cli.config.train import TrainConfig
    from transformer_cli.data.prepare import Prepared


def _run(config: FillConfig) -> None:
    from transformer_cli.addons.masked_language_models.run_fill import run

    run(config)


register(
    Command(
        "fill",
        help="find the likeliest words for each [mask] of a text, or of each line, with a masked language model",
        example='tfm fill "I like my [mask] bear." --top 5',
        schema=FillConfig,
        run=_run,
    )
)


@MODELS.register("encoder", options=Masking)
def _masked_language_model(config: ModelConfig, source: Vocabulary, target: Vocabulary, options: Any) -> Any:
    from transformer_cli.addons.masked_language_models.masked_language_model import MaskedLanguageModel

    return MaskedLanguageModel(config, source, options)


@PAIR_CHANGES.register(MASK_TOKENS)
def _mask_tokens(config: "TrainConfig", prepared: "Prepared") -> Any:
    from transformer_cli.addons.masked_language_models.change import MaskTokens

    return MaskTokens(config, prepared)


TASKS.register("masked_language_model")(MaskedLanguageModelling())
