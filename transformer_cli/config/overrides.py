"""`key=value` on the command line: parsed by Hydra's grammar, and checked before Hydra acts upon it."""

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from transformer_cli.command import schema_of
from transformer_cli.config.interpolation import refuse_resolvers
from transformer_cli.config.keys import check_key, fields_of
from transformer_cli.config.yaml_files import choices_of, config_dir, groups_of, optional_groups
from transformer_cli.errors import ConfigError, quoted
from transformer_cli.registry import did_you_mean

_PLAIN = re.compile(r"[\w./+-]+", re.ASCII)  # what a list on a command line may hold without quotes


def check_overrides(command: str, overrides: Sequence[str], user_dir: Path | None = None) -> None:
    """Refuse what Hydra would accept silently or answer at length: strange keys, choices and grammar."""
    schema = schema_of(command)
    for text in overrides:
        override = parse_override(text)
        key = override.key_or_group
        if "_target_" in text:
            raise ConfigError(
                f"{key}: _target_: not supported. Configs name entries of tfm's registries, never classes"
            )
        if key.startswith(("hydra.", "hydra/")):
            continue
        refuse_resolvers(text.partition("=")[2], key)
        folders = [folder / key for folder in (config_dir(), user_dir) if folder and (folder / key).is_dir()]
        if override.is_delete():
            raise ConfigError(f"{quoted(text)}: keys cannot be deleted. Set {key} to a value, or to null")
        if "." not in key and folders and key in groups_of(command):
            if override.is_add() or override.is_force_add():  # each group has a choice, be it null
                raise ConfigError(f"{quoted(text)}: {key} is there already, and + only adds. Write {text.lstrip('+')}")
            _check_choice(key, override.value(), folders, may_be_null=key in optional_groups(command))
            continue
        check_key(key, schema, groups=groups_of(command))
        if "." not in key and folders:
            keys = ", ".join(f"{key}.{name}" for name in fields_of(fields_of(schema)[key] or schema))
            raise ConfigError(
                f"{quoted(text)}: `tfm {command}` takes no file for {key}. Set its keys one by one: {keys}"
            )
        group = key.split(".")[0]
        is_unset = group == "data" and "data" in optional_groups(command)
        if is_unset and not any(other.startswith("data=") for other in overrides):
            raise ConfigError(f"{key}: no corpus is chosen. Add data=NAME (choices: {', '.join(choices_of('data'))})")


def _check_choice(group: str, value: Any, folders: Sequence[Path], *, may_be_null: bool) -> None:
    choices = choices_of(group, folders)
    for choice in value.list if hasattr(value, "list") else [value]:  # a sweep, model=tiny,small, has a list
        name = "null" if choice is None else str(choice)
        if name not in choices and not (choice is None and may_be_null):
            raise ConfigError(
                f"{group}: no {group} called `{name}`{did_you_mean(name, choices)} (choices: {', '.join(choices)})"
            )


def values_of(overrides: Sequence[str]) -> dict[str, list[Any]]:
    """Key → the different values that `overrides` give it, the one that holds last. Raises ConfigError."""
    found: dict[str, list[Any]] = {}
    for text in overrides:
        override = parse_override(text)
        value = override.value()
        values = found.setdefault(override.key_or_group, [])
        values.append(getattr(value, "text", value))  # of a quoted string
        if str(values[-1]) in map(str, values[:-1]):
            values[:] = [one for one in values[:-1] if str(one) != str(values[-1])] + values[-1:]
    return found


@lru_cache(maxsize=1000)  # each is asked for several times, and its grammar takes a millisecond
def parse_override(text: str) -> Override:
    if "=" not in text and not text.startswith("~"):
        raise ConfigError(f"{quoted(text)}: not a flag and not a key=value override. Write key=value")
    try:
        override = OverridesParser.create().parse_override(text)
        if not override.key_or_group:
            raise ConfigError(f"{quoted(text)}: no key before the = sign. Write key=value")
        return override
    except HydraException as error:
        raise ConfigError(
            f"{quoted(text)}: not a key=value override. Close every bracket, and quote a value that holds"
            " brackets, parentheses, commas, braces, quotes, ~ or = signs, as in 'key=\"a=b\"'"
        ) from error


def as_list(values: Sequence[object]) -> str:
    """A list on a command line; within quotes for a shell, double ones are easier to read."""
    return f"[{','.join(map(_element, map(str, values)))}]"


def _element(value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    return quoted_for_hydra(value) if re.search(r'["\\]', value) else f'"{value}"'


def quoted_for_hydra(text: str) -> str:
    """The text in quotes, in which a backslash escapes only a quote, or what ends as one."""
    return "'" + re.sub(r"(\\*)('|$)", lambda found: 2 * found[1] + ("\\'" if found[2] else ""), text) + "'"
