"""`tfm prepare`."""

import time
from dataclasses import replace

from transformer_cli.command import Command, SweepRun, register
from transformer_cli.commands.languages import missing_languages
from transformer_cli.commands.prepare.keys import PrepareConfig
from transformer_cli.config.data import DataConfig


def _run(config: PrepareConfig) -> None:
    if config.listing:
        _print_listings(config)
        return
    from transformer_cli.commands.prepare.run import run

    run(config)


def _print_listings(config: PrepareConfig) -> None:
    from transformer_cli.data.listing import listing_lines, listings

    for listing in listings(config.listing, DataConfig(inline_tags=config.data.inline_tags)):
        print("\n".join(listing_lines(listing)))


def _sweep(config: PrepareConfig, run: SweepRun) -> tuple[SweepRun, float | None]:
    """`run` with the pairs of the corpus, or how many parts are made of it."""
    from transformer_cli.commands.prepare.run import prepare_and_report

    start = time.perf_counter()
    counts = prepare_and_report(config)
    return replace(run, corpus=config.data.title, counts=counts, minutes=(time.perf_counter() - start) / 60), None


register(
    Command(
        "prepare",
        help="download, verify, clean, train the tokenizer and encode, without training",
        example="tfm prepare data=multi30k_en_de",
        schema=PrepareConfig,
        run=_run,
        sweep=_sweep,
        recipe_by_task=True,
        missing=missing_languages,
        reads=(
            "data",
            "init",
            "experiment",
            "recipe",
            "plugins",
            "listing",
            "report",
            "shard",
            "overwrite",
            "device",
            "left_open",
        ),
        reads_with={"init.from_": ("runs", "name", "resume")},
    )
)
