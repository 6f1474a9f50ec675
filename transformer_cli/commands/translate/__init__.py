"""`tfm translate`."""

from transformer_cli.command import Command, register
from transformer_cli.commands.translate.keys import TranslateConfig


def _run(config: TranslateConfig) -> None:
    from transformer_cli.commands.translate.run import run

    run(config)


register(
    Command(
        "translate",
        help="translate lines from standard input, or --input, in order",
        example="tfm translate --beam 4 < news.en > news.de",
        schema=TranslateConfig,
        run=_run,
        group_flags={"--beam": "decode.beam_size", "--n-best": "decode.n_best"},
    )
)
