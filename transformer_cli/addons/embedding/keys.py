"""Keys of `tfm embed`."""

import re
from dataclasses import dataclass
from enum import Enum

from transformer_cli.config.fields import key
from transformer_cli.config.filter import FilterConfig
from transformer_cli.config.poolings import POOLINGS, fixed_poolings
from transformer_cli.errors import ConfigError


class TokenUnit(Enum):
    pieces = "pieces"  # of the tokenizer
    words = "words"  # each the mean of its pieces


@dataclass
class EmbedConfig(FilterConfig):
    """`tfm embed`."""

    output: str | None = key(
        None,
        "Output file, NAME.npy (of tokens: NAME.npz) or NAME.jsonl; unset: JSONL on standard output.",
        path=True,
        flag="--output",
    )
    tokens: TokenUnit | None = key(
        None,
        "A vector for each token instead of each line: pieces of the tokenizer, or words, the mean of their pieces.",
        flag="--tokens",
    )
    layer: str | None = key(
        None,
        "Layer of the encoder that vectors are from: 0 (what enters the first) to the last, -1, or all, or mean (of all"
        " with 0); unset: the last.",
        flag="--layer",
    )
    pooling: str = key(
        "mean",
        "Vector of a line: the mean of all encoder states, the first, or the maximum.",
        choices=fixed_poolings,
        flag="--pooling",
    )
    nearest: int | None = key(
        None,
        "Print this many lines of `among`, those with the largest cosine, instead of vectors.",
        low=1,
        flag="--nearest",
    )
    among: str | None = key(None, "File of the lines that `nearest` searches.", path=True, flag="--among")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pooling in POOLINGS and not POOLINGS[self.pooling].is_fixed:
            pairs = " of pairs of texts" if POOLINGS[self.pooling].of_pairs else ""
            raise ConfigError(
                f"--pooling {self.pooling}: is for classifiers{pairs}. Choose {', '.join(fixed_poolings())}"
            )
        if (self.nearest is None) != (self.among is None):
            given, lacking = ("nearest", "among") if self.among is None else ("among", "nearest")
            raise ConfigError(f"--{lacking}: not given, but --{given} is. Say how many lines, and of which file")
        if self.layer not in (None, "all", "mean") and not re.fullmatch("-?[0-9]{1,9}", str(self.layer)):
            raise ConfigError(f"--layer {self.layer}: not a layer. Choose a number from 0, all or mean")
        if self.nearest is not None and (self.tokens is not None or self.layer == "all"):
            other = "--layer all" if self.tokens is None else f"--tokens {self.tokens.name}"
            raise ConfigError(f"{other}: several vectors of a line, but --nearest compares one. Leave one of them out")
        if self.tokens is not None and self.pooling != "mean":
            raise ConfigError(f"--pooling {self.pooling}: of lines, but --tokens has none. Leave one of them out")
        endings = (".npy" if self.tokens is None else ".npz", ".jsonl")
        if self.output is not None and self.nearest is None and not self.output.endswith(endings):
            of_tokens = "" if self.tokens is None else ", which hold the vectors of tokens"
            raise ConfigError(
                f"--output {self.output}: neither {' nor '.join(endings)}{of_tokens}. Give it one of these endings"
            )
