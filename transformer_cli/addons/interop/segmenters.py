"""The files that cut text into pieces, of programs whose vocabularies stand in other files."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transformer_cli.data.packed_tokenizer import PackedTokenizer, Segmenter
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.errors import CheckpointError, EnvironmentFault, quoted

_SPACE, _GLUE = "\u2581", "@@"
_MOST = 1 << 27  # bytes


@dataclass(frozen=True)
class _SegmenterFile:
    """A SentencePiece model or BPE codes; None is for text that is in pieces already."""

    kind: Segmenter
    model: bytes = b""
    path: Path | None = None


def read_segmenter(path: Path | None) -> _SegmenterFile:
    """Raises CheckpointError for a file that is neither; codes of fastBPE become those of subword-nmt."""
    if path is None:
        return _SegmenterFile(Segmenter.words)
    try:
        if path.stat().st_size > _MOST:
            raise CheckpointError(f"{path}: too large for BPE codes or a SentencePiece model. Check --segmenter")
        content = path.read_bytes()
    except OSError as error:
        raise EnvironmentFault(f"{path}: {error.strerror}. Check --segmenter and the file's permissions") from error
    codes = _codes(content)
    if codes is not None:
        return _SegmenterFile(Segmenter.subword_nmt, codes, path)
    return _SegmenterFile(Segmenter.sentencepiece, content, path)


def _codes(content: bytes) -> bytes | None:
    """BPE codes as subword-nmt reads them; None for something else.

    Those of fastBPE have a third column, the number of times, and no version; the end of a word is a part of its last
    character, as since version 0.2 of subword-nmt.
    """
    try:
        lines = [line for line in content.decode().split("\n") if line.strip("\r\n ")]
    except UnicodeDecodeError:
        return None
    merges = lines[1:] if lines and lines[0].startswith("#version:") else lines
    widths = {len(line.strip("\r\n ").split(" ")) for line in merges}
    if not merges or not widths <= {2, 3}:
        return None
    if widths == {3} and merges is lines:
        return "\n".join(["#version: 0.2", *(" ".join(line.split(" ")[:2]) for line in lines)]).encode()
    return content


@dataclass(frozen=True)
class SpecialIds:
    """`bos` is what the decoder starts with."""

    pad: int
    unk: int
    bos: int
    eos: int


def pack(
    segmenter: _SegmenterFile, pieces: Sequence[str], special: SpecialIds, *, path: Path, **options: Any
) -> Tokenizer:
    """The tokenizer of a vocabulary; `options` are those of PackedTokenizer.

    Raises CheckpointError where its pieces are not those of such a segmenter.
    """
    marks = {_SPACE: Segmenter.sentencepiece, _GLUE: Segmenter.subword_nmt}
    counts = {
        _SPACE: sum(piece.startswith(_SPACE) for piece in pieces),
        _GLUE: sum(piece.endswith(_GLUE) for piece in pieces),
    }
    mark, count = max(counts.items(), key=lambda item: item[1])
    expected = marks[mark] if count > len(pieces) // 100 else Segmenter.words
    if segmenter.kind is not expected:
        has = "no file that cuts text" if segmenter.path is None else f"{segmenter.path}, {_NAMES[segmenter.kind]},"
        wanted = f"pieces with {mark!r}, of {_NAMES[expected]}" if expected is not Segmenter.words else "whole words"
        raise CheckpointError(
            f"{path}: its vocabulary has {wanted}, but there is {has} beside it. Name it with --segmenter"
        )
    packed = PackedTokenizer(segmenter.kind, tuple(pieces), **asdict(special), model=segmenter.model, **options)
    try:
        return Tokenizer(packed.to_bytes())
    except CheckpointError as error:
        raise CheckpointError(f"{segmenter.path or path}: {quoted(str(error))}. Check --segmenter") from error


_NAMES = {
    Segmenter.sentencepiece: "a SentencePiece model",
    Segmenter.subword_nmt: "BPE codes",
    Segmenter.words: "whole words",
}
