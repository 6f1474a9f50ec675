"""Archives of NumPy arrays (`.npz`), read one array at a time and written the same for the same arrays.

Nothing is unpickled: only plain numbers are read, and no array is longer than its header says, nor is memory taken
before the archive is known to hold that much.
"""

import math
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
from numpy.lib import format as npy

from transformer_cli.errors import CheckpointError, EnvironmentFault, quoted
from transformer_cli.system import total_memory

_SUFFIX = ".npy"  # that NumPy and Marian add to the name of each array inside
_TYPES = ("<f4", "<f2", "<f8", "|i1", "|u1")
_PIECE = 1 << 20  # bytes that are read at a time
_HEADER = 10_000  # bytes of an array's header, at most
_MEMBERS = 100_000
_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, KeyError, TypeError)
_EPOCH = (1980, 1, 1, 0, 0, 0)  # a zip archive has a date for each file


@dataclass(frozen=True)
class _Header:
    """The header of one array: its shape and its type as NumPy writes it."""

    shape: tuple[int, ...]
    dtype: str
    member: str


class Npz(Mapping[str, _Header]):
    """The arrays of an archive by their names. Raises CheckpointError for anything that is not a sound one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._opened() as archive:
            members = archive.infolist()
            if len(members) > _MEMBERS or sum(member.file_size for member in members) > total_memory():
                self.refuse(f"claims more than this machine's memory ({len(members):,} arrays)")
            self._headers: dict[str, _Header] = {}
            for member in members:
                name = member.filename.removesuffix(_SUFFIX)
                if name in self._headers:
                    self.refuse(f"holds {quoted(name)} twice")
                with archive.open(member) as file:
                    self._headers[name] = self._header(name, member, file)

    def _header(self, name: str, member: zipfile.ZipInfo, file: IO[bytes]) -> _Header:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, is_fortran, dtype = read(file, max_header_size=_HEADER)
        if dtype.hasobject:
            self.refuse(f"{quoted(name)} holds Python objects, which could run code")
        if dtype.str not in _TYPES:
            self.refuse(f"{quoted(name)} holds {quoted(dtype.str)[1:-1]}, not floating-point numbers")
        if is_fortran and len(shape) > 1:
            self.refuse(f"{quoted(name)} is stored column by column, as Marian does not")
        if math.prod(shape) * dtype.itemsize != member.file_size - file.tell():
            self.refuse(f"{quoted(name)} has {member.file_size:,} bytes, not those of {list(shape)} numbers")
        return _Header(shape, dtype.str, member.filename)

    def __getitem__(self, name: str) -> _Header:
        return self._headers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._headers)

    def __len__(self) -> int:
        return len(self._headers)

    def read(self, name: str) -> np.ndarray[Any, Any]:
        """The array `name`, in memory of its own."""
        header = self[name]
        array = np.empty(header.shape, header.dtype)
        with self._opened() as archive, archive.open(header.member) as file:
            npy.read_magic(file)
            start = archive.getinfo(header.member).file_size - array.nbytes
            file.read(start - file.tell())
            target, at = array.reshape(-1).view(np.uint8).data, 0
            while at < len(target):
                piece = file.read(min(_PIECE, len(target) - at))
                if not piece:
                    self.refuse(f"{quoted(name)} is cut short")
                target[at : at + len(piece)] = piece
                at += len(piece)
            if file.read(1):  # the end, where the archive's checksum is compared
                self.refuse(f"{quoted(name)} is longer than its header says")
        return array

    @contextmanager
    def _opened(self) -> Iterator[zipfile.ZipFile]:
        try:
            with zipfile.ZipFile(self.path) as archive:
                yield archive
        except OSError as error:
            raise EnvironmentFault(
                f"{self.path}: {error.strerror}. Check the disk and the file's permissions"
            ) from error
        except _ERRORS as error:
            self.refuse(f"damaged, or no archive of arrays ({quoted(str(error))})", error)

    def refuse(self, what: str, cause: BaseException | None = None) -> NoReturn:
        raise CheckpointError(f"{self.path}: {what}. Copy the model again, or name another") from cause


def is_npz_with(path: Path, name: str) -> bool:
    """Whether `path` is a zip archive with an array `name` in it."""
    try:
        with path.open("rb") as file:
            if file.read(4) != b"PK\3\4":
                return False
        with zipfile.ZipFile(path) as archive:
            return bool({name, name + _SUFFIX} & set(archive.namelist()))
    except (OSError, *_ERRORS):
        return False


def write_npz(path: Path, arrays: Iterable[tuple[str, np.ndarray[Any, Any]]]) -> None:
    """Write arrays, uncompressed, one after the other as they come. Raises OSError."""
    with zipfile.ZipFile(path, "x") as archive:
        for name, array in arrays:
            info = zipfile.ZipInfo(name + _SUFFIX, _EPOCH)
            info.create_system = 3  # the same bytes on every system
            info.external_attr = 0o644 << 16
            with archive.open(info, "w", force_zip64=array.nbytes > 2_000_000_000) as file:
                header = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
                npy.write_array_header_1_0(file, header)
                data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
                for start in range(0, len(data), _PIECE):
                    file.write(data[start : start + _PIECE])
