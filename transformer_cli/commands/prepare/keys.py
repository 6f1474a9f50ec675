"""Keys of `tfm prepare`."""

from dataclasses import dataclass

from transformer_cli.config.fields import OVERWRITE, key
from transformer_cli.config.shard import Shard
from transformer_cli.config.train import TrainConfig
from transformer_cli.errors import ConfigError


@dataclass
class PrepareConfig(TrainConfig):
    """`tfm prepare`: accepts the keys of `tfm train`, so that the same command line serves both, and uses `data`."""

    listing: list[str] = key(
        [],
        "Print what is in these files, archives or folders, and how to train on them, instead: format, columns or"
        " languages, rows, samples.",
        path=True,
        flag="--list",
    )
    report: str | None = key(
        None,
        "File (.html) for a page of what cleaning did: counts of each filter, and pairs as examples.",
        path=True,
        flag="--report",
    )
    shard: str = key(
        "1/1",
        "Parts of the text that this process cleans and encodes, I/N: give each of N processes its own, and then the"
        " same again, until the corpus is prepared.",
    )
    overwrite: bool = key(False, OVERWRITE, flag="--overwrite")

    def __post_init__(self) -> None:
        """Checks each part; whether they fit together is checked by `tfm train`."""
        Shard.parse(self.shard)
        if self.report is not None and self.listing:
            raise ConfigError(f"report={self.report}: nothing is cleaned with --list. Leave it out")
