"""Keys of `tfm shortlist`."""

from dataclasses import dataclass
from typing import Any

from transformer_cli.config.checks import one_model_name
from transformer_cli.config.fields import CHECKPOINT, OVERWRITE, PLUGINS, RUNS, check_ranges, key


@dataclass
class ShortlistConfig:
    """`tfm shortlist`."""

    checkpoint: Any = key(None, CHECKPOINT, path=True, flag="--checkpoint", repeated=True)
    runs: str = key("runs", RUNS, path=True)
    source: str | None = key(None, "Text in the source language, one sentence a line.", path=True, flag="--source")
    translation: str | None = key(
        None,
        "File whose line n translates line n of `source`, best a distilled one.",
        path=True,
        flag="--translation",
    )
    frequent: int = key(50, "Tokens that every list has: the most frequent ones.", low=0, high=100_000)
    best: int = key(50, "Tokens for each token of the source: its likeliest translations.", low=1, high=10_000)
    output: str | None = key(
        None, "Output file; unset: shortlist.safetensors beside the model.", path=True, flag="--output"
    )
    overwrite: bool = key(False, OVERWRITE, flag="--overwrite")
    plugins: list[str] = key([], PLUGINS)

    def __post_init__(self) -> None:
        self.checkpoint = one_model_name(self.checkpoint)
        check_ranges(self)
