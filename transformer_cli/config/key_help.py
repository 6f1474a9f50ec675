"""What `--keys` and docs/configuration.md print of each key: type, default, legal values and a sentence."""

import dataclasses
import math
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from types import NoneType
from typing import Any

from transformer_cli.command import COMMANDS, schema_of
from transformer_cli.config.checks import REQUIRED
from transformer_cli.config.fields import KeyInfo, key_infos, written_name
from transformer_cli.config.keys import Options, all_keys, fields_of
from transformer_cli.config.yaml_files import choices_of, groups_of
from transformer_cli.errors import ConfigError, quoted
from transformer_cli.registry import Registry, did_you_mean


@dataclass(frozen=True)
class KeyHelp:
    """One key of a command; `values` is empty where the type says all."""

    key: str
    type: str
    default: str
    values: str
    help: str
    default_value: Any = None  # as JSON has it
    may_change: bool = False  # when a run is resumed

    def lines(self, *, resumes: bool) -> str:
        """What `--keys` prints of it; `resumes`: the command resumes runs."""
        facts = [self.type, self.values, "required" if not self.default else f"default {self.default}"]
        facts += ["may change on resume"] if resumes and self.may_change else []
        return f"{self.key}: {', '.join(fact for fact in facts if fact)}\n    {self.help}\n"


def keys_page(command: str, pattern: str) -> str:
    """The keys of `command` that contain `pattern`, two lines each. Raises ConfigError where there is none."""
    keys = [*help_of(schema_of(command)), *_options_of_plugins(command)]
    found = [one for one in keys if pattern.lower() in one.key.lower()]
    if not found:
        near = did_you_mean(pattern, [one.key for one in keys])
        raise ConfigError(
            f"--keys {quoted(pattern)}: in no key of `tfm {command}`{near or '. Leave it out to see all'}"
        )
    resumes = COMMANDS[command].goes_on_from == "checkpoint"
    page = "".join(one.lines(resumes=resumes) for one in found)
    if pattern:
        return page
    groups = [f"    {group}=NAME: {', '.join(choices_of(group))}\n" for group in groups_of(command)]
    if groups:
        page += f"\nFiles that set many keys at once, and change defaults above:\n{''.join(groups)}"
    return f"{page}\n`tfm {command} --cfg` prints the values in effect.\n"


def help_of(schema: type) -> list[KeyHelp]:
    """Every key of `schema` and of the groups in it."""
    return list(_walk(schema, "", None))


def _options_of_plugins(command: str) -> Iterator[KeyHelp]:
    """The settings of entries that plugins have registered, where `command` has the key that they are under."""
    for registry in Registry.with_options:
        if registry.options_key in all_keys(schema_of(command)):
            for schema in registry.all_options():
                yield from _walk(schema, f"{registry.options_key}.", None)


def _walk(schema: type, prefix: str, group: Any) -> Iterator[KeyHelp]:
    """`group` is the default of the whole group, or None where the defaults of its fields hold."""
    hints, nested = typing.get_type_hints(schema), fields_of(schema)
    for field in dataclasses.fields(schema):
        default = _default(field) if group is None else getattr(group, field.name)
        inner = nested[field.name]
        if inner is not None and inner is not Options:
            yield from _walk(inner, f"{prefix}{field.name}.", default)
            continue
        name = written_name(field.name)
        info = key_infos(schema)[name]
        kind, values = _kind(hints[field.name], info)
        may_change = bool(info.may_change)
        yield KeyHelp(prefix + name, kind, shown_value(default), values, info.help, _value(default), may_change)


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _value(default: Any) -> Any:
    if isinstance(default, list | tuple):
        return [_value(one) for one in default]
    return default.name if isinstance(default, Enum) else default


def _kind(hint: Any, info: KeyInfo) -> tuple[str, str]:
    """The type of a key and its legal values, in words."""
    is_optional = NoneType in typing.get_args(hint)
    kind, null = (typing.get_args(hint)[0], " or null") if is_optional else (hint, "")
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"choice{null}", " | ".join(kind.__members__)
    if info.choices:
        return f"choice{null}", " | ".join(info.legal_values)
    if typing.get_origin(kind) is dict:
        return "keys and values", ""
    if kind is Any:
        number = "int" if isinstance(info.low, int) else "number"
        return (f"{number} or auto" if info.auto else "text or list"), _range(info)
    if typing.get_origin(kind) in (list, tuple):
        element = typing.get_args(kind)[0]
        name = "table" if dataclasses.is_dataclass(element) else _name(element)
        return f"list of {name}", _range(info)
    return f"{_name(kind)}{null}", _range(info)


def _name(kind: type) -> str:
    if kinds := typing.get_args(kind):
        return " or ".join(map(_name, kinds))
    return {str: "text", float: "number", bool: "true or false"}.get(kind, kind.__name__)


def _range(info: KeyInfo) -> str:
    if info.low is None:
        return ""
    if math.isinf(info.high):
        return f"from {info.low:,}"
    return f"{info.low:,} to {'below ' if info.below else ''}{info.high:,}"


def shown_value(default: Any) -> str:
    """A default, or another value, as it is written on the command line; empty where there is none."""
    if default == REQUIRED:
        return ""
    if isinstance(default, list | tuple):
        return f"[{','.join(map(shown_value, default))}]"
    if isinstance(default, dict) and default:
        return f"{{{','.join(f'{name}:{shown_value(value)}' for name, value in default.items())}}}"
    if isinstance(default, Enum):
        return default.name
    if default is None or isinstance(default, bool):
        return "null" if default is None else str(default).lower()
    return str(default)
