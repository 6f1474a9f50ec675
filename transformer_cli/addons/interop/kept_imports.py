"""Models of other programs that a `--checkpoint` names: each is imported once, and the file is kept.

The file lies beside the original, in `.tfm`; of an export of ours, and in a folder that cannot be written, in the
user's cache. Its name has the SHA-256 of all that it was read from, and of the version that read it.
"""

import hashlib
import os
from pathlib import Path

from transformer_cli.addons.interop.importing import format_of, import_model, read
from transformer_cli.addons.interop.registries import IMPORTED, READING
from transformer_cli.data.hashes import file_sha256
from transformer_cli.environment import user_cache
from transformer_cli.errors import CheckpointError
from transformer_cli.files import locked, make_folder, wrap_os_errors
from transformer_cli.logs import LOGGER
from transformer_cli.models.header import read_header
from transformer_cli.models.locate import EXPORT_FILE
from transformer_cli.version import __version__

FOLDER = ".tfm"
N_IMPORT_LINES = 16  # that a model is compared on


def _is_whole(kept: Path) -> bool:
    """Whether an import that was kept is there and undamaged; a damaged one is made again."""
    if not kept.is_file():
        return False
    try:
        read_header(kept)
    except CheckpointError as error:
        LOGGER.warning("%s; it is made again", str(error).partition(". ")[0])
        return False
    return True


def imported_file(path: Path) -> Path | None:
    """The model file of a foreign model, or None of what no reader recognises.

    It is made if it is missing, and those of earlier versions are removed.
    """
    if (format_name := format_of(path)) is None:
        return None
    path = path.resolve()
    imported = read(path, format_name)
    digest = hashlib.sha256(f"{__version__} {READING}\n".encode())
    for file in imported.files:
        digest.update(f"{file.name}\0{file_sha256(file)}\n".encode())
    stem = path.name
    name = f"{stem}-{digest.hexdigest()[:16]}.safetensors"
    home = path if path.is_dir() else path.parent
    beside = home / FOLDER
    if _is_whole(beside / name):
        return beside / name
    is_writable = os.access(beside if beside.is_dir() else home, os.W_OK | os.X_OK)
    # The files of an export are listed in it, and others are in the way of the next one.
    folder = beside if is_writable and not (home / EXPORT_FILE).exists() else user_cache() / IMPORTED
    output = folder / name
    with wrap_os_errors(folder, "keep the imported model"):
        make_folder(folder)
        with locked(folder / "lock"):
            if _is_whole(output):  # as nearly always in the user's cache, or made by another process meanwhile
                return output
            import_model(imported, output, origin=path, n_made_up=N_IMPORT_LINES, replace=True)
            LOGGER.info(
                "%s: imported once, into %s; says the same in %s on %d lines",
                *(path, output, imported.program_name, N_IMPORT_LINES),
            )
            for old in folder.glob("*.safetensors"):
                if old != output and old.name.rpartition("-")[0] == stem and folder == beside:
                    old.unlink()
    return output
