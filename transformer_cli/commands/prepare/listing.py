"""`tfm prepare --list`: what is in files, on standard output."""

from transformer_cli.commands.prepare.keys import PrepareConfig
from transformer_cli.config.data import DataConfig
from transformer_cli.data.listing import listing_lines, listings


def print_listings(config: PrepareConfig) -> None:
    for listing in listings(config.listing, DataConfig(inline_tags=config.data.inline_tags)):
        for line in listing_lines(listing):
            print(line)
