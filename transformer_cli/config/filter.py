"""Keys of the commands that read lines, and write what one model says of each."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from transformer_cli.config.checks import AUTO, one_model_name
from transformer_cli.config.fields import (
    BATCH_TOKENS,
    CHECKPOINT,
    DEVICE,
    OVERWRITE,
    PLUGINS,
    RUNS,
    STRICT,
    check_ranges,
    key,
)
from transformer_cli.config.train import Device


class ResponseFormat(Enum):
    text = "text"
    jsonl = "jsonl"  # an object a line


@dataclass
class FilterConfig:
    """What all of them have; a subclass may say more of `input` and `output`."""

    checkpoint: Any = key(None, CHECKPOINT, path=True, flag="--checkpoint", repeated=True)
    runs: str = key("runs", RUNS, path=True)
    input: str | None = key(None, "Input file, one text a line; unset: standard input.", path=True, flag="--input")
    output: str | None = key(
        None, "Output file, written whole or not at all; unset: standard output.", path=True, flag="--output"
    )
    overwrite: bool = key(False, OVERWRITE, flag="--overwrite")
    strict: bool = key(False, STRICT, flag="--strict")
    batch_tokens: Any = key(AUTO, BATCH_TOKENS, low=1, auto=True)
    device: Device = key(Device.auto, DEVICE, flag="--device")
    plugins: list[str] = key([], PLUGINS)

    def __post_init__(self) -> None:
        self.checkpoint = one_model_name(self.checkpoint)
        check_ranges(self)
