"""The run directory: its name, its owner, and whether a command may continue what lies in it."""

import hashlib
import json
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar, cast

from transformer_cli.config.compose import to_plain, to_yaml
from transformer_cli.config.difference import flattened
from transformer_cli.config.fields import key_infos
from transformer_cli.config.options import info_at
from transformer_cli.config.train import TrainConfig
from transformer_cli.errors import ConfigError, LockedError
from transformer_cli.files import follow, locked, make_folder, wrap_os_errors, write_whole
from transformer_cli.logs import LOGGER
from transformer_cli.models.header import MODEL_FILE
from transformer_cli.models.runs import CONFIG_FILE, read_config, run_of
from transformer_cli.training.checkpoints import CHECKPOINTS_FOLDER
from transformer_cli.training.resuming import RESUME_AUTO, log_changes
from transformer_cli.training.schedules import ends_at_max_steps

LOCK_FILE, OWNER_FILE, LOG_FILE = ".lock", ".owner", "tfm.log"
OPEN = (None, RESUME_AUTO)
Config = TypeVar("Config", bound=TrainConfig)

LENGTH = ("train.max_steps", "train.max_epochs")
# What some keys are called where a name is made from them: the names of run directories do not change.
_IN_NAMES = {"init.from": "encoder.init_from", "decode.batch_invariant": "decode.exact"}


def run_name(config: TrainConfig) -> str:
    """`config.name`, or one made from the keys that decide the weights: the same command always gets the same one."""
    if config.name is not None:
        return config.name
    # Only what is not by default: a later tfm has more keys, and must find the runs of this one.
    defaults = flat(to_plain(TrainConfig()))
    chosen = {_IN_NAMES.get(key, key): v for key, v in _fixed(config).items() if v != defaults.get(key)}
    chosen |= {"left_open": config.left_open} if config.left_open else {}
    digest = hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()
    return f"{config.data.title}-{config.model.preset}-{config.model.norm.name}-{digest[:6]}"


def run_folder(config: TrainConfig) -> Path:
    return Path(config.runs) / run_name(config)


@contextmanager
def open_run(config: TrainConfig) -> Iterator[Path]:
    """The run directory of `config`, made if it is not there, for this process alone.

    A start that is refused before the run has begun leaves no directory that it has made. Raises ConfigError if
    another run is in it, LockedError if another process is at work there.
    """
    folder = run_folder(config)
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    with wrap_os_errors(folder, "make the run directory"):
        make_folder(folder)
    with _owned(folder):
        try:
            if _has_checkpoints(folder):
                _refuse_another_run(with_values(config, chosen_before(config, folder)), folder)
            yield folder
        except BaseException:
            if made:
                _remove_unused(made)
            raise


def _remove_unused(made: Sequence[Path]) -> None:
    """Remove the run directory `made[0]`, whose lock we hold, and what was made for it, if no run has begun there."""
    folder = made[0]
    left_by_a_start = {LOCK_FILE, OWNER_FILE, LOG_FILE, CHECKPOINTS_FOLDER}
    with suppress(OSError):  # another process has put something there meanwhile, and it stays
        if any(path.name not in left_by_a_start for path in folder.iterdir()) or _has_checkpoints(folder):
            return
        for name in (LOG_FILE, OWNER_FILE, LOCK_FILE):
            (folder / name).unlink(missing_ok=True)
        if (folder / CHECKPOINTS_FOLDER).exists():
            (folder / CHECKPOINTS_FOLDER).rmdir()
        for path in made:
            path.rmdir()


def chosen_before(config: TrainConfig, folder: Path) -> dict[str, Any]:
    """Dotted key → value of what `config` leaves open and the run in `folder`, or the one that it resumes, has chosen.

    Raises CheckpointError for a run whose config cannot be read.
    """
    before = _goes_on_from(config, folder)
    if before is None or not (before / CONFIG_FILE).exists():
        return {}
    chosen = flat(to_plain(read_config(before)))
    by_recipe = [key for key in config.left_open if key != "train.max_steps" or config.train.max_epochs is None]
    kept = {key: chosen[key] for key in by_recipe if key in chosen}
    kept |= {key: chosen[key] for key in _left_open(config) if chosen[key] not in OPEN}
    return {**kept, "left_open": []} if by_recipe else kept


