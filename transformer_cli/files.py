"""Files that are whole or absent, even after a crash or a power cut, and locks between processes.

The order is always the same: write under another name, sync the file, rename it, sync the folder that names it.
"""

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from io import TextIOWrapper
from itertools import count
from pathlib import Path
from typing import BinaryIO

from transformer_cli.errors import EnvironmentFault, TakenError
from transformer_cli.logs import LOGGER
from transformer_cli.system import NO_LINK, OPEN_FILES_MOVE, c_function, lock, locked_folder, rename, sync, sync_folder

Chunk = bytes | memoryview  # of a file's content

NAME_MAX = 255  # bytes that a file name may have, on nearly every file system
# Errors of file systems without links, or where they are not permitted.
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL)
_LINK, _LONGEST_LINK = "tfm-link: ", 1024  # where there are no symbolic links: how the file begins, and its bytes
_AT_FDCWD, _RENAME_NOREPLACE = -100, 1  # of renameat2(2)


@contextmanager
def wrap_os_errors(path: Path, doing: str) -> Iterator[None]:
    """Turn an OSError into an EnvironmentFault with the path, what could not be done, and why.

    Of a file that gets its name, the path is that name, not the temporary one.
    """
    try:
        yield
    except OSError as error:
        raise EnvironmentFault(
            f"{error.filename2 or error.filename or path}: cannot {doing}: {error.strerror or error}."
            " Make room or repair it, and run the same command again"
        ) from error


def resolve_link(output: Path) -> Path:
    """The target of a symbolic link, which need not exist; any other path as it is. Writing to it keeps the link."""
    return Path(os.path.realpath(output)) if output.is_symlink() else output


def write_new(file: Path, pieces: Iterable[Chunk]) -> None:
    """Write `file`, which must not exist, through to the disk. Raises OSError."""
    with _writing_new(file) as handle:
        handle.writelines(pieces)


def write_whole(file: Path, *pieces: Chunk, replace: bool = True) -> None:
    """Write `file`: a reader, and a crash, find the old content or the new. `replace`: see `writing_whole`."""
    with writing_whole(file, replace=replace) as output:
        output.writelines(pieces)


class Output:
    """A file that is being written. Errors name the file that it will be."""

    def __init__(self, handle: BinaryIO, file: Path, temporary: Path) -> None:
        self._handle, self._file, self.temporary = handle, file, temporary

    def write(self, content: Chunk) -> int:
        with naming(self._file):
            return self._handle.write(content)

    def writelines(self, pieces: Iterable[Chunk]) -> None:
        for piece in pieces:
            self.write(piece)

    def rewrite_start(self, content: Chunk) -> None:
        """Replace the first bytes by as many others; the file is complete at `temporary` after that."""
        with naming(self._file):
            self._handle.seek(0)
            self._handle.write(content)
            self._handle.seek(0, os.SEEK_END)
            self._handle.flush()

    def flush(self) -> None:
        with naming(self._file):
            self._handle.flush()


@contextmanager
def writing_whole(file: Path, *, replace: bool = True) -> Iterator[Output]:
    """A stream to the new content of `file`, which appears under that name when the block ends without an exception.

    A reader, and a crash, find the old content or the new. The new file has the permissions, and where the system
    allows it the owner, of the one that it replaces. Without `replace`, a file that has appeared meanwhile is kept, and
    the new content too, beside it: raises TakenError with its name. Raises OSError, which names `file`.
    """
    temporary, old = temporary_path(file), _status(file) if replace else None
    with naming(file, temporary):
        handle = _open_new(temporary, private=old is not None)
    try:
        with suppress(OSError):  # a disk without locks: what a killed process leaves stays
            lock(handle)
        taken: list[TakenError] = []
        try:
            yield Output(handle, file, temporary)
        except TakenError as error:  # the name of another output of the block, which has done its work
            taken.append(error)
        with naming(file, temporary):
            handle.flush()
            if replace and (old := _status(file) or old):
                _take_permissions(handle, old)
            sync(handle.fileno())
            if not OPEN_FILES_MOVE:
                handle.close()
            try:
                _publish(temporary, file, replace=replace)
            except TakenError as error:
                taken.append(error)
            sync_folder(file.parent)
    except BaseException:
        _close(handle)
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    finally:
        _close(handle)
    if taken:
        raise TakenError("; ".join(map(str, taken)))


