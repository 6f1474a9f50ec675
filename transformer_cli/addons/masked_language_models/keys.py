"""Keys of `tfm fill`, and the options of a masked language model."""

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
class FillConfig:
    """`tfm fill`."""

    text: str | None = key(
        None, "The text with a [mask] in it; unset: --input, or standard input.", flag="--text", word=True
    )
    checkpoint: Any = key(None, CHECKPOINT, path=True, flag="--checkpoint", repeated=True)
    runs: str = key("runs", RUNS, path=True)
    input: str | None = key(None, "Input file, one text a line; unset: standard input.", path=True, flag="--input")
    output: str | None = key(
        None, "Output file, written whole or not at all; unset: standard output.", path=True, flag="--output"
    )
    html: str | None = key(None, "File for a page with the words of every mask, too.", path=True, flag="--html")
    overwrite: bool = key(False, OVERWRITE, flag="--overwrite")
    strict: bool = key(False, STRICT, flag="--strict")
    top: int = key(5, "Fillings of each line, the likeliest first.", low=1, high=1000, flag="--top")
    pieces: int = key(
        1, "Longest word that a mask may stand for, in pieces of the vocabulary.", low=1, high=8, flag="--pieces"
    )
    output_format: OutputFormat = key(
        OutputFormat.text,
        "Lines of probability<TAB>text, or a JSON object for each line of the input (jsonl).",
        flag="--output-format",
    )
    batch_tokens: Any = key(AUTO, BATCH_TOKENS, low=1, auto=True)
    device: Device = key(Device.auto, DEVICE, flag="--device")
    plugins: list[str] = key([], PLUGINS)

    def __post_init__(self) -> None:
        self.checkpoint = one_model_name(self.checkpoint)
        check_ranges(self)
        if self.output_format is OutputFormat.moses:
            raise ConfigError("output_format=moses: for translations. Choose text or jsonl")
        if self.text is not None and self.input is not None:
            raise ConfigError(f"--input {self.input}: and a text is given. Leave one of them out")


@dataclass
class Masking:
    """The shares of the tokens that are masked."""

    mask_share: float = key(
        0.15, "Share of the tokens that the model has to predict.", low=0.01, high=0.9, part="training"
    )
    random_share: float = key(
        0.1, "Share of these that are replaced by a random token, not by the mask.", low=0, high=1, part="training"
    )
    kept_share: float = key(0.1, "Share of these that stay as they are.", low=0, high=1, part="training")

    def __post_init__(self) -> None:
        if self.random_share + self.kept_share > 1:
            raise ConfigError(
                f"model.options.random_share={self.random_share:g}: with model.options.kept_share={self.kept_share:g}"
                " it is more than all. Lower one of them"
            )
