"""A model in the format of another program, which an engine runs as it is."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer_cli.data.tokenizer import Tokenizers


@dataclass(frozen=True)
class Exported:
    """A model directory of another program. `max_positions`: tokens that a sentence may have there; None: any number.

    `weights` is the file whose hash names the model. `data`, `fingerprint`, `multi_sentence_share` and
    `translates_letterless` are those of the model file that it was made from.
    """

    directory: Path
    weights: Path
    tokenizers: Tokenizers
    source_lang: str
    target_lang: str
    max_positions: int | None
    data: dict[str, Any]
    fingerprint: str
    multi_sentence_share: float | None = None
    translates_letterless: bool = False
    length_penalty: None = None  # no format has a place for the model's own
