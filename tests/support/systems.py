"""What macOS and Windows lack, taken away from this process: a rehearsal of them, for one that has imported no module
of ours yet.

Libraries are imported first, as they find their own way there. What then asks for something that is gone is our code.
"""

import builtins
import ctypes
import errno
import importlib
import importlib.machinery
import io
import mmap
import multiprocessing.resource_tracker
import os
import select
import shutil
import signal
import stat
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIBRARIES = (
    *(
        "torch",
        "torch.profiler",
        "torch.utils.tensorboard",
        "numpy",
        "sentencepiece",
        "sacrebleu",
        "hydra",
        "omegaconf",
    ),
    *(
        "safetensors.torch",
        "tqdm",
        "sacremoses",
        "ctranslate2",
        "readline",
        "subprocess",
        "multiprocessing.popen_spawn_posix",
    ),
    *("concurrent.futures.process", "urllib.request", "tempfile", "socket", "torch.distributed", "lzma", "zipfile"),
)
GONE: dict[str, dict[Any, tuple[str, ...]]] = {
    "macos": {os: ("sched_getaffinity", "sched_setaffinity", "posix_fadvise", "memfd_create", "process_cpu_count")},
    "windows": {
        os: (
            *("sched_getaffinity", "fork", "forkpty", "getuid", "geteuid", "getgid", "fchown", "chown", "fchmod"),
            *(
                "O_NOFOLLOW",
                "O_NONBLOCK",
                "O_DIRECTORY",
                "O_CLOEXEC",
                "sysconf",
                "readv",
                "writev",
                "statvfs",
                "killpg",
            ),
            *("setsid", "mkfifo", "uname", "getloadavg", "process_cpu_count"),
        ),
        signal: (
            "SIGHUP",
            "SIGUSR1",
            "SIGUSR2",
            "SIGKILL",
            "SIGPIPE",
            "SIGALRM",
            "SIGCHLD",
            "pthread_sigmask",
            "sigwait",
        ),
        select: ("poll", "epoll"),
    },
}
MODULES = {"macos": (), "windows": ("fcntl", "resource", "termios", "pwd", "grp")}
O_BINARY = 1 << 30
RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}

real = types.SimpleNamespace(
    **{name: getattr(os, name) for name in ("open", "rename", "replace", "unlink", "rmdir", "mkdir", "fsync", "stat")},
    io_open=io.open,
    cdll=ctypes.CDLL,
    statvfs=os.statvfs,
)


def become(system: str) -> None:
    for library in LIBRARIES:
        importlib.import_module(library)
    assert not any(name.startswith("transformer_cli") for name in sys.modules)
    import fcntl

    for module in MODULES[system]:
        sys.modules[module] = None  # type: ignore[assignment]
    for module, names in GONE[system].items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    (_windows if system == "windows" else _macos)(fcntl)


def prove(system: str, folder: Path) -> None:
    """Assert that what is taken away is gone, and what is refused raises: else a rehearsal would show nothing."""
    for module, names in GONE[system].items():
        assert [name for name in names if hasattr(module, name)] == [], module.__name__
    for name in MODULES[system]:
        assert raises(ImportError, importlib.import_module, name), name
    ours: dict[str, Any] = {"__name__": "transformer_cli.probe", "open": builtins.open}
    assert raises(FileNotFoundError, eval, "open('/proc/meminfo')", ours)
    if system == "macos":
        assert raises(AssertionError, os.fork)
        assert not any(hasattr(ctypes.CDLL(None), name) for name in ("prctl", "mallopt", "renameat2"))
        return
    inside = folder / "inside"
    inside.mkdir()
    file, other = inside / "file", folder / "other"
    file.write_bytes(bytes(10))
    other.touch()
    with file.open("r+b") as handle:
        mapped = mmap.mmap(handle.fileno(), 0)
    for source, target in ((file, inside / "new"), (other, file), (inside, folder / "moved")):
        assert raises(PermissionError, source.replace, target), source
    assert raises(PermissionError, file.unlink)
    mapped.close()
    assert raises(FileExistsError, other.rename, inside)
    assert raises(OSError, (folder / "link").symlink_to, other)
    assert raises(OSError, (folder / "12:30").mkdir)
    assert raises(OSError, (folder / "aux.txt").touch)
    assert raises(PermissionError, os.open, folder, os.O_RDONLY)
    with other.open("rb") as read_only:
        assert raises(OSError, os.fsync, read_only.fileno())
    assert raises(TypeError, ctypes.CDLL, None)


def raises(error: type[BaseException], function: Callable[..., Any], *arguments: Any) -> bool:
    try:
        function(*arguments)
    except error:
        return True
    return False


# ---- macOS


def _macos(fcntl: Any) -> None:
    _without_proc()
    synced = fcntl.fcntl

    def full_sync(descriptor: Any, command: int, *arguments: Any) -> Any:
        return real.fsync(descriptor) if command == 51 else synced(descriptor, command, *arguments)

    fcntl.F_FULLFSYNC, fcntl.fcntl = 51, full_sync

    def refused() -> int:
        raise AssertionError("a fork, which the libraries of macOS do not survive")

    os.fork = refused
    lacks = ("prctl", "mallopt", "renameat2")

    class Library:
        def __init__(self, *arguments: Any, **options: Any) -> None:
            self._library = real.cdll(*arguments, **options)

        def __getattr__(self, name: str) -> Any:
            if name in lacks:
                raise AttributeError(name)
            return getattr(self._library, name)

    ctypes.CDLL = Library  # type: ignore[assignment, misc]


# ---- Windows


