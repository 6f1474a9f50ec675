"""Files that are whole or absent, even after a crash or a power cut, and locks between processes.

The order is always the same: write under another name, sync the file, rename it, sync the folder that names it.
"""

import fcntl
import glob
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO

from transformer_cli.errors import EnvironmentFault
from transformer_cli.logs import LOGGER

Piece = bytes | memoryview  # of a file's content


def size_of(pieces: Iterable[Piece]) -> int:
    """Bytes."""
    return sum(memoryview(piece).nbytes for piece in pieces)


@contextmanager
def faults(path: Path, doing: str) -> Iterator[None]:
    """Turn an OSError into an EnvironmentFault that tells what could not be done, where and why."""
    try:
        yield
    except OSError as error:
        raise EnvironmentFault(
            f"{error.filename or path}: cannot {doing}: {error.strerror or error}."
            " Make room or repair it, and run the same command again"
        ) from error


def meant(output: Path) -> Path:
    """The file that a link leads to, which need not be there: what is written takes its place, and the link stays."""
    return Path(os.path.realpath(output)) if output.is_symlink() else output


def write_new(file: Path, pieces: Iterable[Piece]) -> None:
    """Write `file`, which must not exist, through to the disk. Raises OSError."""
    with _writing_new(file) as handle:
        handle.writelines(pieces)


def write_whole(file: Path, *pieces: Piece) -> None:
    """Replace `file`: a reader, and a crash, find the old content or the new. Raises OSError."""
    with writing_whole(file) as handle:
        handle.writelines(pieces)


@contextmanager
def writing_whole(file: Path) -> Iterator[BinaryIO]:
    """A stream to the new content of `file`, which takes its place when the block ends without an exception.

    A reader, and a crash, find the old content or the new. Raises OSError.
    """
    temporary = beside(file)
    try:
        with _writing_new(temporary) as handle:
            with suppress(OSError):  # a disk without locks: what a killed process leaves stays
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield handle
        temporary.replace(file)
        sync_folder(file.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _writing_new(file: Path) -> Iterator[BinaryIO]:
    with file.open("xb") as handle:
        try:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        except BaseException:
            with suppress(OSError):  # of what could not be written, which would hide why not
                handle.close()
            raise


def point(link: Path, target: str) -> None:
    """Make `link` a symbolic link to `target`, which is relative to its folder; an old link is replaced at once."""
    # Named after the target, not the process: whoever points there again removes what a killed one left.
    temporary = link.with_name(f".{link.name}.{Path(target).name}.tmp")
    temporary.unlink(missing_ok=True)
    if link.is_symlink() and os.readlink(link) == target:
        return
    temporary.symlink_to(target)
    temporary.replace(link)
    sync_folder(link.parent)


def remove_leftovers(file: Path) -> None:
    """Remove what killed processes left of `file` while they wrote it: theirs is what no living one has locked."""
    for leftover in file.parent.glob(f".{glob.escape(file.name)}.*.tmp"):
        process = leftover.name.removeprefix(f".{file.name}.").removesuffix(".tmp")
        if not process.isdecimal() or int(process) == os.getpid():
            continue  # that of another file, or our own, whose lock would not hold us off
        with suppress(OSError), open(leftover, "ab", opener=open_no_link) as handle:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            leftover.unlink()


def beside(file: Path) -> Path:
    """A hidden name in the same folder that no other process uses, free of what a dead one left."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    return temporary


def open_own(file: Path) -> TextIOWrapper:
    """Append to `file`, which is made if it is not there. Raises OSError for a link or a pipe.

    In a folder that others can write to, somebody could have put one there to have us write elsewhere, or wait.
    """
    return open(file, "a", encoding="utf-8", opener=open_no_link)


def open_no_link(path: str, flags: int) -> int:
    """An `opener` for `open` that follows no link and waits for no pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def make_folder(folder: Path) -> None:
    """Make `folder`, and those that it lies in, through to the disk; it may be there already. Raises OSError."""
    if not folder.parent.is_dir():
        make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` survive a power cut. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock file `path` against all other processes; False on a disk without locks, where nothing is held.

    Without `wait`, raises BlockingIOError while another process holds it. It does not keep a process from itself.
    """
    with open(path, "ab", opener=open_no_link) as file:
        yield _lock(file, path, wait=wait)


def _lock(file: BinaryIO, path: Path, *, wait: bool) -> bool:
    # lockf and not flock: a killed process loses it at once, also when it leaves children behind.
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:  # POSIX lets a system choose how it says that it is taken
        if not wait:
            raise BlockingIOError(error.errno, "held by another process", str(path)) from None
        LOGGER.info("%s: held by another process; waiting for it", path)
        fcntl.lockf(file, fcntl.LOCK_EX)
    except OSError:
        return False
    return True
