"""Settings that an entry of a registry has of its own, as `schedule.options.period`, by the dataclass it names."""

from collections.abc import Mapping
from dataclasses import fields, make_dataclass
from functools import cache
from typing import Any

from transformer_cli.config.compose import from_plain
from transformer_cli.config.fields import check_ranges
from transformer_cli.config.keys import leaves
from transformer_cli.errors import ConfigError
from transformer_cli.registry import Registry


def checked_options(registry: Registry[Any], name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """All options of the entry `name`, of which a config has `given`. Raises ConfigError for one that it does not take.

    The dataclass that the entry was registered with has their names, types, defaults and ranges.
    """
    key = registry.options_key
    schema = registry.options_of(name)
    if schema is None:
        if given:
            raise ConfigError(f"{key}.{next(iter(given))}: {registry.kind} `{name}` has no such option. Leave it out")
        return {}
    for name, kind, _ in leaves(schema):
        _refuse_no_text(f"{key}.{name}", given.get(name), kind)
    group, leaf = key.split(".")
    made = getattr(getattr(from_plain(_nested(schema, group, leaf), {group: {leaf: given}}), group), leaf)
    check_ranges(made, key)
    return {field.name: getattr(made, field.name) for field in fields(schema)}


def _refuse_no_text(key: str, value: Any, kind: Any) -> None:
    """Refuse what YAML has made of a text, as False of no: the type of an option is not known where it is read."""
    for one in value if isinstance(value, list) else [value]:
        if kind is str and not isinstance(one, str | None):
            raise ConfigError(
                f"{key}={one}: must be text, and is read as a {type(one).__name__}. Write it in quotes, on a"
                " command line within those of the shell"
            )


@cache
def _nested(schema: type, group: str, leaf: str) -> type:
    """A config that has `schema` where the config of a command has it, so that errors name the whole key."""
    return make_dataclass("Config", [(group, make_dataclass(group, [(leaf, schema)]))])
