"""Trainers that are forked from one process, which has imported torch: a tenth of the time of a start.

A campaign is a function of a test module that forks, kills and resumes many trainers, and returns what it saw as JSON.
It runs in a forked process itself (tests/support/forked.py): one thread, nothing trained yet.
"""

import contextlib
import functools
import gc
import hashlib
import importlib
import json
import os
import re
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.forked import run

# Eight updates in one epoch and a half, each of several micro-batches; dropout, saves that prune, an average.
_WRITTEN = """
    train name=run device=cpu seed=1 data=files recipe=files data.clean=[] data.train=train data.dev=dev
    data.test=test data.source_lang=en data.target_lang=xx data.max_length=20 data.tokenizer.vocab_size=25
    model.n_encoder_layers=1 model.n_decoder_layers=1 model.d_model=16 model.n_heads=2 model.d_ff=32 model.dropout=0.1
    norm=pre schedule=constant schedule.lr=0.01 schedule.warmup_steps=1 decode=greedy decode.max_extra_length=5
    train.tokens_per_update=40 train.max_tokens_per_microbatch=16 train.max_steps=8 train.log_every=1 train.eval_every=4
    train.save_every=2 train.keep_last=2 train.average_last=2 train.samples=1 train.patience=null
"""
COMMAND = _WRITTEN.split()
RUN = Path("runs/run")
PATIENCE = 60.0  # seconds within which a process that should end has to
Work = Callable[[Callable[[str], None]], int]  # is given what reports a line; returns an exit status
_CLOCKED = ("tokens_per_second",)  # what in metrics.jsonl depends on the clock


def call(campaign: Callable[..., Any], **arguments: Any) -> Any:
    """What `campaign(**arguments)` returns in a forked process."""
    request = json.dumps([campaign.__module__, campaign.__name__, arguments])
    with tempfile.TemporaryDirectory() as folder:
        ran = run([request], Path(folder), program="from tests.support.zygote import answer; answer()")
    assert ran.code == 0, ran.err.decode()
    return json.loads(ran.out.splitlines()[-1])


def answer() -> None:
    """Print what the campaign that the command line names returns."""
    module, name, arguments = json.loads(sys.argv[1])
    print(json.dumps(getattr(importlib.import_module(module), name)(**arguments)))


def warm_up() -> None:
    """Import all that a training run imports on its way, without what else a run would leave in this process."""
    import torch

    torch.set_num_threads(1)
    compose()

    def names_of_modules(report: Callable[[str], None]) -> int:
        before = set(sys.modules)
        write_corpus(Path.cwd())
        status = train()
        report(json.dumps([name for name in sys.modules if name not in before]))
        return status

    with tempfile.TemporaryDirectory() as folder:
        end = finish(start(names_of_modules, Path(folder)))
        assert end.status == 0, end.output
    for module in json.loads(end.reports[-1]):
        with contextlib.suppress(ImportError):  # made by hand, not imported
            importlib.import_module(module)
    gc.freeze()  # a collection in a fork would copy every page


# ---- One process


@dataclass
class Process:
    pid: int
    reports: int  # the end of a pipe
    output: Path


@dataclass(frozen=True)
class End:
    """How a process ended: `status` is negative for a signal."""

    status: int
    reports: list[str]
    output: str
    seconds: float = 0.0

    def numbers(self, what: str) -> list[int]:
        """The numbers of the reports `<what> <number>`."""
        return [int(line.split()[1]) for line in self.reports if line.startswith(f"{what} ")]


def start(work: Work, folder: Path, *, label: str = "", env: Mapping[str, str] | None = None) -> Process:
    """Fork a process that works in `folder`, in a session of its own, and may report lines of text."""
    assert len(os.listdir("/proc/self/task")) == 1, "forking a process of several threads"
    reader, writer = os.pipe()
    output = folder.with_name(f"{folder.name}{label}.output")
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        os.close(writer)
        return Process(pid, reader, output)
    status, write = 99, os.write
    try:
        os.setsid()
        os.chdir(folder)
        os.environ.update(env or {})
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for descriptor in (1, 2):
            os.dup2(file, descriptor)
        status = work(lambda line: _write_all(write, writer, f"{line}\n".encode()))
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _write_all(write: Callable[[int, bytes], int], descriptor: int, content: bytes) -> None:
    while content:
        content = content[write(descriptor, content) :]


