"""A command of `tfm`: one object that owns its keys, flags, help and run. A plugin adds one with `register`."""

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

from transformer_cli.config.checks import REQUIRED
from transformer_cli.config.fields import KeyInfo
from transformer_cli.config.keys import leaves
from transformer_cli.errors import ConfigError
from transformer_cli.registry import Registry, check_callable

# The config groups of a training run, with their files.
TRAINING_GROUPS: dict[str, str | None] = {
    "schedule": "noam",
    "optimizer": "adam",
    "model": "tiny",
    "norm": "post",
    "data": "demo_en_fr",
    "decode": "beam",
    "optional recipe": "${data}",
    "experiment": None,
}


@dataclass(frozen=True)
class Flag:
    """A synonym of one config key. `kind` is the type of its value; bool takes none."""

    key: str
    help: str
    kind: type = str
    repeated: bool = False


@dataclass(frozen=True)
class SweepRun:
    """The result of one run. `scores` are those of its dev and test set by their names.

    A run that makes a corpus has its name and `counts` instead.
    """

    number: int
    changes: dict[str, str]  # the keys that differ between the runs, in the order given, with this run's values
    run_dir: str | None = None
    scores: dict[str, float | None] = field(default_factory=dict)
    step: int | None = None
    minutes: float | None = None  # None: the run was finished by an earlier command
    error: str | None = None
    exit_code: int = 0
    corpus: str | None = None
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def ended(self) -> str:
        return "" if self.exit_code > 128 else "failed: "  # the message of a stopped run begins with "stopped by"

    @property
    def label(self) -> str:
        return ",".join(f"{key}={value}" for key, value in self.changes.items()) or f"run {self.number}"


@dataclass(frozen=True)
class Command:
    """A command of `tfm`. It imports what it runs within `run`: `--help` and completion read all commands.

    Its name may have two words, the first of which is a command, too: `augment loop`, whose keys are not `augment`'s.
    If the schema has a method `refuse_given`, it gets the keys that the command line gives, and raises ConfigError for
    one that means nothing beside the others.
    """

    name: str
    help: str
    example: str
    schema: type  # the dataclass of its keys
    run: Callable[[Any], object]  # gets an instance of it
    # Options of keys in groups, as "--beam": "decode.beam_size"; those of its own keys stand at the keys.
    group_flags: Mapping[str, str] = field(default_factory=dict)
    # The config groups whose YAML files it takes, with the file that is chosen unless one is named.
    groups: Mapping[str, str | None] = field(default_factory=dict)
    recipe_by_task: bool = False  # a corpus without a recipe of its own name has that of its task
    needs_word: str = ""  # the message where the word on its own is missing; empty: it is optional
    word_choices: str = ""  # the folder of configs/ whose files are the values of that word, for completion
    takes_command_lines: bool = False  # its words are those of other commands, also where they hold a = sign
    input_hint: str = ""  # where input comes from, for the message that refuses a word on its own
    reads: tuple[str, ...] = ()  # the groups of keys that it uses, of those that it accepts; empty: all
    reads_with: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # a key → the groups used where it is given
    goes_on_from: str = ""  # what the same command goes on from after it was interrupted, as "checkpoint"
    # One run of a sweep (-m): gets its config and its record, which it returns filled, with the dev score if any.
    sweep: Callable[[Any, SweepRun], tuple[SweepRun, float | None]] | None = None
    # The words before one that is typed, and this one → its completions, where they are not those of the keys.
    complete: Callable[[Sequence[str], str], list[str]] = lambda before, word: []
    # Overrides and flags → the overrides that are composed.
    overrides: Callable[[list[str], Mapping[str, Any]], list[str]] = lambda overrides, _: overrides

    # A composed config → values for keys of it that are not set, from the files that it names.
    missing: Callable[[Any], Mapping[str, str]] = lambda config: {}

    @cached_property
    def flags(self) -> dict[str, Flag]:
        """Option → key, those of its own keys first."""
        own = {info.flag: self._keys[key] for key, _, info in leaves(self.schema) if info.flag and "." not in key}
        return {**own, **{option: self._keys[key] for option, key in self.group_flags.items()}}

    @cached_property
    def words(self) -> list[Flag]:
        """The keys whose values may stand on their own; those before the last may be left out."""
        return [self._keys[key] for key, _, info in leaves(self.schema) if info.word and "." not in key]

    @property
    def argument(self) -> Flag | None:
        return self.words[-1] if self.words else None

    @property
    def before(self) -> Flag | None:
        """A word that may stand before the argument."""
        return self.words[0] if len(self.words) > 1 else None

    @cached_property
    def _keys(self) -> dict[str, Flag]:
        defaults = {field.name: field.default for field in dataclasses.fields(self.schema)}
        lists = {name for name, hint in typing.get_type_hints(self.schema).items() if typing.get_origin(hint) is list}
        return {
            key: Flag(
                key,
                _help(kind, info, defaults.get(key)),
                kind if kind in (bool, int, float) else str,
                info.repeated or key in lists,
            )
            for key, kind, info in leaves(self.schema)
        }


def _help(kind: Any, info: KeyInfo, default: Any) -> str:
    """The sentence about a key, with its choices, and its default where that is a value."""
    if isinstance(default, Enum):
        default = default.name
    is_value = isinstance(default, int | float | str) and default not in (False, "", REQUIRED)
    sentence = f"{info.help} Default: {default}." if is_value else info.help
    choices = [one.name for one in kind] if isinstance(kind, type) and issubclass(kind, Enum) else info.legal_values
    return f"{sentence} One of {', '.join(choices)}." if choices else sentence


def _checked(name: str, entry: Any) -> Command:
    """`entry`, if it is a command that can be run. Raises ConfigError."""
    if not isinstance(entry, Command) or not dataclasses.is_dataclass(entry.schema):
        raise ConfigError(f"command `{name}`: register() takes a Command, whose schema is a dataclass. Correct it")
    if "plugins" not in entry.schema.__dataclass_fields__:
        raise ConfigError(
            f"command `{name}`: its schema has no key `plugins`. Add `plugins: list[str] = key([], PLUGINS)`"
        )
    check_callable(entry.run, what=f"the run of command `{name}`", arguments="config")
    return entry


COMMANDS: Registry[Command] = Registry("command", adopt=_checked)


def register(command: Command) -> Command:
    """Add a command. Raises ConfigError if its name is taken, or it is none."""
    return COMMANDS.register(getattr(command, "name", "?"))(command)


def command_in(words: Sequence[str]) -> tuple[str, list[str]]:
    """The command that `words` begin with, and the words behind it: `augment loop` is one name, of two words."""
    two = " ".join(words[:2])
    return (two, list(words[2:])) if two in COMMANDS else (words[0], list(words[1:]))


def schema_of(name: str) -> type:
    """The dataclass of the keys of a command. Raises ConfigError for a name that is none."""
    return COMMANDS[name].schema
