"""`tfm prepare`."""

from transformer_cli.command import Command, register
from transformer_cli.commands.languages import missing_languages
from transformer_cli.commands.prepare.keys import PrepareConfig


def _run(config: PrepareConfig) -> None:
    if config.listing:
        from transformer_cli.commands.prepare.listing import print_listings

        print_listings(config)
        return
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
        missing=missing_languages,
        reads=("data", "init", "experiment", "recipe", "plugins", "listing", "report", "overwrite"),
        reads_with={"init.from_": ("runs", "name", "resume")},
    )
)
