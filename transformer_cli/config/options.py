"""Settings that an entry of a registry has of its own, as `schedule.options.period`, by the dataclass it names."""

from collections.abc import Mapping
from dataclasses import fields, make_dataclass
from functools import cache
from operator import attrgetter
from typing import Any

from transformer_cli.config.fields import Affects, KeyInfo, check_ranges, key_infos
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
    from transformer_cli.config.compose import defaults_of, from_plain  # and Hydra, which `--keys` does not need

    defaults_of(schema)
    plain: Mapping[str, Any] = given
    for name in reversed(key.split(".")):
        plain = {name: plain}
    made = attrgetter(key)(from_plain(_nested(schema, key), plain))
    check_ranges(made, key)
    return {field.name: getattr(made, field.name) for field in fields(schema)}


def option_infos(registry: Registry[Any], name: str | None) -> Mapping[str, KeyInfo]:
    """The description of each option of the entry `name`."""
    schema = None if name is None else registry.options_of(name)
    return {} if schema is None else key_infos(schema)


def options_that_affect(
    affects: Affects, registry: Registry[Any], name: str | None, given: Mapping[str, Any]
) -> dict[str, Any]:
    """The options among `given` to the entry `name` that affect it, and those that do not say what they affect."""
    infos = option_infos(registry, name)
    return {key: value for key, value in given.items() if infos.get(key, KeyInfo("")).affects in (affects, None)}


def info_at(config: Any, key: str) -> KeyInfo:
    """The description of a dotted key of `config`, or of an option that an entry of a registry has there."""
    schema: type = type(config)
    known = key_infos(schema)
    if key in known:
        return known[key]
    holders = [name for name, info in known.items() if info.entry and key.startswith(f"{name}.")]
    if not holders:
        return KeyInfo("").resolved("weights")
    (holder,) = holders
    option, group = key.removeprefix(f"{holder}."), holder.rpartition(".")[0]
    name = getattr(attrgetter(group)(config) if group else config, known[holder].entry)
    registries = [one for one in Registry.with_options if one.options_key == holder]
    own = next((found[option] for one in registries if option in (found := option_infos(one, name))), KeyInfo(""))
    return own.resolved(known[holder].affects)


def _refuse_no_text(key: str, value: Any, kind: Any) -> None:
    """Refuse what YAML has made of a text, as False of no: the type of an option is not known where it is read."""
    for one in value if isinstance(value, list) else [value]:
        if kind is str and not isinstance(one, str | None):
            raise ConfigError(
                f"{key}={one}: must be text, and is read as a {type(one).__name__}. Write it in quotes, on a"
                " command line within those of the shell"
            )


@cache
def _nested(schema: type, key: str) -> type:
    """A config that has `schema` where the config of a command has it, so that errors name the whole key."""
    for name in reversed(key.split(".")):
        schema = make_dataclass("Config", [(name, schema)])
    return schema