@contextmanager
def naming(file: Path | str, temporary: Path | None = None) -> Iterator[None]:
    """Let an OSError that names no file, or the temporary one, name `file`."""
    try:
        yield
    except OSError as error:
        if error.filename is None or error.filename == str(temporary):
            error.filename, error.filename2 = str(file), None
        raise


@contextmanager
def _writing_new(file: Path) -> Iterator[BinaryIO]:
    with file.open("xb") as handle:
        try:
            yield handle
            handle.flush()
            sync(handle.fileno())
        except BaseException:
            _close(handle)
            raise


def _close(handle: BinaryIO) -> None:
    with suppress(OSError):  # of what could not be written, which would hide why not
        handle.close()


def _open_new(file: Path, *, private: bool) -> BinaryIO:
    """Opens a new file; with `private`, it is readable by this user only, whatever the umask."""
    if not private:
        return file.open("xb")
    return open(file, "xb", opener=partial(os.open, mode=0o600))


def _status(file: Path) -> os.stat_result | None:
    try:
        return os.stat(file)
    except FileNotFoundError:
        return None


def _take_permissions(handle: BinaryIO, old: os.stat_result) -> None:
    """Give a new file the group, owner and permissions of an old one.

    Where the group has to be another, it may do no more than everybody may. Windows has neither.
    """
    if not hasattr(os, "fchown"):
        return
    own, mode = os.fstat(handle.fileno()), stat.S_IMODE(old.st_mode) & 0o777
    if old.st_gid != own.st_gid:
        try:
            os.fchown(handle.fileno(), -1, old.st_gid)
        except OSError:
            mode &= 0o707 | (mode & 0o007) << 3
    with suppress(OSError):  # only root may give a file away, and some disks keep no permissions
        if old.st_uid != own.st_uid:
            os.fchown(handle.fileno(), old.st_uid, -1)
    with suppress(OSError):
        os.fchmod(handle.fileno(), mode)


# ---- Names


def _publish(temporary: Path, file: Path, *, replace: bool) -> None:
    """Let `temporary` become `file`. Without `replace`, raises TakenError where that is there, and keeps both."""
    if replace:
        rename(temporary, file)
        return
    try:
        move_to_free(temporary, file)
    except FileExistsError:
        raise TakenError(
            f"{file}: has appeared while this command ran, and was not replaced. The result is kept as"
            f" {keep_beside(temporary, file)}; compare the two and remove one"
        ) from None


def keep_beside(temporary: Path, path: Path) -> Path:
    """Give `temporary`, which cannot become `path`, a free name derived from `path`. Raises OSError."""
    for number in count(1):
        kept = sibling(path, f".kept-{number}")
        with suppress(FileExistsError):
            move_to_free(temporary, kept)
            return kept
    raise AssertionError


def move_to_free(source: Path, target: Path) -> None:
    """Rename `source` to `target` in the same folder. Raises FileExistsError where that is there, always.

    A hard link is made only where its name is free; a rename does not check that. Without hard links, renameat2 does,
    where the system has it. Else an empty file takes the name until the rename; a kill between the two leaves it.
    """
    if source.is_dir():
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
        rename(source, target)  # which replaces no file with a folder, and no folder that holds anything
        return
    try:
        os.link(source, target)
    except FileExistsError:
        if os.lstat(source).st_nlink < 2 or not os.path.samefile(source, target):
            raise
        # The link was made, and the reply of a network disk was lost.
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if not _rename_to_free(source, target):
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            try:
                source.replace(target)
            except BaseException:
                target.unlink()
                raise
        return
    source.unlink()


def _rename_to_free(source: Path, target: Path) -> bool:
    """Rename where `target` is free; False where the system or the file system has no such call. Raises OSError."""
    if not OPEN_FILES_MOVE:
        source.rename(target)  # which replaces nothing on Windows
        return True
    renameat2 = c_function("renameat2")
    if renameat2 is None:
        return False
    import ctypes

    names = os.fsencode(source), os.fsencode(target)
    if renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_NOREPLACE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
        return False
    raise OSError(code, os.strerror(code), str(source), None, str(target))


def sibling(path: Path, mark: str) -> Path:
    """`path` with `mark` before its ending; its name is cut where it would be too long."""
    stem, ending = path.stem, path.suffix
    if len(os.fsencode(ending)) > 32:  # no ending, but a long name with a dot
        stem, ending = path.name, ""
    while len(os.fsencode(f"{stem}{mark}{ending}")) > NAME_MAX:
        stem = stem[:-1]
    return path.with_name(f"{stem}{mark}{ending}")


