"""Keys that several commands have: their types, and the sentences about them."""

from enum import Enum


class OutputFormat(Enum):
    text = "text"  # the translations; of an n-best list, line ||| translation ||| score, with lines from 1
    jsonl = "jsonl"  # an object a line: scores, alternatives, quality flags
    moses = "moses"  # n-best lists as Moses and its tools write them, with lines from 0; for translating only


class Engine(Enum):
    """What translates."""

    torch = "torch"
    ctranslate2 = "ctranslate2"  # converted on demand, or a folder of `tfm export ctranslate2`
    auto = "auto"  # ctranslate2 where it is installed and has all that is asked for, else torch


TAG = 'Tags of every line that does not begin with one itself, as <2de> or "<2de> <bt>".'


ENGINE = "torch, ctranslate2, or auto; unset: ctranslate2 for a folder of `tfm export ctranslate2`, else torch."


SCORES = "Output of `tfm evaluate --json`, for the model card."


LICENSE = "Licence of the model, for the model card; unset: it says that none is stated."
