"""Keys of `tfm doctor`."""

from dataclasses import dataclass

from transformer_cli.config.fields import key
from transformer_cli.config.train import TrainConfig


@dataclass
class DoctorConfig(TrainConfig):
    """`tfm doctor`: the config of the run that is checked."""

    json: bool = key(False, "Print JSON.", flag="--json")
    suspects: int | None = key(
        None,
        "Print so many training pairs that are most likely wrong, worst first, with their lines and the reasons,"
        " instead of the checks.",
        low=1,
        flag="--suspects",
    )
