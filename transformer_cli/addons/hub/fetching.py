"""Fetches a model of the hub: downloads it, imports it once, verified as `tfm import` verifies, and keeps it."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from transformer_cli.addons.hub.client import CommitFiles, download, listing_of
from transformer_cli.addons.hub.kept import Kept, all_kept, hub_folder
from transformer_cli.addons.hub.names import SCHEME, HubName, shortened
from transformer_cli.addons.interop.importing import files_of_format, import_model, read
from transformer_cli.addons.interop.kept_imports import N_IMPORT_LINES
from transformer_cli.addons.interop.registries import READING
from transformer_cli.config.shared import ENGINES
from transformer_cli.errors import CheckpointError, TfmError
from transformer_cli.files import remove_leftovers, temporary_path
from transformer_cli.logs import LOGGER
from transformer_cli.models.header import MODEL_FILE
from transformer_cli.models.locate import EXPORT_FILE, exported_for, is_own_model
from transformer_cli.system import rename, sync_folder


def keep(name: HubName, wanted: HubName) -> Kept:
    """Fetch the commit that `wanted` names, and keep it under `name`. Raises TfmError, and then keeps nothing."""
    listing = listing_of(wanted, hub_folder())
    folder = name.folder(listing.commit)
    known: dict[str, Any] = {"license": listing.license, "languages": list(listing.languages)}
    for other in all_kept():
        is_same = (other.hub_name.repository, other.commit) == (name.repository, listing.commit)
        if is_same and other.is_whole(READING):
            kept = replace(other, name=name.text, fetched=_now())
            kept.write()
            return kept
    target = hub_folder() / folder
    remove_leftovers(target)
    with fetched(wanted, name, None, listing) as source:
        made = temporary_path(target)
        try:
            made.mkdir()
            reading = _fill(made, source)
            files = {
                path.relative_to(made).as_posix(): path.stat().st_size for path in made.rglob("*") if path.is_file()
            }
            for file in files:  # others may have put more into the folder, as translations of `tfm evaluate`
                (target / file).parent.mkdir(parents=True, exist_ok=True)
                rename(made / file, target / file)
            sync_folder(target)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    kept = Kept(name.text, listing.commit, folder, files, reading, _now(), **known)
    kept.write()
    return kept


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class Fetched:
    """The files of a repository in a folder that is called like it, of links into the cache of huggingface_hub."""

    name: HubName
    view: Path
    provenance: dict[str, Any]


@contextmanager
def fetched(
    wanted: HubName, name: HubName, format_name: str | None, listing: CommitFiles | None = None
) -> Iterator[Fetched]:
    """The files that are needed of what `wanted` names. Errors in the block are of `name`, not of that folder."""
    listing = listing_of(wanted, hub_folder()) if listing is None else listing
    files = needed(name, list(listing.files), format_name)
    place = hub_folder() / f"{name.folder(listing.commit)}.files"
    remove_leftovers(place)
    folder = temporary_path(place)
    view = folder / name.title
    try:
        n_bytes = download(name, listing, files, view, hub_folder())
        LOGGER.info(
            "%s: commit %s, %d of its %d files, %s bytes",
            *(name, shortened(listing.commit), len(files), len(listing.files), f"{n_bytes:,}"),
        )
        yield Fetched(name, view, _provenance(name, listing))
    except TfmError as error:
        error.args = (str(error).replace(str(view), str(name)),)
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def needed(name: HubName, files: Sequence[str], format_name: str | None) -> list[str]:
    """The files of a repository that are read, as the importer of their format says. Raises CheckpointError."""
    if EXPORT_FILE in files:  # it lists all others with their hashes
        return [file for file in files if not file.startswith(".")]
    if found := files_of_format(files, format_name):
        return found
    if MODEL_FILE in files and format_name is None:
        return [MODEL_FILE]
    raise CheckpointError(
        f"{name}: holds no model of {format_name or 'a format that tfm reads'} ({', '.join(sorted(files)[:5])}). Choose"
        " another"
    )


def _provenance(name: HubName, listing: CommitFiles) -> dict[str, Any]:
    found: dict[str, Any] = {
        "origin": f"{SCHEME}:{name.repository}, commit {listing.commit}",
        "base_model": name.repository,
    }
    found |= {"license": listing.license} if listing.license else {}
    return found | ({"languages": list(listing.languages)} if listing.languages else {})


def _fill(folder: Path, source: Fetched) -> int:
    """Put what is kept into a new folder; the result is the version of the readers where it is an import, else 0."""
    view = source.view
    is_run = exported_for(view) in ENGINES.names()
    if is_run or is_own_model(view):
        for path in sorted(view.rglob("*")):
            if path.is_file():
                target = folder / path.relative_to(view)
                target.parent.mkdir(parents=True, exist_ok=True)
                _link_or_copy(path, target)
        return 0
    imported = read(view).with_provenance(source.provenance)
    import_model(imported, folder / MODEL_FILE, origin=view, n_made_up=N_IMPORT_LINES)
    LOGGER.info(
        "%s: imported once; says the same in %s on %d lines", *(source.name, imported.program_name, N_IMPORT_LINES)
    )
    return READING


def _link_or_copy(path: Path, target: Path) -> None:
    try:
        os.link(os.path.realpath(path), target)
    except (OSError, NotImplementedError):  # on another disk
        shutil.copyfile(path, target)