def _windows(fcntl: Any) -> None:
    _without_proc()
    os.O_BINARY = O_BINARY  # type: ignore[attr-defined]
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    multiprocessing.resource_tracker._HAVE_SIGMASK = False  # type: ignore[attr-defined]
    sys.modules["msvcrt"] = _msvcrt(fcntl)
    os.open, os.mkdir = _os_open, _mkdir
    os.rename, os.replace = _rename, _replace
    os.unlink = os.remove = _in_no_use(real.unlink)
    os.rmdir = _in_no_use(real.rmdir)
    os.symlink = _not_permitted
    tempfile.TemporaryFile = tempfile.NamedTemporaryFile  # that of Linux removes a file which it has open
    shutil.disk_usage = _disk_usage

    def fsync(descriptor: Any) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        real.fsync(number)

    os.fsync = fsync

    def library(name: str | None, *arguments: Any, **options: Any) -> Any:
        if name is None:
            raise TypeError("LoadLibrary() argument 1 must be str, not None")
        return real.cdll(name, *arguments, **options)

    ctypes.CDLL = library  # type: ignore[assignment, misc]
    ctypes.WinDLL = lambda name: _Kernel32()  # type: ignore[attr-defined]


class _Kernel32:
    def GlobalMemoryStatusEx(self, status: Any) -> int:
        status._obj.total, status._obj.available = 16 << 30, 8 << 30
        return 1

    def GetCurrentProcess(self) -> int:
        return -1

    def K32GetProcessMemoryInfo(self, process: Any, counters: Any, size: int) -> int:
        counters._obj.peak = 1 << 30
        return 1


def _msvcrt(fcntl: Any) -> types.ModuleType:
    module: Any = types.ModuleType("msvcrt")
    module.LK_NBLCK = 2

    def locking(descriptor: int, mode: int, n_bytes: int) -> None:
        assert mode == module.LK_NBLCK
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, n_bytes, 0, os.SEEK_CUR)
        except OSError:
            raise PermissionError(errno.EACCES, "Permission denied") from None

    module.locking = locking
    module.__spec__ = importlib.machinery.ModuleSpec("msvcrt", None)
    return module  # type: ignore[no-any-return]


def _os_open(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
    _check_name(path)
    if os.path.isdir(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))
    if not flags & O_BINARY and _is_ours(sys._getframe(1)) and str(path) != os.devnull:
        raise AssertionError(f"{path}: opened as text, whose bytes change")
    return int(real.open(path, flags & ~O_BINARY, *arguments, **options))


def _disk_usage(path: Any) -> Any:
    found = real.statvfs(path)
    return types.SimpleNamespace(free=found.f_bavail * found.f_frsize)


def _mkdir(path: Any, *arguments: Any, **options: Any) -> None:
    _check_name(path)
    real.mkdir(path, *arguments, **options)


def _rename(source: Any, target: Any, **options: Any) -> None:
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "File exists", str(source), None, str(target))
    _move(source, target, **options)


def _replace(source: Any, target: Any, **options: Any) -> None:
    if os.path.isdir(target):
        raise PermissionError(errno.EACCES, "Access is denied", str(source), None, str(target))
    _move(source, target, **options)


def _move(source: Any, target: Any, **options: Any) -> None:
    _check_name(target)
    for path in (source, target):
        refuse_open(path)
    real.replace(source, target, **options)


def _in_no_use(remove: Callable[..., None]) -> Callable[..., None]:
    def call(path: Any, **options: Any) -> None:
        refuse_open(path)
        remove(path, **options)

    return call


def refuse_open(path: Any) -> None:
    """A file that this process has open or mapped, or a folder with such a file in it."""
    place = os.path.realpath(os.fsdecode(path))
    held = {os.readlink(f"/proc/self/fd/{number}") for number in _numbers()} | _mapped()
    if any(file == place or file.startswith(f"{place}/") for file in held):
        raise PermissionError(errno.EACCES, "The process cannot access the file because it is in use", str(path))


def _numbers() -> list[str]:
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISREG(os.fstat(int(number)).st_mode):
                found.append(number)
        except OSError:
            continue  # that of the listing
    return found


def _mapped() -> set[str]:
    with real.io_open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as lines:
        return {line.split(maxsplit=5)[5].rstrip("\n") for line in lines if line.count("/")}


def _not_permitted(*arguments: Any, **options: Any) -> None:
    raise OSError(errno.EINVAL, "A required privilege is not held by the client")


def _check_name(path: Any) -> None:
    for part in Path(os.fsdecode(path)).parts[1:]:
        if set(part) & set('<>:"|?*\\') or part[-1] in " ." or part.split(".")[0].lower() in RESERVED:
            raise OSError(errno.EINVAL, "The filename, directory name, or volume label syntax is incorrect", str(path))


# ---- Both


def _without_proc() -> None:
    def is_proc(path: Any) -> bool:
        return (
            isinstance(path, str | Path) and str(path).startswith("/proc/") and _caller().startswith("transformer_cli")
        )

    def opened(path: Any, *arguments: Any, **options: Any) -> Any:
        if is_proc(path):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        if sys.modules.get("fcntl") is None and isinstance(path, str | Path):
            _check_name(path)
        return real.io_open(path, *arguments, **options)

    builtins.open = io.open = opened  # type: ignore[assignment]


def _is_ours(frame: types.FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith("transformer_cli")


def _caller() -> str:
    """The module outside the standard library that calls."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in (
        *_STANDARD,
        __name__.split(".")[0],
    ):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", ""))


_STANDARD = {*sys.stdlib_module_names} - {"__main__"}
