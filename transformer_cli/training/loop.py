"""The training loop, the same on every rank. What only the first rank does beside is an object that is passed in.

There is no random state to restore: every micro-batch draws its dropout from (seed, step, micro-batch), and every
update its sentences from (seed, step).
"""

from contextlib import AbstractContextManager
from typing import NoReturn, Protocol

import torch

from transformer_cli.config.train import OnSpike, TrainConfig
from transformer_cli.data.prefetch import Prefetcher
from transformer_cli.data.prepare import Prepared
from transformer_cli.logs import LOGGER
from transformer_cli.training.batch_size import resolve_batch_size
from transformer_cli.training.checkpoints import Checkpoint
from transformer_cli.training.plan import RunPlan, plan_run
from transformer_cli.training.progress import Evaluation
from transformer_cli.training.ranks import Ranks
from transformer_cli.training.result import TrainResult
from transformer_cli.training.spikes import Spike, not_finite
from transformer_cli.training.state import TrainingState
from transformer_cli.training.trainer import UpdateStats


class Process(Protocol):
    """What a rank does beside its updates: `MainProcess` on the first rank, `Worker` on the others."""

    ranks: Ranks
    result: TrainResult | None  # of the main process, once the run has ended

    def logging(self) -> AbstractContextManager[None]: ...
    def find_checkpoint(self, resume: str) -> Checkpoint | None: ...
    def resume(self, run: TrainingState, checkpoint: Checkpoint | None) -> None: ...
    def begin(self, run: TrainingState, plan: RunPlan) -> bool: ...
    def recording(self, run: TrainingState) -> AbstractContextManager[None]: ...
    def record(self, run: TrainingState, stats: UpdateStats) -> None: ...
    def log(self, run: TrainingState) -> None: ...
    def evaluate(self, run: TrainingState) -> Evaluation | None: ...
    def save(self, run: TrainingState, *, counts: bool, in_doubt: bool = False) -> None: ...
    def save_and_stop(self, run: TrainingState) -> NoReturn: ...
    def diverge(self, run: TrainingState, step: int) -> NoReturn: ...
    def report_spike(self, run: TrainingState, spike: Spike) -> None: ...
    def roll_back(self, run: TrainingState, spike: Spike) -> bool: ...
    def export_best(self, run: TrainingState, plan: RunPlan) -> None: ...


def train(config: TrainConfig, prepared: Prepared, process: Process, *, device: torch.device) -> TrainResult | None:
    """Train from the newest sound checkpoint, if there is one, and export the best model; None on a worker.

    Raises Stopped when a signal asks for it, once everything is saved; DivergedError when the loss is not finite for
    too long; EnvironmentFault for what disk, memory or another rank does; and what the checkpoint store raises.
    """
    with process.logging():
        checkpoint = process.find_checkpoint(config.resume)
        plan = plan_run(config, prepared, device, process.ranks)
        config = resolve_batch_size(plan.config, prepared, device, process.ranks, checkpoint)
        run = TrainingState(config, prepared, device, process.ranks)
        process.resume(run, checkpoint)
        del checkpoint  # as large as the run itself
        if not process.begin(run, plan):
            return process.result
        settings, progress = config.train, run.progress
        with process.recording(run):
            process.ranks.request.is_training = True
            if progress.step == 0 and config.init.from_ is not None:
                evaluate_start(run, process)
            evaluate_if_missing(run, process)
            with Prefetcher(run.batches, progress.step + 1) as batches:
                for step in run.remaining_steps():
                    stats = run.train_step(batches.take(step))
                    process.record(run, stats)
                    if check_loss(run, process):
                        evaluate_if_missing(run, process)
                        continue
                    if run.progress.is_due(settings.log_every, settings):
                        process.log(run)
                        run.reset_metrics()
                    if process.ranks.stop_signal:
                        run.trainer.gather()
                        process.save_and_stop(run)
                    evaluate_and_save(run, process)
            process.export_best(run, plan)
    return process.result


def check_loss(run: TrainingState, process: Process) -> bool:
    """Log updates whose loss is too high or not finite; whether the run was rolled back because of them.

    All ranks read the same numbers, which are sums over all of them, and decide the same. Raises DivergedError after
    too many updates that are not finite.
    """
    update = run.trainer.nonfinite.poll()
    settings, step = run.config.train, update.step
    if update.in_all > run.n_skipped:
        run.n_skipped = update.in_all
        LOGGER.warning(
            "step %d: the loss is not a finite number, and the update is skipped (%d in a row, %d in all)",
            *(step, update.in_a_row, update.in_all),
        )
    if update.in_a_row >= settings.max_nonfinite_steps:
        first = step - update.in_a_row + 1
        if settings.on_spike is OnSpike.rollback and process.roll_back(run, not_finite(first, step)):
            return True
        process.diverge(run, step)
    if settings.on_spike is OnSpike.ignore or update.in_a_row or not step:
        return False
    spike = run.spikes.add(step, update.loss, update.grad_norm)
    if spike is None:
        return False
    process.report_spike(run, spike)
    return settings.on_spike is OnSpike.rollback and process.roll_back(run, spike)


def evaluate_if_missing(run: TrainingState, process: Process) -> None:
    """Evaluate and save where the run was stopped between an update and its evaluation."""
    if run.progress.evaluation_is_missing(run.config.train):
        evaluate_and_save(run, process)


def evaluate_start(run: TrainingState, process: Process) -> None:
    """Score the model that fine-tuning begins with. It is not ranked: no checkpoint is made of it.

    A signal meanwhile ends the run after its first update, which there is something to save of.
    """
    run.trainer.gather()
    process.evaluate(run)


def evaluate_and_save(run: TrainingState, process: Process) -> None:
    """Evaluate and save, each if it is due. Raises Stopped for a signal during the evaluation."""
    settings, progress, trainer = run.config.train, run.progress, run.trainer
    evaluates, saves = progress.evaluation_is_due(settings), progress.is_due(settings.save_every, settings)
    is_one_of_the_best = False
    if evaluates or saves:
        trainer.gather()
    if evaluates:
        evaluation = process.evaluate(run)
        if evaluation is None:
            process.ranks.synchronise(progress.step)
            process.save_and_stop(run)
        progress.forget(evaluation.failed_steps)  # on every rank, or they would disagree on when patience ends
        is_one_of_the_best = progress.rank(evaluation.rank, settings, evaluation.trust)
    is_last = progress.is_over(settings)
    if is_last and not progress.best and not trainer.is_sound():
        process.diverge(run, progress.step)  # with nothing to export
    if is_last or is_one_of_the_best or saves:
        process.save(run, counts=True, in_doubt=is_last)
