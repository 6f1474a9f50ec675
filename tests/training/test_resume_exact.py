"""A resumed run is the same run: from every step, however it was stopped, every number is equal to the last bit.

Rows A16 and A17, with dropout, several micro-batches an update and several epochs. Not here, because a CPU has no fp16:
the gradient scaler (test_precision.py); the moving average and other optimizers have tests of their own.
"""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import slow
from tests.support import trials, zygote
from tests.support.trials import Judge, Report

LONG = (
    "train.tokens_per_update=24",
    "train.max_tokens_per_microbatch=8",
    "train.save_every=1",
    "train.eval_every=20",
    "train.samples=0",
)
Figures = Callable[[str, str], None]
ENDINGS = {"exception": 130, "SIGTERM": 143, "SIGKILL": -9}  # exit statuses


def resumed(points: list[tuple[int, str, str]], n_steps: int) -> dict[str, Any]:
    """Stop a run as it begins a step, and compare what it comes to with the run that was never stopped."""
    long = (*LONG, f"train.max_steps={n_steps}")
    subjects = {
        precision: trials.training(
            Path.cwd() / precision, (*long, f"train.precision={precision}"), prepare=_report_batches
        )
        for precision in sorted({precision for _, precision, _ in points})
    }
    problems: list[str] = []
    for step, precision, ending in points:
        subject = subjects[precision]
        judge = Judge(subject, subject.copy(), f"{precision}, {ending} at step {step}")
        end = zygote.finish(zygote.start(_stopped(subject.work, step, ending), judge.trial))
        judge.follow(end, expected=(ENDINGS[ending],))
        saved = step if ending == "SIGTERM" else step - 1
        if judge.acknowledged < saved - (ending != "SIGTERM"):  # the save before may have been going on
            judge.blame(f"LOST: {judge.acknowledged} is the last save")
        problems += judge.finish()
    return {
        "problems": problems,
        "metrics": [subject.expected["metrics"] for subject in subjects.values()],
        "reports": subjects[points[0][1]].reports,
    }


def _stopped(work: zygote.Work, at_step: int, ending: str) -> zygote.Work:
    from transformer_cli.training.trainer import Trainer

    update = Trainer.train_step

    def stopping(self: Trainer, *args: Any, **kwargs: Any) -> Any:
        if kwargs["step"] == at_step:
            if ending == "exception":
                raise KeyboardInterrupt
            os.kill(os.getpid(), getattr(signal, ending))
        return update(self, *args, **kwargs)

    def stopped(report: Report) -> int:
        Trainer.train_step = stopping  # type: ignore[method-assign]
        return work(report)

    return stopped


def _report_batches(report: Report) -> None:
    """Let this process report of each update its epoch and its number of micro-batches too."""
    from transformer_cli.data.batching import BatchPlan
    from transformer_cli.training.trainer import Trainer

    plan, update = BatchPlan.update, Trainer.train_step

    def planned(self: BatchPlan, n: int) -> Any:
        report(f"epoch {n // self.updates_per_epoch}")
        return plan(self, n)

    def updated(self: Trainer, batches: Any, **kwargs: Any) -> Any:
        report(f"batches {len(batches)}")
        return update(self, batches, **kwargs)

    BatchPlan.update, Trainer.train_step = planned, updated  # type: ignore[method-assign]
    zygote.reporting(report)


def resume_everywhere(figures: Figures, precision: str, n_steps: int, every: int) -> None:
    steps = range(1, n_steps + 1, every)
    points = [(step, precision, ending) for step in steps for ending in ENDINGS]
    if every > 1:  # another ending at each step
        points = points[:: len(ENDINGS) + 1]
    result = zygote.call(resumed, points=points, n_steps=n_steps)
    n_bad = len(result["problems"])
    figures(
        f"resume points, {precision}",
        f"{len(points) - n_bad} of {len(points)} equal to the last bit: {len(steps)} steps ×"
        f" {{{', '.join(ENDINGS)}}}{', in rotation' if every > 1 else ''}",
    )
    assert result["problems"] == []
    (metrics,) = result["metrics"]
    updates = [entry for entry in map(json.loads, metrics) if entry["kind"] == "train"]
    assert [entry["step"] for entry in updates] == list(range(1, n_steps + 1))
    assert len({entry["loss"].hex() for entry in updates}) == n_steps
    n_batches = [int(line.split()[1]) for line in result["reports"] if line.startswith("batches")]
    epochs = {int(line.split()[1]) for line in result["reports"] if line.startswith("epoch")}
    assert len(n_batches) == n_steps
    assert sum(n > 1 for n in n_batches) > 0.75 * n_steps  # the last update of an epoch may be small
    assert len(epochs) >= 3


@pytest.mark.parametrize(("n_steps", "every"), [slow(60, 23), pytest.param(60, 1, marks=pytest.mark.nightly)])
def test_A16_a_run_resumed_at_any_step_is_the_same_run_to_the_last_bit(
    figures: Figures, n_steps: int, every: int
) -> None:
    resume_everywhere(figures, "fp32", n_steps, every)


@pytest.mark.parametrize(("n_steps", "every"), [slow(60, 29), pytest.param(60, 1, marks=pytest.mark.nightly)])
def test_A17_so_it_is_in_bf16(figures: Figures, n_steps: int, every: int) -> None:
    resume_everywhere(figures, "bf16", n_steps, every)
