"""Configs composed once for each choice of files: Hydra takes as long for one as a small training takes.

Hydra composes the files that are chosen; the values of a command line are then set in a copy, by Hydra's own function
for them. A command line that this refuses is composed by Hydra alone, and so is one with a folder of the user's.
"""

import pickle
import re
from collections.abc import Callable, Sequence
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser

from transformer_cli.config import compose
from transformer_cli.config.yaml_files import config_dir

Compose = Callable[[str, list[str]], Any]
_VALUE = re.compile(r"\+{0,2}([a-z_]\w*)((?:\.\w+)*)=")  # of a key, or of a whole group

by_hydra: Compose = compose.compose


def compose_once() -> Compose:
    """What does the same as Hydra's `compose`, and remembers."""
    composed: dict[tuple[str, ...], bytes] = {}

    def once(command: str, arguments: list[str]) -> Any:
        if any(argument.startswith("hydra.") for argument in arguments):
            return by_hydra(command, arguments)  # a folder of the user, whose files may change
        values = [argument for argument in arguments if _sets_a_value(argument)]
        try:
            return _with_values(of(command, [a for a in arguments if a not in values]), values)
        except Exception:
            return by_hydra(command, arguments)  # the messages are Hydra's

    def of(command: str, choices: Sequence[str]) -> Any:
        key = (command, *choices)
        if key not in composed:
            composed[key] = pickle.dumps(by_hydra(command, list(choices)))
        return pickle.loads(composed[key])

    return once


def _sets_a_value(argument: str) -> bool:
    match = _VALUE.match(argument)
    if match is None:
        return False
    name, rest = match.groups()
    return bool(rest) or not ((config_dir() / name).is_dir() or isinstance(ConfigStore.instance().repo.get(name), dict))


def _with_values(config: Any, values: list[str]) -> Any:
    ConfigLoaderImpl._apply_overrides_to_config(OverridesParser.create().parse_overrides(values), config)
    return config
