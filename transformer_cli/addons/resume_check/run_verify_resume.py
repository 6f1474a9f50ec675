"""`tfm verify-resume`: continue a copy of a run with and without a stop, and compare to the last bit."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from transformer_cli.addons.resume_check import continuation
from transformer_cli.addons.resume_check.continuation import Observed, ResumeTask, answer_file
from transformer_cli.addons.resume_check.differences import Differences, Reached, difference_of
from transformer_cli.addons.resume_check.keys import VerifyResumeConfig
from transformer_cli.config.compose import from_plain, to_plain
from transformer_cli.config.text_values import read_as_written
from transformer_cli.config.train import Device, Sharding, TrainConfig
from transformer_cli.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    DivergedError,
    EnvironmentFault,
    TfmError,
    quoted,
)
from transformer_cli.files import follow, wrap_os_errors
from transformer_cli.logs import LOGGER
from transformer_cli.models.locate import newest_run
from transformer_cli.models.runs import CONFIG_FILE
from transformer_cli.standard_streams import require_stdout
from transformer_cli.training.checkpoints import Checkpoint, CheckpointStore, Damage
from transformer_cli.training.resuming import warn_of_other_environment
from transformer_cli.training.signals import stop_signals

NEVER = 1_000_000_000  # updates between two evaluations
WHOLE, RESUMED = "uninterrupted", "resumed"
_ERRORS: list[type[TfmError]] = [ConfigError, DataError, CheckpointError, EnvironmentFault, DivergedError]


@dataclass(frozen=True)
class Subject:
    """The run that is continued: a copy of its newest checkpoint in the run directory `start`, if it has one."""

    path: Path
    config: dict[str, Any]
    plugins: list[str]  # that the command line names: none is imported because a run names it
    start: Path
    checkpoint: Checkpoint | None

    @property
    def step(self) -> int:
        return 0 if self.checkpoint is None else self.checkpoint.step


def run(config: VerifyResumeConfig) -> None:
    """Print the result to stdout.

    Raises CheckpointError where a resumed run differs, and EnvironmentFault where two uninterrupted ones do.
    """
    require_stdout("the result")
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise ConfigError("`tfm verify-resume`: continues a run in one process. Run it without torchrun")
    prefix = "tfm-verify-resume-"
    with (
        stop_signals(idle="nothing of the run was changed"),
        tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder,
    ):
        subject = find_subject(config, Path(folder) / "start")
        verify_resume(subject, Path(folder), n_updates=config.n_updates, device=config.device)


def verify_resume(subject: Subject, folder: Path, *, n_updates: int, device: Device) -> None:
    """The four processes, and what the comparison of their checkpoints gives. Raises as `run` does."""
    first_half = n_updates // 2
    if subject.config["train"]["sharding"] != Sharding.none.name:
        LOGGER.warning("%s: train.sharding divides it among several processes; one continues it here", subject.path)
    settings = _settings(subject.config, last_step=subject.step + n_updates, device=device)
    where = f"{subject.path}: step {subject.step}"
    LOGGER.info("%s: %d updates without a stop", where, n_updates)
    whole = _continued(subject, folder / "whole", settings, n_updates)
    if subject.checkpoint is not None:
        warn_of_other_environment(subject.checkpoint.state, whole.checkpoint.state["environment"])
    # What a new run has chosen, as the size of its batches, holds for the other processes as it does for a resumed run.
    settings = _settings(whole.checkpoint.state["config"], last_step=subject.step + n_updates, device=device)
    LOGGER.info("%s: the same once more", where)
    again = _continued(subject, folder / "again", settings, n_updates)
    if found := difference_of(whole, again):
        _refuse_machine(found, whole, n_updates)
    shutil.rmtree(folder / "again", ignore_errors=True)  # Windows removes no file that is mapped

    LOGGER.info("%s: %d updates and a stop", where, first_half)
    stopped = _continued(subject, folder / RESUMED, settings, first_half)
    LOGGER.info("%s: %d updates in a new process, from that checkpoint", where, n_updates - first_half)
    resumed = _continued(subject, folder / RESUMED, settings, n_updates - first_half)
    resumed = Reached({**stopped.losses, **resumed.losses}, resumed.checkpoint, resumed.precision)
    found = difference_of(whole, resumed)
    if found.loss is not None and found.loss[0] <= stopped.checkpoint.step:  # nothing had been resumed yet
        _refuse_machine(found, whole, n_updates)
    if found:
        _refuse_resume(found, whole, subject, stop=stopped.checkpoint.step)
    of_all = f"{n_updates} updates, {found.n_tensors} tensors"
    print(f"{RESUMED} = {WHOLE}: {of_all}, equal to the last bit ({_facts(whole)})", flush=True)


# ---- The run


def find_subject(config: VerifyResumeConfig, start: Path) -> Subject:
    """The run that the command line names, its newest checkpoint copied to `start`: the run itself may be trained
    meanwhile, and is only read. Raises TfmError.
    """
    path = newest_run(Path(config.runs)) if config.run is None else follow(Path(config.run))
    if not path.exists():
        raise CheckpointError(f"{path}: no such file or folder. Name a run directory, as runs/NAME")
    checkpoint = _copy_newest(CheckpointStore(path), start) if path.is_dir() else None
    file = path / CONFIG_FILE if path.is_dir() else path
    if checkpoint is None and not (file.is_file() and file.suffix in (".yaml", ".yml")):
        what = f"it has neither checkpoints nor {CONFIG_FILE}" if path.is_dir() else "it is no YAML file"
        raise CheckpointError(f"{path}: is no run: {what}. Name a run directory")
    plain = read_as_written(file) if checkpoint is None else checkpoint.state.get("config")
    return Subject(path, _checked(path, plain, config.plugins), config.plugins, start, checkpoint)


def _checked(path: Path, plain: Any, plugins: Sequence[str]) -> dict[str, Any]:
    """A config of a run, as YAML has it. Raises ConfigError, also where a plugin that it names is not imported."""
    named = plain.get("plugins", []) if isinstance(plain, dict) else []
    if missing := [name for name in named if name not in plugins]:
        raise ConfigError(f"{path}: trains with the plugin {missing[0]}. Add --plugin {missing[0]}")
    try:
        return to_plain(from_plain(TrainConfig, plain))
    except ConfigError as error:
        raise ConfigError(f"{path}: has no config of a run ({error}). Name a run directory") from error


def _copy_newest(store: CheckpointStore, start: Path) -> Checkpoint | None:
    """The newest checkpoint, copied; None for a run that has none yet. Raises CheckpointError for a damaged one."""
    while steps := store.steps():
        path, copy = store.path(steps[-1]), CheckpointStore(start).path(steps[-1])
        try:
            with wrap_os_errors(path, "copy"):
                shutil.copytree(path, copy, symlinks=True)
            return CheckpointStore(start).load(steps[-1])
        except (EnvironmentFault, Damage, shutil.Error) as error:
            if path.is_dir():
                raise CheckpointError(f"{path}: {error}. Restore it, or remove it to begin with the one before") from (
                    error
                )
            shutil.rmtree(copy, ignore_errors=True)  # the run has deleted it meanwhile, and has a newer one
    return store.newest()  # raises if all have been set aside as damaged


def _settings(plain: Mapping[str, Any], *, last_step: int, device: Device) -> dict[str, Any]:
    """The config of the processes: that of the run without evaluations, and long enough for the updates."""
    train = dict(plain["train"])
    if isinstance(train["max_steps"], int):
        train |= {"max_steps": max(train["max_steps"], last_step), "max_epochs": None, "budget": None}
    train |= {"eval_every": NEVER, "save_every": NEVER, "patience": None, "profile": False}
    train |= {"keep_last": 1, "keep_best": 1, "average_last": 1, "sharding": Sharding.none.name}
    chosen = {} if device is Device.auto else {"device": device.name}
    return {**plain, **chosen, "train": train, "force": False}


# ---- The processes


def _continued(subject: Subject, run_dir: Path, settings: dict[str, Any], n_updates: int) -> Reached:
    """A new process continues what is in `run_dir`, or else a copy of the start of the subject."""
    with wrap_os_errors(run_dir, "copy the checkpoint"):
        if not run_dir.exists() and subject.checkpoint is not None:
            shutil.copytree(subject.start, run_dir)
        run_dir.mkdir(exist_ok=True)
        task_file = run_dir.with_name(f"{run_dir.name}.json")
        answer_file(task_file).unlink(missing_ok=True)
        task = ResumeTask(str(run_dir), n_updates, settings, subject.plugins)
        task_file.write_text(json.dumps(asdict(task)), encoding="utf-8")
    end = start_process(task_file)
    if not answer_file(task_file).exists():
        raise EnvironmentFault(
            f"the process that continues the run has {end}. If the memory was full, close other programs; otherwise"
            " report it"
        )
    answer = Observed(**json.loads(answer_file(task_file).read_bytes()))
    if answer.error:
        kind = next((one for one in _ERRORS if one.exit_code == answer.exit_code), EnvironmentFault)
        raise kind(answer.error.replace(str(run_dir), run_dir.name))
    store = CheckpointStore(run_dir)
    losses = {int(step): loss for step, loss in answer.losses.items()}
    if max(losses) not in store.steps():
        raise CheckpointError(
            f"update {max(losses)}: was not saved, as its loss or a weight is not a finite number."
            " Choose a run that has not diverged"
        )
    try:
        return Reached(losses, store.load(max(losses)), answer.precision)
    except Damage as damage:
        raise CheckpointError(f"{store.path(max(losses))}: {damage}. Check the disk of temporary files") from damage


def start_process(task_file: Path) -> str:
    """Run the task in a new interpreter, to its end; return how it has ended."""
    command = [sys.executable, "-m", continuation.__name__, str(task_file)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    last_line = done.stdout.decode(errors="backslashreplace").strip().rpartition("\n")[2]
    return f"ended with status {done.returncode} ({quoted(last_line, 200)})"


# ---- The result


def _facts(reached: Reached) -> str:
    """What the last bits depend on beside config and data."""
    state = reached.checkpoint.state
    environment, n_threads = state["environment"], state["environment"]["threads"]
    threads = f", {n_threads} thread{'s' if n_threads > 1 else ''}" if n_threads else ""  # none where a GPU computes
    compiled = "compiled" if environment["compiled"] else "not compiled"
    return (
        f"{environment['device']}, {reached.precision}{threads}, train.compile={state['config']['train']['compile']},"
        f" {compiled}, torch {environment['torch']}"
    )


def _refuse_machine(found: Differences, whole: Reached, n_updates: int) -> NoReturn:
    print(f"{WHOLE} ≠ {WHOLE}, in two processes that did the same ({_facts(whole)})")
    print("\n".join(found.lines("first", "second")), flush=True)
    raise EnvironmentFault(
        f"training is not deterministic here: {n_updates} updates without a stop differ between two processes, so that"
        " a resumed run cannot be compared. Usual causes are kernels that add in another order each time, a compiler"
        " that chooses them by measuring, and a plugin that draws numbers of its own. Try train.compile=none in the"
        " run's config, train.precision=fp32, OMP_NUM_THREADS=1 or --device cpu"
    )


def _refuse_resume(found: Differences, whole: Reached, subject: Subject, *, stop: int) -> NoReturn:
    print(f"{RESUMED} ≠ {WHOLE}, stopped after update {stop} ({_facts(whole)})")
    print("\n".join(found.lines(WHOLE, RESUMED)), flush=True)
    raise CheckpointError(
        f"{subject.path}: a resumed run differs from the uninterrupted one, although two uninterrupted ones are equal."
        " Usual causes are a plugin with state that no checkpoint holds (an optimizer, a schedule, a model), and with"
        " train.compile other kernels after the start. Try without them; if it stays so, report it as a bug"
    )
