"""The file of a SentencePiece model, a message of protobuf: its pieces with their scores and kinds.

Fields may follow at the end of such a message, and of one that stands twice the last holds: that is how pieces are
appended, with no other byte touched.
"""

import struct
from collections.abc import Collection, Iterator, Sequence
from enum import IntEnum

SPACE = "\u2581"  # SentencePiece's sign for a space


class PieceKind(IntEnum):
    """The types of pieces, and of models, as SentencePiece's files have them."""

    normal = 1
    unknown = 2
    control = 3
    user_defined = 4
    unused = 5
    byte = 6


class ModelKind(IntEnum):
    unigram = 1
    bpe = 2


def read_pieces(model: bytes) -> list[tuple[str, float, int]]:
    """Piece, score and kind of each."""
    return [_read_piece(content) for number, content in _fields(model) if number == 1]


def with_pieces(model: bytes, pieces: Sequence[tuple[str, float, PieceKind]]) -> bytes:
    """The model with more pieces at its end."""
    added = b"".join(_written(1, _piece_message(*piece)) for piece in pieces)
    return model + added + _vocabulary_size(len(read_pieces(model)) + len(pieces))


def without_pieces(model: bytes, names: Collection[str]) -> bytes:
    """The model without these pieces; the others have the ids that follow from their order."""
    kept = [
        (number, raw) for number, value, raw in _raw_fields(model) if number != 1 or _read_piece(value)[0] not in names
    ]
    size = sum(number == 1 for number, _ in kept)
    return b"".join(raw for _, raw in kept) + _vocabulary_size(size)


def _vocabulary_size(n_pieces: int) -> bytes:
    return _written(2, b"\x20" + _varint(n_pieces))  # trainer_spec.vocab_size, its field 4


def _written(number: int, content: bytes) -> bytes:
    """A field of bytes."""
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _piece_message(piece: str, score: float, kind: PieceKind) -> bytes:
    return _written(1, piece.encode()) + b"\x15" + struct.pack("<f", score) + b"\x18" + _varint(kind)


def _read_piece(message: int | float | bytes | None) -> tuple[str, float, int]:
    """A piece with its score and its type, which have defaults."""
    assert isinstance(message, bytes)
    name, score, kind = b"", 0.0, int(PieceKind.normal)
    for number, value in _fields(message):
        match number, value:
            case 1, bytes():
                name = value
            case 2, float():
                score = value
            case 3, int():
                kind = value
    return name.decode(), score, kind


def model_kind(model: bytes) -> int:
    """trainer_spec.model_type; the last one holds, and unset it is unigram."""
    kind = int(ModelKind.unigram)
    for number, content in _fields(model):
        if number == 2 and isinstance(content, bytes):
            kind = next((value for inner, value in _fields(content) if inner == 3 and isinstance(value, int)), kind)
    return kind


def _fields(message: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """The fields of a protobuf message that SentencePiece has read, by number; of one of 8 bytes nothing."""
    return ((number, value) for number, value, _ in _raw_fields(message) if value is not None)


def _raw_fields(message: bytes) -> Iterator[tuple[int, int | float | bytes | None, bytes]]:
    """Number, value and all bytes of each field."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        start, key = at, varint()
        value: int | float | bytes | None = None
        match key & 7:
            case 0:
                value = varint()
            case 2:
                length = varint()
                value = message[at : at + length]
                at += length
            case 5:
                value = struct.unpack_from("<f", message, at)[0]
                at += 4
            case _:
                at += 8
        yield key >> 3, value, message[start:at]
