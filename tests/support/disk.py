"""A disk that reports what is done to it, fails or kills on request, and forgets in a power cut what was not synced.

It stands between Python and the system: `install` replaces the functions of os, io.open and open, in a forked process.
Every change below `root` is an event. Extensions that write files by themselves are not seen until they sync.

What survives a power cut, as POSIX has it: of a file, what it held when it was last synced; of a folder, the names it
held when it was last synced. Nothing else has to.
"""

import builtins
import io
import json
import os
import re
import shutil
import signal
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

Result = TypeVar("Result")
Names = dict[str, Any]  # of a folder: name → inode, or the target of a link

AFTERMATHS = ("kill", "emptied", "torn", "names lost")
# Nothing more; files that were not synced are emptied, or cut in half; folders too go back to what they last synced.


@dataclass(frozen=True)
class Event:
    number: int  # from 1
    what: str  # open, write, sync, rename, mkdir, unlink, rmdir, symlink
    path: str  # relative to the root; the source of a rename


class Disk:
    """The files below `root`. `before` and `after` each event are called with it, one thread at a time."""

    def __init__(self, root: Path, *, ignore: str = "tensorboard") -> None:
        self.root, self.ignore = str(root.resolve()), ignore
        self.memory = root.with_name(f"{root.name}.memory")  # what a power cut may bring back
        self.before: Callable[[Event], None] = lambda event: None
        self.after: Callable[[Event], None] = lambda event: None
        self.number = 0
        self._lock = threading.RLock()
        self._synced: dict[int, tuple[int, int]] = {}  # inode → size and time of change
        self._names: dict[int, Names] = {}

    def install(self) -> None:
        """Everything that is there now is safe."""
        shutil.rmtree(self.memory, ignore_errors=True)
        self.memory.mkdir()
        for folder, _, files in os.walk(self.root):
            self._sync_folder(folder)
            for file in files:
                self._sync_file(os.path.join(folder, file))
        self._real = {name: getattr(os, name) for name in _REPLACED}
        self._real_open = io.open
        for name, what in _REPLACED.items():
            setattr(os, name, getattr(self, f"_{name}", None) or self._replaced(name, what))
        os.fdatasync = os.fsync
        io.open = builtins.open = self._open_file  # type: ignore[assignment]

    def die_at(self, number: int, *, after: bool, on: str = "") -> None:
        """Kill this process before or after the `number`-th event whose `what path` the pattern `on` is found in."""
        seen = 0

        def die(event: Event) -> None:
            nonlocal seen
            seen += re.search(on, f"{event.what} {event.path}") is not None
            if seen == number:
                memory = {"synced": self._synced, "names": self._names}
                with self._real_open(self.memory / "memory.json", "w", encoding="utf-8") as file:
                    json.dump(memory, file)
                os.kill(os.getpid(), signal.SIGKILL)

        if after:
            self.after = die
        else:
            self.before = die

    def fail_at(self, number: int, code: int, *, on: Callable[[Event], bool] = lambda event: True) -> list[Event]:
        """Let the `number`-th event of those that are counted fail with an errno; the list will hold that event."""
        failed: list[Event] = []
        seen = 0

        def fail(event: Event) -> None:
            nonlocal seen
            if not on(event):
                return
            seen += 1
            if seen == number:
                failed.append(event)
                raise OSError(code, os.strerror(code), os.path.join(self.root, event.path))

        self.before = fail
        return failed

    # What replaces the functions

    def _event(self, what: str, path: str | None, do: Callable[[], Result]) -> Result:
        if path is None or self.ignore in path:
            return do()
        with self._lock:  # also while it is done: a thread that kills leaves no other at work
            self.number += 1
            event = Event(self.number, what, os.path.relpath(path, self.root))
            self.before(event)
            try:
                return do()
            finally:
                self.after(event)

    def _replaced(self, name: str, what: str) -> Callable[..., Any]:
        real = self._real[name]

        def replacement(*args: Any, **kwargs: Any) -> Any:
            path = self._inside(args[0], kwargs.get("dir_fd"))

            def do() -> Any:
                if path is not None:
                    self._remember(path)
                return real(*args, **kwargs)

            return self._event(what, path, do)

        return replacement

    def _renamed(self, name: str, source: Any, target: Any, kwargs: dict[str, Any]) -> None:
        path, new = self._inside(source, kwargs.get("src_dir_fd")), self._inside(target, kwargs.get("dst_dir_fd"))

        def do() -> None:
            if new is not None:
                self._remember(new)
            self._real[name](source, target, **kwargs)

        self._event("rename", path, do)

    def _rename(self, source: Any, target: Any, **kwargs: Any) -> None:
        self._renamed("rename", source, target, kwargs)

    def _replace(self, source: Any, target: Any, **kwargs: Any) -> None:
        self._renamed("replace", source, target, kwargs)

    def _symlink(self, target: Any, link: Any, *args: Any, **kwargs: Any) -> None:
        path = self._inside(link, kwargs.get("dir_fd"))
        self._event("symlink", path, lambda: self._real["symlink"](target, link, *args, **kwargs))

    def _open(self, path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        real = self._real["open"]
        if not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            return int(real(path, flags, *args, **kwargs))
        inside = self._inside(path, kwargs.get("dir_fd"))
        return int(self._event("open", inside, lambda: real(path, flags, *args, **kwargs)))

    def _write(self, descriptor: int, content: Any) -> int:
        path = self._inside(descriptor)
        return int(self._event("write", path, lambda: self._real["write"](descriptor, content)))

    def _fsync(self, file: Any) -> None:
        descriptor = file if isinstance(file, int) else file.fileno()
        path = self._inside(descriptor)

        def do() -> None:
            self._real["fsync"](descriptor)
            if path is not None:
                (self._sync_folder if os.path.isdir(path) else self._sync_file)(path)

        self._event("sync", path, do)

    def _open_file(self, file: Any, mode: str = "r", buffering: int = -1, *args: Any, **kwargs: Any) -> Any:
        path = None if mode.startswith("r") and "+" not in mode else self._inside(file)
        if path is None:
            return self._real_open(file, mode, buffering, *args, **kwargs)
        return self._event("open", path, lambda: self._written(path, file, mode, buffering, *args, **kwargs))

    def _written(
        self,
        path: str,
        file: Any,
        mode: str,
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        """What io.open gives, with a raw file whose writes are events."""
        raw = _Written(self, path, file, mode.replace("b", "").replace("t", ""), closefd, opener)
        if buffering == 0:
            return raw
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        if "b" in mode:
            return buffered
        text = io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)
        text.mode = mode  # type: ignore[misc]
        return text

    def _inside(self, path: Any, folder: int | None = None) -> str | None:
        """The target of a path or a descriptor, if it is below the root."""
        if isinstance(path, int):
            found = os.readlink(f"/proc/self/fd/{path}").removesuffix(" (deleted)")
        else:
            found = os.path.join(
                os.getcwd() if folder is None else os.readlink(f"/proc/self/fd/{folder}"), os.fsdecode(path)
            )
        found = os.path.normpath(found)
        return found if found == self.root or found.startswith(f"{self.root}/") else None

    # What a power cut leaves

    def _remember(self, path: str) -> None:
        """Keep what is about to lose its name, in case that is undone."""
        try:
            status = os.lstat(path)
        except OSError:
            return
        if stat.S_ISDIR(status.st_mode):
            self._real["open"](path, os.O_RDONLY)  # left open: no other folder gets its inode
        elif not os.path.lexists(kept := f"{self.memory}/{status.st_ino}"):
            os.link(path, kept, follow_symlinks=False)

    def _sync_file(self, path: str) -> None:
        status = os.lstat(path)
        self._synced[status.st_ino] = status.st_size, status.st_mtime_ns

    def _sync_folder(self, path: str) -> None:
        with os.scandir(path) as entries:
            self._names[os.lstat(path).st_ino] = {
                entry.name: os.readlink(entry.path) if entry.is_symlink() else entry.inode() for entry in entries
            }


class _Written(io.FileIO):
    """Each write is two events, the halves of what is written: a write can be torn."""

    def __init__(self, disk: Disk, path: str, file: Any, mode: str, closefd: bool, opener: Any) -> None:
        super().__init__(file, mode, closefd, opener)
        self._disk, self._path = disk, path

    def write(self, content: Any) -> int:
        view = memoryview(content).cast("B")
        middle = len(view) // 2
        halves = [half for half in (view[:middle], view[middle:]) if len(half)]
        return sum(int(self._disk._event("write", self._path, lambda: self._all(half))) for half in halves)  # noqa: B023

    def _all(self, half: memoryview) -> int:
        written = super().write(half)
        assert written == len(half)
        return written


_REPLACED = {
    "open": "open",
    "write": "write",
    "fsync": "sync",
    "rename": "rename",
    "replace": "rename",
    "mkdir": "mkdir",
    "unlink": "unlink",
    "remove": "unlink",
    "rmdir": "rmdir",
    "symlink": "symlink",
    "truncate": "write",
}


def cut_power(root: Path, how: str) -> None:
    """Do to `root` what a power cut might have done at the moment when `Disk.die_at` killed the process."""
    if how == "kill":
        return
    shadow = root.with_name(f"{root.name}.memory")
    memory = json.loads((shadow / "memory.json").read_bytes())
    synced: dict[str, list[int]] = memory["synced"]
    for path in (*root.rglob("*"), *shadow.iterdir()):
        status = path.lstat()
        is_safe = synced.get(str(status.st_ino)) == [status.st_size, status.st_mtime_ns]
        if stat.S_ISREG(status.st_mode) and path.name != "memory.json" and not is_safe:
            os.truncate(path, status.st_size // 2 if how == "torn" else 0)
    if how == "names lost":
        _rebuild(root, memory["names"])


def _rebuild(root: Path, names: dict[str, Names]) -> None:
    shadow = root.with_name(f"{root.name}.memory")
    files = {path.lstat().st_ino: path for path in (*root.rglob("*"), *shadow.iterdir()) if not path.is_dir()}
    inode, old = str(root.stat().st_ino), root.rename(root.with_name(f"{root.name}.old"))
    files = {number: _moved(path, root, old) for number, path in files.items()}

    def fill(folder: Path, entries: Names) -> None:
        folder.mkdir()
        for name, entry in entries.items():
            if isinstance(entry, str):
                os.symlink(entry, folder / name)
            elif entry in files:
                os.link(files[entry], folder / name, follow_symlinks=False)
            else:
                fill(folder / name, names.get(str(entry), {}))

    fill(root, names[inode])
    shutil.rmtree(old)


def _moved(path: Path, root: Path, old: Path) -> Path:
    return old / path.relative_to(root) if path.is_relative_to(root) else path


# ---- Programs that are written wrongly, for the tests of the tests


def forget_file_syncs() -> None:
    """A program that never syncs a file."""
    _without_sync(os.path.isfile)


def forget_folder_syncs() -> None:
    """A program that never syncs a folder."""
    _without_sync(os.path.isdir)


def _without_sync(forgotten: Callable[[str], bool]) -> None:
    sync = os.fsync
    os.fsync = lambda file: None if forgotten(f"/proc/self/fd/{file}") else sync(file)  # type: ignore[assignment]


def save_in_place() -> None:
    """A program that writes a checkpoint under the name that it will have."""
    _without_prefix(".tmp-")


def delete_in_place() -> None:
    """A program that deletes a checkpoint under the name that it has."""
    _without_prefix(".del-")


def _without_prefix(prefix: str) -> None:
    def spelt(path: Any) -> Any:
        return path if isinstance(path, int) else os.fspath(path).replace(f"/{prefix}step-", "/step-")

    def one(real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda path, *args, **kwargs: real(spelt(path), *args, **kwargs)

    def two(real: Callable[..., Any]) -> Callable[..., Any]:
        def moved(a: Any, b: Any, **kwargs: Any) -> None:
            if spelt(a) != spelt(b) and "/.old-" not in os.fspath(b):
                real(spelt(a), spelt(b), **kwargs)

        return moved

    for name in ("mkdir", "open", "unlink", "rmdir", "remove", "lstat", "scandir"):
        setattr(os, name, one(getattr(os, name)))
    for name in ("rename", "replace"):
        setattr(os, name, two(getattr(os, name)))
    io.open = builtins.open = one(io.open)  # type: ignore[assignment]
