"""`export.json`, which lists what an export was made from and the SHA-256 of its files: read without torch."""

import hashlib
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from transformer_cli.data.hashes import file_sha256
from transformer_cli.errors import CheckpointError, EnvironmentFault, quoted
from transformer_cli.models.header import MALFORMED, is_whole, read_json
from transformer_cli.models.locate import EXPORT_FILE
from transformer_cli.version import __version__

EXPORT_FORMAT = 1
_LARGEST = 1 << 26  # bytes of an export.json, which may come from anybody
_AT_A_TIME = 1 << 22


def check_format(facts: Mapping[str, Any], place: Path) -> None:
    """Raises ValueError, and CheckpointError for what a newer tfm wrote."""
    if not is_whole(facts["format"], least=1):
        raise ValueError(f"format is {facts['format']!r}")
    if facts["format"] > EXPORT_FORMAT:
        raise CheckpointError(
            f"{place}: written in format {facts['format']} by a newer tfm; this is {__version__}. Install that"
        )


def check_hashes(directory: Path, hashes: Mapping[str, str], again: str) -> None:
    """Raises CheckpointError for a file of the export that is gone, or is not the one that was written."""
    for name, expected in hashes.items():
        file = directory / name
        parts = PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts or str(parts) != name or name.startswith("/"):
            raise ValueError(f"{name} is no file of the folder")
        if not file.is_file():
            raise CheckpointError(f"{file}: is missing or not a plain file. {again}")
        if (found := file_sha256(file)) != expected:
            raise CheckpointError(
                f"{file}: is not the file that was exported: its SHA-256 is {found[:12]}…, not"
                f" {str(expected)[:12]}…. {again}"
            )


def export_facts(place: Path) -> dict[str, Any]:
    """The facts of a folder or an archive of `tfm export`, its files checked. Raises CheckpointError."""
    again = "Write it again with `tfm export`"
    try:
        if place.is_dir():
            file = place / EXPORT_FILE
            facts = dict(read_json(file.read_bytes(), file))
            check_format(facts, place)
            check_hashes(place, facts["files"], again)
            return facts
        facts, hashes = read_archive(place)
        check_format(facts, place)
        if differing := sorted({name for name, _ in facts["files"].items() ^ hashes.items()}):
            raise CheckpointError(f"{place}: its {differing[0]} is not what was exported. {again}")
        return facts
    except OSError as error:
        raise EnvironmentFault(
            f"{error.filename or place}: {error.strerror}. Check the disk and the file's permissions"
        ) from error
    except (zipfile.BadZipFile, NotImplementedError, EOFError, *MALFORMED) as error:
        raise CheckpointError(f"{place}: damaged ({quoted(f'{type(error).__name__}: {error}')}). {again}") from error


def is_archive(path: Path) -> bool:
    return path.is_file() and zipfile.is_zipfile(path)


def read_archive(file: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """export.json of an archive, and the SHA-256 of its other files, by their names within its one folder.

    Raises ValueError, BadZipFile and the like for what is no archive of ours.
    """
    hashes: dict[str, str] = {}
    facts: dict[str, Any] | None = None
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            name = member.filename.partition("/")[2]
            if member.compress_type != zipfile.ZIP_STORED:  # ours are; so nothing small can become large
                raise ValueError(f"{name} is compressed")
            with archive.open(member) as content:
                if name == EXPORT_FILE:
                    facts = dict(read_json(content.read(_LARGEST), file))
                    continue
                digest = hashlib.sha256()
                while part := content.read(_AT_A_TIME):
                    digest.update(part)
                hashes[name] = digest.hexdigest()
    if facts is None:
        raise ValueError(f"holds no {EXPORT_FILE}")
    return facts, hashes


def is_unchanged_archive(file: Path) -> bool:
    """Whether `file` is an archive that an export of ours wrote, as it wrote it."""
    try:
        facts, hashes = read_archive(file)
        return dict(facts["files"]) == hashes
    except (OSError, CheckpointError, zipfile.BadZipFile, NotImplementedError, EOFError, *MALFORMED):
        return False


def listed_files(directory: Path) -> dict[str, str]:
    """SHA-256 of each file in a folder and below it, by its name from there, in order."""
    return {path.relative_to(directory).as_posix(): file_sha256(path) for path in below(directory) if path.is_file()}


def below(directory: Path) -> Iterator[Path]:
    """Everything in a folder and its folders, in order. Raises OSError where rglob passes over a folder."""
    for path in sorted(directory.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from below(path)


def written_files(directory: Path) -> dict[str, str]:
    """What the export.json of a folder lists, itself included; nothing where it has none that can be read."""
    file = directory / EXPORT_FILE
    if not file.is_file():  # a pipe would keep us waiting
        return {}
    try:
        return dict(json.loads(file.read_bytes())["files"]) | {EXPORT_FILE: file_sha256(file)}
    except MALFORMED:
        return {}
