"""`${...}` in configs: only other keys, and environment variables in the names of folders."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import yaml
from omegaconf import DictConfig, ListConfig, Node, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from transformer_cli.config.data import FOLDERS
from transformer_cli.environment import ENVIRONMENT_VARIABLE, folder_named
from transformer_cli.errors import ConfigError, quoted

# Where this machine keeps its corpora: all that may come from the environment. Everything else is saved with a run or
# a model, sent to a server, or becomes a file name, and would take the value with it.
PLACES = tuple(f"data.{name}" for name in FOLDERS)
_REFERENCE = re.compile(r"\$\{[\w.\[\]]+\}")  # to another key
_LEFT_OPEN = re.compile(r"\$\{auto:(.*)\}")  # in our own files: chosen once the text is counted


def take_left_open(config: DictConfig) -> list[str]:
    """Put VALUE in place of each `${auto:VALUE}`; return their dotted keys, in order.

    What the command line or a file of the user sets is in place of such a mark, so that Hydra itself decides which
    keys are left open.
    """
    marked = [
        (*found, match)
        for *found, text in _texts(config, "${auto:")
        if (match := _LEFT_OPEN.fullmatch(text)) is not None
    ]
    for parent, name, _, match in marked:
        parent[name] = yaml.safe_load(match[1])
    return sorted(key for _, _, key, _ in marked)


def resolve(config: DictConfig) -> None:
    """Fill in each `${...}` in place; what comes from the environment stays as it is written. Raises ConfigError."""
    for parent, name, key, text in list(_texts(config, "${")):
        refuse_resolvers(text, key)
        if ENVIRONMENT_VARIABLE.search(text):
            if key not in PLACES:
                _refuse_environment(key, text)
            parent[name] = ENVIRONMENT_VARIABLE.sub(lambda match: f"\0{match[0][2:-1]}\0", text)
    for parent, name, key, text in _texts(config, "${"):
        try:
            parent[name]  # reading is what resolves; OmegaConf's message for a whole tree does not name the key
        except OmegaConfBaseException as error:
            what = str(error).split("\n")[0].rstrip(".").replace("\0", "'")
            raise ConfigError(f"{key}={text}: {what}. Check the name after `$`") from error
    OmegaConf.resolve(config)
    for parent, name, key, text in list(_texts(config, "\0")):
        text = re.sub("\0(.*?)\0", r"${\1}", text)
        if key not in PLACES:  # by way of a reference
            _refuse_environment(key, text)
        folder_named(text)  # raises where a variable is not set
        parent[name] = literal(text)


def _texts(config: DictConfig | ListConfig, part: str, prefix: str = "") -> Iterator[tuple[Any, Any, str, str]]:
    """Container, name in it, dotted key and text of every value that holds `part`."""
    for name in range(len(config)) if isinstance(config, ListConfig) else list(config):
        node = config._get_node(name)
        assert isinstance(node, Node)
        value = node._value()
        if isinstance(value, str) and part in value:
            yield config, name, f"{prefix}{name}", value
        elif isinstance(node, DictConfig | ListConfig) and isinstance(value, dict | list):
            yield from _texts(node, part, f"{prefix}{name}.")


def refuse_resolvers(text: str, where: str) -> None:
    """Refuse every `${...}` but those of the environment and those that name another key."""
    if "${" in _REFERENCE.sub(" ", ENVIRONMENT_VARIABLE.sub(" ", text)):
        raise ConfigError(
            f"{where}={quoted(text)[1:-1]}: only ${{oc.env:NAME}} and ${{other.key}} are filled in."
            " Write the value itself"
        )


def _refuse_environment(key: str, text: str) -> NoReturn:
    raise ConfigError(
        f"{key}={text}: only {' and '.join(PLACES)} may come from the environment, as all else is written down."
        " Write the value itself"
    )


def refuse_interpolations(value: object, key: str) -> None:
    if isinstance(value, str) and "${" in (ENVIRONMENT_VARIABLE.sub("", value) if key in PLACES else value):
        raise ConfigError(f"{key}: interpolation {quoted(value)} is not supported here. Write the value itself")
    children = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for name, child in children:
        refuse_interpolations(child, f"{key}.{name}" if key else str(name))


def literal(value: Any) -> Any:
    """`value` so that OmegaConf does not interpolate it: a file may be called `a${b}`."""
    if isinstance(value, Mapping):
        return {key: literal(item) for key, item in value.items()}
    if isinstance(value, list):
        return [literal(item) for item in value]
    return value.replace("${", "\\${") if isinstance(value, str) else value
