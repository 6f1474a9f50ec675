"""Keys of `tfm tag`."""

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
from transformer_cli.config.shared import OutputFormat
from transformer_cli.config.train import Device
from transformer_cli.errors import ConfigError


class TagFormat(Enum):
    text = "text"  # a sentence a line
    conll = "conll"  # a word a line, in columns
    conllu = "conllu"  # the columns of Universal Dependencies, with comments


@dataclass
class TagConfig:
    """`tfm tag`."""

    checkpoint: Any = key(None, CHECKPOINT, path=True, flag="--checkpoint", repeated=True)
    runs: str = key("runs", RUNS, path=True)
    input: str | None = key(None, "Input file; unset: standard input.", path=True, flag="--input")
    output: str | None = key(
        None, "Output file, written whole or not at all; unset: standard output.", path=True, flag="--output"
    )
    overwrite: bool = key(False, OVERWRITE, flag="--overwrite")
    strict: bool = key(False, STRICT, flag="--strict")
    format: TagFormat = key(
        TagFormat.text,
        "A sentence a line with spaces between words (text), or CoNLL columns (conll, conllu).",
        flag="--format",
    )
    columns: list[int] = key(
        [],
        "Columns of word and tag in conll and conllu, from 0; unset: those of a training text of this format, or"
        " the first, and the tag as one more (of conllu, 1 and 3).",
        low=0,
        high=999,
    )
    output_format: OutputFormat = key(
        OutputFormat.text,
        "Lines of tags, or a JSON object for each sentence with words, tags and probabilities (jsonl).",
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
        if self.format is not TagFormat.text and self.output_format is not OutputFormat.text:
            raise ConfigError(
                f"output_format=jsonl: format={self.format.name} writes the columns that it reads."
                " Leave one of them out"
            )
        if self.columns and self.format is TagFormat.text:
            raise ConfigError(f"columns={self.columns}: a line of text has none. Add format=conll")
        if self.columns and (len(self.columns) != 2 or self.columns[0] == self.columns[1]):
            raise ConfigError(
                f"columns={self.columns}: must be two different ones, counted from 0. Choose two, as in [0,1]"
            )
