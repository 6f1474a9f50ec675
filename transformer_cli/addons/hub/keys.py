"""Keys of `tfm models` and `tfm push`."""

from dataclasses import dataclass
from typing import Any

from transformer_cli.config.checks import check_choice, one_model_name
from transformer_cli.config.fields import CHECKPOINT, PLUGINS, RUNS, key
from transformer_cli.config.shared import LICENSE
from transformer_cli.errors import ConfigError

ACTIONS = ("list", "remove", "update")


@dataclass
class ModelsConfig:
    """`tfm models`."""

    action: str | None = key(None, "What is done; unset: list.", choices=ACTIONS, word=True)
    name: str | None = key(None, "Name of the model, as `tfm models` lists it; list without one lists all.", word=True)
    json: bool = key(False, "Print JSON.", flag="--json")
    plugins: list[str] = key([], PLUGINS)

    def __post_init__(self) -> None:
        if self.action is None and self.name in ACTIONS:  # a word alone is taken for the last one
            self.action, self.name = self.name, None
        action = self.action or "list"
        check_choice("action", action, ACTIONS)
        if action != "list" and self.name is None:
            raise ConfigError(f"tfm models {action}: no name given. Name one that `tfm models` lists")


@dataclass
class PushConfig:
    """`tfm push`."""

    address: str | None = key(None, "Where to: hf:OWNER/NAME, which is made if it is not there.", word=True)
    checkpoint: Any = key(None, f"{CHECKPOINT} Or a folder of `tfm export`.", path=True, flag="--checkpoint")
    runs: str = key("runs", RUNS, path=True)
    license: str | None = key(None, LICENSE, flag="--license")
    private: bool = key(False, "A new repository is for its owner alone.", flag="--private")
    yes: bool = key(False, "Upload without a question.", flag="--yes")
    plugins: list[str] = key([], PLUGINS)

    def __post_init__(self) -> None:
        self.checkpoint = one_model_name(self.checkpoint)
