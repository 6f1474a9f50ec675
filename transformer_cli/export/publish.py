"""The directory of an export: whole or absent, and never in the place of something that is not one.

`export.json` tells what it was made from, by which versions, how it was verified, and which files are ours: their
SHA-256.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformer_cli.decoding.exported import EXPORT_FILE, sha256_of
from transformer_cli.errors import ConfigError, EnvironmentFault
from transformer_cli.files import faults, sync_folder, write_new


def check(directory: Path, *, overwrite: bool) -> None:
    """Refuse what cannot become an export, before time is spent on one."""
    if directory.exists() or directory.is_symlink():
        if not directory.is_dir() or directory.is_symlink():
            raise ConfigError(f"{directory}: not a folder. Choose another --output")
        if foreign := not_ours(directory):
            raise ConfigError(
                f"{directory}: is there, and holds {foreign[0]}, which no export of ours wrote. Choose another --output"
            )
        if not overwrite:
            raise ConfigError(f"{directory}: exists already. Add --overwrite, or choose another --output")
    if not directory.absolute().parent.is_dir():
        raise EnvironmentFault(f"{directory.parent}: no such folder. Create it, or choose another --output")
    if not os.access(directory.absolute().parent, os.W_OK | os.X_OK):
        raise EnvironmentFault(f"{directory.parent}: cannot be written. Check its permissions")


def not_ours(directory: Path) -> list[str]:
    """What lies in a folder beside the files that its export.json names; all of it where there is none."""
    found = sorted(path.name for path in directory.iterdir())
    try:
        listed = json.loads((directory / EXPORT_FILE).read_bytes())["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return found
    return [name for name in found if name not in (*(listed if isinstance(listed, dict) else ()), EXPORT_FILE)]


@contextmanager
def publishing(directory: Path, facts: dict[str, Any]) -> Iterator[Path]:
    """A folder to write the export into; it becomes `directory`, with `facts` in it, if the block ends well.

    Raises EnvironmentFault. A block that ends otherwise leaves no trace.
    """
    temporary = directory.absolute().with_name(f".{directory.name}.{os.getpid()}.tmp")
    old = temporary.with_suffix(".old")
    try:
        with faults(directory, "save the export"):
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            yield temporary
            listed = {"files": {path.name: sha256_of(path) for path in sorted(temporary.iterdir())}}
            content = json.dumps(facts | listed, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
            write_new(temporary / EXPORT_FILE, [content.encode()])
            for file in temporary.iterdir():
                sync(file)
            sync_folder(temporary)
            if directory.exists():
                directory.rename(old)
            temporary.rename(directory.absolute())
            sync_folder(temporary.parent)
    except BaseException:
        if old.exists() and not directory.exists():
            old.rename(directory)
        raise
    finally:
        for leftover in (temporary, old):
            shutil.rmtree(leftover, ignore_errors=True)


def sync(file: Path) -> None:
    """Through to the disk, whoever wrote it."""
    with file.open("rb") as handle:
        os.fsync(handle.fileno())
