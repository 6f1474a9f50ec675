"""Keys of `tfm reproduce`."""

from dataclasses import dataclass

from transformer_cli.config.fields import key
from transformer_cli.config.train import TrainConfig


@dataclass
class ReproduceConfig(TrainConfig):
    """`tfm reproduce`: the config of the run, that of the experiment of the same name and what is changed in it."""

    reproduction: str | None = key(
        None, "Name of the reproduction; unset: all are listed.", affects="weights", word=True
    )
