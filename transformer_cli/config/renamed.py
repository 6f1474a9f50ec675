"""Keys under the names that they had in earlier versions: on command lines, in users' YAML files, in saved configs."""

import copy
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf

from transformer_cli.logs import LOGGER

RENAMED_KEYS = {
    "train.max_batch_cells": "train.max_tokens_per_microbatch",
    "decode.exact": "decode.batch_invariant",
    "train.tokens_per_batch": "train.max_tokens_per_microbatch",
    "train.recompute": "train.activation_checkpointing",
    "train.max_skipped": "train.max_nonfinite_steps",
}


@cache
def report_renamed(old: str, new: str) -> None:
    """One line for each key, once in a process."""
    LOGGER.warning("%s: is called %s now", old, new)


def renamed_override(text: str) -> str:
    """A `key=value` with the current name of the key."""
    given, equals, value = text.partition("=")
    old = given.lstrip("+~")
    if (new := RENAMED_KEYS.get(old)) is None:
        return text
    report_renamed(old, new)
    return f"{given.removesuffix(old)}{new}{equals}{value}"


def renamed_config(
    plain: Mapping[str, Any], *, package: str = "", report: Callable[[str, str], object] = lambda old, new: None
) -> dict[str, Any]:
    """A copy of a nested config with the current names; `package` is the key of the group that it is the content of."""
    config = copy.deepcopy(dict(plain))
    for old, new in RENAMED_KEYS.items():
        if not old.startswith(f"{package}.".removeprefix(".")):
            continue
        *groups, name = old.removeprefix(f"{package}.").split(".")
        holder: Any = config
        for group in groups:
            holder = holder.get(group) if isinstance(holder, dict) else None
        if isinstance(holder, dict) and name in holder:
            report(old, new)
            current = new.rpartition(".")[2]
            renamed = {current if key == name else key: value for key, value in holder.items()}
            holder.clear()
            holder.update(renamed)
    return config


class UserFiles(FileConfigSource):
    """The YAML files of --config-dir, for Hydra: as its own source of files, but with the current names of keys."""

    @staticmethod
    def scheme() -> str:
        return "tfm"

    def load_config(self, config_path: str) -> ConfigResult:
        result = super().load_config(config_path)
        if isinstance(result.config, DictConfig):
            package = result.header.get("package") or config_path.rpartition("/")[0].replace("/", ".")
            plain: Any = OmegaConf.to_container(result.config)
            plain = renamed_config(plain, package="" if package == "_global_" else package, report=report_renamed)
            result.config = OmegaConf.create(plain)
        return result


def register_user_files() -> None:
    """Let Hydra open `tfm://FOLDER`."""
    Plugins.instance().register(UserFiles)
