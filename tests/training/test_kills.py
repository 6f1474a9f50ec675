"""A finished save is never lost: runs that are killed, or lose power, at any instant go on as if nothing had happened.

Rows A1 to A4, A12 and A26. Trainers are forked from a process that has imported torch: zygote.py, disk.py, trials.py.
"""

import hashlib
import math
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, slow
from tests.support import trials, zygote
from tests.support.disk import AFTERMATHS
from tests.support.trials import Judge
from tests.support.zygote import RUN
from transformer_cli.errors import CheckpointError
from transformer_cli.training.checkpoints import CheckpointStore, Damage

Figures = Callable[[str, str], None]
SHORT = ("train.max_steps=3", "train.save_every=1", "train.eval_every=3")  # three saves, the last one prunes

nightly = pytest.mark.nightly


# ---- Any instant


def killed_at_random(n_kills: int, seed: int, n_ranks: int) -> dict[str, Any]:
    """Kill training runs after a time drawn from all that they take, resume, sometimes kill again, and compare."""
    draw = random.Random(seed)
    subject = trials.training(Path.cwd()) if n_ranks == 1 else _ranked_training(n_ranks)
    problems: list[str] = []
    phases: Counter[str] = Counter()
    n_trials = 0
    while phases.total() < n_kills:
        n_trials += 1
        judge = Judge(subject, subject.copy(), f"trial {n_trials}")
        while True:
            instant = draw.uniform(0, subject.seconds)
            judge.what += f", {instant:.3f} s"
            was_killed = _kill_once(judge, instant, draw, n_ranks)
            if was_killed:
                phases[phase(judge.trial)] += 1
            if not was_killed or judge.problems or draw.random() < 0.5:
                break
        judge.inspect()
        if n_ranks == 1:
            problems += judge.finish()
        else:
            problems += _finish_ranks(judge, n_ranks)
    return {"trials": n_trials, "kills": phases.total(), "phases": phases, "problems": problems}


def _kill_once(judge: Judge, instant: float, draw: random.Random, n_ranks: int) -> bool:
    if n_ranks == 1:
        process = zygote.start(judge.subject.work, judge.trial)
        end = zygote.finish(process, kill_after=instant)
        judge.follow(end, expected=(0, -9))
        if not zygote.session_is_empty(process.pid):
            judge.blame("ORPHANED: a process of the killed trainer's session lives on")
        return end.status == -9
    victims = draw.choice([(0,), (1,), (0, 1)])
    processes = _start_ranks(judge, n_ranks)
    time.sleep(instant)
    for rank in victims:
        os.kill(processes[rank].pid, 9)
    ends = [zygote.finish(process, kill_after=zygote.PATIENCE) for process in processes]
    was_killed = any(ends[rank].status == -9 for rank in victims)
    for rank, end in enumerate(ends):
        judge.follow(end, expected=(0, -9) if rank in victims else range(0, 255))
        if rank not in victims and "Traceback" in end.output:
            judge.blame(f"rank {rank} logged of another rank's death in more than a line: {end.output[-1500:]}")
    return was_killed


def _ranked_training(n_ranks: int) -> trials.Subject:
    # A rank whose peer died before they met waits that long, twice at most: there is no torchrun to end it.
    patience = f"train.rank_timeout={zygote.PATIENCE / 4}"
    subject = trials.training(Path.cwd(), [patience])  # of one rank: what it comes to is not compared
    runs = []
    for _ in range(2):
        judge = Judge(subject, subject.copy(), "unbroken")
        began = time.monotonic()
        for process in _start_ranks(judge, n_ranks):
            judge.follow(zygote.finish(process))
        assert not judge.problems, judge.problems
        runs.append((time.monotonic() - began, subject.outcome(judge.trial)))
    assert runs[0][1] == runs[1][1], "not reproducible without a break"
    subject.seconds, subject.expected = runs[0]
    return subject


def _start_ranks(judge: Judge, n_ranks: int) -> list[zygote.Process]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": n_ranks, "LOCAL_WORLD_SIZE": n_ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    environments = [{**shared, "RANK": rank, "LOCAL_RANK": rank} for rank in range(n_ranks)]
    return [
        zygote.start(
            judge.subject.work, judge.trial, label=f".{rank}", env={key: str(value) for key, value in env.items()}
        )
        for rank, env in enumerate(environments)
    ]


def _finish_ranks(judge: Judge, n_ranks: int) -> list[str]:
    if not judge.problems:
        for process in _start_ranks(judge, n_ranks):
            judge.follow(zygote.finish(process, kill_after=zygote.PATIENCE))
    return judge.compare()


