"""The first rank, beside its updates: it resumes, logs, evaluates, saves, and exports the best model."""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NoReturn

from transformer_cli.config.compose import to_plain
from transformer_cli.config.data import FOLDERS
from transformer_cli.config.train import OnSpike, TrainConfig
from transformer_cli.errors import (
    CheckpointError,
    ElsewhereError,
    EnvironmentFault,
    LostRankError,
    Stopped,
    TfmError,
    quoted,
)
from transformer_cli.evaluation.held_out import write_held_out
from transformer_cli.evaluation.search_signature import search_signature
from transformer_cli.files import wrap_os_errors, write_whole
from transformer_cli.inference.precision import on_device
from transformer_cli.logs import LOGGER
from transformer_cli.models.device import release_cpu_memory
from transformer_cli.models.file import ModelFile, write_model
from transformer_cli.models.header import MALFORMED, MODEL_FILE
from transformer_cli.models.locate import RESULT_FILE
from transformer_cli.models.memory import is_out_of_memory
from transformer_cli.models.runs import read_config
from transformer_cli.models.transformer import Model
from transformer_cli.training.batch_size import with_batch_size
from transformer_cli.training.checkpoints import Checkpoint, CheckpointStore
from transformer_cli.training.divergence_dump import write_divergence_dump
from transformer_cli.training.floors import broken_floors
from transformer_cli.training.forgetting import OldDev, comparison, find_old_dev, old_scores
from transformer_cli.training.guided_alignment import keep_taught_head
from transformer_cli.training.initialisation import (
    base_facts,
    described_start,
    identity,
    initial_weights,
    named_model,
    warn_if_changed,
)
from transformer_cli.training.length_penalty import Tried, choose
from transformer_cli.training.low_score import low_score_warning
from transformer_cli.training.pictures import attention_picture
from transformer_cli.training.plan import RunPlan, plan_warnings
from transformer_cli.training.profile import Trace
from transformer_cli.training.progress import Evaluation, Progress, Ranked
from transformer_cli.training.ranks import Ranks
from transformer_cli.training.result import TrainResult, averaged_candidates, read_result
from transformer_cli.training.resuming import (
    environment,
    find_checkpoint,
    rank_anew_if_other,
    refuse_other_data,
    require_room,
    warn_of_other_environment,
)
from transformer_cli.training.rollback import go_back
from transformer_cli.training.run_directory import LOG_FILE, write_config
from transformer_cli.training.saver import Saver
from transformer_cli.training.schedules import ends_at_max_steps
from transformer_cli.training.signals import StopNow
from transformer_cli.training.spikes import Spike, batch_number
from transformer_cli.training.state import TrainingState
from transformer_cli.training.summary import summary_lines
from transformer_cli.training.trainer import UpdateStats
from transformer_cli.training.validation import (
    LABELS,
    DevScores,
    TranslationValidator,
    Validator,
    format_scores,
    make_validator,
)
from transformer_cli.training.writers import SPIKE, Recorder, log_file

UNSOUND = "the loss or a weight is not a finite number"
Observer = Callable[[int, Mapping[str, Any]], object]  # is called with a step and its dev scores, by name