def atomic_symlink(link: Path, target: str) -> None:
    """Make `link` a symbolic link to `target`, which is relative to its folder; an old link is replaced at once.

    Where links are not permitted, as to most users of Windows, it is a file of one line, which `follow` reads.
    """
    # Named after the target, not the process, so that the next link to it removes what a killed process left.
    temporary = link.with_name(f"{_mark(f'{link.name}/{Path(target).name}')}link.tmp")
    temporary.unlink(missing_ok=True)
    if link.is_symlink() and os.readlink(link) == target:
        return
    try:
        temporary.symlink_to(os.path.normpath(target), target_is_directory=True)
    except (OSError, NotImplementedError) as error:
        if isinstance(error, OSError) and error.errno not in _NO_LINKS:
            raise
        write_new(temporary, [f"{_LINK}{Path(target).as_posix()}\n".encode()])
    try:
        rename(temporary, link)
    except PermissionError:  # Windows replaces no link to a folder
        link.unlink()
        rename(temporary, link)
    sync_folder(link.parent)


def follow(path: Path) -> Path:
    """`path`, with what `atomic_symlink` has written instead of links replaced by where they lead."""
    for place in (path, *path.parents):
        target = _target_of(place)
        if target is not None:
            return follow(place.parent / target / path.relative_to(place))
    return path


def _target_of(place: Path) -> str | None:
    try:
        if not place.is_file() or place.stat().st_size > _LONGEST_LINK:
            return None
        text = place.read_bytes().decode()
    except (OSError, ValueError):
        return None
    target = text.removeprefix(_LINK).strip()
    is_below = text.startswith(_LINK) and ".." not in target.split("/") and not Path(target).anchor
    return target if is_below and (place.parent / target).is_dir() else None


def remove_leftovers(path: Path) -> None:
    """Remove what killed processes left of a file or a folder while they wrote it."""
    for leftover in path.parent.glob(f"{_mark(path.name)}*.tmp"):
        remove_unowned(leftover)


def remove_unowned(leftover: Path) -> None:
    """Remove a temporary file or folder, if it can be, unless the process that writes it holds its lock.

    It must be another process: a lock does not exclude its own process.
    """
    with suppress(OSError):
        if leftover.is_symlink():
            leftover.unlink()
        elif leftover.is_dir():
            with locked_folder(leftover):
                shutil.rmtree(leftover)
        elif OPEN_FILES_MOVE:
            with open(leftover, "ab", opener=open_no_link) as handle:
                lock(handle)
                leftover.unlink()
        else:
            leftover.unlink()  # which fails while a process has it open


def temporary_path(path: Path) -> Path:
    """A new hidden name in the same folder for a file that will become `path`; short, however long `path` is."""
    return path.with_name(f"{_mark(path.name)}{os.urandom(4).hex()}.tmp")


def _mark(name: str) -> str:
    """The prefix of temporary names for `name`."""
    return f".tfm-{hashlib.sha256(os.fsencode(name)).hexdigest()[:12]}."


def open_own(file: Path) -> TextIOWrapper:
    """Append to `file`, which is made if it is not there. Raises OSError for a link or a pipe.

    In a folder that others can write to, they could redirect or block the write with one.
    """
    return open(file, "a", encoding="utf-8", newline="\n", opener=open_no_link)


def open_no_link(path: str, flags: int) -> int:
    """An `opener` for `open` that follows no link and waits for no pipe."""
    return os.open(path, flags | NO_LINK, 0o666)


def make_folder(folder: Path) -> None:
    """Make `folder`, and those that it lies in, through to the disk; it may be there already. Raises OSError."""
    if not folder.parent.is_dir():
        make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock file `path` against all other processes; False on a disk without locks, where nothing is held.

    Without `wait`, raises BlockingIOError while another process holds it. It does not keep a process from itself.
    """
    while True:
        with open(path, "ab", opener=open_no_link) as file:
            is_held = _lock(file, path, wait=wait)
            if _is_at(file, path):
                yield is_held
                return


def _is_at(file: BinaryIO, path: Path) -> bool:
    """Whether `path` still names the open `file`: who held the lock may have removed it meanwhile."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _lock(file: BinaryIO, path: Path, *, wait: bool) -> bool:
    try:
        lock(file)
    except (BlockingIOError, PermissionError) as error:  # POSIX allows either error for a lock that is held
        if not wait:
            raise BlockingIOError(error.errno, "held by another process", str(path)) from None
        LOGGER.info("%s: held by another process; waiting for it", path)
        lock(file, wait=True)
    except OSError:
        return False
    return True
