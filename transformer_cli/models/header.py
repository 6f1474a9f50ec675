"""The first part of a model file, which describes the rest: read and checked here without torch.

A safetensors file begins with the length of its table of contents and that table, JSON, in which the metadata of tfm is
one text: the format's number, the model's config, languages, scores, and the SHA-256 of the whole file.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from transformer_cli.errors import CheckpointError, EnvironmentFault, quoted
from transformer_cli.files import Chunk
from transformer_cli.version import __version__

MODEL_FILE = "model.safetensors"
FORMAT = 1
READABLE_SINCE = "0.1.0"  # the first version of tfm that reads this format
METADATA = "tfm"  # the only metadata key: safetensors writes several in random order
NO_HASH = "0" * 64  # stands in for the hash while the file is being hashed
SOURCE, TARGET = "tokenizer.source", "tokenizer.target"  # tensors that hold the bytes of the tokenizers
# What Python raises where JSON has another type, number or depth than it should.
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)

_MAX_HEADER = 4_000_000  # bytes; 512 + 512 layers take about 2 MB
_AT_A_TIME = 1 << 22  # bytes


@dataclass(frozen=True)
class Header:
    """What a model file says of itself, its hash checked: `shapes` and `dtypes` are of every tensor."""

    metadata: dict[str, Any]
    shapes: dict[str, list[int]]
    dtypes: dict[str, str]
    sha256: str  # of the file as it is, as sha256sum prints it
    n_bytes: int

    @property
    def n_parameters(self) -> int:
        """Numbers in the weights; a tied matrix is there once."""
        return sum(math.prod(shape) for name, shape in self.shapes.items() if name not in (SOURCE, TARGET))


def read_header(path: Path) -> Header:
    """Read the beginning of `path` and hash it all. Raises CheckpointError for what is no whole model file of ours."""
    if not path.is_file():
        raise CheckpointError(f"{path}: {'not a file' if path.exists() else 'no such file'}. Check --checkpoint")
    try:
        n_bytes = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(8)
            start += file.read(min(int.from_bytes(start, "little"), _MAX_HEADER))
            table = contents(start, path, n_bytes=n_bytes)
            metadata = read_metadata(table, path)
            rest, plain = hashlib.sha256(unhashed(start, metadata, path)), hashlib.sha256(start)
            while part := file.read(_AT_A_TIME):
                rest.update(part)
                plain.update(part)
        check_hash(rest.hexdigest(), metadata, path)
        tensors = {name: entry for name, entry in table.items() if name != "__metadata__"}
        shapes = {name: [whole(size, name) for size in entry["shape"]] for name, entry in tensors.items()}
        dtypes = {name: str(entry["dtype"]) for name, entry in tensors.items()}
    except OSError as error:
        raise EnvironmentFault(f"{path}: {error.strerror}. Check the disk and the file's permissions") from error
    except MALFORMED as error:
        refuse(path, f"damaged or not written by tfm ({quoted(str(error))})")
    return Header(metadata, shapes, dtypes, plain.hexdigest(), n_bytes)


def contents(start: bytes | bytearray, path: Path, *, n_bytes: int) -> dict[str, Any]:
    """safetensors' own table of contents, which its library reads without noticing that a key stands twice."""
    size = int.from_bytes(start[:8], "little")
    if size > _MAX_HEADER and start.startswith((b"PK", b"\x80")):
        refuse(path, "a zip archive or pickle, as torch.save writes, which could run code")
    if size > min(n_bytes - 8, _MAX_HEADER):
        refuse(path, f"cut short or not a safetensors file ({n_bytes:,} bytes)")
    header = read_json(bytes(start[8 : 8 + size]), path)
    if not isinstance(header, dict):
        refuse(path, "not a safetensors file")
    return header


def read_metadata(header: Mapping[str, Any], path: Path) -> dict[str, Any]:
    outer = header.get("__metadata__")
    text = outer.get(METADATA) if isinstance(outer, dict) else None
    if not isinstance(text, str):
        refuse(path, "a safetensors file, but without what tfm writes into its models")
    metadata = read_json(text.encode(), path)
    if not isinstance(metadata, dict) or not is_whole(metadata.get("format"), least=1):
        refuse(path, "its metadata has no format number")
    if metadata["format"] > FORMAT:
        raise CheckpointError(
            f"{path}: written in format {metadata['format']}, needs tfm >= {quoted(str(metadata.get('needs')))[1:-1]};"
            f" this is {__version__}. Install that"
        )
    return metadata


def unhashed(start: bytes, metadata: Mapping[str, Any], path: Path) -> bytes:
    """The beginning of a file, table and all, as it was hashed."""
    expected = metadata.get("sha256")
    if not isinstance(expected, str) or len(expected) != len(NO_HASH):
        refuse(path, "its metadata has no SHA-256")
    return start.replace(expected.encode(), NO_HASH.encode())


def check_hash(found: str, metadata: Mapping[str, Any], path: Path) -> None:
    """Refuse a file of which any byte is not the one that was written."""
    expected = metadata["sha256"]
    if found != expected:
        refuse(path, f"damaged: its SHA-256 is {found[:12]}…, not {quoted(expected[:12])[1:-1]}…")


def sha256(pieces: Iterable[Chunk]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def is_whole(value: object, *, least: int = 0) -> bool:
    """Whether a value of JSON is a whole number: neither true nor 1.0, which Python takes for 1."""
    return type(value) is int and value >= least


def whole(value: object, what: str) -> int:
    """A count that stands in a file. Raises ValueError."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{what} is {value!r}, not a whole number from 0")
    return value


def texts(value: object, what: str) -> list[str]:
    """A list of texts that stands in a file. Raises ValueError."""
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"{what} is not a list of texts")
    return value


def read_json(text: bytes, path: Path) -> Any:
    """Strict JSON: no repeated keys, no NaN, no endless nesting. Raises CheckpointError naming `path`."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in pairs}) < len(pairs):
            raise ValueError("a key stands twice")
        return dict(pairs)

    def constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is not a number")

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        refuse(path, f"damaged ({quoted(str(error))})")


def refuse(path: Path, what: str) -> NoReturn:
    raise CheckpointError(f"{path}: {what}. Copy the model again, or choose another with --checkpoint")
