"""Vectors in NumPy's formats, written as they come: whatever their number, memory holds one block of them.

Shapes: N lines, T tokens of all lines, X numbers of one vector, or [Y, D] of one for each of Y layers.
"""

import io
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from transformer_cli.addons.embedding.encoder_filter import EncodedLine
from transformer_cli.files import Output, naming
from transformer_cli.logs import LOGGER

_FLOAT = np.dtype("<f4")
_BLOCK = 1 << 20  # bytes that are copied at a time, and tokens
_EPOCH = (1980, 1, 1, 0, 0, 0)  # a zip archive has a date for each file; a fixed one gives the same bytes again


def header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The header of a .npy file. NumPy leaves room in it, so that its length is the same for any number of rows."""
    content = io.BytesIO()
    npy.write_array_header_1_0(content, {"descr": dtype.str, "fortran_order": False, "shape": shape})
    return content.getvalue()


class ArrayFile:
    """A .npy file of the vectors of sentences: float32, [N, X]. Raises OSError with the name of the file."""

    def __init__(self, sink: Output, shape_X: tuple[int, ...]) -> None:
        self.sink, self.shape_X, self.n_rows, self.n_blank = sink, shape_X, 0, 0
        sink.write(header(_FLOAT, (0, *shape_X)))

    def append(self, encoded: EncodedLine) -> None:
        """The next line's vector; zeros for a blank one."""
        x_X = encoded.output_X
        row = np.zeros(self.shape_X, _FLOAT) if x_X is None else np.ascontiguousarray(x_X.numpy(), _FLOAT)
        self.sink.write(row.tobytes())
        self.n_rows += 1
        self.n_blank += x_X is None

    def finish(self) -> None:
        if self.n_blank:
            LOGGER.warning("%d of %d lines are blank; their rows are zero", self.n_blank, self.n_rows)
        self.sink.rewrite_start(header(_FLOAT, (self.n_rows, *self.shape_X)))


class TokenArchive:
    """A .npz file of the vectors of tokens, which np.load reads without pickle. Raises OSError with its name.

    `vectors` are float32, [T, X], and `tokens` their texts, [T]. Those of the n-th line, from 0, are
    `offsets[n]:offsets[n + 1]` of both. The archive needs the size of an array before its content, so vectors wait in
    the temporary file `spool`.
    """

    def __init__(self, sink: Output, file: Path, shape_X: tuple[int, ...], spool: IO[bytes]) -> None:
        self.sink, self.file, self.shape_X, self.vectors = sink, file, shape_X, spool
        self.tokens: list[str] = []
        self.offsets = [0]

    def append(self, encoded: EncodedLine) -> None:
        """The next line's tokens; none of a blank one."""
        if encoded.output_X is not None:
            with naming(self.file):
                self.vectors.write(np.ascontiguousarray(encoded.output_X.numpy(), _FLOAT).tobytes())
        self.tokens += encoded.tokens or ()
        self.offsets.append(len(self.tokens))

    def finish(self) -> None:
        n, text = len(self.tokens), np.dtype(f"<U{max(map(len, self.tokens), default=1)}")
        parts = (np.array(self.tokens[i : i + _BLOCK], text).tobytes() for i in range(0, n, _BLOCK))
        with zipfile.ZipFile(self.sink, "w") as archive, naming(self.file):  # type: ignore[call-overload]
            self.vectors.seek(0)
            offsets = np.array(self.offsets, "<i8")
            _add(archive, "offsets", offsets.dtype, offsets.shape, [offsets.tobytes()])
            _add(archive, "tokens", text, (n,), parts)
            _add(archive, "vectors", _FLOAT, (n, *self.shape_X), iter(lambda: self.vectors.read(_BLOCK), b""))


def _add(
    archive: zipfile.ZipFile, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], content: Iterable[bytes]
) -> None:
    member = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
    member.create_system, member.external_attr = 3, 0o644 << 16  # the same bytes on every system
    with archive.open(member, "w", force_zip64=True) as file:
        file.write(header(dtype, shape))
        for part in content:
            file.write(part)