def phase(trial: Path) -> str:
    """What a run was doing when it died, from the files that it left."""
    run = trial / RUN
    log = (run / "tfm.log").read_text(encoding="utf-8") if (run / "tfm.log").exists() else ""
    last_step = re.findall(r"step (\d+)/\d+: loss.*$", log.rpartition("starting a new run")[2], re.MULTILINE)[-1:]
    told_dev = re.search(r"step \d+: dev nll.*$", log.rpartition(": loss")[2], re.MULTILINE)
    happened = {
        "opening the run": not (run / "config.yaml").exists(),
        "preparing data": not any(trial.glob("data/files/prepared-*")),
        "scoring the test set": (run / "result.json").exists(),
        "writing the model": any(run.glob(".model*")) or (run / "model.safetensors").exists(),
        "writing a checkpoint": any(run.glob("checkpoints/.tmp-*")),
        "pruning": any(run.glob("checkpoints/.del-*")),
        "averaging": (run / "checkpoints" / "step-00000008").exists(),
        "starting or resuming": not last_step
        or log.rstrip().endswith(("a new run", f"resuming from step {last_step[0]}")),
        "validating": last_step in (["4"], ["8"]) and told_dev is None,
    }
    return next((name for name, is_so in happened.items() if is_so), "updating")


def _report_kills(result: dict[str, Any], figures: Figures, name: str) -> None:
    lost, unusable, diverged = (
        sum(word in problem for problem in result["problems"]) for word in ("LOST", "UNUSABLE", "DIVERGED")
    )
    n_good = result["kills"] - len(result["problems"])
    figures(
        name, f"{n_good:,} of {result['kills']:,} kills: {unusable} unusable, {lost} saves lost, {diverged} diverged"
    )
    shares = ", ".join(f"{what} {n:,}" for what, n in sorted(result["phases"].items(), key=lambda item: -item[1]))
    figures(f"{name}, by what the run was doing", shares)
    print(name, result["trials"], "trials", result["kills"], "kills:", shares)


@pytest.mark.parametrize(
    ("n_ranks", "n_kills"),
    [slow(1, 40), slow(2, 2), pytest.param(1, 700, marks=nightly), pytest.param(2, 300, marks=nightly)],
)
def test_A4_a_run_killed_at_any_instant_ends_as_the_same_run(figures: Figures, n_ranks: int, n_kills: int) -> None:
    result = zygote.call(killed_at_random, n_kills=n_kills, seed=n_kills, n_ranks=n_ranks)
    _report_kills(result, figures, f"kills at random instants, {n_ranks} rank{'s' * (n_ranks > 1)}")
    assert result["problems"] == []
    if n_ranks == 1:
        assert result["kills"] >= n_kills
        assert len(result["phases"]) >= 4, "the instants are not spread over the run"


def orphans() -> dict[str, bool]:
    """Whether a killed trainer, and a process that leaves a child behind, leave their sessions empty."""
    from transformer_cli.training.trainer import Trainer

    subject, update = trials.training(Path.cwd()), Trainer.train_step

    def pausing(self: Trainer, *args: Any, **kwargs: Any) -> Any:
        if kwargs["step"] == 4:
            signal.pause()  # until it is killed, however fast it was before
        return update(self, *args, **kwargs)

    def work(report: trials.Report) -> int:
        Trainer.train_step = pausing  # type: ignore[method-assign]
        return subject.work(report)

    process = zygote.start(work, subject.copy())
    killed = zygote.finish(process, kill_after=subject.seconds / 2)
    assert killed.status == -9

    def parent(report: trials.Report) -> int:
        if os.fork() == 0:
            os.close(1)
            os.closerange(3, 64)  # the pipe that the caller reads to its end
            time.sleep(3)
        return 0

    careless = zygote.start(parent, subject.copy())
    zygote.finish(careless)
    return {
        "trainer": zygote.session_is_empty(process.pid),
        "careless": zygote.session_is_empty(careless.pid, within=0.2),
    }


def test_A26_no_process_outlives_its_trainer() -> None:
    assert zygote.call(orphans) == {"trainer": True, "careless": False}


# ---- Every file event


def killed_at_events(**arguments: Any) -> dict[str, Any]:
    return trials.boundaries(Path.cwd(), **arguments)


