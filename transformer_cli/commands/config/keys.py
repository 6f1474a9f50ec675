"""Keys of `tfm config`."""

from dataclasses import dataclass
from enum import Enum

from transformer_cli.config.fields import PLUGINS, key


class ConfigAction(Enum):
    why = "why"  # where the value of a key is from
    diff = "diff"  # in which keys two configs differ


@dataclass
class ConfigConfig:
    """`tfm config`."""

    action: ConfigAction | None = key(
        None,
        "why: where the value of a key is from, and what it would be otherwise; diff: the keys that differ.",
        word=True,
    )
    words: list[str] = key(
        [],
        "why: a key, then the words of a command line, or a run; diff: two runs, model files, YAML files, or command"
        " lines in quotes.",
        word=True,
    )
    command: str = key("train", "Command that command lines without one, and YAML files, are for.", flag="--command")
    json: bool = key(False, "Print JSON.", flag="--json")
    config_dir: str | None = key(None, "Folder with your own YAML files, for the command lines.", path=True)
    plugins: list[str] = key([], PLUGINS)
