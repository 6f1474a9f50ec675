"""Keys of `tfm classify`."""

from dataclasses import dataclass
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
from transformer_cli.config.shared import OutputFormat
from transformer_cli.config.train import Device
from transformer_cli.errors import ConfigError


@dataclass
class ClassifyConfig:
    """`tfm classify`."""

    checkpoint: Any = key(None, CHECKPOINT, path=True, flag="--checkpoint", repeated=True)
    runs: str = key("runs", RUNS, path=True)
    input: str | None = key(None, "Input file, one text a line; unset: standard input.", path=True, flag="--input")
    output: str | None = key(
        None, "Output file, written whole or not at all; unset: standard output.", path=True, flag="--output"
    )
    overwrite: bool = key(False, OVERWRITE, flag="--overwrite")
    strict: bool = key(False, STRICT, flag="--strict")
    probabilities: bool = key(False, "Print the probability of every class after each label.", flag="--probabilities")
    output_format: OutputFormat = key(
        OutputFormat.text,
        "Lines of text, or a JSON object for each line with all probabilities (jsonl).",
        flag="--output-format",
    )
    html: str | None = key(
        None,
        "Page that shows the weights of each line's tokens, of a model with such a pooling (self_attentive).",
        path=True,
        flag="--html",
    )
    batch_tokens: Any = key(AUTO, BATCH_TOKENS, low=1, auto=True)
    device: Device = key(Device.auto, DEVICE, flag="--device")
    plugins: list[str] = key([], PLUGINS)

    def __post_init__(self) -> None:
        self.checkpoint = one_model_name(self.checkpoint)
        check_ranges(self)
        if self.output_format is OutputFormat.moses:
            raise ConfigError("output_format=moses: for translations. Choose text or jsonl")
