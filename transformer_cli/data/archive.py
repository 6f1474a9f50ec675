"""Reading members of .tar, .tar.gz, .tgz and .zip archives by name.

Nothing is extracted, so names, links or devices inside an archive cannot affect the disk.
"""

import difflib
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Generator, Iterator
from pathlib import Path

from transformer_cli.data.compression import BombGuard, ByteSource, Gunzip
from transformer_cli.data.lines import BLOCK_BYTES, open_text, shown
from transformer_cli.errors import DataError, quoted

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".zip")
MAX_MEMBERS = 100_000  # of an archive: a corpus has dozens, an attack has millions
# What tarfile and zipfile raise on damage; the last three come from numbers and nesting that only an attack has.
_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, ValueError, OverflowError, RecursionError)

Members = Iterator[tuple[str, ByteSource | None]]


def open_members(path: Path, names: Collection[str]) -> Generator[tuple[str, ByteSource]]:
    """Each named member of the archive with its bytes, in the archive's own order; .gz members come unpacked.

    A stream must be read before the next is asked for, and what was read may be used only once this iterator has
    ended: not until then is the archive known to be whole. Raises DataError for a damaged or hostile archive, for a
    member that is missing, that is there twice, or that is not a plain file.
    """
    seen: list[str] = []
    found: set[str] = set()
    for name, stream in _zip_members(path, names) if path.name.endswith(".zip") else _tar_members(path, names):
        seen.append(name)
        if len(seen) > MAX_MEMBERS:
            raise DataError(f"{shown(path)}: holds more than {MAX_MEMBERS:,} members. It is no corpus: fetch another")
        if stream is None:
            continue
        if name in found:
            raise DataError(f"{shown(path)}::{shown(name)}: is there twice. Fetch the archive again")
        found.add(name)
        yield name, Gunzip(stream, f"{shown(path)}::{shown(name)}") if name.endswith(".gz") else stream
    for name in names:
        if name not in found:
            raise DataError(f"{shown(path)}: has no member {quoted(name)}. {_nearest(name, seen)}")


def member_sizes(path: Path) -> dict[str, int]:
    """The plain files in the archive, with their bytes. Raises DataError for a damaged one."""
    try:
        if path.name.endswith(".zip"):
            with zipfile.ZipFile(path) as archive:
                return {info.filename: info.file_size for info in archive.infolist() if not info.is_dir()}
        with tarfile.open(path) as tar:
            return {member.name.removeprefix("./"): member.size for member in tar if member.isreg()}
    except _DAMAGE as error:
        raise _damaged(path, error) from None


def _nearest(name: str, seen: list[str]) -> str:
    """Advice with the members whose names are similar."""
    base = name.rsplit("/", 1)[-1]
    near = [other for other in seen if other.rsplit("/", 1)[-1] == base]
    near = near or difflib.get_close_matches(name, seen, n=3, cutoff=0.5) or seen
    return f"Name another, such as {', '.join(map(quoted, near[:3]))}" if near else "It is empty: fetch another"


def _tar_members(path: Path, names: Collection[str]) -> Members:
    """Every member of a tar archive, with its bytes if it is among `names`."""
    with open_text(path) as file:
        source = Gunzip(file, shown(path)) if path.name.endswith(".tgz") else file  # open_text has unpacked .gz
        try:
            with tarfile.open(fileobj=source, mode="r|") as tar:  # type: ignore[call-overload]  # it only calls read
                for member in tar:
                    tar.members = []  # tarfile would remember all of them
                    name = member.name.removeprefix("./")
                    if name not in names:
                        yield name, None
                        continue
                    stream = tar.extractfile(member) if member.isreg() and not member.issparse() else None
                    if stream is None:
                        raise DataError(f"{shown(path)}::{shown(name)}: is not a plain file. Name another member")
                    yield name, _Member(stream, path, name, n_compressed=member.size)
            while source.read(BLOCK_BYTES):  # the checksum covers what follows the last member, too
                pass
        except _DAMAGE as error:
            raise _damaged(path, error) from None


def _zip_members(path: Path, names: Collection[str]) -> Members:
    """Every member of a zip archive, with its bytes if it is among `names`."""
    with open_text(path):  # for its messages: missing, a folder, no permission
        pass
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if info.filename not in names:
                    yield info.filename, None
                    continue
                if fault := _zip_fault(info):
                    raise DataError(f"{shown(path)}::{shown(info.filename)}: {fault}. Name another member")
                with archive.open(info) as stream:
                    n_compressed = min(info.compress_size, path.stat().st_size)
                    member = _Member(stream, path, info.filename, n_compressed=n_compressed)
                    yield info.filename, member
                    while member.read(BLOCK_BYTES):  # the checksum is compared at the end
                        pass
    except _DAMAGE as error:
        raise _damaged(path, error) from None


def _zip_fault(info: zipfile.ZipInfo) -> str:
    """Why a member cannot be read as text; empty if it can."""
    if info.is_dir() or stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
        return "is not a plain file"
    if info.flag_bits & 1:
        return "is encrypted"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return f"is packed by method {info.compress_type}, which is neither stored nor deflated"
    return ""


class _Member:
    """The bytes of a member; damage and decompression bombs raise DataError."""

    def __init__(self, stream: ByteSource, archive: Path, name: str, *, n_compressed: int) -> None:
        self._stream, self._archive = stream, archive
        self._guard = BombGuard(f"{shown(archive)}::{shown(name)}", n_compressed=n_compressed)

    def read(self, size: int, /) -> bytes:
        try:
            return self._guard.count(self._stream.read(size))
        except _DAMAGE as error:
            raise _damaged(self._archive, error) from None


def _damaged(archive: Path, error: BaseException) -> DataError:
    what = quoted(str(error))
    return DataError(f"{shown(archive)}: the archive is cut short or damaged ({what}). Fetch it again")
