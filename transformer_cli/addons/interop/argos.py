"""A package of Argos Translate, which LibreTranslate installs, too: a CTranslate2 model with its metadata.

One SentencePiece model splits the source and joins the translation, so the vocabulary has to be joint, or the source's
model has to be able to join the target's pieces. Argos then shows every `_` as a space.

Files: metadata.json, sentencepiece.model, README.md, and the CTranslate2 model in model/.
"""

import json
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sentencepiece

from transformer_cli.addons.interop import ctranslate2
from transformer_cli.addons.interop.export_file import below
from transformer_cli.addons.interop.text import normalising
from transformer_cli.data.packed_tokenizer import PackedTokenizer, Segmenter
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.errors import ConfigError
from transformer_cli.files import Output
from transformer_cli.languages import language_name
from transformer_cli.models.file import ModelFile

MODEL, SENTENCEPIECE, METADATA = "model", "sentencepiece.model", "metadata.json"
ARGOS_VERSION = "1.9.0"  # the first that reads all that is in the package
EPOCH = (1980, 1, 1, 0, 0, 0)  # of every file in the archive, so that equal content gives equal bytes


def write(
    model: ModelFile,
    directory: Path,
    *,
    quantization: str | None = None,
    package_version: str = "1.0",
    from_name: str | None = None,
    to_name: str | None = None,
) -> None:
    """Write the package into `directory`, which is there and empty. Raises ConfigError for what it cannot hold."""
    metadata = {
        "package_version": package_version,
        "argos_version": ARGOS_VERSION,
        "from_code": code(model.source_lang, "source"),
        "from_name": from_name or _named(model.source_lang, "from"),
        "to_code": code(model.target_lang, "target"),
        "to_name": to_name or _named(model.target_lang, "to"),
    }
    check(model)
    (directory / MODEL).mkdir()
    ctranslate2.write(model, directory / MODEL, quantization=quantization, with_tokenizers=False)
    (directory / SENTENCEPIECE).write_bytes(normalising(model.tokenizers.source))
    text = json.dumps(metadata, indent=2, ensure_ascii=False) + "\n"
    (directory / METADATA).write_text(text, encoding="utf-8")


def check(model: ModelFile) -> None:
    ctranslate2.check(model.config)
    source, target = model.tokenizers.source, model.tokenizers.target
    for tokenizer in (source, target):
        if tokenizer.packed is not None and (what := more_than_pieces(tokenizer.packed)):
            raise ConfigError(
                f"tokenizer: has {what}, and Argos does nothing but split by SentencePiece."
                " Use `tfm export ctranslate2`"
            )
    if not model.tokenizers.joint and (lost := cannot_join(source, target)):
        raise ConfigError(
            f"data.tokenizer.joint=false: Argos has one SentencePiece model for both languages, and that of the source"
            f" cannot join {lost} of the target. Train with data.tokenizer.joint=true, or use `tfm export ctranslate2`"
        )


def more_than_pieces(packed: PackedTokenizer) -> str | None:
    """What this tokenizer does beside SentencePiece."""
    found = {
        "a segmenter other than SentencePiece": packed.segmenter is not Segmenter.sentencepiece,
        "tags that are looked up whole": packed.whole,
        "a token that every sentence begins with": packed.prefix or packed.languages,
        "Moses tokenization": packed.moses is not None,
        "lower case": packed.lowercase,
    }
    return next((what for what, is_there in found.items() if is_there), None)


def cannot_join(source: Tokenizer, target: Tokenizer) -> str | None:
    """A piece of `target` that the model of `source` does not join as its own does; None: there is none.

    SentencePiece joins a piece that it does not have as it is written. That is wrong for bytes, which are only known as
    such to a model that has them, and for text that is a control symbol there.
    """
    theirs, ours = (sentencepiece.SentencePieceProcessor(model_proto=it.sentencepiece) for it in (source, target))
    for number in range(len(ours)):
        piece = ours.id_to_piece(number)
        is_text = not (ours.is_control(number) or ours.is_unknown(number) or ours.is_byte(number))
        there = theirs.piece_to_id(piece)
        if ours.is_byte(number) and not theirs.is_byte(there):
            return f"the byte {piece}"
        if is_text and (theirs.is_control(there) or theirs.is_byte(there)):
            return f"the piece {piece}"
    return None


def code(language: str, side: str) -> str:
    if not re.fullmatch(r"[A-Za-z]+([-_][A-Za-z0-9]+)*", language):
        raise ConfigError(
            f"data.{side}_lang={language}: no code of a language, which Argos takes it for. Export a model with one"
        )
    return language


def _named(language: str, side: str) -> str:
    name = language_name(language)
    if name is None:
        raise ConfigError(f"--{side}-name: not given, and `{language}` is no code that tfm knows. Name the language")
    return name


def folder_name(facts: dict[str, Any]) -> str:
    """The folder name of the package in its archive, and among the installed ones."""
    version = re.sub(r"[^A-Za-z0-9]+", "_", str(facts["package_version"]))
    return f"translate-{facts['from_code']}_{facts['to_code']}-{version}"


def pack_archive(directory: Path, output: Output) -> None:
    """The package in `directory` as one archive: one folder, in order, uncompressed, without dates or owners.

    Argos unpacks an archive into the folder of its packages, of which each sub-folder has to be one.
    """
    top = folder_name(json.loads((directory / METADATA).read_bytes()))
    with zipfile.ZipFile(output, "w", zipfile.ZIP_STORED) as archive:  # type: ignore[call-overload]
        for file in (path for path in below(directory) if path.is_file()):
            member = zipfile.ZipInfo(f"{top}/{file.relative_to(directory).as_posix()}", EPOCH)
            member.create_system, member.external_attr = 3, 0o644 << 16
            member.file_size = file.stat().st_size
            with file.open("rb") as content, archive.open(member, "w") as place:
                while part := content.read(1 << 20):
                    place.write(part)


class Loaded(ctranslate2.Loaded):
    """A package as Argos loads it: the tokens by CTranslate2, text by its one SentencePiece model."""

    def __init__(self, directory: Path, model: ModelFile) -> None:
        super().__init__(directory / MODEL, model.tokenizers)
        self.tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(directory / SENTENCEPIECE))

    def translate_text(self, lines: Sequence[str], *, max_tokens: int) -> list[str]:
        sources = [self.tokenizer.encode(line, out_type=str) for line in lines]
        found = self.translate_pieces(sources, max_tokens=max_tokens)
        return [self.shown(self.tokenizer.decode_pieces(pieces)) for pieces in found]

    def shown(self, text: str) -> str:
        return text.replace("\u2581", " ").replace("_", " ").strip(" ")
