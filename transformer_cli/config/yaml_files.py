"""The YAML files: those of the package by group, and strict reading of any of them."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TextIO

import yaml

from transformer_cli.command import COMMANDS
from transformer_cli.errors import ConfigError, quoted

MAX_YAML_BYTES = 1_000_000


def config_dir() -> Path:
    """The folder with the YAML files: inside an installed package, beside the package in a checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "configs"
    return installed if installed.is_dir() else package.parent / "configs"


def primary_file(command: str) -> Path | None:
    """The primary YAML file of a command, with its defaults list; None: its groups stand in the Command."""
    file = config_dir() / f"{command}.yaml"
    return file if file.is_file() else None


def groups_of(command: str) -> list[str]:
    """The config groups that a command takes."""
    return list(defaults_of(command))


def optional_groups(command: str) -> list[str]:
    return [group for group, choice in defaults_of(command).items() if choice is None or group == "recipe"]


@cache
def defaults_of(command: str) -> dict[str, str | None]:
    file = primary_file(command)
    if file is None:
        return {name.removeprefix("optional "): choice for name, choice in COMMANDS[command].groups.items()}
    listed = yaml.safe_load(file.read_text(encoding="utf-8"))["defaults"]
    entries = [item for entry in listed if isinstance(entry, dict) for item in entry.items()]
    return {name.removeprefix("optional "): choice for name, choice in entries if not name.startswith("override ")}


def choices_of(group: str, folders: Sequence[Path] = ()) -> list[str]:
    return sorted(path.stem for folder in folders or [config_dir() / group] for path in folder.glob("*.yaml"))


def read_yaml(path: Path) -> Any:
    """The content of a small YAML file: plain values, without aliases and repeated keys. Raises ConfigError."""
    if not path.is_file():  # opening a pipe would wait for ever
        raise ConfigError(f"{path}: not a plain file. Remove it, or give it another name")
    if path.stat().st_size > MAX_YAML_BYTES:
        raise ConfigError(f"{path}: larger than {MAX_YAML_BYTES:,} bytes. Leave out what is no config")
    with path.open(encoding="utf-8") as file:
        return strict_yaml(file, path)


def strict_yaml(file: str | TextIO, path: object) -> Any:
    """The content of YAML that `path` names in messages. Raises ConfigError as `read_yaml` does."""
    try:
        return yaml.load(file, _StrictLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        what = quoted(" ".join(str(error.problem).split()))[1:-1]
        raise ConfigError(f"{path}:{line}: not valid YAML: {what}. Indent with spaces, one key a line") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: nested too deeply. A config file has a few levels") from error
    except (yaml.YAMLError, ValueError) as error:  # numbers and dates that are none, bytes that are no text
        what = quoted(" ".join(str(error).split()))[1:-1]
        raise ConfigError(f"{path}: not valid YAML text: {what}. Write UTF-8, and quote what is no number") from error


def lines_of(path: Path) -> dict[str, int]:
    """Dotted key → its line, from 1, of a YAML file that was read; the entries of a list are keys, too."""
    found: dict[str, int] = {}
    waiting: list[tuple[str, Any]] = [("", yaml.compose(path.read_text(encoding="utf-8"), yaml.SafeLoader))]
    while waiting:
        prefix, node = waiting.pop()
        if isinstance(node, yaml.MappingNode):
            for key_node, value_node in node.value:
                key = f"{prefix}{key_node.value}"
                found[key] = key_node.start_mark.line + 1
                waiting.append((f"{key}.", value_node))
        elif isinstance(node, yaml.SequenceNode):
            waiting += [(prefix, entry) for entry in node.value]
        elif isinstance(node, yaml.ScalarNode):
            found.setdefault(f"{prefix}{node.value}", node.start_mark.line + 1)
    return found


class _StrictLoader(yaml.SafeLoader):
    """YAML without what makes it dangerous or ambiguous: aliases and repeated keys."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event: yaml.Event = self.get_event()  # type: ignore[no-untyped-call]
            _refuse_yaml(event.start_mark, "aliases are not supported. Write the value out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = str(key_node.value)
            if key in seen:
                _refuse_yaml(key_node.start_mark, f"key {quoted(key)} stands twice. Remove one")
            seen.add(key)
        return super().construct_mapping(node, deep)


def _refuse_yaml(mark: Any, what: str) -> NoReturn:
    raise ConfigError(f"{mark.name}:{mark.line + 1}: {what}")
