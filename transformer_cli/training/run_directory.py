"""The run directory: its name, and whether a command may continue what lies in it."""

import hashlib
import json
from pathlib import Path
from typing import Any

import yaml

from transformer_cli.config import from_plain, to_plain, to_yaml
from transformer_cli.errors import CheckpointError, ConfigError
from transformer_cli.schema import ScheduleConfig, TrainConfig

CONFIG_FILE = "config.yaml"

# Keys that a resumed run may change: they say how long, how often, where and how fast, not what is learnt.
CHANGEABLE = (
    "name",
    "runs",
    "device",
    "data.root",
    "data.cache",
    "decode",
    "train.max_batch_cells",
    "train.max_steps",
    "train.log_every",
    "train.eval_every",
    "train.eval_lines",
    "train.save_every",
    "train.keep_last",
    "train.keep_best",
    "train.average_last",
    "train.patience",
    "train.samples",
)
# These schedules end at train.max_steps, so that changing it would change every step before.
ENDS_AT_MAX_STEPS = ("cosine", "linear")


def run_name(config: TrainConfig) -> str:
    """`config.name`, or a name made from what is learnt: the same command always gets the same one."""
    if config.name is not None:
        if not config.name or "/" in config.name or config.name in (".", ".."):
            raise ConfigError(f"name={config.name!r}: not the name of a folder. Leave out slashes; `runs` says where")
        return config.name
    digest = hashlib.sha256(json.dumps(_fixed(config), sort_keys=True).encode()).hexdigest()
    return f"{config.data.name}-{config.model.preset}-{config.model.norm.name}-{digest[:6]}"


def open_run(config: TrainConfig) -> Path:
    """The run directory of `config`, made if it is not there, holding its config.yaml.

    Raises ConfigError if it holds a run that learns something else.
    """
    folder = Path(config.runs) / run_name(config)
    file = folder / CONFIG_FILE
    if file.exists():
        _refuse_another_run(config, file)
    folder.mkdir(parents=True, exist_ok=True)
    _write_whole(file, to_yaml(config))
    return folder


def _refuse_another_run(config: TrainConfig, file: Path) -> None:
    before, now = _fixed(read_config(file)), _fixed(config)
    changed = [f"{key} was {before.get(key)!r}, is {now.get(key)!r}" for key in now if before.get(key) != now[key]]
    if changed:
        shown = "; ".join(changed[:5]) + (f"; and {len(changed) - 5} more" if len(changed) > 5 else "")
        raise ConfigError(
            f"{file}: this run directory holds another run ({shown}). Choose another name=, or leave name out"
        )


def read_config(file: Path) -> TrainConfig:
    """The config that a run was started with. Raises CheckpointError."""
    try:
        plain = yaml.safe_load(file.read_text(encoding="utf-8"))
        config = from_plain(TrainConfig, plain)
    except (yaml.YAMLError, UnicodeDecodeError, ConfigError, TypeError) as error:
        what = " ".join(str(error).split())
        raise CheckpointError(
            f"{file}: not the config of a run ({what}). Restore it, or choose another name="
        ) from error
    assert isinstance(config, TrainConfig)
    return config


def _fixed(config: TrainConfig) -> dict[str, Any]:
    """Dotted key → value of all that a resumed run may not change."""
    free = [key for key in CHANGEABLE if key != "train.max_steps" or not _ends(config.schedule)]
    flat = _flat(to_plain(config))
    return {key: value for key, value in flat.items() if not any(f"{key}.".startswith(f"{f}.") for f in free)}


def _ends(schedule: ScheduleConfig) -> bool:
    return schedule.name in ENDS_AT_MAX_STEPS


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat.update(_flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value})
    return flat


def _write_whole(file: Path, text: str) -> None:
    temporary = file.with_name(f".{file.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(file)
