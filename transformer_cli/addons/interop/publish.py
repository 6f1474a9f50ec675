"""The directory of an export: whole or absent, and never in the place of something that is not one.

`export.json` lists what it was made from, the versions, how it was verified, and the SHA-256 of its files.
"""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any

from transformer_cli import system
from transformer_cli.addons.interop.export_file import (
    below,
    is_unchanged_archive,
    listed_files,
    written_files,
)
from transformer_cli.data.hashes import file_sha256
from transformer_cli.errors import ConfigError, EnvironmentFault, TakenError
from transformer_cli.files import (
    Output,
    keep_beside,
    remove_leftovers,
    sibling,
    temporary_path,
    wrap_os_errors,
    write_new,
    writing_whole,
)
from transformer_cli.logs import LOGGER
from transformer_cli.models.locate import EXPORT_FILE
from transformer_cli.system import locked_folder, rename, sync_folder


def check_destination(directory: Path, *, overwrite: bool, is_file: bool = False) -> None:
    """Refuse what cannot become an export, a folder or one file, before time is spent on one."""
    try:
        str(directory.absolute()).encode()
    except UnicodeEncodeError as error:  # of bytes that the system takes for a name
        raise ConfigError(
            f"{directory}: not UTF-8, which the libraries ask of names. Choose another --output"
        ) from error
    if is_file:
        _check_file(directory, overwrite=overwrite)
    elif directory.exists() or directory.is_symlink():
        if not directory.is_dir() or directory.is_symlink():
            what = "a link" if directory.is_symlink() else "not a folder"
            raise ConfigError(f"{directory}: {what}. Choose another --output")
        if foreign := not_ours(directory):
            raise ConfigError(
                f"{directory}: is there, and holds {foreign[0]}, which no export of ours wrote like that."
                " Choose another --output"
            )
        if Path.cwd().is_relative_to(directory.resolve()):
            raise ConfigError(f"{directory}: is the folder that you are in. Choose another --output, or leave it")
        if not overwrite:
            raise ConfigError(f"{directory}: exists already. Add --overwrite, or choose another --output")
    if not directory.absolute().parent.is_dir():
        raise EnvironmentFault(f"{directory.parent}: no such folder. Create it, or choose another --output")
    if not os.access(directory.absolute().parent, os.W_OK | os.X_OK):
        raise EnvironmentFault(f"{directory.parent}: cannot be written. Check its permissions")


def not_ours(directory: Path) -> list[str]:
    """What lies in a folder beside the files that its export.json names, as it names them; all of it without one."""
    listed = written_files(directory)
    folders = {str(parent) for name in listed for parent in PurePosixPath(name).parents}

    def is_ours(path: Path, name: str) -> bool:
        if path.is_symlink():
            return False
        return name in folders if path.is_dir() else path.is_file() and listed.get(name) == file_sha256(path)

    names = [(path, path.relative_to(directory).as_posix()) for path in below(directory)]
    return [name for path, name in names if not is_ours(path, name)]


def _check_file(file: Path, *, overwrite: bool) -> None:
    if not os.path.lexists(file):
        return
    if file.is_symlink() or not file.is_file():
        what = "a link" if file.is_symlink() else "not a plain file"
        raise ConfigError(f"{file}: {what}. Choose another --output")
    if not is_unchanged_archive(file):
        raise ConfigError(f"{file}: is there, and no export of ours wrote it like that. Choose another --output")
    if not overwrite:
        raise ConfigError(f"{file}: exists already. Add --overwrite, or choose another --output")


Pack = Callable[[Path, Output], None]  # a folder, and the file that it is written into


@contextmanager
def publishing(
    directory: Path, facts: dict[str, Any], *, overwrite: bool = False, pack: Pack | None = None
) -> Iterator[Path]:
    """A folder to write the export into; it becomes `directory`, with `facts` in it, if the block ends well.

    With `pack`, what it makes of the folder becomes the file `directory`.
    Raises EnvironmentFault, and TakenError for what has come there meanwhile: the export is then kept beside it. A
    block that ends otherwise leaves no trace.
    """
    temporary = temporary_path(directory.absolute())
    with wrap_os_errors(directory, "save the export"), ExitStack() as held:
        remove_leftovers(directory.absolute())
        try:
            temporary.mkdir()
            with suppress(OSError):  # a disk without locks: what a killed process leaves stays
                held.enter_context(locked_folder(temporary))
            yield temporary
            listed = {"files": listed_files(temporary)}
            content = json.dumps(facts | listed, indent=2, allow_nan=False) + "\n"  # a corpus may have any name
            write_new(temporary / EXPORT_FILE, [content.encode()])
            if pack is not None:
                check_destination(directory, overwrite=overwrite, is_file=True)
                with writing_whole(directory, replace=overwrite) as output:
                    pack(temporary, output)
                return
            for path in below(temporary):
                sync_folder(path) if path.is_dir() else _sync(path)
            sync_folder(temporary)
            try:
                check_destination(directory, overwrite=overwrite)
                put_in_place(temporary, directory, overwrite=overwrite)
            except ConfigError as error:
                kept = keep_beside(temporary, directory.absolute())
                raise TakenError(f"{error}; this export is kept as {directory.with_name(kept.name)}") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def put_in_place(new: Path, directory: Path, *, overwrite: bool) -> None:
    """Make `new` become `directory`. An earlier export is whole, there or beside it, until the new one is there.

    Raises OSError, EnvironmentFault where the earlier one has to stay beside, and ConfigError where something is there
    without `overwrite`.
    """
    places = (sibling(directory, f".old-{number}") for number in count(os.getpid()))
    old = next(place for place in places if not os.path.lexists(place))  # in a container all have one number
    try:
        if overwrite and directory.exists():
            rename(directory, old)
        try:
            rename(new, directory)  # which replaces no file, and no folder that holds anything
        except OSError as error:
            if overwrite or error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
            raise ConfigError(f"{directory}: has appeared meanwhile. Choose another --output") from error
        sync_folder(directory.absolute().parent)
    except BaseException:
        put_back(new, directory, old)
        raise
    if old.exists():
        remove(old)


def put_back(new: Path, directory: Path, old: Path) -> None:
    """Undo what `put_in_place` has done so far, or raise EnvironmentFault."""
    why = f"{directory} is there again"
    try:
        if not new.exists():  # in its place, but a power cut could undo that
            rename(directory, new)
        if old.exists() and not directory.exists():
            rename(old, directory)
    except OSError as error:
        why = str(error.strerror)
    if old.exists():
        raise EnvironmentFault(
            f"{old}: holds the earlier export, which cannot be put back: {why}. Rename it to {directory}"
        )


def remove(old: Path) -> None:
    """An export that was replaced, unless somebody has put something into it."""
    try:
        if foreign := not_ours(old):
            LOGGER.warning("%s: kept, as it holds %s, which no export of ours wrote", old, foreign[0])
        else:
            shutil.rmtree(old)
    except OSError as error:
        LOGGER.warning("%s: the export that was replaced cannot be removed (%s)", old, error.strerror)


def _sync(file: Path) -> None:
    """Flushes a file through to the disk, whichever program wrote it."""
    with file.open("r+b") as handle:  # Windows syncs no file that was opened for reading alone
        system.sync(handle.fileno())
