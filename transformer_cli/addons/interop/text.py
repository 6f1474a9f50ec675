"""A SentencePiece model that does to a text by itself what our tokenizer does before it asks SentencePiece."""

import importlib
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Protocol

import sentencepiece

from transformer_cli.addons.interop.charsmap import charsmap_keys
from transformer_cli.addons.interop.exported import PACKED
from transformer_cli.data.normalization import Spelling, format_characters, normalize, spellings
from transformer_cli.data.substitutes import MARKS
from transformer_cli.data.tags import split_tags
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.errors import ConfigError

N_CODE_POINTS = 0x110000
_SPACE = " "
_MARK = "\u2581"  # SentencePiece's sign for a space
SIDES = ("source", "target")


def normalising(tokenizer: Tokenizer) -> bytes:
    """The model with a table of spellings and plain spaces in it, for programs that give it raw text.

    Its own table, that of `data.tokenizer.fold_case`, is applied to what ours makes. Left over are texts whose marks
    stand in another order than Unicode's own, and joiners where no script needs them.
    A model of another program, which normalises by itself, stays as it is. Raises ConfigError where it is not
    SentencePiece that segments.
    """
    if tokenizer.sentencepiece is None:
        raise ConfigError(
            "tokenizer: segments with something else than SentencePiece, which the format cannot hold."
            " `tfm translate` runs this model without it"
        )
    if tokenizer.packed is not None and not tokenizer.packed.normalizes:
        return tokenizer.sentencepiece
    model = protobuf_messages().ModelProto.FromString(tokenizer.sentencepiece)
    model.normalizer_spec.precompiled_charsmap = compiled(
        tokenizer.alphabet, model.normalizer_spec.precompiled_charsmap
    )
    model.normalizer_spec.name = "user_defined"
    model.normalizer_spec.remove_extra_whitespaces = True
    written: bytes = model.SerializeToString()
    return written


def marked(tag: str) -> str:
    """The piece of a tag in a text that begins with it, where SentencePiece puts its sign for a space."""
    return f"{_MARK}{tag}"


def finding_tags(model: bytes, tags: Sequence[str]) -> bytes:
    """The SentencePiece model with `tags` as symbols, which it finds in a text by itself wherever a space is before."""
    if not tags:
        return model
    changed = protobuf_messages().ModelProto.FromString(model)
    places = {piece.piece: piece for piece in changed.pieces}
    for tag in tags:
        piece = places.get(tag) or changed.pieces.add(score=0.0)
        piece.piece, piece.type = marked(tag), piece.USER_DEFINED
    written: bytes = changed.SerializeToString()
    return written


def write_tokenizers(
    tokenizers: Tokenizers, directory: Path, *, finds_tags: bool = False, sides: Sequence[str] = SIDES
) -> None:
    """The SentencePiece models for any program, and the packed tokenizers that are more than that, for tfm alone.

    With `finds_tags` the source's model finds tags in a text. Else who uses it puts their pieces before those of the
    text.
    """
    for side in sides:
        tokenizer: Tokenizer = getattr(tokenizers, side)
        if tokenizer.packed is not None:
            (directory / f"{side}{PACKED}").write_bytes(tokenizer.model_bytes)
        if tokenizer.sentencepiece is not None:
            tags = tokenizer.tags if finds_tags and side == "source" and tokenizer.packed is None else ()
            (directory / f"{side}.spm").write_bytes(finding_tags(normalising(tokenizer), tags))


class FolderTokenizer(Protocol):
    """What a folder of `write_tokenizers` makes of text."""

    def ids(self, line: str) -> list[int]: ...

    def pieces(self, line: str) -> list[str]: ...

    def decode(self, ids: Sequence[int]) -> str: ...


