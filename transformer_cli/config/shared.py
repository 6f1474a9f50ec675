"""Keys that several commands have: their types, and the sentences about them."""

from enum import Enum
from typing import Any

from transformer_cli.registry import Registry


class OutputFormat(Enum):
    text = "text"  # the translations; of an n-best list, line ||| translation ||| score, with lines from 1
    jsonl = "jsonl"  # an object a line: scores, alternatives, quality flags
    moses = "moses"  # n-best lists as Moses and its tools write them, with lines from 0; for translating only


TORCH = "torch"
AUTO_ENGINE = "auto"  # another engine where it is installed and has all that is asked for, else torch
ENGINES: Registry[Any] = Registry("engine")  # what translates: see decoding.engines


def engine_names() -> list[str]:
    return [*sorted({TORCH, *ENGINES.names()}), AUTO_ENGINE]


TAG = 'Tags of every line that does not begin with one itself, as <2de> or "<2de> <bt>".'


FROM = "Language of the text, as fr, fra or fra_Latn, for a model of several; unset: its own, or what tags say."
TO = "Language to translate into, as fr, fra or fra_Latn, for a model of several; unset: its own, or what tags say."


ENGINE = (
    "torch, ctranslate2, firefox, or auto; unset: the one that a folder of `tfm export` was written for, else torch."
)


SCORES = "Output of `tfm evaluate --json`, for the model card."


LICENSE = "Licence of the model, for the model card; unset: it says that none is stated."
