"""A process that continues a run for some updates, as `tfm train` does, and stops with a checkpoint.

Its command line names a JSON file of a `ResumeTask`. Beside that file it writes one with the losses or the error.
"""

import json
import math
import signal
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import torch

from transformer_cli.config.compose import from_plain
from transformer_cli.config.train import Precision, TrainConfig
from transformer_cli.errors import ConfigError, Stopped, TfmError
from transformer_cli.plugins import RAISED, load_plugins, plugin_fault
from transformer_cli.training.loop import train
from transformer_cli.training.main_process import MainProcess
from transformer_cli.training.plan import RunPlan
from transformer_cli.training.precision import choose_dtype
from transformer_cli.training.progress import Evaluation
from transformer_cli.training.ranks import Ranks
from transformer_cli.training.run import Start, prepare_run
from transformer_cli.training.signals import StopRequest
from transformer_cli.training.state import TrainingState
from transformer_cli.training.trainer import UpdateStats

_NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


@dataclass(frozen=True)
class ResumeTask:
    """What such a process does: `n_updates` more in `run_dir`, from the newest checkpoint there, if it has one."""

    run_dir: str
    n_updates: int
    config: dict[str, Any]  # of the run, as YAML has it
    plugins: list[str]


@dataclass(frozen=True)
class Observed:
    """What such a process has observed. `losses` are those of the updates by step, in hexadecimal, to the last bit."""

    losses: dict[str, str] = field(default_factory=dict)
    precision: str = ""
    error: str = ""
    exit_code: int = 0


def answer_file(task_file: Path) -> Path:
    return task_file.with_suffix(".answer.json")


class CountedProcess(MainProcess):
    """The main process of a run that stops after `n_updates`, as at a signal, and never evaluates."""

    def __init__(self, run_dir: Path, ranks: Ranks, n_updates: int) -> None:
        super().__init__(run_dir, ranks)
        self.n_updates = n_updates
        self.losses: dict[str, str] = {}

    def record(self, run: TrainingState, stats: UpdateStats) -> None:
        super().record(run, stats)
        self.losses[str(run.progress.step)] = float(stats.loss).hex()
        if len(self.losses) == self.n_updates:
            self.ranks.request.signal = self.ranks.stop_signal = signal.SIGTERM

    def evaluate(self, run: TrainingState) -> Evaluation:
        return Evaluation((math.nan, math.nan), [])

    def export_best(self, run: TrainingState, plan: RunPlan) -> NoReturn:
        """Raises ConfigError: the run has ended before it was stopped."""
        raise ConfigError(
            f"--updates={self.n_updates}: the run ends after {len(self.losses)} more, by {plan.ended_by(0)}."
            " Use a smaller number"
        )


def continue_run(task: ResumeTask) -> Observed:
    """Continue the run. Raises what training raises, but Stopped, which is how it ends."""
    load_plugins(task.plugins)
    config = from_plain(TrainConfig, task.config)
    start = Start.of(config)
    request = StopRequest(is_reporting=False)
    process = CountedProcess(Path(task.run_dir), Ranks(request), task.n_updates)
    request.is_training = True
    prepared = prepare_run(start, start.config, process.ranks, owns_process=True)
    try:
        train(start.config, prepared, process, device=start.device)
    except Stopped:
        if len(process.losses) < task.n_updates:
            raise
    precision = config.train.precision
    name = "tf32" if precision is Precision.tf32 else _NAMES[choose_dtype(precision, start.device)]
    return Observed(process.losses, name)


def main(task_file: Path) -> None:
    """Observed the task in that file. An unexpected error is raised."""
    try:
        answer = continue_run(ResumeTask(**json.loads(task_file.read_bytes())))
    except RAISED as error:
        fault = error if isinstance(error, TfmError) else plugin_fault(error)
        if fault is None:
            raise
        answer = Observed(error=str(fault), exit_code=fault.exit_code)
    answer_file(task_file).write_text(json.dumps(asdict(answer)), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
