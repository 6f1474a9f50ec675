"""Command line and YAML → one checked dataclass, composed by Hydra.

Hydra composes and nothing more: no `_target_`, no `instantiate`, no DictConfig past this package.
"""

import copy
import dataclasses
import re
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from transformer_cli.command import COMMANDS, schema_of
from transformer_cli.config.fields import check_ranges, follow_home, written_name
from transformer_cli.config.interpolation import literal, refuse_interpolations, resolve, take_left_open
from transformer_cli.config.keys import Options, check_key, fields_of, group_members, is_option, leaves
from transformer_cli.config.keywords import config_of_fields
from transformer_cli.config.overrides import as_list, check_overrides, parse_override, quoted_for_hydra
from transformer_cli.config.recipes import (
    chosen_files,
    fine_tuning_default,
    read_chosen_files,
    recipe_by_task,
    without_test_set,
)
from transformer_cli.config.text_values import override_as_written
from transformer_cli.config.user_files import register_user_files
from transformer_cli.config.yaml_files import config_dir, primary_file
from transformer_cli.errors import ConfigError, quoted
from transformer_cli.plugins import load_plugins
from transformer_cli.registry import is_ours, place_of

_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*\.?[0-9_]*)[eE][-+]?[0-9]+|0o[0-7]+")
# OmegaConf's messages on a value of the wrong type, and what is said instead.
_WRONG_TYPES = {
    r"Value '?(.*?)'? of type '\w+' could not be converted to Integer": "{key}={value}: no whole number. Give one",
    r"Value '?(.*?)'? of type '\w+' could not be converted to Float": "{key}={value}: no number. Give one",
    r"Value '?(.*?)'? is not a valid bool \(type \w+\)": "{key}={value}: unknown. Choose true or false",
    r"Value (.*) \(\w+\) is not a valid input for <enum '\w+'>": "{key}={value}: unknown. Choose {choices}",
    r"Invalid value '(.*)', expected one of \[.*\]": "{key}={value}: unknown. Choose {choices}",
    r"Cannot convert '\w+' to string: '(.*)'": "{key}={value}: must be one text, without brackets or braces around it",
    r"Cannot assign \w+ to Dict\[(.*)\]": "{key}: must be a table of keys, as {key}.NAME=VALUE",
    r"field '(.*)' is not Optional": "{key}=null: has a value always. Give one, or leave it out for its default",
    r"Invalid type assigned: NoneType is not a subclass of (\w+)\. value: None": (
        "{key}=null: must have a value. Give one, or leave it out of the list"
    ),
}
_NO_LIST = "is not a ListConfig, list or tuple."  # ends OmegaConf's message on a single value for a list


def load_config(
    command: str,
    overrides: Sequence[str] = (),
    *,
    flags: Mapping[str, Any] | None = None,
    user_dir: Path | None = None,
) -> Any:
    """The config of `command`, as an instance of its schema dataclass.

    `overrides` are Hydra's (`model=big`, `train.max_steps=10`); `flags` maps keys to values and wins over them.
    `user_dir` is a folder whose YAML files are choices beside ours. Raises ConfigError.
    """
    overrides = [override_as_written(text, command) for text in overrides]
    overrides = COMMANDS[command].overrides(overrides, flags or {})
    config = composed(command, overrides, user_dir)
    if load_plugins(_named_plugins(config, flags or {})):
        config = composed(command, overrides, user_dir)  # again, since a plugin's task has a recipe of its own
    for key, value in COMMANDS[command].missing(config).items():
        OmegaConf.update(config, key, literal(value))
    checked = to_schema(config, schema_of(command), flags=flags)
    check_ranges(checked)
    refuse_given = getattr(checked, "refuse_given", None)
    if refuse_given is not None:
        refuse_given([*(flags or {}), *(parse_override(text).key_or_group for text in overrides)])
    return checked


def _named_plugins(config: DictConfig, flags: Mapping[str, Any]) -> list[str]:
    """The modules of `plugins`; none where it is no list of names, which is refused with the other keys."""
    try:
        named = flags.get("plugins", config.get("plugins"))
        is_list = isinstance(named, list | ListConfig) and all(isinstance(name, str) for name in named)
    except OmegaConfBaseException as error:  # of an interpolation, which is resolved as it is read
        message = str(error).split("\n")[0]
        raise ConfigError(f"plugins: {message}. Write the names of the modules themselves") from error
    return list(named) if is_list else []


def composed(command: str, overrides: Sequence[str], user_dir: Path | None = None) -> DictConfig:
    """The config of `command` as Hydra composes it, in which nothing is checked but the names. Raises ConfigError."""
    for text in overrides:
        if text.lstrip("+~").startswith("hydra"):
            raise ConfigError(f"{quoted(text)}: Hydra's own keys need --multirun. Add -m, or leave it out")
        if parse_override(text).is_sweep_override():
            raise ConfigError(f"{quoted(text)}: several values make several runs. Add -m, or write a list as [a,b]")
    schema = schema_of(command)
    if not is_ours(schema):
        defaults_of(schema)  # is refused here, if it cannot be a config
    if not (overrides or user_dir or COMMANDS[command].groups or primary_file(command)):
        return copy.deepcopy(defaults_of(schema))  # there is nothing to compose, and Hydra takes 0.1 s
    arguments = hydra_arguments(command, overrides, user_dir)
    try:
        with initialize_config_dir(str(config_dir()), version_base="1.3"):
            return compose(command, arguments)
    except (HydraException, OmegaConfBaseException) as error:
        raise as_config_error(error, schema) from error


