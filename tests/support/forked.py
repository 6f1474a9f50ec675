"""`python -c PROGRAM` in a process forked from one that has imported what training and translating import.

It takes a tenth of the time of a start. Not for tests of an interpreter's own start: closed streams, locales, imports.
"""

import atexit
import contextlib
import fcntl
import io
import multiprocessing
import os
import signal
import subprocess
import sys
import termios
import types
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import forkserver, reduction
from pathlib import Path
from typing import IO, Any, Self
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "import sys; sys.argv[0] = 'tfm'; from transformer_cli.cli import entry_point; entry_point()"
UNMEASURED = {"COVERAGE_PROCESS_CONFIG": ""}  # environment of a process that measuring coverage would disturb

_context = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Ran:
    code: int
    out: bytes
    err: bytes


def run(
    arguments: Sequence[str],
    folder: Path,
    *,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    program: str = PROGRAM,
) -> Ran:
    """`tfm` with these arguments, or another program, once it has ended."""
    with Forked(arguments, folder, env=env, program=program) as process:
        out, err = process.communicate(stdin)
        return Ran(process.wait(), out, err)


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a process that runs this tree on one thread. A value of "" takes the variable away."""
    merged = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **(more or {})}
    return {name: value for name, value in merged.items() if value}


class Forked:
    """What tests use of `subprocess.Popen`; each of the three streams is a pipe, or is given as a descriptor."""

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        *,
        env: Mapping[str, str] | None = None,
        program: str = PROGRAM,
        stdin: int = subprocess.PIPE,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
        on_terminal: bool = False,
    ) -> None:
        _ensure_running()
        ends = [_stream(kind, mode) for kind, mode in ((stdin, "wb"), (stdout, "rb"), (stderr, "rb"))]
        self.stdin, self.stdout, self.stderr = (ours for _, ours in ends)
        theirs = [_Descriptor(descriptor) for descriptor, _ in ends]
        work = (program, list(arguments), str(folder), environment(env), theirs, on_terminal)
        self._process = _context.Process(target=_child, args=work)
        with _no_main_module():
            self._process.start()
        for descriptor in {descriptor for (descriptor, ours) in ends if ours is not None}:
            os.close(descriptor)
        assert self._process.pid is not None
        self.pid = self._process.pid

    def communicate(self, stdin: bytes = b"") -> tuple[bytes, bytes]:
        with ThreadPoolExecutor(2) as pool:
            texts = [pool.submit(stream.read if stream else bytes) for stream in (self.stdout, self.stderr)]
            if self.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    self.stdin.write(stdin)
                    self.stdin.close()
            out, err = (text.result() for text in texts)
        self.__exit__()
        return out, err

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired("a forked process", timeout)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it may have ended just now
            if self.returncode is None:
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None and not stream.closed:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        self.wait()


def _ensure_running() -> None:
    """Start the process that is forked, unless it runs; it imports `tests.support.preloaded`."""
    _context.set_forkserver_preload(["tests.support.preloaded"])
    with mock.patch.dict(os.environ, environment(), clear=True), _no_main_module():
        forkserver.ensure_running()


def _no_main_module() -> contextlib.AbstractContextManager[Any]:
    """A new process would import ours, which may be pytest's."""
    return mock.patch.dict(sys.modules, {"__main__": types.ModuleType("__main__")})


def _stream(kind: int, mode: str) -> tuple[int, IO[bytes] | None]:
    """The descriptor of a stream in the new process, and our end if it is a pipe."""
    if kind == subprocess.DEVNULL:
        return os.open(os.devnull, os.O_RDWR), None
    if kind != subprocess.PIPE:
        return kind, None
    reader, writer = os.pipe()
    ours, theirs = (writer, reader) if mode == "wb" else (reader, writer)
    return theirs, open(ours, mode)


class _Descriptor:
    """A file descriptor that the new process gets as one of its own."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Callable[..., int], tuple[Any]]:
        return _detached, (reduction.DupFd(self.number),)


def _detached(duplicate: Any) -> int:
    number: int = duplicate.detach()
    return number


def _child(
    program: str,
    arguments: list[str],
    folder: str,
    environment: Mapping[str, str],
    descriptors: Sequence[int],
    on_terminal: bool,
) -> None:
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    for descriptor in {*descriptors} - {0, 1, 2}:
        os.close(descriptor)
    if on_terminal:  # as `setsid --ctty`: keys send their signals
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdin, sys.stdout, sys.stderr = text_streams()
    sys.argv = ["-c", *arguments]
    sys.path[:] = [str(ROOT), *(path for path in sys.path if path not in ("", str(ROOT)))]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        exec(program, vars(main))
    finally:
        atexit._run_exitfuncs()


def text_streams() -> list[io.TextIOWrapper]:
    """Standard streams, as a fresh interpreter opens them."""
    files = [open(number, mode, closefd=False) for number, mode in enumerate(("rb", "wb", "wb"))]  # noqa: SIM115
    return [io.TextIOWrapper(file, encoding="utf-8", line_buffering=i == 2) for i, file in enumerate(files)]
