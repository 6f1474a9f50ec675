"""Keys of `tfm prepare`."""

from dataclasses import dataclass

from transformer_cli.config.fields import key
from transformer_cli.config.train import TrainConfig


@dataclass
class PrepareConfig(TrainConfig):
    """`tfm prepare`: accepts the keys of `tfm train`, so that the same command line serves both, and uses `data`."""

    listing: list[str] = key(
        [],
        "Print what is in these files, archives or folders, and how to train on them, instead: format, columns or"
        " languages, rows, samples.",
        path=True,
        flag="--list",
        affects="place",
    )

    def __post_init__(self) -> None:
        """Checks each part; whether they fit together is checked by `tfm train`."""