class MainProcess:
    """A `Process` that owns the run directory. Its counterpart on the other ranks is `Worker`."""

    validator: Validator
    recorder: Recorder
    saver: Saver
    trace: Trace

    def __init__(self, run_dir: Path, ranks: Ranks, observe: Observer | None = None) -> None:
        self.run_dir, self.ranks, self.observe = run_dir, ranks, observe
        self.store = CheckpointStore(run_dir)
        self.result: TrainResult | None = None
        self.scores: DevScores | None = None  # of this step
        self.old_dev: OldDev | None = None  # of the text that fine-tuning may forget
        self.old_validator: Validator | None = None
        self.old_scores: dict[str, Any] = {}  # of this step
        self.start_scores: dict[str, Any] = {}  # of the model that fine-tuning begins with
        self.init_sha256 = ""  # of that model's file
        self.init_origin: dict[str, Any] = {}  # where that model comes from
        self.ranked_by: dict[str, Any] = {}

    def logging(self) -> AbstractContextManager[None]:
        return log_file(self.run_dir / LOG_FILE)

    # ---- Begin and resume

    def find_checkpoint(self, resume: str) -> Checkpoint | None:
        self.store.sweep()
        return find_checkpoint(self.store, resume)

    def resume(self, run: TrainingState, checkpoint: Checkpoint | None) -> None:
        """Load the checkpoint into `run` on every rank. Raises CheckpointError for one of another model or config."""
        config, model = run.config, run.trainer.whole_model
        self.validator = make_validator(config, run.prepared, run.trainer.device)
        self.ranked_by = self.validator.ranked_by()
        self.validator.check(model)  # not at the first evaluation, hours later
        if checkpoint is None:
            LOGGER.info("%s: starting a new run", self.run_dir)
            if config.init.from_ is not None:
                start = named_model(config)
                initial = initial_weights(config, start, run.prepared.tokenizers)
                drawn = run.trainer.weights()
                run.trainer.load_weights({name: drawn[name] for name in drawn if name not in initial} | initial)
                self.init_sha256, self.init_origin = identity(start.path), base_facts(start.model)
                keep_taught_head(model, start.model)
                old_dev = find_old_dev(config, start, run.prepared)
                if old_dev is not None:
                    old_dev.warn_of_overlap(run.prepared)
                self._score_also(old_dev, run)
            run.load(None)
            return
        is_own = checkpoint.step in self.store.steps()
        if config.init.from_ is not None:
            self._score_also(OldDev.read(self.run_dir), run)
        try:
            self._load(run, checkpoint, is_own=is_own)
        except (RuntimeError, *MALFORMED) as error:  # whole, but not what a run of this config writes
            where = self.store.path(checkpoint.step) if is_own else f"resume={config.resume}"
            raise CheckpointError(
                f"{where}: does not fit this model and config ({quoted(str(error))})."
                " Choose those that it was made with, or another name="
            ) from error
        if not is_own and run.progress.is_over(config.train):
            raise CheckpointError(
                f"resume={config.resume}: is at its last step, {checkpoint.step}. Raise train.max_steps"
            )
        self._tidy(run.progress)
        LOGGER.info("%s: resuming from step %d", self.run_dir, run.progress.step)

    def _load(self, run: TrainingState, checkpoint: Checkpoint, *, is_own: bool) -> None:
        config, steps = run.config, self.store.steps()
        if is_own:  # dev scores stay comparable
            self.validator.multi_sentence_share = checkpoint.model.multi_sentence_share
            self.validator.translates_letterless = checkpoint.model.translates_letterless
        else:  # what was best there has no checkpoint here
            checkpoint.state["progress"] |= {"n_without_best": 0, "highest": None, "lowest_nll": None}
        came_from = str(self.run_dir) if is_own else f"resume={config.resume}"
        refuse_other_data(came_from, checkpoint, run.prepared, force=config.force)
        if is_own and self.validator.keep_metric(checkpoint.state):
            self.ranked_by = self.validator.ranked_by()
        if checkpoint.state["data"] != run.prepared.fingerprint:
            checkpoint.state.pop("spikes", None)  # the loss on other data is another one
        rank_anew_if_other(checkpoint, self.ranked_by, steps=steps)
        warn_of_other_environment(checkpoint.state, self._environment(run))
        self.start_scores = dict(checkpoint.state.get("start_scores", {}))
        self.init_sha256 = str(checkpoint.state.get("init_sha256", ""))
        self.init_origin = dict(checkpoint.state.get("init_origin", {}))
        if config.init.from_ is not None and is_own:
            warn_if_changed(config, self.run_dir, self.init_sha256)
        run.load(checkpoint, steps=steps)
        keep_taught_head(run.trainer.whole_model, checkpoint.model)
        if run.progress.step != checkpoint.step:
            raise ValueError(f"its progress is at step {run.progress.step}")

    def _score_also(self, old_dev: OldDev | None, run: TrainingState) -> None:
        self.old_dev = old_dev
        if old_dev is not None:
            self.old_validator = old_dev.validator(run.config, run.prepared, run.trainer.device)

    def begin(self, run: TrainingState, plan: RunPlan) -> bool:
        """Write the config and log the summary; False if the run has ended before, with `result` set."""
        config, progress = run.config, run.progress
        is_finished = progress.is_over(config.train) and not progress.must_evaluate
        result = read_result(self.run_dir, progress.step) if is_finished else None
        self.ranks.publish("finished", "finished" if result is not None else "")
        if result is not None:
            key, schedule = plan.ended_by(progress.step), config.schedule.name
            goes_on = not ends_at_max_steps(schedule)
            what_next = (
                f"raise {key} to go on" if goes_on else f"schedule={schedule} ends there; a longer run is a new one"
            )
            LOGGER.info("%s: already finished at step %d; %s", self.run_dir, result.step, what_next)
            self._warn_of_length_penalties(
                config.train.length_penalties, f"Raise {key} to train on and choose again, or set" if goes_on else "Set"
            )
            self.result = replace(result, is_new=False, to_raise=key)
            return False
        require_room(self.store, config.train, run.trainer)
        # Not before: a start that is refused changes nothing.
        write_config(with_batch_size(plan.stored_config, config.train.max_tokens_per_microbatch), self.run_dir)
        write_held_out(run.prepared, self.run_dir)
        if self.old_dev is not None:
            self.old_dev.write(self.run_dir)
        for line in summary_lines(config, run.prepared, run.trainer, self.run_dir, plan.chosen, plan.recipe):
            LOGGER.info("%s", line)
        for warning in plan_warnings(config, plan.epoch, plan.chosen):
            LOGGER.warning("%s. %s", warning.what, warning.todo)
        return True

    def _warn_of_length_penalties(self, now: list[float], todo: str) -> None:
        """Warns of other length penalties than those that the finished run has chosen from."""
        with suppress(CheckpointError):  # without the config of the run, as force=true allows
            before = read_config(self.run_dir).train.length_penalties
            if now != before:
                LOGGER.warning(
                    "train.length_penalties=%s: has no effect on a finished run, which had %s. %s"
                    " decode.length_penalty where the model is used",
                    now,
                    before,
                    todo,
                )

    # ---- While the run trains

    @contextmanager
    def recording(self, run: TrainingState) -> Iterator[None]:
        """Open what is written while the run trains. If another rank is lost meanwhile, save what is complete here."""
        progress, settings, device = run.progress, run.config.train, run.trainer.device
        with (
            Recorder(
                self.run_dir,
                progress.step,
                progress.evaluated,
                max_steps=settings.max_steps,
                updates_per_epoch=run.feed.plan.updates_per_epoch,
                rollbacks=progress.rollbacks,
                loggers=settings.loggers,
                config=to_plain(run.config),
                unit=_unit(run),
                log_seconds=settings.log_seconds,
            ) as self.recorder,
            Saver(self.store, device) as self.saver,
            Trace(self.run_dir, device, enabled=settings.profile) as self.trace,
        ):
            try:
                yield
            except (LostRankError, ElsewhereError):
                self._save_without_others(run)
                raise

    def record(self, run: TrainingState, stats: UpdateStats) -> None:
        """Advance the progress bar by one update. Raises EnvironmentFault if saving has failed too often."""
        self.saver.check()
        progress, trainer, settings = run.progress, run.trainer, run.config.train
        with self.recorder.paused():
            self.trace.advance(progress.step)
        # Not before the first update, which creates the optimizer's state.
        if not self.saver.has_memory and not trainer.is_sharded:
            self.saver.reserve(trainer.weights(), trainer.optimizer_state())
        self.recorder.advance(stats.n_tokens)
        if self.recorder.is_silent() and not progress.is_due(settings.log_every, settings):
            means = run.metrics.means()  # waits for the device, which is why it is not read more often
            self.recorder.report_progress(progress.step, None if means is None else means["loss"])

    def log(self, run: TrainingState) -> None:
        """Log the means of the updates since the last time."""
        step, means = run.progress.step, run.metrics.means()
        if means is None:
            return
        counts = {"skipped": run.n_skipped, "split": run.trainer.n_splits}
        nonzero = {name: count for name, count in counts.items() if count}
        self.recorder.train(step, {**means, "lr": run.schedule(step), _unit(run): run.progress.n_tokens, **nonzero})

    def report_spike(self, run: TrainingState, spike: Spike) -> None:
        step, plan, settings = run.progress.step, run.feed.plan, run.config.train
        batches = [batch_number(number, run.progress.skips) for number in (spike.first, spike.last)]
        todo = "" if settings.on_spike is OnSpike.rollback else ". train.clip_norm=1 or a lower rate may avoid it, and"
        LOGGER.warning(
            "step %d: loss spike: %.3f in steps %d to %d, %.3f ± %.3f before; gradient norm %.2f, %.2f before; batches"
            " %d to %d, epoch %.2f%s",
            *(step, spike.loss, spike.first, spike.last, spike.mean, spike.deviation),
            *(spike.grad_norm, spike.mean_grad_norm, *batches, batches[0] / plan.updates_per_epoch),
            todo and f"{todo} train.on_spike=rollback goes back and skips batches",
        )
        self.recorder.event(step, SPIKE, {**spike.values(), "first_batch": batches[0], "last_batch": batches[1]})

    def roll_back(self, run: TrainingState, spike: Spike) -> bool:
        """Go back on all ranks to a checkpoint before `spike`, and skip the batches of then; False if there is none."""
        self.saver.join()
        step, most = run.progress.step, run.config.train.max_rollbacks
        checkpoint = go_back(self.store, run.progress, spike, most=most)
        self.ranks.publish(f"rollback/{step}", "" if checkpoint is None else "yes")
        if checkpoint is None:
            return False
        self.ranks.go_back()
        run.load(checkpoint, steps=self.store.steps())
        self.scores, self.old_scores = None, {}
        try:
            self._tidy(run.progress)
        except EnvironmentFault as fault:
            LOGGER.warning("%s", fault)  # what is newer is replaced as the run goes on
        self.recorder.go_back(run.progress.step, run.progress.evaluated, run.progress.rollbacks)
        return True

    def evaluate(self, run: TrainingState) -> Evaluation | None:
        """Score the model on the dev set, log the scores, and publish their rank; None if a signal comes meanwhile."""
        evaluation = self._evaluate(run)
        self.ranks.publish(f"evaluated/{run.progress.step}", Evaluation.to_json(evaluation))
        return evaluation

    def _evaluate(self, run: TrainingState) -> Evaluation | None:
        step, trainer, failed = run.progress.step, run.trainer, sorted(self.saver.failed_steps)
        try:
            if not trainer.is_sound():
                raise CheckpointError(UNSOUND)
            with self.recorder.paused(), _evaluation_memory(run), trainer.whole() as model:
                scores = self.validator.score(model, trainer.autocast, self._refuse_if_any_rank_signalled)
                old = self._score_old(model, run, self._refuse_if_any_rank_signalled)
                averaged = self._score_ema(run)
                release_cpu_memory()  # the matrices of the search
                pictures = self.validator.attention(model)
        except StopNow:
            return None
        except CheckpointError as error:  # the model gives no numbers
            LOGGER.warning("step %d: no dev scores: %s", step, error)
            return Evaluation((math.nan, math.nan), failed)
        self.scores, self.old_scores = scores, {} if old is None else old_scores(old)
        if step == 0:
            self.start_scores = scores.as_dict() | self.old_scores
        self.recorder.dev(step, {**scores.as_dict(), **self.old_scores, **averaged})
        LOGGER.info("step %d: dev %s", step, scores.summary)
        per_epoch = run.feed.plan.updates_per_epoch
        if low := low_score_warning(run.config, run.progress, scores, updates_per_epoch=per_epoch):
            LOGGER.warning("step %d: %s", step, low)
        if self.observe is not None:
            self.observe(step, scores.as_dict())
        if old is not None:
            assert self.old_dev is not None
            LOGGER.info("step %d: dev (old: %s) %s", step, self.old_dev.data.title, old.summary)
        if "ema_nll" in averaged:
            LOGGER.info("step %d: dev nll %.3f of the moving average", step, averaged["ema_nll"])
        for i, sample in enumerate(self.validator.samples(scores)):
            texts = (sample.source, sample.reference, sample.output)
            LOGGER.info("  source %s, reference %s, output %s", *map(quoted, texts))
            self.recorder.text(step, f"sample/{i + 1}", "{}\n\n{}\n\n**{}**".format(*texts))
        for name, layers_BHTS in pictures.items():
            self.recorder.picture(step, f"attention/{name}", attention_picture(layers_BHTS))
        rank = scores.rank(self.validator.metric_name)
        if broken := self._broken_floors(run.config, scores.as_dict() | self.old_scores):
            LOGGER.info("step %d: below train.floor, so it cannot be the best: %s", step, "; ".join(broken))
            rank = (math.nan, math.nan)
        return Evaluation(rank, failed, self.validator.trust)

    def _broken_floors(self, config: TrainConfig, scores: Mapping[str, Any]) -> list[str]:
        return broken_floors(config.train.floor, self.start_scores, scores, self.validator.metric_name)

    def _score_old(self, model: Model, run: TrainingState, between: Callable[[], None]) -> DevScores | None:
        """The scores on the text that the model was trained on before, where that is at hand."""
        return None if self.old_validator is None else self.old_validator.score(model, run.trainer.autocast, between)

    def _score_ema(self, run: TrainingState) -> dict[str, float]:
        """The dev NLL of the moving average, if there is one."""
        trainer = run.trainer
        if trainer.ema is None or not trainer.ema.is_sound():
            return {}
        with trainer.ema.in_place():
            nll = self.validator.nll(trainer.model, trainer.autocast, self._refuse_if_any_rank_signalled)
        return {"ema_nll": nll} if math.isfinite(nll) else {}

    def _refuse_if_any_rank_signalled(self) -> None:
        """Raise StopNow if a signal came: an evaluation may take longer than the system waits."""
        if self.ranks.is_asked_to_stop():
            raise StopNow

    def _refuse_if_signalled(self) -> None:
        """The same when the other ranks have left already."""
        if self.ranks.request.signal:
            raise StopNow

    # ---- Save and stop

    def save(self, run: TrainingState, *, counts: bool, in_doubt: bool = False) -> None:
        """Write a checkpoint of this step while training goes on; older ones are deleted afterwards.

        It `counts` among those that are kept and averaged unless it is there only because the run stops. Right after a
        skipped update, when the next one may be skipped too, there is none unless `in_doubt`.
        """
        start = time.perf_counter()
        step, progress, trainer = run.progress.step, run.progress, run.trainer
        if not trainer.is_sound() or (trainer.nonfinite.counts()[0] and not in_doubt):
            LOGGER.warning("step %d: not saved: %s", step, UNSOUND)
            progress.forget([step])
            return
        self.saver.join()  # so that its failure is known before older checkpoints are deleted
        progress.forget(self.saver.failed_steps)
        if counts:
            progress.keep(run.config.train)
        config = run.config
        state = {
            "data": run.prepared.fingerprint,
            "inputs": run.prepared.inputs,
            "ranked_by": self.ranked_by,
            "config": to_plain(run.config),
            "environment": self._environment(run),
            "progress": progress.state(),
            "interval": run.metrics.state(),
            "spikes": run.spikes.state(),
            **({"init_sha256": self.init_sha256, "start_scores": self.start_scores} if config.init.from_ else {}),
            **({"init_origin": self.init_origin} if self.init_origin else {}),
            **trainer.state(),
        }
        checkpoint, now = Checkpoint(step, self._model_file(run), trainer.optimizer_state(), state), replace(progress)
        with self.recorder.paused():
            self.saver.save(checkpoint, lambda: self._tidy(now), since=start)

    def save_and_stop(self, run: TrainingState) -> NoReturn:
        """Raises Stopped once the checkpoint is on the disk."""
        settings = run.config.train
        self.save(run, counts=run.progress.is_due(settings.save_every, settings), in_doubt=True)
        self.saver.wait()
        self.ranks.publish("saved", "")
        raise Stopped(self.ranks.stop_signal, f"{self.run_dir}: {self._newest()}")

    def _save_without_others(self, run: TrainingState) -> None:
        """Another rank is lost. The last update is complete here, unless a GPU is still reducing its gradient."""
        self.saver.join()
        is_whole = run.trainer.device.type == "cpu" and not run.trainer.is_sharded
        if is_whole and run.progress.step and run.progress.step not in self.store.steps():
            try:
                self.save(run, counts=False, in_doubt=True)
                self.saver.wait()
            except TfmError as error:
                LOGGER.warning("%s", error)

    def diverge(self, run: TrainingState, step: int) -> NoReturn:
        """Raises DivergedError once the update is kept for `tfm replay`."""
        self.saver.join()
        try:
            kept = f"`tfm replay {self._keep_divergence_dump(run, step)}` runs the update again"
        except (EnvironmentFault, RuntimeError, MemoryError) as error:
            if isinstance(error, RuntimeError) and not is_out_of_memory(error):
                raise
            kept = f"its incident could not be kept ({quoted(str(error))})"
        self.ranks.publish("incident", "")
        raise run.divergence(step, f"; {self._newest()}. {kept[0].upper()}{kept[1:]}")

    def _keep_divergence_dump(self, run: TrainingState, step: int) -> Path:
        for setting, is_set in (("train.sharding=full", run.trainer.is_sharded), ("lora.rank", run.config.lora.rank)):
            if is_set:
                raise EnvironmentFault(setting)
        pairs, tokenizers = run.feed.pairs(batch_number(step, run.progress.skips)), run.prepared.tokenizers
        with wrap_os_errors(self.run_dir, "keep the incident"):
            return write_divergence_dump(
                self.run_dir, run.trainer, self._model_file(run), run.config, tokenizers, step=step, pairs=pairs
            )

    # ---- Export

    def export_best(self, run: TrainingState, plan: RunPlan) -> None:
        """Write `model.safetensors`: the best checkpoint, or the best of those averages that score no worse."""
        self.saver.wait()
        release_cpu_memory()  # from here on other models are in memory beside the trained one
        progress, trainer, metric = run.progress, run.trainer, self.validator.metric_name
        best = progress.best[0] if progress.best else Ranked((-math.inf, -math.inf), progress.step)
        exported, what = self.store.load_model(best.step), f"the checkpoint of step {best.step}"
        LOGGER.info("%s", self._why_ended(run, plan, best, exported.scores))
        trust, rank = self.validator.trust, best.rank
        outcome: dict[str, Any] = {"best": {"step": best.step, **exported.scores}}
        for candidate in averaged_candidates(run.config, progress, trainer.ema, self.store):
            trainer.load_weights(candidate.weights, is_final=True)
            try:
                with _evaluation_memory(run), trainer.whole() as model:
                    scores = self.validator.score(model, trainer.autocast, self._refuse_if_signalled)
                    old = self._score_old(model, run, self._refuse_if_signalled)
            except StopNow:
                self._raise_stopped()
            found = scores.as_dict() | ({} if old is None else old_scores(old))
            outcome[candidate.name] = {**candidate.details, **found}
            holds = not self._broken_floors(run.config, found)
            if holds and progress.is_no_worse(scores.rank(metric), rank, trust):
                exported = replace(self._model_file(run), weights=candidate.weights, scores=found)
                rank, what = scores.rank(metric), candidate.description
        self._log_candidates(outcome)
        if broken := self._broken_floors(run.config, exported.scores):
            LOGGER.warning(
                "train.floor: no checkpoint keeps it, so that %s is exported: %s. Mix in more of the old text, lower"
                " schedule.lr, or begin with lora.rank=16",
                *(what, "; ".join(broken)),
            )
        exported, chosen = self._with_length_penalty(run, exported)
        outcome |= chosen
        path = self.run_dir / MODEL_FILE
        dev_score = exported.scores.get(f"dev_{self.validator.metric_name}")
        measured = {"dev_score": dev_score, "dev_metric": self.validator.metric_name}
        epochs = round(progress.step / run.feed.plan.updates_per_epoch, 4)
        outcome |= {"step": progress.step, "epochs": epochs, "shipped": what, **measured}
        self.recorder.final(progress.step, outcome)
        with wrap_os_errors(path, "save the model"):
            write_model(path, exported)
        self.store.mark_latest()  # not before: commands without --checkpoint take this run from now on
        with wrap_os_errors(path, "save the result"):
            write_whole(self.run_dir / RESULT_FILE, json.dumps(outcome, indent=1).encode())  # last: it ends the run
        LOGGER.info("%s: %s (%s)", path, what, format_scores(exported.scores))
        if run.config.lora.rank:
            n_trained = sum(p.numel() for p in trainer.whole_model.parameters() if p.requires_grad)
            LOGGER.info(
                "LoRA is merged: of %.3g MB, %s trained parameters are %.3g MB",
                *(path.stat().st_size / 1e6, f"{n_trained:,}", 4 * n_trained / 1e6),
            )
        old_name = None if self.old_dev is None else self.old_dev.data.title
        metric_name, new_name = self.validator.metric_name, run.config.data.title
        if line := comparison(self.start_scores, exported.scores, metric=metric_name, old=old_name, new=new_name):
            LOGGER.info("%s", line)
        result = read_result(self.run_dir, progress.step)
        assert result is not None
        self.result = replace(result, to_raise=plan.ended_by(progress.step))

    def _why_ended(self, run: TrainingState, plan: RunPlan, best: Ranked, scores: Mapping[str, Any]) -> str:
        """Why the run has ended, in one line, given its best checkpoint and the scores of that."""
        progress, settings, metric = run.progress, run.config.train, self.validator.metric_name
        where, key = f"ended at step {progress.step} of {settings.max_steps}", plan.ended_by(progress.step)
        if key != "train.patience":
            limit = plan.stored_config.train.max_epochs if key == "train.max_epochs" else settings.max_steps
            return f"{where}: by {key}={limit:g}"
        value, label = scores.get(f"dev_{metric}"), LABELS.get(metric, metric)
        shown = f"{label} {value:.4g}" if value is not None else label
        also = "" if progress.lowest_nll is None else f", and dev nll {progress.lowest_nll:.3f} fell no further"
        return (
            f"{where}: dev {shown} of step {best.step} was not exceeded in the last {progress.n_without_best}"
            f" evaluations{also} ({key}={settings.patience})"
        )

    def _log_candidates(self, outcome: Mapping[str, Mapping[str, Any]]) -> None:
        """The dev scores of all that might be exported, in one line."""
        if len(outcome) == 1:
            return
        names = {"best": f"of the checkpoint of step {outcome['best']['step']}", "ema": "of the moving average"}
        names["average"] = "of the average of the last checkpoints"
        key = f"dev_{self.validator.metric_name}"
        each = (f"{scores[key]:.4g} {names[name]}" for name, scores in outcome.items() if key in scores)
        LOGGER.info("dev %s: %s", self.validator.metric_name, ", ".join(each))

    def _with_length_penalty(self, run: TrainingState, model: ModelFile) -> tuple[ModelFile, dict[str, Any]]:
        """`model` with the length penalty that `length_penalty.choose` takes, and what result.json says of all.

        The scores of the model are those with it.
        """
        if not run.config.train.length_penalties:
            return model, {}
        assert isinstance(self.validator, TranslationValidator)
        trainer, metric, nll = run.trainer, self.validator.metric_name, model.scores.get("dev_nll", math.nan)
        trainer.load_weights(model.weights, is_final=True)
        try:
            with _evaluation_memory(run), trainer.whole() as whole:
                found = [Tried(*one) for one in self.validator.by_length_penalty(whole, nll, self._refuse_if_signalled)]
        except StopNow:
            self._raise_stopped()
        chosen, why = choose(found, metric, self.validator.text, self.validator.metric_settings(), seed=run.config.seed)
        shown = ", ".join(one.shown(metric) for one in found)
        LOGGER.info("length penalty %g: dev %s %s%s", chosen.alpha, metric, shown, why)
        decode = replace(run.config.decode, length_penalty=chosen.alpha)
        search = search_signature(on_device(decode, trainer.device), seed=run.config.seed)
        model = replace(
            model,
            length_penalty=chosen.alpha,
            scores=model.scores | chosen.scores.as_dict(),
            provenance=model.provenance | {"dev_search": search},
        )
        return model, {
            "length_penalty": chosen.alpha,
            "length_penalties": {f"{one.alpha:g}": one.scores.as_dict()[f"dev_{metric}"] for one in found},
        }

    def _raise_stopped(self) -> NoReturn:
        raise Stopped(self.ranks.request.signal, f"{self.run_dir}: {self._newest()}") from None

    def _model_file(self, run: TrainingState) -> ModelFile:
        config, progress = run.config, run.progress
        is_of_this_step = self.scores is not None and progress.evaluated == progress.step
        data = to_plain(config)["data"]
        return ModelFile(
            config=config.model,
            tokenizers=run.prepared.tokenizers,
            weights=run.trainer.weights(),
            source_lang=config.data.source_lang,
            target_lang=config.data.target_lang,
            step=progress.step,
            fingerprint=run.prepared.fingerprint,
            data={key: value for key, value in data.items() if key not in FOLDERS},
            multi_sentence_share=self.validator.multi_sentence_share,
            translates_letterless=self.validator.translates_letterless,
            alignment_head=getattr(run.trainer.whole_model, "alignment_head", None),
            full_context_alignment=getattr(run.trainer.whole_model, "full_context_alignment", False),
            scores=self.scores.as_dict() | self.old_scores if self.scores is not None and is_of_this_step else {},
            provenance=self._provenance(run),
        )

    def _provenance(self, run: TrainingState) -> dict[str, Any]:
        """What the text was made from and what cleaning left of it, for the model card."""
        prepared, config = run.prepared, run.config
        found: dict[str, Any] = {"inputs": prepared.inputs, "cleaning": asdict(prepared.report)}
        if prepared.corpora:
            found["corpora"] = [dict(facts) for facts in prepared.corpora]
        found["label_smoothing"] = config.train.label_smoothing
        if config.data.trained.translates:
            found["dev_search"] = search_signature(on_device(config.decode, run.trainer.device), seed=config.seed)
            found["dev_lines"] = len(self.validator.text.sources)
        if config.init.from_ is not None:
            found["started_from"] = described_start(Path(config.init.from_).name, self.init_origin)
            found |= {name: value for name, value in self.init_origin.items() if name == "base_model"}
            if self.old_dev is not None:
                found["started_from"] += f", a model of {self.old_dev.data.title}"
        return found

    def _environment(self, run: TrainingState) -> dict[str, Any]:
        """What the last bits depend on beside config and data, as it is now: a compiler may fail during the run."""
        chosen = {
            "tokens_per_batch": run.config.train.max_tokens_per_microbatch,
            "compiled": bool(run.trainer.compiled_sizes),
        }
        return {**environment(run.trainer.device, self.ranks), **chosen}

    def _newest(self) -> str:
        steps = self.store.steps()
        return f"step {steps[-1]} is the newest that is saved" if steps else "no step was sound enough to be saved"

    def _tidy(self, progress: Progress) -> None:
        """What follows a save, and is repeated after a crash in between: `best`, and no more than is kept."""
        steps = self.store.steps()
        best = [ranked.step for ranked in progress.best if ranked.step in steps]
        if best:
            self.store.mark_best(best[0])
        else:
            self.store.unmark_best()
        self.store.prune({progress.step, *progress.saved, *best})


def _unit(run: TrainingState) -> str:
    """What an update counts: a sentence or word that gets a label has one target, its label."""
    return run.config.data.trained.unit


@contextmanager
def _evaluation_memory(run: TrainingState) -> Iterator[None]:
    """Raise EnvironmentFault where the memory is too small for an evaluation.

    A search has matrices of its own (inference/prepack.py), and keeps no activations for a gradient: what one phase has
    freed is of no use to the other.
    """
    run.trainer.optimizer.zero_grad(set_to_none=True)  # of the last update
    release_cpu_memory()
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise EnvironmentFault(
            f"step {run.progress.step}: out of memory while evaluating."
            " Lower decode.batch_tokens or train.max_tokens_per_microbatch"
        ) from error
    finally:
        release_cpu_memory()
