"""What this add-on brings."""

from typing import Any

from transformer_cli.addons.language_models.keys import GenerateConfig
from transformer_cli.addons.language_models.plain import Plain
from transformer_cli.addons.language_models.task import LanguageModelling
from transformer_cli.command import Command, register
from transformer_cli.config.model import ModelConfig, Vocabulary
from transformer_cli.config.tasks import TASKS
from transformer_cli.data.registry import READERS
from transformer_cli.models.registry import MODELS


def _run(config: GenerateConfig) -> None:
    from transformer_cli.addons.language_models.run_generate import run

    run(config)


register(
    Command(
        "generate",
        help="continue a prompt, or each line of standard input, with a language model",
        example='tfm generate "The weather" --temperature 0.8 --n 3',
        schema=GenerateConfig,
        run=_run,
        groups={"decode": "sample"},
        group_flags={
            "--temperature": "decode.temperature",
            "--top-k": "decode.top_k",
            "--top-p": "decode.top_p",
            "--max-length": "decode.max_length",
            "--n": "decode.n_best",
        },
    )
)


@MODELS.register("decoder")
def _language_model(config: ModelConfig, source: Vocabulary, target: Vocabulary, options: Any) -> Any:
    from transformer_cli.addons.language_models.language_model import LanguageModel

    return LanguageModel(config, vocab_size=target.size, pad_id=target.pad_id, options=options)


READERS.register("plain")(Plain)
TASKS.register("language_model")(LanguageModelling())
