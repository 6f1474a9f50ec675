"""What this add-on brings."""

from transformer_cli.addons.tagging.keys import TagConfig
from transformer_cli.command import Command, register


def _run(config: TagConfig) -> None:
    from transformer_cli.addons.tagging.run_tag import run

    run(config)


register(
    Command(
        "tag",
        help="label each word of each line of standard input, or --input, in order",
        example="tfm tag < sentences.txt",
        schema=TagConfig,
        run=_run,
        input_hint="Give the text on standard input, or a file with --input",
    )
)