def finish(process: Process, *, kill_after: float | None = None) -> End:
    """Wait for a process, or kill it after so many seconds if it is not done by then."""
    began = time.monotonic()
    chunks = []
    while True:  # read as it comes: a pipe holds no more than 64 kB
        left = None if kill_after is None else max(0.0, began + kill_after - time.monotonic())
        readable, _, _ = select.select([process.reports], [], [], left)
        if not readable:
            os.kill(process.pid, signal.SIGKILL)
            kill_after = None
            continue
        chunk = os.read(process.reports, 65536)
        if not chunk:
            break
        chunks.append(chunk)
    _, status = os.waitpid(process.pid, 0)
    os.close(process.reports)
    lines = b"".join(chunks).decode().split("\n")[:-1]
    output = process.output.read_text(encoding="utf-8", errors="replace") if process.output.exists() else ""
    return End(os.waitstatus_to_exitcode(status), lines, output, time.monotonic() - began)


def session_is_empty(session: int, *, within: float = 5.0) -> bool:
    """Whether no process of a session is left (A26)."""
    deadline = time.monotonic() + within
    while _living(session):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def _living(session: int) -> list[str]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, its_session = stat.read_text(encoding="utf-8").rpartition(")")[2].split()[:4]
            if its_session == str(session) and state not in "ZX":
                found.append(stat.parent.name)
    return found


# ---- A training run


def write_corpus(folder: Path) -> None:
    """The text that every trial trains on, under the same relative names."""
    from tests.toy.run import sentences

    folder.mkdir(parents=True, exist_ok=True)
    for split, n, seed in (("train", 60, 1), ("dev", 6, 2), ("test", 3, 3)):
        text = [f"{line}\n" for line in sentences(n, seed=seed)]
        (folder / f"{split}.en").write_text("".join(text), encoding="utf-8")
        (folder / f"{split}.xx").write_text("".join(line.upper() for line in text), encoding="utf-8")


def train(overrides: Sequence[str] = ()) -> int:
    """`tfm train` in the working folder, in this process; its exit status. `compose` first, before forking."""
    from transformer_cli import cli
    from transformer_cli.config import compose as configs

    configs.load_config = lambda name, arguments, **options: compose(overrides)
    return cli.main([*COMMAND, *overrides])


@functools.cache
def _loader() -> Callable[..., Any]:
    from transformer_cli.config.compose import load_config

    return load_config


_composed: dict[tuple[str, ...], Any] = {}


def compose(overrides: Sequence[str] = ()) -> Any:
    """The config of a trial, composed once: it takes as long as the training."""
    key = tuple(overrides)
    if key not in _composed:
        _composed[key] = _loader()("train", [*COMMAND[1:], *overrides])
    return _composed[key]


def reporting(report: Callable[[str], None]) -> None:
    """Let this process report each checkpoint that it found, and each save once it has been acknowledged."""
    from transformer_cli.training.checkpoints import CheckpointStore

    save, newest = CheckpointStore.save, CheckpointStore.newest

    def reporting_save(store: Any, checkpoint: Any, *args: Any, **kwargs: Any) -> Any:
        returned = save(store, checkpoint, *args, **kwargs)
        report(f"saved {checkpoint.step}")
        return returned

    def reporting_newest(store: Any, *args: Any, **kwargs: Any) -> Any:
        found = newest(store, *args, **kwargs)
        report(f"found {0 if found is None else found.step}")
        return found

    CheckpointStore.save, CheckpointStore.newest = reporting_save, reporting_newest  # type: ignore[method-assign]


def outcome(folder: Path) -> dict[str, Any]:
    """All of a finished run that must not depend on how often it was stopped."""
    run = folder / RUN
    checkpoints = sorted(path.name for path in (run / "checkpoints").iterdir())
    return {
        "model": sha256(run / "model.safetensors"),
        "result": sha256(run / "result.json"),
        "checkpoints": checkpoints,
        "manifests": [sha256(run / "checkpoints" / name / "manifest.json") for name in checkpoints],
        "best": os.readlink(run / "best"),
        "weights": [
            sha256(run / "checkpoints" / checkpoints[-1] / f"{name}.safetensors") for name in ("model", "optimizer")
        ],
        "metrics": metrics(folder),
        "trained": [line for line in metrics(folder) if '"kind": "final"' not in line],
    }


def metrics(folder: Path) -> list[str]:
    """The lines of metrics.jsonl without what the clock says; floats print as they are, to the last bit."""
    *lines, rest = (folder / RUN / "metrics.jsonl").read_bytes().split(b"\n")
    entries = [json.loads(line) for line in lines] + [{"torn": rest.decode()}] * bool(rest)
    return [json.dumps({key: value for key, value in entry.items() if key not in _CLOCKED}) for entry in entries]


def leftovers(folder: Path) -> list[str]:
    """What a finished run should not have left about."""
    names = (str(path.relative_to(folder)) for path in folder.rglob("*"))
    return sorted(
        name for name in names if re.search(r"(^|/)\.(?!lock$|owner$|prepared-\w+\.lock$|hypotheses\..+\.input$)", name)
    )


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
