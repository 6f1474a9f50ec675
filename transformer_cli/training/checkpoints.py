"""The checkpoint store: a save is whole or it is not there, and damage is found before it is used.

    <run>/checkpoints/step-00001000/   model.safetensors    what translating needs (models/file.py)
                                       optimizer.safetensors  the state of the optimizer, by parameter name
                                       state.json           counts, scores and settings of the run
                                       manifest.json        SHA-256 and size of the three
    <run>/best -> checkpoints/step-…

A save writes `.tmp-step-…`, syncs every file and the folder, renames it once, and syncs `checkpoints`. An older save of
the same step is `.old-step-…` for that moment. What is to be deleted is renamed to `.del-step-…` first, and what is
damaged to `.bad-step-…`. Order is by step: clocks jump.
"""

import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

import safetensors
from torch import Tensor

from transformer_cli.errors import CheckpointError, quoted
from transformer_cli.files import Chunk, atomic_symlink, make_folder, remove_unowned, wrap_os_errors, write_new
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import ModelFile, map_model, map_tensors, model_pieces, serialise
from transformer_cli.models.header import MALFORMED, MODEL_FILE, READABLE_SINCE, is_whole, read_json, whole
from transformer_cli.models.locate import LATEST, STATE_FILE
from transformer_cli.system import NO_LINK, rename, sync_folder
from transformer_cli.version import __version__

CHECKPOINT_FORMAT = 1
CHECKPOINTS_FOLDER = "checkpoints"
OPTIMIZER_FILE, MANIFEST_FILE = "optimizer.safetensors", "manifest.json"
FILES = (MODEL_FILE, OPTIMIZER_FILE, STATE_FILE)


@dataclass(frozen=True)
class Checkpoint:
    """All that training needs to go on as if it had never stopped. `state` is JSON."""

    step: int
    model: ModelFile
    optimizer: Mapping[str, Tensor]
    state: dict[str, Any]


class Damage(Exception):
    """Why a checkpoint is not what was written."""