@pytest.mark.parametrize(
    ("what", "stride"),
    [
        ("saving", 67),
        slow("saving", 17),
        slow("training", 293),
        pytest.param("saving", 1, marks=nightly),
        pytest.param("training", 1, marks=nightly),
    ],
)
def test_A1_killed_or_without_power_at_every_file_event_it_goes_on(figures: Figures, what: str, stride: int) -> None:
    result = zygote.call(killed_at_events, what=what, overrides=SHORT, aftermaths=AFTERMATHS, stride=stride)
    n_trials, n_bad = result["trials"], len(result["problems"])
    figures(
        f"deaths at file events, {what}",
        f"{n_trials - n_bad:,} of {n_trials:,} recover: {result['events']} events × {{before, after}} ×"
        f" {{{', '.join(AFTERMATHS)}}}" + (f", each {stride}th" if stride > 1 else ""),
    )
    print(what, n_trials, "trials", result["events"], "events")
    assert result["problems"] == []
    assert result["events"] > 20  # 4 files and 2 folders to sync, renames, a link, deletions
    assert n_trials >= result["events"] * 2 * len(AFTERMATHS) // stride - len(AFTERMATHS)


@pytest.mark.parametrize(
    ("on", "aftermaths", "n_events"),
    [
        # A2, between publishing and pruning: the new checkpoint is used.
        (r"^rename run/checkpoints/\.tmp-", AFTERMATHS, 1),
        # A3, while pruning: no listed checkpoint is half there. A rename, four files and the folder.
        (r"^rename run/checkpoints/step-|/\.del-", ["kill"], 6),
    ],
)
def test_A2_A3_killed_before_or_while_pruning_it_goes_on(on: str, aftermaths: list[str], n_events: int) -> None:
    result = zygote.call(killed_at_events, what="saving", overrides=SHORT, aftermaths=aftermaths, on=on)
    assert result["problems"] == []
    assert result["trials"] == 2 * len(aftermaths) * n_events  # before and after each


@pytest.mark.parametrize(
    ("mutant", "aftermath", "word"),
    [
        slow("forget_file_syncs", "emptied", "HALF"),
        ("forget_file_syncs", "torn", "HALF"),
        ("forget_folder_syncs", "names lost", "LOST"),
        slow("save_in_place", "kill", "HALF"),
        slow("delete_in_place", "kill", "HALF"),
    ],
)
def test_the_check_fails_for_a_program_that_is_written_wrongly(mutant: str, aftermath: str, word: str) -> None:
    result = zygote.call(
        killed_at_events, what="saving", overrides=SHORT, aftermaths=[aftermath], stride=5, mutant=mutant
    )
    assert any(word in problem for problem in result["problems"])


# ---- The order in which the system is asked (A12)

CALLS = "openat,creat,mkdir,mkdirat,write,writev,pwrite64,fsync,fdatasync,rename,renameat,renameat2,symlink,symlinkat"
CALLS += ",unlink,unlinkat"
TRACED = """
import os, sys
from pathlib import Path
from tests.support import zygote
zygote.write_corpus(Path.cwd())
zygote.compose(tuple(sys.argv[1:]))
zygote.reporting(lambda line: os.write(1, f"{line}\\n".encode()))
sys.exit(zygote.train(tuple(sys.argv[1:])))
"""


@dataclass(frozen=True)
class Call:
    """One system call: when it began and ended, in lines of the trace, and the paths that it names."""

    began: int
    ended: int
    name: str
    paths: list[str]
    text: str


def read_trace(trace: str, folder: str) -> list[Call]:
    """The calls that succeeded, in the order in which they began."""
    calls, unfinished = [], {}
    for number, line in enumerate(trace.split("\n")):
        pid, _, text = line.partition(" ")
        text, began = text.strip(), number
        if text.endswith("<unfinished ...>"):
            unfinished[pid] = number, text.removesuffix("<unfinished ...>")
            continue
        if resumed := re.match(r"<\.\.\. \w+ resumed>", text):
            began, first = unfinished.pop(pid)
            text = first + text[resumed.end() :]
        if match := re.match(r"(\w+)\((.*)\) += (\d+)", text):
            name, arguments, _ = match.groups()
            if name in ("fsync", "fdatasync", "write", "writev", "pwrite64"):
                paths = re.findall(r"^\d+<([^>]*)>", arguments)
            else:
                spelt = re.findall(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"([^"]*)"', arguments)
                paths = [os.path.normpath(os.path.join(at or folder, path)) for at, path in spelt]
            calls.append(Call(began, number, name, paths, text))
    return sorted(calls, key=lambda call: call.began)


