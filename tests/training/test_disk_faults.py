"""A disk that is full, broken or forbidden costs no save that was acknowledged: rows B1 and B5.

Every file event of a save fails once with each of four errors, in the store alone and in a training run; and a disk of
two megabytes and a limit on file sizes are real.
"""

import errno
import json
import logging
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, slow
from tests.support import trials, zygote
from tests.support.disk import Disk, Event
from tests.support.trials import Judge, Report, Subject
from transformer_cli.training.writers import Recorder

Figures = Callable[[str, str], None]
CODES = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EACCES)
SHORT = ("train.max_steps=4", "train.save_every=1", "train.eval_every=4")
ENVIRONMENT = 5  # exit status


def failing(work: zygote.Work, number: int, code: int, on: Callable[[Event], bool]) -> zygote.Work:
    """`work` on a disk that fails once: at the `number`-th of the events that are counted."""

    def work_on_it(report: Report) -> int:
        disk = Disk(Path.cwd())
        disk.install()
        failed = disk.fail_at(number, code, on=on)
        try:
            return work(report)
        finally:
            for event in failed:
                report(f"failed {event.number} {event.what} {event.path}")

    return work_on_it


def _of_a_save(event: Event) -> bool:
    """Events from the first to the last of one save in the middle of a run, with the tidying that follows it."""
    return bool(re.search(r"(checkpoints|\.tmp-step-00000003|step-00000003|best|latest)", event.path))


def _errors(output: str) -> list[str]:
    return [line for line in output.split("\n") if line.startswith("tfm: ") and "equal in 100%" not in line]


def save_fails_at_each_event(stride: int, codes: list[int], what: str) -> dict[str, Any]:
    """Let one event fail, then go on as a user would, with the same command."""
    subject = trials.saving(Path.cwd()) if what == "saving" else trials.training(Path.cwd(), SHORT)
    problems: list[str] = []
    n_trials = 0
    for i, code in enumerate(codes):
        number = 1 + i % stride
        while True:
            judge = Judge(subject, subject.copy(), f"{errno.errorcode[code]} at event {number}")
            end = zygote.finish(zygote.start(failing(subject.work, number, code, _of_a_save), judge.trial))
            failed = [line.split(" ", 3) for line in end.reports if line.startswith("failed ")]
            if not failed:
                judge.follow(end)
                problems += judge.problems
                break
            n_trials += 1
            judge.what += f" ({' '.join(failed[0][2:])})"
            judge.inspect()
            if what == "saving":
                _judge_store(judge, end)
            else:
                _judge_run(judge, end, code)
            # A run knows which steps it has failed to save, and averages those that it has.
            judge.compared = ("weights", "trained", "best") if what == "training" else ()
            problems += judge.finish()
            number += stride
    return {"trials": n_trials, "problems": problems}


def _judge_store(judge: Judge, end: zygote.End) -> None:
    judge.follow(end, expected=(0, 99))
    fault = end.output.rstrip().split("\n")[-1]
    if end.status == 99 and not re.search(r"EnvironmentFault: .*trial/run.*: cannot ", fault):
        judge.blame(f"UNCLEAR: {fault}")
    if end.status == 99 and ": cannot save" in fault and not re.search(r"cannot save [0-9,]+ bytes", fault):
        judge.blame(f"UNCLEAR: {fault}")


def _judge_run(judge: Judge, end: zygote.End, code: int) -> None:
    judge.follow(end, expected=(0, ENVIRONMENT))
    logged = [line for line in _errors(end.output) if os.strerror(code) in line]
    if end.status == ENVIRONMENT and len([line for line in logged if line.startswith("tfm: error: ")]) != 1:
        judge.blame(f"UNCLEAR: {end.output[-1500:]}")
    if "Traceback" in end.output:
        judge.blame(f"TRACEBACK: {end.output[-1500:]}")
    for line in logged:
        if "not saved" in line and not re.search(r"runs/run/checkpoints\S*: cannot save [0-9,]+ bytes", line):
            judge.blame(f"UNCLEAR: {line}")


@pytest.mark.parametrize(
    ("what", "stride"),
    [
        ("saving", 53),
        slow("saving", 17),
        slow("training", 97),
        pytest.param("saving", 1, marks=pytest.mark.nightly),
        pytest.param("training", 1, marks=pytest.mark.nightly),
    ],
)
def test_B1_B5_whichever_file_event_of_a_save_fails_nothing_is_lost(figures: Figures, what: str, stride: int) -> None:
    result = zygote.call(save_fails_at_each_event, stride=stride, codes=CODES, what=what)
    n_trials, n_bad = result["trials"], len(result["problems"])
    names = ", ".join(errno.errorcode[code] for code in CODES)
    figures(
        f"failing file events, {what}",
        f"{n_trials - n_bad:,} of {n_trials:,} lose nothing: each event × {{{names}}}"
        + (f", each {stride}th" if stride > 1 else ""),
    )
    assert result["problems"] == []
    assert n_trials >= 4


