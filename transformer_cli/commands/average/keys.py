"""Keys of `tfm average`."""

from dataclasses import dataclass
from typing import Any

from transformer_cli.config.checks import model_names
from transformer_cli.config.fields import OVERWRITE, PLUGINS, RUNS, check_ranges, key


@dataclass
class AverageConfig:
    """`tfm average`."""

    checkpoint: Any = key(
        None,
        "Models to average: files, checkpoints or run directories; unset: the newest finished run.",
        path=True,
        flag="--checkpoint",
        repeated=True,
    )
    runs: str = key("runs", RUNS, path=True)
    last: int | None = key(None, "Average this many of a run's checkpoints, the newest.", low=2, flag="--last")
    output: str | None = key(
        None, "Output file for the model, written whole or not at all.", path=True, flag="--output"
    )
    overwrite: bool = key(False, OVERWRITE, flag="--overwrite")
    plugins: list[str] = key([], PLUGINS)

    def __post_init__(self) -> None:
        self.checkpoint = model_names(self.checkpoint)
        check_ranges(self)
