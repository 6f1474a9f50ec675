"""Keys of `tfm inspect`."""

from dataclasses import dataclass
from typing import Any

from transformer_cli.config.checks import one_model_name
from transformer_cli.config.fields import PLUGINS, RUNS, key
from transformer_cli.config.shared import LICENSE, SCORES
from transformer_cli.errors import ConfigError


@dataclass
class InspectConfig:
    """`tfm inspect`."""

    checkpoint: Any = key(
        None, "Model file, checkpoint, run directory, or what `tfm export` wrote.", path=True, word=True
    )
    runs: str = key("runs", RUNS, path=True)
    json: bool = key(False, "Print JSON.", flag="--json")
    card: bool = key(False, "Print the model card, as Markdown.", flag="--card")
    license: str | None = key(None, LICENSE, flag="--license")
    scores: str | None = key(None, SCORES, path=True, flag="--scores")
    plugins: list[str] = key([], PLUGINS)

    def __post_init__(self) -> None:
        self.checkpoint = one_model_name(self.checkpoint)
        if self.json and self.card:
            raise ConfigError("--json: and --card are two forms of the same. Leave one of them out")
