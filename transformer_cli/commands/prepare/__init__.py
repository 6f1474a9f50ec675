"""`tfm prepare`."""

from transformer_cli.command import Command, register
from transformer_cli.commands.prepare.keys import PrepareConfig


def _run(config: PrepareConfig) -> None:
    from transformer_cli.commands.prepare.run import run

    run(config)


register(
    Command(
        "prepare",
        help="download, verify, clean, train the tokenizer and encode, without training",
        example="tfm prepare data=multi30k_en_de",
        schema=PrepareConfig,
        run=_run,
        recipe_by_task=True,
        reads=("data", "init", "experiment", "recipe", "plugins"),
        reads_with={"init.from_": ("runs", "name", "resume")},
    )
)
