"""The keys in which configs differ."""

from collections.abc import Mapping, Sequence
from typing import Any


def differences(configs: Sequence[Mapping[str, Any] | None]) -> list[tuple[str, list[Any]]]:
    """Dotted key → its value in each config, of the keys whose values are not all equal, in the order of the first.

    `configs` are nested, as `to_plain` makes them. One from a file is first read by `from_plain`, which gives a key
    that the file lacks its default. A config without a key, and one that is None, are equal to the others in it, and
    have None for its value.
    """
    flat = [flattened(config or {}) for config in configs]
    found = []
    for key in dict.fromkeys(key for config in flat for key in config):
        values = [config[key] for config in flat if key in config]
        if any(value != values[0] for value in values):
            found.append((key, [config.get(key) for config in flat]))
    return found


def flattened(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted key → value of nested mappings; an empty one is a value."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat |= flattened(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