# ---- Real limits


def file_size_is_limited(limits: list[int]) -> dict[str, Any]:
    """Train where no file may grow beyond so many bytes, and again without the limit."""
    subject = trials.training(Path.cwd(), SHORT)
    problems: list[str] = []
    outputs = []
    for limit in limits:

        def work(report: Report) -> int:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))  # noqa: B023
            return subject.work(report)

        judge = Judge(subject, subject.copy(), f"files of at most {limit} bytes")
        end = zygote.finish(zygote.start(work, judge.trial))
        _judge_run(judge, end, errno.EFBIG)
        outputs.append([end.status, end.output])
        problems += judge.finish()
    return {"problems": problems, "outputs": outputs}


def test_B1_a_limit_on_file_sizes_ends_the_run_in_a_line_and_loses_nothing() -> None:
    result = zygote.call(file_size_is_limited, limits=[20_000, 45_000])
    assert result["problems"] == []
    for status, output in result["outputs"]:
        assert status == ENVIRONMENT, output
        assert "File too large" in output


def disk_is_full(mount: str, sizes: list[int]) -> dict[str, Any]:
    """Train on a small disk that has so many bytes left, make room, and train again."""
    folder = Path(mount)
    subject = trials.training(Path.cwd(), SHORT)
    problems: list[str] = []
    statuses = []
    for room in sizes:
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        trial = Path(shutil.copytree(subject.template, folder / "trial"))
        judge = Judge(subject, trial, f"{room} bytes free")
        _fill(folder, room)
        end = zygote.finish(zygote.start(_until_full(subject, folder), trial))
        _judge_run(judge, end, errno.ENOSPC)
        statuses.append(end.status)
        (folder / "filler").unlink()
        judge.inspect()
        problems += judge.finish()
    return {"problems": problems, "statuses": statuses}


def _until_full(subject: Subject, folder: Path) -> zygote.Work:
    """What refuses to start where there is no room for all checkpoints is checked elsewhere: it must be met later."""

    def work(report: Report) -> int:
        usage = shutil.disk_usage
        shutil.disk_usage = lambda path: usage(path)._replace(free=10**9)  # type: ignore[assignment]
        return subject.work(report)

    return work


def _fill(folder: Path, room: int) -> None:
    status = os.statvfs(folder)
    with (folder / "filler").open("wb") as file:
        file.write(bytes(max(0, status.f_bavail * status.f_frsize - room)))


TINY_DISK = """
import json, os, sys, tempfile
from pathlib import Path
from tests.support import zygote
from tests.training.test_disk_faults import disk_is_full
zygote.warm_up()
os.chdir(tempfile.mkdtemp(dir=sys.argv[1]))
print(json.dumps(disk_is_full(sys.argv[2], json.loads(sys.argv[3]))))
"""


def _mounts() -> bool:
    command = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs -o size=2m tmpfs /mnt"]
    return shutil.which("unshare") is not None and subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.skipif(not _mounts(), reason="no file system may be mounted here (unshare -rm)")
@pytest.mark.parametrize("n_rooms", [slow(2), pytest.param(60, marks=pytest.mark.nightly)])
def test_B1_a_disk_that_is_really_full_loses_nothing(tmp_path: Path, figures: Figures, n_rooms: int) -> None:
    sizes = [30_000 + 600_000 * n // (n_rooms - 1) for n in range(n_rooms)]
    (tmp_path / "disk").mkdir()
    arguments = [str(tmp_path), str(tmp_path / "disk"), json.dumps(sizes)]
    script = 'mount -t tmpfs -o size=2m tmpfs "$1" && shift && exec "$@"'
    result = subprocess.run(
        [
            "unshare",
            "-rm",
            "sh",
            "-c",
            script,
            "sh",
            str(tmp_path / "disk"),
            sys.executable,
            "-c",
            TINY_DISK,
            *arguments,
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    n_bad = len(answer["problems"])
    figures("full disks", f"{n_rooms - n_bad} of {n_rooms} lose nothing: a tmpfs of 2 MB, nearly full")
    assert answer["problems"] == []
    assert ENVIRONMENT in answer["statuses"]
    assert 0 in answer["statuses"]


def test_B3_a_disk_full_from_the_start_for_tensorboard_is_told_once_and_printed_by_no_thread(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*args: Any, **kwargs: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.WARNING, logger="tfm"):
        patch.setattr("tensorboard.summary.writer.record_writer.RecordWriter.write", full)
        with Recorder(tmp_path, 0, 0, max_steps=2, updates_per_epoch=1) as recorder:
            for step in (1, 2):
                recorder.dev(step, {"dev_nll": 1.0})
    assert len(caplog.messages) == 1
    assert "No space left on device. Training goes on without it" in caplog.text
    assert capsys.readouterr().err == ""
    assert (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").count("dev_nll") == 2
