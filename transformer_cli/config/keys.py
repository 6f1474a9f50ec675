"""The keys of every command: which there are, what each means, and which one a misspelt key was meant to be."""

import dataclasses
import typing
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import NoneType
from typing import Any

from transformer_cli.config.fields import KeyInfo, info_of, key_infos, written_name
from transformer_cli.config.foreign_names import meant_by
from transformer_cli.errors import ConfigError
from transformer_cli.registry import did_you_mean


class Options:
    """Stands for the groups whose keys are a plugin's own: `dict[str, Any]`."""


def all_keys(schema: type) -> list[str]:
    """Every dotted key that leads to a value."""
    return list(key_infos(schema))


def leaves(schema: type, prefix: str = "") -> Iterator[tuple[str, Any, KeyInfo]]:
    """Dotted key, type and description of each value: of an optional one, and of the elements of a list, their type."""
    hints = typing.get_type_hints(schema)
    for field in dataclasses.fields(schema):
        kinds = [kind for kind in (typing.get_args(hints[field.name]) or [hints[field.name]]) if kind is not NoneType]
        key = prefix + written_name(field.name)
        if dataclasses.is_dataclass(kinds[0]):
            yield from leaves(typing.cast(type, kinds[0]), f"{key}.")
        elif typing.get_origin(hints[field.name]) is not dict:
            yield key, kinds[0], info_of(field) or KeyInfo("")


@cache
def fields_of(schema: type) -> Mapping[str, type | None]:
    """Field name → dataclass of that field, also of one that may be None; Options; or None for a plain value."""
    found: dict[str, type | None] = {}
    hints = typing.get_type_hints(schema)
    for field in dataclasses.fields(schema):
        candidates = [hints[field.name], *typing.get_args(hints[field.name])]
        is_list = typing.get_origin(hints[field.name]) is list
        nested = [hint for hint in candidates if dataclasses.is_dataclass(hint) and not is_list]
        is_dict = typing.get_origin(hints[field.name]) is dict
        found[field.name] = Options if is_dict else typing.cast(type, nested[0]) if nested else None
    return found


def group_members(key: str, schema: type) -> list[str]:
    """The keys of the group that a dotted key names, in their order; none of a key that has a value."""
    node: type | None = schema
    for part in key.split("."):
        node = None if node in (None, Options) else fields_of(node).get(part)
    return [] if node in (None, Options) else [f"{key}.{written_name(name)}" for name in fields_of(node)]


def check_key(key: str, schema: type, groups: Sequence[str] = ()) -> None:
    """Refuse a dotted key that is no field of the schema."""
    node: type | None = schema
    known: list[str] = []
    for part in key.split("."):
        if node is None:
            raise ConfigError(f"{key}: unknown key; `{'.'.join(known)}` is a value, not a group of keys")
        if part == "_target_":
            raise ConfigError(f"{key}: not supported. Configs name entries of tfm's registries, never classes")
        if node is Options:
            return
        children = fields_of(node)
        if part not in children:
            prefix = "".join(f"{name}." for name in known)
            near = _nearest_key(key, prefix + part, prefix, children, schema, groups)
            raise ConfigError(f"{key}: unknown key{near or '. `--cfg` prints every key'}")
        known.append(part)
        node = children[part]


def is_option(key: str, schema: type) -> bool:
    """Whether a dotted key is a plugin's own, as schedule.options.period, or the mapping of all, schedule.options."""
    node: type | None = schema
    for part in key.split("."):
        if node is None or node is Options:
            break
        node = fields_of(node).get(part)
    return node is Options


def _nearest_key(
    key: str, wrong: str, prefix: str, children: Mapping[str, Any], schema: type, groups: Sequence[str]
) -> str:
    siblings = [prefix + written_name(name) for name in children] + ([] if prefix else list(groups))
    everywhere = all_keys(schema)
    if meant := meant_by(key.rsplit(".", 1)[-1], {*everywhere, *groups}):
        return meant
    same_name = [known for known in everywhere if known.rsplit(".", 1)[-1] == key.rsplit(".", 1)[-1]]
    return did_you_mean(key, same_name) or did_you_mean(wrong, siblings) or did_you_mean(key, everywhere)
