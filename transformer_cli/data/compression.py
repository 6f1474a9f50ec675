"""Decompression of untrusted files: truncation, damage and decompression bombs end in one DataError.

Reading to the end verifies lengths and checksums.
"""

import gzip
import zlib
from collections.abc import Callable
from typing import Protocol

from transformer_cli.errors import DataError

# Text compresses to about a third, deflate cannot do better than 1030:1. A file beyond both limits would fill the disk.
MAX_RATIO = 100
MAX_FREE_BYTES = 1 << 26  # which a small file may decompress to, whatever its ratio
_MAGIC = b"\x1f\x8b"


class ByteSource(Protocol):
    """Returns at most `size` bytes at a time, and b"" at its end."""

    def read(self, size: int, /) -> bytes: ...


class BombGuard:
    """Counts compressed and decompressed bytes, and raises DataError when their ratio exceeds MAX_RATIO."""

    def __init__(self, name: str, *, n_compressed: int = 0) -> None:
        self.name, self.n_compressed, self._n_decompressed = name, n_compressed, 0

    def count(self, data: bytes) -> bytes:
        """`data`, which was decompressed."""
        self._n_decompressed += len(data)
        if self._n_decompressed > max(MAX_FREE_BYTES, MAX_RATIO * self.n_compressed):
            raise DataError(
                f"{self.name}: {self.n_compressed:,} packed bytes hold more than {self._n_decompressed:,}, over"
                f" {MAX_RATIO} to 1. Text never packs so well: unpack it yourself if you trust it"
            )
        return data


class Gunzip:
    """The decompressed bytes of one or more gzip members."""

    def __init__(self, compressed: ByteSource, name: str) -> None:
        self._guard = BombGuard(name)
        self._file = gzip.GzipFile(fileobj=_Counted(compressed, self._guard), mode="rb")  # type: ignore[call-overload]

    def read(self, size: int, /) -> bytes:
        return self._checked(self._file.read, size)

    def read1(self, size: int, /) -> bytes:
        """At most `size` bytes, as soon as there are any."""
        return self._checked(self._file.read1, size)

    def _checked(self, read: Callable[[int], bytes], size: int) -> bytes:
        try:
            return self._guard.count(read(size))
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            is_cut = isinstance(error, EOFError) or self._guard.n_compressed < len(_MAGIC)
            fault = "cut short" if is_cut else f"damaged ({error})"
            raise DataError(f"{self._guard.name}: the gzip data is {fault}. Fetch the file again") from None


class _Counted:
    """Compressed bytes on their way to GzipFile, which only calls `read`."""

    def __init__(self, source: ByteSource, guard: BombGuard) -> None:
        self._source, self._guard = source, guard

    def read(self, size: int, /) -> bytes:
        data = self._source.read(size)
        if not self._guard.n_compressed and not _MAGIC.startswith(data[:2]):
            raise DataError(f"{self._guard.name}: is not gzip data, but is called .gz. Remove .gz from its name")
        self._guard.n_compressed += len(data)
        return data
