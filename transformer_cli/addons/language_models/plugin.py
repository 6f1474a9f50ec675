"""What this add-on brings."""

from transformer_cli.addons.language_models.keys import GenerateConfig
from transformer_cli.addons.language_models.task import LanguageModelling
from transformer_cli.command import Command, register
from transformer_cli.config.tasks import TASKS


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
TASKS.register("language_model")(LanguageModelling())
