"""The run that a model lies in, and the config that the run was started with."""

from pathlib import Path

from transformer_cli.config.compose import from_plain
from transformer_cli.config.text_values import read_as_written
from transformer_cli.config.train import TrainConfig
from transformer_cli.errors import CheckpointError, ConfigError

CONFIG_FILE = "config.yaml"


def run_of(path: Path) -> Path | None:
    """The run directory that a model file or a checkpoint lies in, if it lies in one."""
    return next((folder for folder in path.parents[:3] if (folder / CONFIG_FILE).is_file()), None)


def read_config(folder: Path) -> TrainConfig:
    """The config that a run was started with. Raises CheckpointError."""
    file = folder / CONFIG_FILE
    if not file.exists():
        raise CheckpointError(f"{file}: is missing. Restore it, or go on all the same with force=true")
    try:
        config: TrainConfig = from_plain(TrainConfig, read_as_written(file))
    except ConfigError as error:
        raise CheckpointError(
            f"{file}: not the config of a run ({error}). Restore it, or choose another name="
        ) from error
    return config