def folder_tokenizers(directory: Path, sides: Sequence[str] = SIDES) -> list[FolderTokenizer]:
    """The tokenizers of source and target, as plain SentencePiece models if that is all that they are."""
    found: list[FolderTokenizer] = []
    for side in sides:
        packed = directory / f"{side}{PACKED}"
        if packed.exists():
            tokenizer = Tokenizer(packed.read_bytes())
            found.append(PackedText(tokenizer if side == "source" else tokenizer.without_tags()))
        else:
            found.append(PlainText(directory / f"{side}.spm"))
    return found


class PlainText:
    """A SentencePiece model as any program has it; the caller puts the tokens of tags before those of the text."""

    def __init__(self, file: Path) -> None:
        self.model = sentencepiece.SentencePieceProcessor(model_file=str(file))
        self.tags = Tokenizer(file.read_bytes()).tags

    def ids(self, line: str) -> list[int]:
        tags, text = split_tags(line, self.tags)
        return [*(self.model.piece_to_id(tag) for tag in tags), *self.model.encode(text)]

    def pieces(self, line: str) -> list[str]:
        tags, text = split_tags(line, self.tags)
        return [*tags, *self.model.encode(text, out_type=str)]

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.model.decode(list(ids)))


class PackedText:
    """A packed tokenizer, which is ours."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def ids(self, line: str) -> list[int]:
        return self.tokenizer.encode([line])[0]

    def pieces(self, line: str) -> list[str]:
        return self.tokenizer.pieces(self.ids(line))

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids)


def protobuf_messages() -> Any:
    """Reads and writes what the library itself only holds."""
    return importlib.import_module("sentencepiece.sentencepiece_model_pb2")


@lru_cache(maxsize=16)
def compiled(alphabet: frozenset[str], own: bytes = b"") -> bytes:
    """The table for a vocabulary with these characters, as SentencePiece keeps it, and the model's `own` behind it."""
    sentencepiece.set_min_log_level(3)  # its progress log would go to stderr, which is ours
    normalizer = sentencepiece.SentencePieceNormalizer(norm_map=list(rewritten(alphabet, own).items()))
    spec = protobuf_messages().NormalizerSpec.FromString(normalizer.serialized_normalizer_spec())
    table: bytes = spec.precompiled_charsmap
    return table


def rewritten(alphabet: frozenset[str], own: bytes = b"") -> dict[str, str]:
    """Every character, and every way to spell a composed one, that a tokenizer does not leave as it is.

    `own` is the table that SentencePiece applies to what our rule leaves.
    """
    reads, then = Spelling(alphabet, reads=True), _applied(own)
    found: dict[str, str] = {}
    for way in dict.fromkeys([*_ways(), *charsmap_keys(own)]):
        if way in alphabet and format_characters(way):
            continue  # left out or not by what stands beside it, which no table knows
        text = then(reads(normalize(way))) or (_SPACE if way.isspace() or way == _MARK else "")
        if text != way:
            found[way] = text
    return found


def _applied(table: bytes) -> Callable[[str], str]:
    """What a table makes of a text, white space left as it is."""
    if not table:
        return lambda text: text
    spec = protobuf_messages().NormalizerSpec(name="user_defined", precompiled_charsmap=table)
    normalizer = sentencepiece.SentencePieceNormalizer(
        normalizer_spec=spec.SerializeToString(),
        add_dummy_prefix=False,
        escape_whitespaces=False,
        remove_extra_whitespaces=False,
    )
    return lambda text: str(normalizer.normalize(text))


@cache
def _ways() -> list[str]:
    """What a tokenizer may rewrite by itself: a character, or one of the ways to write it."""
    characters = list(map(chr, range(N_CODE_POINTS)))
    hangul = characters[0xAC00:0xD7A4]  # composed by rule: no table of decompositions has them
    found = [c for c in characters if unicodedata.decomposition(c) or c.isspace()]
    found += [*hangul, *MARKS, _MARK, *format_characters("\n".join(characters))]
    ways = dict.fromkeys(way for letter in found for way in (letter, *spellings(letter)))
    return list(ways)
