"""A SentencePiece model that does to a text by itself what our tokenizer does before it asks SentencePiece."""

import importlib
import unicodedata
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import sentencepiece

from transformer_cli.data.tokenizer import Tokenizer, Tokenizers, normalize
from transformer_cli.errors import ConfigError
from transformer_cli.interop.exported import PACKED

N_CODE_POINTS = 0x110000
SPACE = " "
SIDES = ("source", "target")


def normalising(tokenizer: Tokenizer) -> bytes:
    """The model with a table of composed letters and plain spaces in it, for programs that give it raw text.

    Left over are texts whose marks stand in another order than Unicode's own. A model of another program, which
    normalises by itself, stays as it is. Raises ConfigError where it is not SentencePiece that segments.
    """
    if tokenizer.sentencepiece is None:
        raise ConfigError(
            "tokenizer: segments with something else than SentencePiece, which the format cannot hold."
            " `tfm translate` runs this model without it"
        )
    if tokenizer.packed is not None and not tokenizer.packed.normalizes:
        return tokenizer.sentencepiece
    model = messages().ModelProto.FromString(tokenizer.sentencepiece)
    model.normalizer_spec.precompiled_charsmap = compiled()
    model.normalizer_spec.name = "user_defined"
    written: bytes = model.SerializeToString()
    return written


def write_tokenizers(tokenizers: Tokenizers, directory: Path) -> None:
    """The SentencePiece models for any program, and the packed tokenizers that are more than that, for tfm alone."""
    for side, tokenizer in zip(SIDES, (tokenizers.source, tokenizers.target), strict=True):
        if tokenizer.packed is not None:
            (directory / f"{side}{PACKED}").write_bytes(tokenizer.model_bytes)
        if tokenizer.sentencepiece is not None:
            (directory / f"{side}.spm").write_bytes(normalising(tokenizer))


class FolderTokenizer(Protocol):
    """What a folder of `write_tokenizers` makes of text."""

    def ids(self, line: str) -> list[int]: ...

    def pieces(self, line: str) -> list[str]: ...

    def decode(self, ids: Sequence[int]) -> str: ...


def folder_tokenizers(directory: Path) -> list[FolderTokenizer]:
    """Of the source and the target: as SentencePiece alone has them, where that is all that they are."""
    return [
        PackedText(packed)
        if (packed := directory / f"{side}{PACKED}").exists()
        else PlainText(directory / f"{side}.spm")
        for side in SIDES
    ]


class PlainText:
    """A SentencePiece model as any program has it, without a line of ours."""

    def __init__(self, file: Path) -> None:
        self.model = sentencepiece.SentencePieceProcessor(model_file=str(file))

    def ids(self, line: str) -> list[int]:
        found: list[int] = self.model.encode(line)
        return found

    def pieces(self, line: str) -> list[str]:
        found: list[str] = self.model.encode(line, out_type=str)
        return found

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.model.decode(list(ids)))


class PackedText:
    """A packed tokenizer, which is ours."""

    def __init__(self, file: Path) -> None:
        self.tokenizer = Tokenizer(file.read_bytes())

    def ids(self, line: str) -> list[int]:
        return self.tokenizer.encode([line])[0]

    def pieces(self, line: str) -> list[str]:
        return self.tokenizer.pieces(self.ids(line))

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids)


def messages() -> Any:
    """Reads and writes what the library itself only holds."""
    return importlib.import_module("sentencepiece.sentencepiece_model_pb2")


@cache
def compiled() -> bytes:
    """The table as SentencePiece keeps it, the same for every model."""
    sentencepiece.set_min_log_level(3)  # its progress log would go to stderr, which is ours
    normalizer = sentencepiece.SentencePieceNormalizer(norm_map=list(rewritten().items()))
    spec = messages().NormalizerSpec.FromString(normalizer.serialized_normalizer_spec())
    table: bytes = spec.precompiled_charsmap
    return table


def rewritten() -> dict[str, str]:
    """Every character and every way to spell a composed one that `normalize` does not leave as it is."""
    found: dict[str, str] = {}
    for letter in map(chr, range(N_CODE_POINTS)):
        if unicodedata.normalize("NFD", letter) == letter and not letter.isspace():
            continue  # as nearly all of them
        for spelling in (letter, *spellings(letter)):
            text = normalize(spelling) or SPACE
            if text != spelling:
                found[spelling] = text
    return found


def spellings(letter: str) -> list[str]:
    """With all its marks apart, and with the first ones composed: ḗ as e + ¯ + ´, and as ē + ´."""
    apart = unicodedata.normalize("NFD", letter)
    starts = [unicodedata.normalize("NFC", start) for start in accumulate(apart)]
    return [start + apart[n:] for n, start in enumerate(starts, 1) if len(start) == 1 < len(apart)] + [apart]
