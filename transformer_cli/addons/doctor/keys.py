"""Keys of `tfm doctor`."""

from dataclasses import dataclass

from transformer_cli.config.fields import key
from transformer_cli.config.train import TrainConfig


@dataclass
class DoctorConfig(TrainConfig):
    """`tfm doctor`: the config of the run that is checked."""

    json: bool = key(False, "Print JSON.", flag="--json")
