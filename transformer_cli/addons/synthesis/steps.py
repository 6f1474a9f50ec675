"""The steps of a command that runs several: each is named before it runs, so that it can be repeated by itself."""

import dataclasses
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from transformer_cli.command import COMMANDS
from transformer_cli.config.compose import load_config
from transformer_cli.config.train import TrainConfig
from transformer_cli.errors import ConfigError
from transformer_cli.logs import LOGGER

_Result = TypeVar("_Result")


def step(
    command: str,
    settings: Mapping[str, Any],
    run_command: Callable[[Any], _Result],
    *,
    overrides: Sequence[str] = (),
    config_dir: Path | None = None,
) -> _Result:
    """Run a command of tfm after naming it, so that it can be repeated by itself."""
    folder = [] if config_dir is None else ["--config-dir", str(config_dir)]
    LOGGER.info("$ %s", shlex.join(["tfm", *command.split(), *command_words(command, settings), *folder, *overrides]))
    return run_command(load_config(command, overrides, flags=settings, user_dir=config_dir))


def command_words(command: str, settings: Mapping[str, Any]) -> list[str]:
    """The settings on a command line: as options where there are some, whose values need no quotes of Hydra's."""
    options = {flag.key: option for option, flag in COMMANDS[command].flags.items()}
    alone = [word.key for word in COMMANDS[command].words]
    words: list[str] = []
    for name, value in settings.items():
        if name in options:
            values = value if isinstance(value, list) else [value]
            words += (
                [options[name]] if value is True else [word for one in values for word in (options[name], str(one))]
            )
        elif name in alone:
            words.append(str(value))
        else:
            words.append(f"{name}={str(value).lower() if value is True else value}")
    return words


def without_unset(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that have a value."""
    return {key: value for key, value in settings.items() if value is not None}


def train_config_of(config: TrainConfig, **changes: Any) -> TrainConfig:
    """The config of the training in that of a command which has all keys of `tfm train`, and others."""
    keys = {one.name: getattr(config, one.name) for one in dataclasses.fields(TrainConfig)}
    return TrainConfig(**keys | changes)


def refuse_ranks(command: str, instead: str) -> None:
    """Raise ConfigError under torchrun; `instead` says what several processes can do."""
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise ConfigError(f"{command}: is one process. Start it without torchrun, or {instead}")
