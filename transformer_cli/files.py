"""Files that are whole or absent, even after a crash or a power cut.

The order is always the same: write under another name, sync the file, rename it, sync the folder that names it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformer_cli.errors import EnvironmentFault


@contextmanager
def faults(path: Path, doing: str) -> Iterator[None]:
    """Turn an OSError into an EnvironmentFault that tells what could not be done, where and why."""
    try:
        yield
    except OSError as error:
        raise EnvironmentFault(
            f"{error.filename or path}: cannot {doing}: {error.strerror or error}."
            " Make room or repair it, then run the same command again"
        ) from error


def write_new(file: Path, content: bytes) -> None:
    """Write `file`, which must not exist, through to the disk. Raises OSError."""
    with file.open("xb") as handle:
        handle.write(content)
        handle.flush()
        os.fsync(handle.fileno())


def write_whole(file: Path, content: bytes) -> None:
    """Replace `file`: a reader, and a crash, find the old content or the new. Raises OSError."""
    temporary = beside(file)
    try:
        write_new(temporary, content)
        temporary.replace(file)
        sync_folder(file.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def point(link: Path, target: str) -> None:
    """Make `link` a symbolic link to `target`, which is relative to its folder; an old link is replaced at once."""
    if link.is_symlink() and os.readlink(link) == target:
        return
    temporary = beside(link)
    temporary.symlink_to(target)
    temporary.replace(link)
    sync_folder(link.parent)


def beside(file: Path) -> Path:
    """A hidden name in the same folder that no other process uses, free of what a dead one left."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    return temporary


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` survive a power cut. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
