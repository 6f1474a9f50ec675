"""Runs jobs, each with a hostile file, where an audit hook ends the process if anything is run that should not be.

Its arguments are two files, JOBS and RESULTS; test_hostile.py runs it in a forked process.

JOBS is a JSON list of [kind, argument]: the first ones, up to a null, warm up, so that all that tfm imports is there
before the hook is armed. RESULTS gets a JSON line for each job after that. Exit status 99: the hook fired; its last
words are on stderr.
"""

import codecs
import io
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

FIRED = 99
SECONDS = 20  # for one job; none should need two
MEMORY = 2 << 30  # bytes of address space beyond what the warm-up took

# Not `compile`: a traceback reads its lines with it, and what is compiled does nothing before `exec`.
FORBIDDEN = {
    *("exec", "import", "marshal.loads", "marshal.load", "pickle.find_class", "code.__new__"),
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "pty.spawn"),
    *("urllib.Request", "http.client.connect", "ftplib.connect", "builtins.input", "webbrowser.open"),
    *("os.kill", "os.chmod", "os.chown", "os.setxattr", "os.putenv", "sys.addaudithook", "cpython.run_file"),
}
# tfm names its host in the run directory's lock, and TensorBoard in its files.
ALLOWED = {"socket.gethostname"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def arm() -> None:
    """Ends the process, from now on, if code is run, imported or fetched, or a file is opened for writing elsewhere."""
    here = os.getcwd()

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        forbidden = event in FORBIDDEN or (event.startswith(("socket.", "ctypes.")) and event not in ALLOWED)
        if event in ("os.chmod", "os.chown") and isinstance(arguments[0], int):
            forbidden = False  # of a file that this process has opened, which is judged below
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES:
            path = os.fsdecode(arguments[0]) if isinstance(arguments[0], str | bytes | os.PathLike) else here
            path = os.path.realpath(os.path.join(here, path))
            forbidden = not path.startswith((here, "/dev/null"))
        if forbidden:
            os.write(2, f"the hook saw {event} {arguments!r:.300}\n".encode())
            os._exit(FIRED)

    sys.addaudithook(watch)


def command(arguments: list[str]) -> int:
    """`tfm` with these arguments."""
    from transformer_cli.cli import main

    return main(arguments)


def resume(run_dir: str) -> int:
    """Training of the toy run in `run_dir`, by the function that `tfm train` calls."""
    return _reported(lambda: _train(Path(run_dir)))


def read(path: str) -> int:
    """A model file, or a checkpoint of a run directory that holds nothing else."""

    def either() -> None:
        from transformer_cli.models.file import read_model
        from transformer_cli.training.checkpoints import CheckpointStore

        if Path(path).is_dir():
            CheckpointStore(Path(path)).newest()
        else:
            read_model(Path(path))

    return _reported(either)


def open_run(run_dir: str) -> int:
    """The run directory of the toy run, as `tfm train` opens it."""

    def opened() -> None:
        from dataclasses import replace

        from tests.toy.run import config
        from transformer_cli.training.run_directory import open_run

        with open_run(replace(config(), runs=str(Path(run_dir).parent), name=Path(run_dir).name)):
            pass

    return _reported(opened)


def foreign(path: str) -> int:
    """A model of another program, all but its weights."""

    def opened() -> None:
        from transformer_cli.addons.interop.importing import read

        read(Path(path), "hf")

    return _reported(opened)


def import_readers() -> None:
    """What reads the files that a checkpoint may be, and what torch imports when it reads its first."""
    import torch

    from transformer_cli.addons.interop import importing  # noqa: F401

    file = io.BytesIO()
    torch.save({"weight": torch.zeros(1)}, file)
    file.seek(0)
    torch.load(file, weights_only=True)


JOBS: dict[str, Callable[[Any], int]] = {
    "command": command,
    "resume": resume,
    "read": read,
    "open_run": open_run,
    "foreign": foreign,
}


def _train(run_dir: Path) -> None:
    from tests.toy.run import CPU, config, prepared, train

    train(config(max_steps=4), prepared(), run_dir, device=CPU)


def _reported(job: Callable[[], object]) -> int:
    """The exit status of a job, and its error as `tfm` prints it."""
    from transformer_cli.cli import _fail
    from transformer_cli.errors import TfmError

    try:
        job()
    except TfmError as error:
        return _fail(str(error), error.exit_code)
    return 0


def run(kind: str, argument: Any) -> dict[str, Any]:
    stdout, stderr = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    sys.stdin = io.TextIOWrapper(io.BytesIO(b"a b\nc d\n"))
    started = time.perf_counter()
    signal.alarm(SECONDS)  # a job that hangs ends the process
    with redirect_stdout(stdout), redirect_stderr(stderr):
        try:
            status: int | str = JOBS[kind](argument)
        except BaseException as error:
            status = f"{type(error).__name__}: {error}"
    signal.alarm(0)
    stdout.flush()
    return {
        "status": status,
        "stdout": stdout.buffer.getvalue().decode(),  # type: ignore[attr-defined]
        "stderr": stderr.getvalue(),
        "seconds": time.perf_counter() - started,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main(jobs_file: str, results_file: str) -> None:
    from tests.support.compositions import by_hydra
    from transformer_cli.config import compose

    compose.compose = by_hydra  # what is remembered of others is unpickled
    jobs = json.loads(Path(jobs_file).read_bytes())
    start = jobs.index(None)
    for kind, argument in jobs[:start]:
        result = run(kind, argument)
        assert result["status"] == 0, f"the warm-up failed: {result}"
    result = run("command", ["translate", "--checkpoint", "text"])
    assert result["status"] == 4, f"each reader should have been asked whether it reads a text: {result}"
    import_readers()
    for name in ("cp437", "utf_8_sig", "utf_16", "utf_16_le", "utf_16_be", "utf_32", "utf_32_le", "utf_32_be"):
        codecs.lookup(name)  # zipfile has the first, and json guesses among the others
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    with suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (pages * os.sysconf("SC_PAGE_SIZE") + MEMORY, resource.RLIM_INFINITY))
    with open(results_file, "w", encoding="utf-8") as results:
        arm()
        for kind, argument in jobs[start + 1 :]:
            results.write(json.dumps(run(kind, argument)) + "\n")
            results.flush()
