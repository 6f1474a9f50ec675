"""A key of the config: a dataclass field with its default, its legal range and a sentence about what it does."""

import copy
import dataclasses
import math
from dataclasses import dataclass
from typing import Any, TypeVar

from transformer_cli.config.checks import check_number_or_auto, check_range
from transformer_cli.environment import VARIABLE, home_followed

T = TypeVar("T")
# Sentences of keys that several commands share.
CHECKPOINT = "Model file, checkpoint or run directory; unset: the newest finished run."
CHECKPOINTS = "Model file, checkpoint or run directory, or a list for an ensemble; unset: the newest finished run."
RUNS = "Folder that holds the run directories."
BATCH_TOKENS = "Padded tokens of one batch; lower it to save memory. auto: 4096 on a CPU, what fits on a GPU."
SEED = "Seed of everything random."
DEVICE = "Where to compute; auto: the first GPU (of CUDA, else Apple's: mps), else the CPU."
PLUGINS = "Python modules of your own to import first; they register models, searches, optimizers, schedules and more."
STRICT = "Stop at a line that is not UTF-8, instead of replacing its bytes."
OVERWRITE = "Replace the output if it exists."


@dataclass(frozen=True)
class KeyInfo:
    """What `tfm COMMAND --keys` prints of a key beside its type and default."""

    help: str
    low: float | None = None  # None: no range is checked here
    high: float = math.inf
    below: bool = False  # `high` itself is not legal
    auto: bool = False  # "auto" is legal, too
    choices: tuple[str, ...] = ()  # legal values, where the type does not list them
    path: bool = False  # names a file or folder: a leading ~ is the home folder
    flag: str = ""  # the option that is a synonym of the key, as --output
    word: bool = False  # its value may stand on the command line alone, as the text of `tfm translate "a text"`
    repeated: bool = False  # the flag or word may be given several times; so is one whose key is a list


def key(
    default: T,
    help: str,
    *,
    low: float | None = None,
    high: float = math.inf,
    below: bool = False,
    auto: bool = False,
    choices: tuple[str, ...] = (),
    path: bool = False,
    flag: str = "",
    word: bool = False,
    repeated: bool = False,
) -> T:
    """A dataclass field. `low`, `high`: the range that `check_ranges` holds it to, high excluded with `below`."""
    metadata = {"key": KeyInfo(help, low, high, below, auto, choices, path, flag, word, repeated)}
    if isinstance(default, list | dict):
        return dataclasses.field(default_factory=lambda: copy.copy(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def written_name(field_name: str) -> str:
    """As it is written in a config: what Python has a keyword for, as `from`, is a field with an underscore behind."""
    return field_name.removesuffix("_")


def info_of(field: "dataclasses.Field[Any]") -> KeyInfo | None:
    """None for a field that is a group of keys."""
    return field.metadata.get("key")


def check_ranges(config: Any, group: str = "") -> None:
    """Raise ConfigError for a value, or an element of a list, outside its range; `group` is the key of `config`."""
    for field in dataclasses.fields(config):
        info, value = info_of(field), getattr(config, field.name)
        if info is None or info.low is None:
            continue
        name = f"{group}.{field.name}".removeprefix(".")
        among = value if isinstance(value, list | tuple) else None
        for one in [value] if among is None else among:
            if info.auto and not (one is None and field.default is None):
                check_number_or_auto(name, one, info.low, info.high)
            else:
                check_range(name, one, info.low, info.high, below=info.below, among=among)


def follow_home(config: Any) -> None:
    """Put the home folder in place of a leading `~` in every value that names a file or folder, in place.

    What comes from the environment is followed where it is opened.
    """
    for field in dataclasses.fields(config):
        info, value = info_of(field), getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            follow_home(value)
        elif info is not None and info.path:
            setattr(config, field.name, _home_followed(value))


def _home_followed(value: Any) -> Any:
    if isinstance(value, list):
        return [_home_followed(one) for one in value]
    return home_followed(value) if isinstance(value, str) and not VARIABLE.search(value) else value
