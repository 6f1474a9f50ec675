"""Checks that several groups of keys share: ranges, names of files, names of models."""

import math
import re
from collections.abc import Sequence
from typing import Any

from transformer_cli.errors import ConfigError
from transformer_cli.registry import did_you_mean

AUTO = "auto"  # of a number that is derived from the memory (train.max_tokens_per_microbatch) or from the corpus
REQUIRED: Any = "???"  # how OmegaConf marks a value without a default; written out, as importing OmegaConf takes time


def check_range(
    key: str,
    value: float | None,
    low: float,
    high: float = math.inf,
    *,
    below: bool = False,
    among: Sequence[object] | None = None,
) -> None:
    """Refuse `value` outside [low, high], or [low, high) with `below`; None means "not set" and passes.

    `among` is the list that it is an element of, if it is of one.
    """
    if value is None:
        return
    if not (low <= value < high if below else low <= value <= high):  # a NaN fails both
        top = f"below {high:,}" if below else f"at most {high:,}"
        wanted = f"at least {low:,}" + ("" if math.isinf(high) else f" and {top}")
        setting = f"{key}={value}: out of range" if among is None else f"{key}={among}: {value} is out of range"
        raise ConfigError(f"{setting}. Choose a value of {wanted}")


def check_number_or_auto(key: str, value: Any, low: float, high: float = math.inf) -> None:
    """Refuse what is neither auto nor a number from `low` to `high`, a whole one where `low` is."""
    if value == AUTO:
        return
    is_whole = isinstance(low, int)
    if not isinstance(value, int if is_whole else int | float) or isinstance(value, bool):
        raise ConfigError(f"{key}={value}: no {'whole ' if is_whole else ''}number. Give one, or auto")
    check_range(key, value, low, high)


def check_file_name(key: str, value: str, also: str = "") -> None:
    """Refuse what cannot be part of a file name."""
    if value != REQUIRED and not re.fullmatch(rf"\w[\w.+{also}-]*", value):
        marks = " ".join((".", "_", "+", *also, "-"))
        raise ConfigError(f"{key}={value!r}: becomes part of a file name. Use letters, digits and {marks} only")


# Tokenizers of sacrebleu. Those with mecab need a library (pip extras ja and ko); the last three are downloaded.
BLEU_TOKENIZERS = ("13a", "intl", "zh", "char", "ja-mecab", "ko-mecab", "none", "flores200", "flores101", "spBLEU-1K")


def check_bleu_tokenizer(key: str, value: str | None) -> None:
    """Refuse what is no tokenizer for BLEU; None means "not set" and passes."""
    if value is not None and value not in BLEU_TOKENIZERS:
        raise ConfigError(f"{key}={value}: no tokenizer for BLEU. Choose {', '.join(BLEU_TOKENIZERS)}, or leave it out")


def model_names(value: Any) -> str | list[str] | None:
    """`checkpoint`: one name or a list of several. A folder may be called 2026."""
    names = [str(name) if type(name) is int else name for name in (value if isinstance(value, list) else [value])]
    if value is not None and not (names and all(isinstance(name, str) for name in names)):
        raise ConfigError(f"checkpoint={value}: no name of a model. Give a path, or several as [a,b]")
    return names[0] if len(names) == 1 else names


def one_model_name(value: Any) -> str | None:
    """`checkpoint` of a command that uses one model."""
    names = model_names(value)
    if isinstance(names, list):
        raise ConfigError(f"checkpoint={value}: several models, where one is asked. Name one")
    return names


def one_file(key: str, value: Any) -> str | None:
    """The file of a flag that is given once."""
    if isinstance(value, list) and len(value) != 1:
        raise ConfigError(f"--{key}: names {len(value)} files, and one is read at a time. Name one")
    name = value[0] if isinstance(value, list) else value
    return None if name is None else str(name)


def check_choice(key: str, value: str, choices: Sequence[str]) -> None:
    """Raise ConfigError for what is none of `choices`, which add-ons and plugins register."""
    if value not in choices:
        what = f"unknown{did_you_mean(value, choices) or '.'}"
        raise ConfigError(f"{key}={value}: {what} Choose {', '.join(choices)}")


def part_of(text: str) -> tuple[int, int] | None:
    """I and N of `I/N`, with I from 1 to N; None for any other text."""
    match = re.fullmatch(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})", text)
    return None if match is None or int(match[1]) > int(match[2]) else (int(match[1]), int(match[2]))
