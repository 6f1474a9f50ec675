"""Keys of `tfm tag`."""

from dataclasses import dataclass
from enum import Enum

from transformer_cli.config.fields import key
from transformer_cli.config.filter import FilterConfig, ResponseFormat
from transformer_cli.errors import ConfigError


class TagFormat(Enum):
    text = "text"  # a sentence a line
    conll = "conll"  # a word a line, in columns
    conllu = "conllu"  # the columns of Universal Dependencies, with comments


@dataclass
class TagConfig(FilterConfig):
    """`tfm tag`."""

    input: str | None = key(None, "Input file; unset: standard input.", path=True, flag="--input")
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
    output_format: ResponseFormat = key(
        ResponseFormat.text,
        "Lines of tags, or a JSON object for each sentence with words, tags and probabilities (jsonl).",
        flag="--output-format",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.format is not TagFormat.text and self.output_format is not ResponseFormat.text:
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
