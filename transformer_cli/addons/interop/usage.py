"""What the examples of several model cards have in common."""

from collections.abc import Mapping
from typing import Any

PLAIN_TOKENIZERS = """import sentencepiece

source, target = (
    sentencepiece.SentencePieceProcessor(model_file=f"FOLDER/{side}.spm") for side in ("source", "target")
)
"""
PACKED_TOKENIZERS = """from pathlib import Path

from transformer_cli.data.tokenizer import Tokenizer  # the vocabulary has ids of its own

source, target = (Tokenizer(Path(f"FOLDER/{side}.tokenizer").read_bytes()) for side in ("source", "target"))
"""

# Of a classifier or tagger, which has one.
LABEL_TOKENIZER = """import sentencepiece

source = sentencepiece.SentencePieceProcessor(model_file="FOLDER/source.spm")
encode = source.encode
"""
PACKED_LABEL_TOKENIZER = """from pathlib import Path

from transformer_cli.data.tokenizer import Tokenizer  # the vocabulary has ids of its own

source = Tokenizer(Path("FOLDER/source.tokenizer").read_bytes())


def encode(text):
    return source.encode([text])[0]


"""


def export_languages(facts: Mapping[str, Any]) -> list[str]:
    """The tokens of a source language and of a target language, which the model needs; an empty list of others."""
    found = facts.get("languages")
    return [str(one) for one in found] if isinstance(found, list) and len(found) == 2 else []


def export_tags(facts: Mapping[str, Any]) -> list[str]:
    """The tags of an export; an empty list if the value is no list."""
    tags = facts.get("tags")
    return [str(tag) for tag in tags] if isinstance(tags, list) else []
