"""A key of the config: a dataclass field with its default, its legal range and a sentence about what it does."""

import copy
import dataclasses
import math
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, TypeVar

from transformer_cli.config.checks import check_number_or_auto, check_range
from transformer_cli.environment import ENVIRONMENT_VARIABLE, home_followed
from transformer_cli.errors import ConfigError

_T = TypeVar("_T")
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


Affects = Literal["weights", "text", "export", "scores", "rounding", "speed", "log", "place"]
_FREE: tuple[Affects, ...] = ("export", "speed", "log", "place")  # what a resumed run may change, unless a key refuses

# Legal values; a function for those that add-ons and plugins register.
Choices = tuple[str, ...] | Callable[[], Sequence[str]]


@dataclass(frozen=True)
class KeyInfo:
    """What `tfm COMMAND --keys` prints of a key beside its type and default, and what another value of it changes.

    `affects` is the first of these that it changes:
      text      the prepared text, and with it the weights; such keys are part of the key of the cache
      weights   every update, but not the prepared text
      export    which checkpoint is exported, but no update
      scores    how translations are made and scored, but not the model
      rounding  the number format or the order of sums, and so the last digits of the above
      speed     time, memory, which random numbers dropout draws, and when a run that fails is ended
      log       what is logged or measured beside the above
      place     where files are and what they are called, which device computes, and which code is loaded
    A key that does not say it is as the AFFECTS of its dataclass, an option of a plugin as the group of `options`.
    Every key of a command that resumes runs says it. The keys that another command has of its own do not: nothing reads
    it of them, since their values are not kept, or are listed where they are, as in the report of `tfm augment`.

    A resumed run may change a key with `may_change`: unless the key says otherwise, one that affects export, speed, log
    or place. All other keys are the identity of a run: its name is made from them, and a resume with another value is
    refused.
    """

    help: str
    low: float | None = None  # None: no range is checked here
    high: float = math.inf
    below: bool = False  # `high` itself is not legal
    auto: bool = False  # "auto" is legal, too
    pair: bool = False  # with `auto`: a list of two such values is legal, too
    choices: Choices = ()  # legal values, where the type does not list them
    path: bool = False  # names a file or folder: a leading ~ is the home folder
    flag: str = ""  # the option that is a synonym of the key, as --output
    word: bool = False  # its value may stand on the command line alone, as the text of `tfm translate "a text"`
    repeated: bool = False  # the flag or word may be given several times; so is one whose key is a list
    affects: Affects | None = None
    may_change: bool | None = None
    chosen_once: bool = False  # null or auto is replaced as a run begins, and a resumed run keeps what was chosen then
    part: str = ""  # the part of the model or of the translation that alone reads the key; empty: several do
    entry: str = ""  # of options: the key beside them that names the entry of a registry whose settings these are

    @property
    def legal_values(self) -> Sequence[str]:
        return self.choices() if callable(self.choices) else self.choices

    def resolved(self, default: Affects | None) -> "KeyInfo":
        """The same with `affects` and `may_change`; the first is `default` where the key does not say it."""
        affects = self.affects or default
        return replace(
            self, affects=affects, may_change=bool(self.may_change or (self.may_change is None and affects in _FREE))
        )