def disorder(calls: list[Call], folder: str) -> tuple[int, list[str]]:
    """How many names were published by a rename, and what should have been synced before or after one and was not."""
    wrong: list[str] = []
    n_published = 0
    for at, rename in enumerate(calls):
        if not rename.name.startswith("rename") or not rename.paths[0].startswith(f"{folder}/"):
            continue
        source, target = rename.paths
        if re.match(r"\.(del|old|bad)-", os.path.basename(target)):
            continue
        n_published += 1
        before = calls[:at]
        written = {
            path: max(call.ended for call in before if call.name.startswith(("write", "pwrite")) and path in call.paths)
            for path in {path for call in before if "write" in call.name for path in call.paths}
            if path == source or path.startswith(f"{source}/")
        }
        for unlink in before:  # what has gone before the rename need not last
            if unlink.name.startswith("unlink") and written.get(unlink.paths[-1], math.inf) <= unlink.began:
                del written[unlink.paths[-1]]
        makers = ("openat", "creat", "mkdir", "symlink")
        made = [call for call in before if call.name.startswith(makers) and "O_RDONLY" not in call.text]
        filled = [call.ended for call in made if os.path.dirname(call.paths[-1]) == source]
        if filled:
            written[source] = max(filled)
        syncs = [call for call in calls if call.name in ("fsync", "fdatasync")]
        for path, when in written.items():
            if not any(path in call.paths and call.began >= when and call.ended <= rename.began for call in syncs):
                wrong.append(f"{path} was not synced before it was renamed to {target}")
        parent = os.path.dirname(target)
        synced = [call.ended for call in syncs if parent in call.paths and call.began >= rename.ended]
        logged = [call.began for call in calls if call.began >= rename.ended and '"saved ' in call.text]
        if not synced or (logged and min(logged) < min(synced)):
            wrong.append(f"{parent} was not synced between the rename to {target} and what follows")
    return n_published, wrong


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.slow
def test_A12_each_name_is_published_when_all_is_synced(tmp_path: Path, figures: Figures) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-y", "-s", "64", "-o", str(trace), "-e", f"trace={CALLS}"]
    result = subprocess.run(
        [*command, sys.executable, "-c", TRACED, *SHORT],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    if "ptrace" in result.stderr and "Operation not permitted" in result.stderr:
        pytest.skip("strace may not trace here")
    assert result.returncode == 0, result.stderr
    calls = read_trace(trace.read_text(encoding="utf-8", errors="replace"), str(folder))
    n_published, wrong = disorder(calls, str(folder))
    figures("names published in order, by strace", f"{n_published - len(wrong)} of {n_published} renames")
    assert wrong == []
    assert n_published >= 3 + 4  # saves; best, latest, the model and its result
    # The judge sees what is missing: without any one sync of a file or folder it complains.
    for name in ("step-00000002", "model.safetensors"):
        syncs = [call for call in calls if call.name == "fsync" and any(name in path for path in call.paths)]
        assert syncs
        assert all(disorder([call for call in calls if call is not sync], str(folder))[1] for sync in syncs)


# ---- Flipped bytes


def bytes_flipped(n_flips: int, seed: int, unverified: bool = False) -> dict[str, Any]:
    """Change one byte of the newest of two checkpoints at a time, and see whether it is used."""
    from tests.training.test_checkpoints import newest_step, store_with

    if unverified:  # a program whose checksums say yes to everything
        hashlib.sha256 = lambda content=b"", **options: _Constant()  # type: ignore[assignment]
    draw = random.Random(seed)
    store = store_with(Path.cwd() / "run", 1, 2)
    newest = store.path(2)
    files = sorted(newest.iterdir())
    loaded: list[str] = []
    for n in range(n_flips):
        file = files[n % len(files)]
        content = file.read_bytes()
        at, change = draw.randrange(len(content)), draw.randrange(1, 256)
        with file.open("r+b") as handle:
            handle.seek(at)
            handle.write(bytes([content[at] ^ change]))
        is_used = _is_loaded(store)
        if not (is_used or unverified) and n % 50 < len(files):  # and a run goes back to the checkpoint before
            assert newest_step(store) == 1
            (store.folder / f".bad-{newest.name}").rename(newest)
        if is_used:
            loaded.append(f"{file.name} with byte {at} {content[at]:#x} changed by {change:#x}")
        file.write_bytes(content)
    assert _is_loaded(store)  # as it was
    return {"loaded": loaded}


def _is_loaded(store: CheckpointStore) -> bool:
    try:
        store.load(2)
    except (Damage, CheckpointError):
        return False
    return True


class _Constant:
    def hexdigest(self) -> str:
        return "0" * 64

    def digest(self) -> bytes:
        return bytes(32)

    def update(self, content: bytes) -> None:
        pass


@pytest.mark.parametrize("n_flips", [150, pytest.param(10_000, marks=nightly)])
def test_a_flipped_byte_is_never_loaded(figures: Figures, n_flips: int) -> None:
    result = zygote.call(bytes_flipped, n_flips=n_flips, seed=n_flips)
    figures("flipped bytes", f"{n_flips - len(result['loaded']):,} of {n_flips:,} refused")
    assert result["loaded"] == []


def test_flipped_bytes_would_be_loaded_if_nothing_were_verified() -> None:
    assert len(zygote.call(bytes_flipped, n_flips=40, seed=1, unverified=True)["loaded"]) > 10