def hydra_arguments(command: str, overrides: Sequence[str], user_dir: Path | None) -> list[str]:
    """The checked `overrides`, with the user's folder and a recipe; registers the schemas. Raises ConfigError."""
    overrides = [override_as_written(text, command) for text in overrides]
    if user_dir is not None and not user_dir.is_dir():
        raise ConfigError(f"{user_dir}: no such folder. Give --config-dir a folder with YAML files")
    check_overrides(command, overrides, user_dir)
    if user_dir is not None:
        read_chosen_files([pair for pairs in chosen_files(command, overrides).values() for pair in pairs], user_dir)
    register_user_files()
    register_schema(command)
    # Not as_uri(): Hydra does not decode the %20 of a blank.
    search_path = [f"hydra.searchpath=[{quoted_for_hydra(f'tfm://{user_dir.resolve()}')}]"] if user_dir else []
    kept = [_for_hydra(text, schema_of(command)) for text in overrides]
    return [*search_path, *filter(None, kept), *added_overrides(command, overrides, user_dir)]


def added_overrides(command: str, overrides: Sequence[str], user_dir: Path | None) -> list[str]:
    """What follows from `overrides`, and is composed as if it stood behind them: a recipe, or no test set of a file."""
    recipes = [*recipe_by_task(command, overrides, user_dir), *fine_tuning_default(command, overrides, user_dir)]
    return recipes + without_test_set(overrides)


def _for_hydra(text: str, schema: type) -> str:
    """An override in Hydra's own grammar: `~recipe`, or nothing, for `group=null`; `++` before a plugin's option."""
    group, _, value = text.partition("=")
    if is_option(group.lstrip("+"), schema):
        return f"++{text.lstrip('+')}"
    if value == "null" and "." not in group and (config_dir() / group).is_dir():
        return "~recipe" if group == "recipe" else ""
    return text


@cache  # the store is one for the process, and building a node of it takes long
def register_schema(command: str) -> None:
    """Register with Hydra the keys of `command`, and its defaults list where it has no YAML file for it."""
    store = ConfigStore.instance()
    store.store(name=f"{command}_schema", node=schema_of(command))
    if primary_file(command) is None:
        groups = [{group: choice} for group, choice in COMMANDS[command].groups.items()]
        store.store(name=command, node={"defaults": [f"{command}_schema", "_self_", *groups]})


def to_schema(config: DictConfig, schema: type, *, flags: Mapping[str, Any] | None = None) -> Any:
    """`config` as an instance of `schema`, every key checked; `flags` win over it. Raises ConfigError."""
    try:
        _refuse_unknown_keys(config, schema, root=schema)
        left_open = take_left_open(config)
        resolve(config)
        for key, value in (flags or {}).items():
            OmegaConf.update(config, key, literal(value))
        if left_open:
            config.left_open = [key for key in left_open if key not in (flags or {})]
        missing = sorted(OmegaConf.missing_keys(config))
        if missing:
            raise ConfigError(f"{missing[0]}: not set. Give it as {missing[0]}=VALUE")
        checked = OmegaConf.to_object(config)
    except OmegaConfBaseException as error:
        raise as_config_error(error, schema) from error
    follow_home(checked)
    return checked


def from_plain(schema: type, plain: Mapping[str, Any]) -> Any:
    """The inverse of `to_plain`, for configs read from a file: nothing in them is interpolated. Raises ConfigError."""
    if not isinstance(plain, Mapping):
        raise ConfigError("config: not a table of keys and values. Restore it")
    try:
        refuse_interpolations(plain, "")
        config = OmegaConf.create(literal(config_of_fields(plain)))
        _refuse_unknown_keys(config, schema, root=schema)
        return OmegaConf.to_object(OmegaConf.merge(defaults_of(schema), config))
    except OmegaConfBaseException as error:
        raise as_config_error(error, schema) from error


@cache
def defaults_of(schema: type) -> DictConfig:
    """The defaults of a schema; to be merged into copies of it only. Raises ConfigError for a plugin's that is none."""
    try:
        return typing.cast(DictConfig, OmegaConf.structured(schema))
    except OmegaConfBaseException as error:
        message = str(error).strip().split("\n")[0].rstrip(".")
        raise ConfigError(f"{place_of(schema)}: its key {error.full_key}: {message}. Correct it") from error