class CheckpointStore:
    """The checkpoints of one run directory. One process at a time may use it."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.folder = run_dir / CHECKPOINTS_FOLDER

    def sweep(self) -> None:
        """Make the folder, and remove what a killed process left behind. Raises EnvironmentFault."""
        with wrap_os_errors(self.folder, "prepare the folder"):
            make_folder(self.folder)
            for old in self.folder.glob(".old-*"):
                name = old.name.removeprefix(".old-")
                rename(old, old.with_name(f".del-{name}" if old.with_name(name).exists() else name))
            for leftover in [*self.folder.glob(".tmp-*"), *self.folder.glob(".del-*")]:
                shutil.rmtree(leftover)
            for half_written in self.run_dir.glob(".*.tmp"):  # see files.temporary_path
                remove_unowned(half_written)

    def steps(self) -> list[int]:
        """Steps of the checkpoints, oldest first."""
        numbers = (path.name.removeprefix("step-") for path in self.folder.glob("step-*"))
        return sorted(int(number) for number in numbers if number.isdecimal())

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def save(self, checkpoint: Checkpoint) -> Path:
        """Publish a checkpoint; it is safe on the disk when this returns. Raises EnvironmentFault, leaving no trace."""
        final = self.path(checkpoint.step)
        temporary, old = self.folder / f".tmp-{final.name}", self.folder / f".old-{final.name}"
        files, size = _pack(checkpoint)
        with wrap_os_errors(final, "save"):
            free = shutil.disk_usage(self.folder).free
        with wrap_os_errors(final, f"save {size:,} bytes ({free:,} are free)"):
            try:
                temporary.mkdir()
                for name, pieces in files.items():
                    write_new(temporary / name, pieces)
                sync_folder(temporary)
                if final.exists():
                    rename(final, old)
                rename(temporary, final)
                sync_folder(self.folder)
            except BaseException:
                with suppress(OSError):
                    if old.exists() and not final.exists():
                        rename(old, final)
                shutil.rmtree(temporary, ignore_errors=True)
                raise
            with suppress(OSError):  # the new one is there; a later sweep finds the old one
                if old.exists():
                    self._delete(old)
        return final

    def newest(self) -> Checkpoint | None:
        """The newest sound checkpoint, or None where there has never been one.

        Damaged ones are named in a warning and set aside. Raises CheckpointError when all are damaged: to start again
        from nothing is for the user to decide.
        """
        damaged: dict[Path, str] = {}
        for step in reversed(self.steps()):
            try:
                checkpoint = self.load(step)
            except Damage as damage:
                damaged[self.path(step)] = str(damage)
                continue
            for path, reason in damaged.items():
                set_aside = self._set_aside(path)
                LOGGER.warning("%s: %s. Set aside as %s; going back to step %d", path, reason, set_aside.name, step)
            return checkpoint
        damaged |= {path: "set aside as damaged" for path in sorted(self.folder.glob(".bad-*"))}
        if damaged:
            reasons = "; ".join(f"{path.name}: {reason}" for path, reason in damaged.items())
            raise CheckpointError(
                f"{self.folder}: no sound checkpoint is left ({reasons})."
                " Restore one from a backup, or start again with another name="
            )
        return None

    def load(self, step: int) -> Checkpoint:
        """The checkpoint of `step`, mapped: its tensors are for as long as it is there.

        Raises Damage, or CheckpointError for one that is sound but not for this tfm.
        """
        path = self.path(step)
        with wrap_os_errors(path, "read"):
            format_listed, listed = _read_manifest(path)
            for name in FILES:
                _verify(path, name, *listed[name])
            state = read_json(_read(path / STATE_FILE, at_most=listed[STATE_FILE][0]), path / STATE_FILE)
        if not isinstance(state, dict) or not is_whole(state.get("format"), least=1):
            raise Damage(f"{STATE_FILE} has no format number")
        if state["format"] != format_listed:
            raise Damage(f"{MANIFEST_FILE} has format {format_listed}, {STATE_FILE} {state['format']}")
        if state["format"] > CHECKPOINT_FORMAT:
            needed = quoted(str(state.get("needs")))[1:-1]
            raise CheckpointError(f"{path}: needs tfm >= {needed}; this is {__version__}. Install that")
        if state.get("step") != step or not is_whole(state["step"]) or not isinstance(state.get("state"), dict):
            raise Damage(f"{STATE_FILE} is not that of step {step}")
        return Checkpoint(
            step=step,
            model=map_model(path / MODEL_FILE),
            optimizer=_map_tensors(path / OPTIMIZER_FILE),
            state=state["state"],
        )

    def load_model(self, step: int) -> ModelFile:
        """The model of a checkpoint alone. Raises CheckpointError, also for damage."""
        path = self.path(step)
        try:
            with wrap_os_errors(path, "read"):
                _verify(path, MODEL_FILE, *_read_manifest(path)[1][MODEL_FILE])
        except Damage as damage:
            raise CheckpointError(f"{path}: {damage}. Remove it and run the same command again") from damage
        return map_model(path / MODEL_FILE)

    def prune(self, keep: Collection[int]) -> None:
        """Delete the checkpoints of all steps but those in `keep`; none is ever half deleted under its own name."""
        for step in set(self.steps()) - set(keep):
            path = self.path(step)
            with wrap_os_errors(path, "delete"):
                self._delete(path)

    def mark_best(self, step: int) -> None:
        """Point `<run>/best` at the checkpoint of `step`."""
        link = self.run_dir / "best"
        with wrap_os_errors(link, "write"):
            atomic_symlink(link, os.path.relpath(self.path(step), self.run_dir))

    def unmark_best(self) -> None:
        """Take the link away, where no checkpoint is known to be the best."""
        link = self.run_dir / "best"
        with wrap_os_errors(link, "remove"):
            link.unlink(missing_ok=True)

    def mark_latest(self) -> None:
        """Point `<runs>/latest` at this run, which is finished."""
        link = self.run_dir.parent / LATEST
        with wrap_os_errors(link, "write"):
            atomic_symlink(link, self.run_dir.name)

    def _delete(self, path: Path) -> None:
        doomed = rename(path, self.folder / f".del-{path.name.removeprefix('.old-')}")
        shutil.rmtree(doomed)

    def _set_aside(self, path: Path) -> Path:
        target = path.with_name(f".bad-{path.name}")
        n = 1
        while target.exists():
            n += 1
            target = path.with_name(f".bad-{path.name}-{n}")
        with wrap_os_errors(path, "set aside"):
            return rename(path, target)


def _pack(checkpoint: Checkpoint) -> tuple[dict[str, Iterable[Chunk]], int]:
    """File name → content in pieces, the manifest last; and the bytes of all."""
    state = {
        "format": CHECKPOINT_FORMAT,
        "needs": READABLE_SINCE,
        "tfm": __version__,
        "step": checkpoint.step,
        "state": checkpoint.state,
    }
    files: dict[str, Iterable[Chunk]] = {
        MODEL_FILE: model_pieces(checkpoint.model),
        OPTIMIZER_FILE: serialise(checkpoint.optimizer),
        STATE_FILE: [json.dumps(state, indent=1, allow_nan=False).encode()],
    }
    listed = {name: _size_and_hash(pieces) for name, pieces in files.items()}
    manifest = _manifest(CHECKPOINT_FORMAT, checkpoint.step, listed)
    return {**files, MANIFEST_FILE: [manifest]}, sum(entry["size"] for entry in listed.values()) + len(manifest)


def _size_and_hash(pieces: Iterable[Chunk]) -> dict[str, Any]:
    """The bytes and the SHA-256 of `pieces`, which may be computed as they are read."""
    size, digest = 0, hashlib.sha256()
    for piece in pieces:
        size += memoryview(piece).nbytes
        digest.update(piece)
    return {"size": size, "sha256": digest.hexdigest()}


def _manifest(format_: int, step: int, listed: dict[str, Any]) -> bytes:
    return json.dumps({"format": format_, "step": step, "files": listed}, indent=1).encode()


def _verify(path: Path, name: str, size: int, sha256: str) -> None:
    """Raise Damage unless the file `name` of a checkpoint is what the manifest says."""
    with _open(path / name) as file:
        if (found := os.fstat(file.fileno()).st_size) != size:
            raise Damage(f"{name} has {found:,} bytes, not {size:,}")
        if hashlib.file_digest(file, hashlib.sha256).hexdigest() != sha256:
            raise Damage(f"{name} has another SHA-256 than its manifest says")


def _read_manifest(path: Path) -> tuple[int, dict[str, tuple[int, str]]]:
    """The manifest's format, and file name → size and SHA-256; only our own names, so that it cannot lead elsewhere.

    It has no checksum of its own: it must be just the bytes that would be written for what it says.
    """
    content = _read(path / MANIFEST_FILE, at_most=100_000)
    try:
        manifest = read_json(content, path / MANIFEST_FILE)
        listed = {
            name: (whole(entry["size"], "size"), str(entry["sha256"])) for name, entry in manifest["files"].items()
        }
        format_, step = whole(manifest["format"], "format"), whole(manifest["step"], "step")
        as_written = _manifest(format_, step, manifest["files"])
    except (CheckpointError, *MALFORMED) as error:
        raise Damage(f"{MANIFEST_FILE} is damaged") from error
    if set(listed) != set(FILES):
        raise Damage(f"{MANIFEST_FILE} lists {quoted(', '.join(sorted(listed)))}, not {', '.join(FILES)}")
    if path.name != f"step-{step:08d}":
        raise Damage(f"{MANIFEST_FILE} belongs to step {step}")
    if content != as_written:
        raise Damage(f"{MANIFEST_FILE} is damaged")
    return format_, listed


def _read(path: Path, *, at_most: int) -> bytes:
    """The first `at_most` bytes of a plain file, plus one if there are more. Raises Damage when it is not one."""
    with _open(path) as file:
        return file.read(min(at_most, os.fstat(file.fileno()).st_size) + 1)  # a manifest can claim any size


@contextmanager
def _open(path: Path) -> Iterator[BufferedReader]:
    """A plain file. Raises Damage when it is not one."""
    try:
        descriptor = os.open(path, os.O_RDONLY | NO_LINK)  # neither links nor pipes
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Damage(f"{path.name} is not a plain file")
            yield file
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            raise Damage(f"{path.name} is missing") from error
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise Damage(f"{path.name} is not a plain file") from error
        raise


def _map_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return map_tensors(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"{path}: not a safetensors file ({quoted(str(error))}). Restore it") from error