def key(
    default: _T,
    help: str,
    *,
    low: float | None = None,
    high: float = math.inf,
    below: bool = False,
    auto: bool = False,
    pair: bool = False,
    choices: Choices = (),
    path: bool = False,
    flag: str = "",
    word: bool = False,
    repeated: bool = False,
    affects: Affects | None = None,
    may_change: bool | None = None,
    chosen_once: bool = False,
    part: str = "",
    entry: str = "",
) -> _T:
    """A dataclass field; KeyInfo says what the arguments mean. `check_ranges` holds it to `low` and `high`."""
    info = KeyInfo(
        help,
        low=low,
        high=high,
        below=below,
        auto=auto,
        pair=pair,
        choices=choices,
        path=path,
        flag=flag,
        word=word,
        repeated=repeated,
        affects=affects,
        may_change=may_change,
        chosen_once=chosen_once,
        part=part,
        entry=entry,
    )
    metadata = {"key": info}
    if isinstance(default, list | dict):
        return dataclasses.field(default_factory=lambda: copy.copy(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def written_name(field_name: str) -> str:
    """The name of a field as a config has it: a Python keyword, as `from`, is a field with an underscore behind."""
    return field_name.removesuffix("_")


def info_of(field: "dataclasses.Field[Any]") -> KeyInfo | None:
    """None for a field that is a group of keys."""
    return field.metadata.get("key")


@cache
def key_infos(schema: type) -> Mapping[str, KeyInfo]:
    """Dotted key → its description, resolved, of each key of a dataclass and of the groups in it."""
    hints, found = typing.get_type_hints(schema), dict[str, KeyInfo]()
    for field in dataclasses.fields(schema):
        name, kinds = written_name(field.name), [hints[field.name], *typing.get_args(hints[field.name])]
        group = next((kind for kind in kinds if dataclasses.is_dataclass(kind)), None)
        info = info_of(field) or (KeyInfo("") if group is None else None)
        if info is not None:
            found[name] = info.resolved(getattr(schema, "AFFECTS", None))
        else:
            found |= {f"{name}.{below}": one for below, one in key_infos(typing.cast(type, group)).items()}
    return found


def keys_that_affect(schema: type, *affects: Affects) -> list[str]:
    """The dotted keys of a dataclass, and of the groups in it, that affect one of these."""
    return [name for name, info in key_infos(schema).items() if info.affects in affects]


def values_that_affect(affects: Affects, config: Any) -> dict[str, Any]:
    """The values of the keys that affect it, by the names of their fields, in nested groups, none of which is empty."""
    schema: type = type(config)
    infos, found = key_infos(schema), dict[str, Any]()
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            found |= {field.name: below} if (below := values_that_affect(affects, value)) else {}
        elif infos[written_name(field.name)].affects == affects:
            found[field.name] = copy.deepcopy(value)
    return found


def keys_of_part(schema: type, *parts: str) -> list[str]:
    """The keys of a group that one of these parts alone reads."""
    return [name for name, info in key_infos(schema).items() if info.part in parts]


def check_ranges(config: Any, group: str = "") -> None:
    """Raise ConfigError for a value, or an element of a list, outside its range; `group` is the key of `config`."""
    for field in dataclasses.fields(config):
        info, value = info_of(field), getattr(config, field.name)
        if info is None or info.low is None:
            continue
        name = f"{group}.{field.name}".removeprefix(".")
        among = value if isinstance(value, list | tuple) and (info.pair or not info.auto) else None
        for one in [value] if among is None else among:
            if info.auto and not (one is None and field.default is None):
                check_number_or_auto(name, one, info.low, info.high)
            else:
                check_range(name, one, info.low, info.high, below=info.below, among=among)


def follow_home(config: Any, group: str = "") -> None:
    """Put the home folder in place of a leading `~` in every value that names a file or folder, in place.

    What comes from the environment is followed where it is opened. Raises ConfigError for an empty name, which would
    mean the working folder, and which a variable of the shell that is not set leaves; `group` is the key of `config`.
    """
    for field in dataclasses.fields(config):
        info, value = info_of(field), getattr(config, field.name)
        name = f"{group}.{written_name(field.name)}".removeprefix(".")
        if dataclasses.is_dataclass(value):
            follow_home(value, name)
        elif info is not None and info.path:
            if "" in (value if isinstance(value, list) else [value]):
                raise ConfigError(f"{name}: an empty name. Name a file or folder, or leave it out")
            setattr(config, field.name, _home_followed(value))


def _home_followed(value: Any) -> Any:
    if isinstance(value, list):
        return [_home_followed(one) for one in value]
    return home_followed(value) if isinstance(value, str) and not ENVIRONMENT_VARIABLE.search(value) else value
