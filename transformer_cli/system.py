"""What operating systems do not have in common, found by feature, not by name: locks, renaming, memory, processors.

Linux has all of it; macOS lacks some of it, and Windows much. What a system lacks is left out here, in one place.
"""

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from errno import ENOLCK
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO


def _if_there(name: str) -> Any:
    return import_module(name) if find_spec(name) else None


fcntl, msvcrt = _if_there("fcntl"), _if_there("msvcrt")  # POSIX has the first, Windows the second

OPEN_FILES_MOVE = fcntl is not None  # whether a file can be renamed and removed while it is open
NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_PAUSES_S = (0.05, 0.2, 0.8)  # before a rename is tried again
_LOCKED_BYTE = 2**31 - 2  # where no lock file has content: on Windows, locked bytes cannot be read


# ---- Files


def lock(file: BinaryIO, *, wait: bool = False) -> None:
    """Lock an open file against other processes until it is closed.

    Without `wait`, raises BlockingIOError or PermissionError where another process holds it. Raises any other OSError
    where there are no locks.
    """
    if fcntl is not None:
        # lockf and not flock: a killed process loses it at once, also when it leaves children behind.
        fcntl.lockf(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    elif msvcrt is None:
        raise OSError(ENOLCK, os.strerror(ENOLCK))
    else:
        _lock_byte(file.fileno(), wait=wait)


def _lock_byte(descriptor: int, *, wait: bool) -> None:
    while True:
        before = os.lseek(descriptor, 0, os.SEEK_CUR)
        try:
            os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            return
        except PermissionError:
            if not wait:
                raise
        finally:
            os.lseek(descriptor, before, os.SEEK_SET)
        time.sleep(_PAUSES_S[0])


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes. Raises OSError where one holds it, or where folders cannot be locked."""
    if fcntl is None:
        raise OSError(ENOLCK, os.strerror(ENOLCK), str(folder))
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # lockf asks for one that can be written
        yield
    finally:
        os.close(descriptor)


def sync(descriptor: int) -> None:
    """Write an open file through to the disk. Raises OSError."""
    if hasattr(fcntl, "F_FULLFSYNC"):  # macOS, whose fsync stops at the memory of the disk
        with suppress(OSError):  # a network disk
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
    os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` survive a power cut, where a folder can be opened. Raises OSError."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename(source: Path, target: Path) -> Path:
    """Rename a file, or a folder to a free name; `target` is replaced if it is a file. Raises OSError.

    On Windows a virus scanner may have a new file open: it is tried again for a second.
    """
    move = source.rename if source.is_dir() and not source.is_symlink() else source.replace
    for pause_s in () if OPEN_FILES_MOVE else _PAUSES_S:
        with suppress(PermissionError):
            return move(target)
        time.sleep(pause_s)
    return move(target)


@cache
def c_function(name: str) -> Any:
    """A function of the C library; None where it has none of that name, or cannot be called."""
    import ctypes

    try:
        return getattr(ctypes.CDLL(None, use_errno=True), name, None)
    except (OSError, TypeError):  # Windows
        return None


# ---- Processes


def processor() -> str:
    """What the system says of it, with its maker; empty where that is unknown."""
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return os.environ.get("PROCESSOR_IDENTIFIER", "")  # of Windows


def n_processors() -> int:
    """The number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    count: int | None = getattr(os, "process_cpu_count", os.cpu_count)()  # the first since Python 3.13
    return count or 1


def in_forked_processes(prepare: Callable[[], object]) -> Callable[[], object]:
    """Let every forked process begin with `prepare`; nothing where there is no forking."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=prepare)
    return prepare


def can_fork() -> bool:
    """Whether a process with threads can be forked, and its children end with it: on Linux.

    The libraries of macOS do not survive a fork, and Windows has none.
    """
    return hasattr(os, "fork") and c_function("prctl") is not None


@contextmanager
def without_main_module() -> Iterator[None]:
    """Let a spawned process not import the main module, which would run a script again that has no `if __name__`."""
    main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


# ---- Memory, in bytes


def total_memory() -> int:
    """The memory of this machine, in bytes."""
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return _windows_memory()[0]


def available_memory() -> int:
    """The memory that programs can still get, in bytes, as Linux and Windows report it; elsewhere all there is."""
    with suppress(OSError):
        found = re.search(r"^MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
        if found:
            return 1024 * int(found[1])
    return total_memory() if hasattr(os, "sysconf") else _windows_memory()[1]


def peak_memory() -> int:
    """The most that this process has held, since `forget_peak_memory` where that is possible."""
    with suppress(OSError):
        # Not getrusage: on Linux its maximum includes the size of the parent at the time of the fork.
        found = re.search(r"^VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"), re.MULTILINE)
        if found:
            return 1024 * int(found[1])
    if (resource := _if_there("resource")) is not None:
        peak: int = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak * (1 if sys.platform == "darwin" else 1024)
    return _windows_peak()


def forget_peak_memory() -> None:
    """Resets the peak memory, on Linux; elsewhere the peak remains that of the whole process."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _windows_memory() -> tuple[int, int]:
    """Total and available, by GlobalMemoryStatusEx."""
    import ctypes

    class Status(ctypes.Structure):
        _fields_ = (
            ("length", ctypes.c_uint32),
            ("load", ctypes.c_uint32),
            ("total", ctypes.c_uint64),
            ("available", ctypes.c_uint64),
            ("others", ctypes.c_uint64 * 5),
        )

    status = Status(length=ctypes.sizeof(Status))
    _kernel32().GlobalMemoryStatusEx(ctypes.byref(status))
    return status.total, status.available


def _windows_peak() -> int:
    """PeakWorkingSetSize, by K32GetProcessMemoryInfo."""
    import ctypes

    class Counters(ctypes.Structure):
        _fields_ = (
            ("size", ctypes.c_uint32),
            ("faults", ctypes.c_uint32),
            ("peak", ctypes.c_size_t),
            ("others", ctypes.c_size_t * 7),
        )

    counters, kernel32 = Counters(size=ctypes.sizeof(Counters)), _kernel32()
    process = ctypes.c_void_p(kernel32.GetCurrentProcess())
    kernel32.K32GetProcessMemoryInfo(process, ctypes.byref(counters), counters.size)
    return int(counters.peak)


@cache
def _kernel32() -> Any:
    import ctypes

    return ctypes.WinDLL("kernel32")  # type: ignore[attr-defined]
