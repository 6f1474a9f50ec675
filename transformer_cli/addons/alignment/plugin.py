"""What this add-on brings."""

from transformer_cli.addons.alignment.keys import AlignConfig
from transformer_cli.command import Command, register


def _run(config: AlignConfig) -> None:
    from transformer_cli.addons.alignment.run_align import run

    run(config)


register(
    Command(
        "align",
        help="print the word alignment of a text and its translation",
        example="tfm align train.en train.de > train.links",
        schema=AlignConfig,
        run=_run,
    )
)