def to_plain(config: Any) -> dict[str, Any]:
    """A config dataclass as dictionaries, lists, strings and numbers, ready for JSON or YAML.

    Without OmegaConf, whose tens of milliseconds every save would wait for.
    """
    schema: type = type(config)
    hints = _hints(schema)
    return {
        written_name(field.name): _plain(getattr(config, field.name), hints[field.name])
        for field in dataclasses.fields(config)
    }


def _plain(value: Any, hint: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return to_plain(value)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, list | tuple):
        return [_plain(one, Any) for one in value]
    if isinstance(value, Mapping):
        return {name: _plain(one, Any) for name, one in value.items()}
    if type(value) is int and (hint is float or float in typing.get_args(hint)):
        return float(value)  # as a config that was read has it
    return value


@cache
def _hints(schema: type) -> dict[str, Any]:
    return typing.get_type_hints(schema)


def to_yaml(config: Any) -> str:
    return yaml.dump(to_plain(config), Dumper=_Dumper, sort_keys=False, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    """YAML in which a text that any reader takes for a number is quoted: PyYAML knows no 1e3 and no 0o17."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'" if _NUMBER.fullmatch(text) else None)


_Dumper.add_representer(str, _represent_text)


def _refuse_unknown_keys(config: Any, schema: type, *, root: type, prefix: str = "") -> None:
    """Refuse keys that are no field: `+model.d_modle=3` gets past Hydra even on a typed node."""
    if not isinstance(config, DictConfig) or config._is_none() or config._is_interpolation():
        return
    children = fields_of(schema)
    for name in map(str, config):
        check_key(prefix + name, root)
        nested = children[name]
        if typing.get_origin(_hints(schema)[name]) is list:
            _refuse_nested(prefix + name, config._get_node(name), _hints(schema)[name])
        if nested is not None and nested is not Options:
            _refuse_unknown_keys(config._get_node(name), nested, root=root, prefix=f"{prefix}{name}.")


def _refuse_nested(key: str, values: Any, hint: Any) -> None:
    """Refuse a table or a list in a list of values, which OmegaConf takes."""
    if not isinstance(values, ListConfig) or values._is_none() or values._is_interpolation():
        return
    if not any(map(dataclasses.is_dataclass, typing.get_args(hint))):
        for element in map(values._get_node, range(len(values))):
            if isinstance(element, ListConfig | DictConfig):
                kind = "list" if isinstance(element, ListConfig) else "table of keys"
                raise ConfigError(f"{key}: holds a {kind}, not values alone. `--cfg` prints every key with its value")


def as_config_error(error: Exception, schema: type) -> ConfigError:
    """Hydra's and OmegaConf's many-line messages as one line that names the key."""
    cause: BaseException = error
    while not isinstance(cause, OmegaConfBaseException) and cause.__cause__ is not None:
        cause = cause.__cause__
    lines = [line.strip() for line in str(cause).split("\n")]
    named = [line.removeprefix("full_key:").strip() for line in lines if line.startswith("full_key:")]
    if named and named[0]:
        # An unknown key in a YAML file gets the message of one on the command line; `key[0]` is an element of a list.
        check_key(re.sub(r"\[\d+\]", "", named[0]), schema)
    if not isinstance(cause, OmegaConfBaseException):
        kept = [line for line in lines if line and not line.startswith(("full_key:", "object_type="))]
        return ConfigError(f"{' '.join(kept).rstrip('.')}. `--cfg` prints every key with its value")
    key = written_name(cause.full_key or next(iter(named), "config"))
    if lines[0].endswith(_NO_LIST):
        value = _plain(getattr(cause.value, "_value", lambda: cause.value)(), Any)
        return ConfigError(f"{key}={value}: must be a list. Write {key}={as_list([value])}")
    if lines[0].startswith("Cannot merge DictConfig with ListConfig") and is_option(key, schema):
        return ConfigError(f"{key}: must be a table of keys, as {key}.NAME=VALUE")
    if lines[0].startswith("Cannot merge DictConfig with ListConfig") and not group_members(key, schema):
        return ConfigError(f"{key}: must be a list, and is a table of keys. `--cfg` prints every key with its value")
    if not lines[0].startswith("Could not create") and (members := group_members(key, schema)):
        return ConfigError(f"{key}: is a group of keys, and has no value itself. Set one of them, as in {members[0]}=…")
    for pattern, said in _WRONG_TYPES.items():
        if (found := re.fullmatch(pattern, lines[0].rstrip("."), re.DOTALL)) is not None:
            return ConfigError(said.format(key=key, value=found[1], choices=_choices_of(key, schema)))
    return ConfigError(f"{key}: {lines[0].rstrip('.')}. `--cfg` prints every key with its value")


def _choices_of(key: str, schema: type) -> str:
    """The choices of a key that has a fixed set of them, for a message; none is the nearest: gpu is not near to cpu."""
    kind = next((hint for name, hint, _ in leaves(schema) if name == re.sub(r"\[\d+\]$", "", key)), None)
    return ", ".join(kind.__members__) if isinstance(kind, type) and issubclass(kind, Enum) else ""
