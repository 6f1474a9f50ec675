"""The file of a SentencePiece model, a message of protobuf: its pieces with their scores and kinds."""

import struct
from collections.abc import Iterator
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


def _read_piece(message: int | float | bytes) -> tuple[str, float, int]:
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
    """The fields of a protobuf message that SentencePiece has read, by number."""
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
        key = varint()
        match key & 7:
            case 0:
                yield key >> 3, varint()
            case 2:
                length = varint()
                yield key >> 3, message[at : at + length]
                at += length
            case 5:
                yield key >> 3, struct.unpack_from("<f", message, at)[0]
                at += 4
            case _:
                at += 8
