"""The models of the hub that are kept here: in a folder each, with a small record of each name that was used.

A name keeps the commit that it had when it was first used. The time of the record's file is that of its last use.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from transformer_cli.addons.hub.names import HubName, read_name
from transformer_cli.config.shared import ENGINES
from transformer_cli.environment import user_cache
from transformer_cli.errors import ConfigError
from transformer_cli.files import temporary_path, write_whole
from transformer_cli.models.header import MODEL_FILE
from transformer_cli.system import rename

_RECORD_VERSION = 1


def hub_folder() -> Path:
    """The folder of the kept models, in the user's cache."""
    return user_cache() / "hub"


@dataclass(frozen=True)
class Kept:
    """A model that is kept under a name."""

    name: str  # without the scheme
    commit: str
    folder: str
    files: dict[str, int]  # of the folder, with their sizes
    reading: int  # the version of the readers that an import was made by; 0: it is as it was published
    fetched: str  # when, as ISO 8601
    license: str | None = None
    languages: Sequence[str] = field(default_factory=list)

    @property
    def hub_name(self) -> HubName:
        return read_name(self.name)

    @property
    def record(self) -> Path:
        return hub_folder() / self.hub_name.record

    @property
    def place(self) -> Path:
        """The model file, or the folder of an export."""
        folder = hub_folder() / self.folder
        return folder / MODEL_FILE if set(self.files) == {MODEL_FILE} else folder

    @property
    def n_bytes(self) -> int:
        return sum(self.files.values())

    def is_whole(self, reading: int) -> bool:
        folder = hub_folder() / self.folder
        try:
            sizes = {name: (folder / name).stat().st_size for name in self.files}
        except OSError:
            return False
        return sizes == self.files and self.reading in (0, reading)

    def write(self) -> None:
        write_whole(self.record, json.dumps({"version": _RECORD_VERSION, **asdict(self)}, indent=2).encode() + b"\n")

    def used_now(self) -> None:
        with suppress(OSError):  # a cache that cannot be written
            os.utime(self.record)


def find(name: HubName) -> Kept | None:
    """The model that is kept under a name, whole or not; None where there is none."""
    return _read(hub_folder() / name.record)


def all_kept() -> list[Kept]:
    return [kept for path in sorted(hub_folder().glob("*.json")) if (kept := _read(path)) is not None]


def _read(path: Path) -> Kept | None:
    try:
        record: Mapping[str, Any] = json.loads(path.read_bytes())
        if record["version"] != _RECORD_VERSION:
            return None
        kept = Kept(**{key: value for key, value in record.items() if key != "version"})
        # A record may have been copied from elsewhere, and what it names is removed with it.
        is_own = kept.folder == kept.hub_name.folder(kept.commit) and kept.hub_name.record == path.name
        return kept if is_own and all(map(_is_inside, kept.files)) else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, ConfigError):
        return None


def _is_inside(name: str) -> bool:
    path = Path(name)
    return bool(path.parts) and not path.anchor and ".." not in path.parts


def remove_record(kept: Kept) -> list[Path]:
    """Remove what is kept under a name; nothing where that fails. The result is what others put there, and stays."""
    if _is_shared(kept, but=kept.record):
        kept.record.unlink(missing_ok=True)
        return []
    with _moved_aside(kept):
        kept.record.unlink(missing_ok=True)
    return _remove_conversions(kept)


def remove_unnamed(kept: Kept) -> list[Path]:
    """Remove the files of a model, unless they are kept under a name. The result is as that of `remove_record`."""
    if _is_shared(kept):
        return []
    with _moved_aside(kept):
        pass
    return _remove_conversions(kept)


def _is_shared(kept: Kept, *, but: Path | None = None) -> bool:
    """Whether the folder of a model is kept under a name, or under another than that of the record `but`."""
    return any(other.folder == kept.folder and other.record != but for other in all_kept())


@contextmanager
def _moved_aside(kept: Kept) -> Iterator[None]:
    """Remove the files of a model after the block; an error in it, or a file that cannot go, brings all back.

    Processes that have the model open go on with it, where the system has no objection.
    """
    folder = hub_folder() / kept.folder
    aside = temporary_path(folder)
    moved: list[str] = []
    try:
        for name in kept.files:
            if (folder / name).is_file():
                (aside / name).parent.mkdir(parents=True, exist_ok=True)
                rename(folder / name, aside / name)
                moved.append(name)
        yield
    except BaseException:
        for name in moved:
            with suppress(OSError):
                rename(aside / name, folder / name)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _remove_conversions(kept: Kept) -> list[Path]:
    """Remove what the model was converted into, and empty folders; the result is what is left."""
    folder = hub_folder() / kept.folder
    for engine in ENGINES.names():
        for conversions in folder.glob(f".{engine}"):
            shutil.rmtree(conversions, ignore_errors=True)
    below = sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True)
    for one in [*below, folder]:
        with suppress(OSError):
            one.rmdir()
    return sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
