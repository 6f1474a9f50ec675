"""What this add-on brings."""

from transformer_cli.addons.embedding.keys import EmbedConfig
from transformer_cli.command import Command, register


def _run(config: EmbedConfig) -> None:
    from transformer_cli.addons.embedding.run_embed import run

    run(config)


register(
    Command(
        "embed",
        help="compute a vector for each line, or token, with a model's encoder, or find the nearest lines of a file",
        example="tfm embed --input lines.txt --output lines.npy",
        schema=EmbedConfig,
        run=_run,
        input_hint="Give the text on standard input, or a file with --input",
    )
)
