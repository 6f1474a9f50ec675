"""Keys under the names that they had in earlier versions: on command lines, in users' YAML files, in saved configs."""

import copy
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from transformer_cli.logs import LOGGER

RENAMED_KEYS = {
    "train.max_batch_cells": "train.max_tokens_per_microbatch",
    "decode.exact": "decode.batch_invariant",
    "train.tokens_per_batch": "train.max_tokens_per_microbatch",
    "train.recompute": "train.activation_checkpointing",
    "train.max_skipped": "train.max_nonfinite_steps",
    "encoder.init_from": "init.from",
}
KEYWORDS = {"init.from": "init.from_"}  # keys that Python has a keyword for → their fields


@cache
def report_renamed(old: str, new: str) -> None:
    """One line for each key, once in a process."""
    LOGGER.warning("%s: is called %s now", old, new)


def renamed_override(text: str) -> str:
    """A `key=value` with the current name of the key, as the schema has it."""
    given, equals, value = text.partition("=")
    key = old = given.lstrip("+~")
    if key in RENAMED_KEYS:
        key = RENAMED_KEYS[key]
        report_renamed(old, key)
    return f"{given.removesuffix(old)}{KEYWORDS.get(key, key)}{equals}{value}"


def renamed_config(
    plain: Mapping[str, Any], *, package: str = "", report: Callable[[str, str], object] = lambda old, new: None
) -> dict[str, Any]:
    """A copy of a nested config with the current names, as the schema has them.

    `package` is the key of the group that it is the content of.
    """
    config = copy.deepcopy(dict(plain))
    for old, new in RENAMED_KEYS.items():
        if _rename(config, old, KEYWORDS.get(new, new), package):
            report(old, new)
    for written, field in KEYWORDS.items():
        _rename(config, written, field, package)
    return config


def _rename(config: dict[str, Any], old: str, new: str, package: str) -> bool:
    """Give the value of `old` the name `new`; whether there is one."""
    inside = f"{package}.".removeprefix(".")
    if not (old.startswith(inside) and new.startswith(inside)):
        return False
    *groups, name = old.removeprefix(inside).split(".")
    holder: Any = config
    for group in groups:
        holder = holder.get(group) if isinstance(holder, dict) else None
    if not (isinstance(holder, dict) and name in holder):
        return False
    *new_groups, current = new.removeprefix(inside).split(".")
    if new_groups == groups:
        renamed = {current if key == name else key: value for key, value in holder.items()}
        holder.clear()
        holder.update(renamed)
        return True
    value = holder.pop(name)
    if groups and not holder:
        del config[groups[0]]
    for group in new_groups:
        config = config.setdefault(group, {})
    config[current] = value
    return True