def _left_open(config: TrainConfig) -> list[str]:
    """The keys whose values tfm chooses as a run begins; a run that goes on keeps what was chosen then.

    train.max_steps is not one of them where train.max_epochs says how long the run is.
    """
    chosen_once = [key for key, info in key_infos(TrainConfig).items() if info.chosen_once]
    settings = flat(to_plain(config))
    left_open = [key for key in chosen_once if settings[key] in OPEN]
    return [key for key in left_open if key != "train.max_steps" or config.train.max_epochs is None]


def with_values(config: Config, values: Mapping[str, Any]) -> Config:
    """`config` with other values of some dotted keys, those of a group at once. Raises ConfigError."""
    return cast(Config, _with_values(config, values))


def _with_values(config: Any, values: Mapping[str, Any]) -> Any:
    fields: dict[str, Any] = {}
    groups: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        name, _, below = key.partition(".")
        if below:
            groups.setdefault(name, {})[below] = value
        else:
            kind = type(getattr(config, name))
            fields[name] = kind[value] if issubclass(kind, Enum) and isinstance(value, str) else value
    fields |= {name: _with_values(getattr(config, name), below) for name, below in groups.items()}
    return replace(config, **fields)


def values_at(config: TrainConfig, keys: Iterable[str]) -> dict[str, Any]:
    """The values of dotted keys, as YAML has them."""
    settings = flat(to_plain(config))
    return {key: settings[key] for key in keys}


def _goes_on_from(config: TrainConfig, folder: Path) -> Path | None:
    """The run directory whose checkpoint a run in `folder` goes on from, if it goes on from one."""
    if _has_checkpoints(folder):
        return folder
    return run_of(follow(Path(config.resume)).resolve() / MODEL_FILE) if config.resume != RESUME_AUTO else None


def _has_checkpoints(folder: Path) -> bool:
    return any((folder / CHECKPOINTS_FOLDER).glob("*step-*"))


def write_config(config: TrainConfig, folder: Path) -> None:
    """Keep the config in the run directory, for whoever resumes or evaluates the run. Raises EnvironmentFault."""
    with wrap_os_errors(folder, "write to the run directory"):
        write_whole(folder / CONFIG_FILE, to_yaml(config).encode())


@contextmanager
def _owned(folder: Path) -> Iterator[None]:
    """Hold the run directory's lock, with the name of this process beside it."""
    owner = folder / OWNER_FILE  # not in the lock itself: closing any handle of a locked file gives the lock up
    try:
        with locked(folder / LOCK_FILE, wait=False):
            since = time.strftime("%Y-%m-%d %H:%M:%S")
            write_whole(owner, f"process {os.getpid()} on {socket.gethostname()}, started {since},".encode())
            yield
    except BlockingIOError as error:
        name = owner.read_text(encoding="utf-8") if owner.exists() else "another process"
        raise LockedError(f"{folder}: {name} is training here. Wait for it, or choose another name=") from error


def _refuse_another_run(config: TrainConfig, folder: Path) -> None:
    """Raise ConfigError, after a table of what has changed, unless config.force."""
    if config.force and not (folder / CONFIG_FILE).exists():
        return
    before, now = _fixed(read_config(folder)), _fixed(config)
    keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    if not keys:
        return
    log_changes([(key, _shown(before.get(key)), _shown(now.get(key))) for key in keys], "key")
    if config.force:
        LOGGER.warning("%s: going on with another config than before, as force=true says", folder)
        return
    key, more = keys[0], f" and {len(keys) - 1} more" if len(keys) > 1 else ""
    raise ConfigError(
        f"{folder}: holds another run: {key} was {_shown(before.get(key))}, is {_shown(now.get(key))}{more}."
        " Choose another name=, leave name out, or go on all the same with force=true"
    )


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _fixed(config: TrainConfig) -> dict[str, Any]:
    """Dotted key → value of all that a resumed run may not change."""
    fixed = LENGTH if ends_at_max_steps(config.schedule.name) else ()
    values = flat(to_plain(config))
    if not config.data.is_swapped:
        del values["data.languages"]  # of what is read as it stands, the other two say enough
    return {key: value for key, value in values.items() if key in fixed or not info_at(config, key).may_change}


def flat(tree: dict[str, Any]) -> dict[str, Any]:
    """Dotted key → value of a nested config; empty groups, as options of no plugin, are left out."""
    return {key: value for key, value in flattened(tree).items() if value != {}}
