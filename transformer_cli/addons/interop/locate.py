"""Which model file a `--checkpoint` means, where it may name another program's model: imported once, and kept.

The file of an imported model lies beside the original, in `.tfm`; of an export of ours, and in a folder that cannot be
written, in the user's cache. Its name has the SHA-256 of all that it was read from, and of the version that read it.
"""

import hashlib
import os
from pathlib import Path

from transformer_cli import __version__
from transformer_cli.errors import CheckpointError
from transformer_cli.files import follow, locked, make_folder, wrap_os_errors
from transformer_cli.logs import LOGGER
from transformer_cli.models import locate
from transformer_cli.models.header import read_header

FOLDER, CACHE = ".tfm", "imported"
READING = 2  # raised when a reader reads otherwise, so that what an earlier one has read is read again
N_LINES = 16  # that a model is compared on
_OURS = b'{"__metadata__":{"tfm":'  # after eight bytes with a length


def locate_models(checkpoint: str | list[str] | None, runs: str) -> list[Path]:
    """The model file of each that `--checkpoint` names: several are an ensemble."""
    names = checkpoint if isinstance(checkpoint, list) else [checkpoint]
    return [locate_model(name, runs) for name in names]


def locate_model(checkpoint: str | None, runs: str) -> Path:
    """As `models.locate.locate_model`; of a foreign model, the file that it is imported into, the first time now.

    Raises TfmError where that cannot be, or where the import would not predict what the original does.
    """
    if checkpoint is not None:
        path = follow(Path(checkpoint))
        if path.exists() and not is_ours(path):
            from transformer_cli.addons.interop.importing import (
                format_of,  # and all readers, which our own files do not need
            )

            if (name := format_of(path)) is not None:
                return imported_file(path, name)
    return locate.locate_model(checkpoint, runs)


def named(checkpoint: str | list[str] | None, path: Path) -> Path:
    """What the user has named where the (first) model file, `path`, is an import that is kept; else the file."""
    first = checkpoint[0] if isinstance(checkpoint, list) else checkpoint
    if first is None or path.parent.name not in (FOLDER, CACHE):
        return path
    origin = follow(Path(first)).resolve()
    return path if is_ours(origin) else origin


def is_whole(kept: Path) -> bool:
    """Whether an import that was kept is there and undamaged; a damaged one is made again."""
    if not kept.is_file():
        return False
    try:
        read_header(kept)
    except CheckpointError as error:
        LOGGER.warning("%s; it is made again", str(error).partition(". ")[0])
        return False
    return True


def is_ours(path: Path) -> bool:
    """Whether a file begins as our model files do, or a folder holds one."""
    file = locate.model_in(path) if path.is_dir() else path
    if file is None or not file.is_file():
        return False
    try:
        with file.open("rb") as content:
            return content.read(8 + len(_OURS)).endswith(_OURS)
    except OSError:
        return True  # and refused where it is read


def imported_file(path: Path, format_name: str) -> Path:
    """The model file of a foreign model; it is made if it is missing, and those of earlier versions are removed."""
    from transformer_cli.addons.interop.conversions import user_cache
    from transformer_cli.addons.interop.exported import sha256_of
    from transformer_cli.addons.interop.importing import import_model, read

    path = path.resolve()
    imported = read(path, format_name)
    digest = hashlib.sha256(f"{__version__} {READING}\n".encode())
    for file in imported.files:
        digest.update(f"{file.name}\0{sha256_of(file)}\n".encode())
    stem = path.name
    name = f"{stem}-{digest.hexdigest()[:16]}.safetensors"
    home = path if path.is_dir() else path.parent
    beside = home / FOLDER
    if is_whole(beside / name):
        return beside / name
    is_writable = os.access(beside if beside.is_dir() else home, os.W_OK | os.X_OK)
    # The files of an export are listed in it, and others are in the way of the next one.
    folder = beside if is_writable and not (home / locate.EXPORT_FILE).exists() else user_cache().parent / CACHE
    output = folder / name
    with wrap_os_errors(folder, "keep the imported model"):
        make_folder(folder)
        with locked(folder / "lock"):
            if is_whole(output):  # as nearly always in the user's cache, or made by another process meanwhile
                return output
            import_model(imported, output, origin=path, n_made_up=N_LINES, replace=True)
            LOGGER.info(
                "%s: imported once, into %s; says the same in %s on %d lines",
                *(path, output, imported.program_name, N_LINES),
            )
            for old in folder.glob("*.safetensors"):
                if old != output and old.name.rpartition("-")[0] == stem and folder == beside:
                    old.unlink()
    return output
