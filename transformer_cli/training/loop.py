"""The training loop: update, log, evaluate, save, and at the end ship the best of best and averages.

There is no random state to restore: every micro-batch draws its dropout from (seed, step, micro-batch), and every
update its sentences from (seed, step).
"""

import json
import math
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from transformer_cli.config.compose import to_plain
from transformer_cli.config.data import Task
from transformer_cli.config.train import Sharding, TrainConfig
from transformer_cli.data.batching import Batch
from transformer_cli.data.feed import Feed, epoch_of
from transformer_cli.data.prefetch import Prefetcher
from transformer_cli.data.prepare import Prepared
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.errors import (
    CheckpointError,
    DivergedError,
    ElsewhereError,
    EnvironmentFault,
    LostRankError,
    Stopped,
    TfmError,
    quoted,
)
from transformer_cli.files import wrap_os_errors, write_whole
from transformer_cli.inference.batch_invariance import check_batch_invariance
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import MALFORMED, MODEL_FILE, ModelFile, read_model, write_model
from transformer_cli.models.memory import is_out_of_memory
from transformer_cli.models.transformer import Transformer
from transformer_cli.training.averaging import average
from transformer_cli.training.batch_size import settled, with_number
from transformer_cli.training.checkpoints import Checkpoint, CheckpointStore
from transformer_cli.training.encoder import encoder_weights
from transformer_cli.training.incident import write_incident
from transformer_cli.training.pictures import attention_picture
from transformer_cli.training.plan import limited, oddities, planned
from transformer_cli.training.profile import Trace
from transformer_cli.training.progress import Interval, Progress, Ranked
from transformer_cli.training.ranks import Ranks
from transformer_cli.training.resuming import (
    environment,
    find_checkpoint,
    rank_anew_if_other,
    refuse_other_data,
    require_room,
    share_checkpoint,
    warn_of_other_environment,
)
from transformer_cli.training.run_directory import LOG_FILE, write_config
from transformer_cli.training.saver import Saver
from transformer_cli.training.schedules import build_schedule
from transformer_cli.training.signals import StopNow, StopRequest
from transformer_cli.training.summary import told_at_start
from transformer_cli.training.trainer import Learner
from transformer_cli.training.validation import DevScores, Rank, make_validator, shown
from transformer_cli.training.writers import Recorder, log_file

RESULT_FILE = "result.json"
UNSOUND = "the loss or a weight is not a finite number"
_OF_THIS_MACHINE = ("root", "cache")  # keys of the data config that a shared model file should not tell


@dataclass(frozen=True)
class TrainResult:
    model_path: Path  # of the model that is shipped
    dev_score: float  # its train.best_metric: BLEU (chrF where that cannot be computed), or nats per target token
    step: int  # the last one
    metric: str = ""  # what dev_score is: bleu, chrf …; nothing if a run of an older tfm does not tell
    is_new: bool = True  # False: the run had ended before it was asked for
    to_raise: str = "train.max_steps"  # the key that has ended it


@dataclass(frozen=True)
class Average:
    """Weights that compete with the best checkpoint."""

    name: str
    told: dict[str, Any]  # in the outcome, beside the scores
    what: str
    weights: dict[str, Tensor]


def train(
    config: TrainConfig, prepared: Prepared, run_dir: Path, *, device: torch.device, ranks: Ranks | None = None
) -> TrainResult:
    """Train in `run_dir`, from its newest sound checkpoint if it has one, and ship `model.safetensors` there.

    Raises Stopped when a signal asks for it, once all that was learnt is saved; DivergedError when the loss is not a
    number for too long; EnvironmentFault for what disk, memory or another rank does; and what the store raises.
    """
    ranks = ranks or Ranks(StopRequest())
    with log_file(run_dir / LOG_FILE):
        store = CheckpointStore(run_dir)
        store.sweep()
        checkpoint = find_checkpoint(store, config.resume)
        epoch = epoch_of(config, prepared)
        kept, chosen = planned(config, epoch, device.type)
        config = settled(limited(kept, epoch), prepared, device, ranks, checkpoint)
        run = FirstRun(config, prepared, device, ranks, store)
        run.resume(checkpoint)
        is_finished = run.progress.is_over(config.train) and not run.progress.must_evaluate
        result = read_result(run_dir, run.progress.step) if is_finished else None
        ranks.share("finished", "finished" if result is not None else "")
        if result is not None:
            key = what_ends(run.progress, config, kept)
            LOGGER.info("%s: already finished at step %d; raise %s to go on", run_dir, result.step, key)
            return replace(result, is_new=False, to_raise=key)
        require_room(store, config.train, run.learner)
        # Not before: a start that is refused changes nothing.
        write_config(with_number(kept, config.train.tokens_per_batch), run_dir)
        for line in told_at_start(config, prepared, run.learner, run_dir, chosen):
            LOGGER.info("%s", line)
        for oddity in oddities(config, epoch):
            LOGGER.warning("%s. %s", oddity.what, oddity.todo)
        with run.at_work():
            run.learn()
            return replace(run.ship(), to_raise=what_ends(run.progress, config, kept))


def assist(config: TrainConfig, prepared: Prepared, *, device: torch.device, ranks: Ranks) -> None:
    """What `train` is on every rank but the first. Raises as `train` does."""
    epoch = epoch_of(config, prepared)
    config = limited(planned(config, epoch, device.type)[0], epoch)
    run = Run(settled(config, prepared, device, ranks, None), prepared, device, ranks)
    run.resume(None)
    if not ranks.share("finished", None):
        run.learn()


def what_ends(progress: Progress, config: TrainConfig, kept: TrainConfig) -> str:
    """The key that has ended a run, given its config with and without the number of its last update."""
    if progress.step < config.train.max_steps:
        return "train.patience"
    return "train.max_steps" if kept.train.max_steps == config.train.max_steps else "train.max_epochs"


def make_learner(config: TrainConfig, tokenizers: Tokenizers, device: torch.device, ranks: Ranks) -> Learner:
    if config.train.sharding is Sharding.none:
        return Learner(config, tokenizers, device, ranks)
    from transformer_cli.training.sharding import ShardedLearner  # imports half of torch

    return ShardedLearner(config, tokenizers, device, ranks)


class Run:
    """One training run as every rank knows it: what is learnt, and what comes next. The disk is the first rank's."""

    def __init__(self, config: TrainConfig, prepared: Prepared, device: torch.device, ranks: Ranks) -> None:
        self.config, self.prepared, self.ranks = config, prepared, ranks
        self.learner = make_learner(config, prepared.tokenizers, device, ranks)
        self.schedule = build_schedule(config.schedule, d_model=config.model.d_model, max_steps=config.train.max_steps)
        self.feed = Feed(config, prepared)
        self.ahead: Prefetcher[list[Batch]]
        self.progress, self.interval = Progress(), Interval(device)
        self.learner.expect(self.feed.expected(), longest=self.feed.longest)
        if ranks.is_first:
            warn_of_uneven_shares(self.feed.batches(1), ranks.world_size, config.train.tokens_per_batch)
        self.n_skipped = 0  # updates, as far as they were noticed

    def resume(self, checkpoint: Checkpoint | None) -> None:
        """Go on from the checkpoint that the first rank has found, if it has; the others have None."""
        self.go_on_from(checkpoint)

    def go_on_from(self, checkpoint: Checkpoint | None, *, steps: Collection[int] = ()) -> None:
        state = share_checkpoint(checkpoint, self.learner, self.ranks)
        if state is not None:
            told = self.ranks.share("checkpoints", json.dumps(list(steps)) if self.ranks.is_first else None)
            self.progress = Progress.from_state(state["progress"], steps=json.loads(told))
            self.interval = Interval(self.learner.device, state["interval"])
            self.n_skipped = self.learner.skips.counts()[1]

    def learn(self) -> None:
        """Update until the last step, or until patience runs out. Raises Stopped when a rank was asked to stop."""
        settings, progress = self.config.train, self.progress
        self.ranks.request.is_training = True
        if progress.step and progress.evaluation_is_due(settings) and progress.evaluated != progress.step:
            self.look_back()  # the run was stopped before it came to that
        with Prefetcher(self.batches, progress.step + 1) as self.ahead:
            while not progress.is_over(settings):
                self.update()
                self.watch()
                if progress.is_due(settings.log_every, settings):
                    self.log()
                if self.ranks.stop_signal:
                    self.learner.gather()
                    self.stop()
                self.look_back()

    def batches(self, step: int) -> list[Batch]:
        """Those of an update, all ranks' alike, made in a thread of their own while another update is learnt."""
        return self.learner.ready(self.feed.batches(step))

    def update(self) -> None:
        """One update with the next sentences of the plan."""
        step = self.progress.step + 1
        batches = self.ahead.take(step)
        stats = self.learner.update(batches, step=step, rate=self.schedule(step))
        self.progress.step = step
        self.progress.n_tokens += stats.n_tokens
        self.interval.add(stats, n_real=sum(batch.n_tokens for batch in batches))

    def watch(self) -> None:
        """Tell of updates that were skipped because their loss is no number; raise DivergedError after too many."""
        in_a_row, in_all, step = self.learner.skips.look()
        if in_all > self.n_skipped:
            self.n_skipped = in_all
            LOGGER.warning(
                "step %d: the loss is not a finite number, and nothing is learnt from it (%d in a row, %d in all)",
                *(step, in_a_row, in_all),
            )
        if in_a_row >= self.config.train.max_skipped:
            self.diverge(step)

    def log(self) -> None:
        self.interval = Interval(self.learner.device)

    def look_back(self) -> None:
        """Evaluate and save, each if it is due."""
        settings, progress = self.config.train, self.progress
        is_one_of_the_best = False
        if progress.evaluation_is_due(settings) or progress.is_due(settings.save_every, settings):
            self.learner.gather()
        if progress.evaluation_is_due(settings):
            is_one_of_the_best = progress.rank(self.rank(), settings)
        is_last = progress.is_over(settings)
        if is_last and not progress.best and not self.learner.is_sound():
            self.diverge(progress.step)  # with nothing to ship
        if is_last:
            self.save(counts=True, in_doubt=True)
        elif is_one_of_the_best or progress.is_due(settings.save_every, settings):
            self.save(counts=True)

    def rank(self) -> Rank:
        """How good this step is, as the first rank finds. Raises Stopped if a signal comes in between."""
        told = json.loads(self.ranks.share(f"evaluated/{self.progress.step}", self.evaluate()))
        if told is None:
            self.ranks.agree(self.progress.step)
            self.stop()
        rank, failed = told
        self.progress.forget(failed)  # on every rank, or they would not agree on when patience ends
        return rank[0], rank[1]

    def evaluate(self) -> str | None:
        """JSON from the first rank: how good this step is, and which steps could not be saved; or null for a signal."""
        return None

    def save(self, *, counts: bool, in_doubt: bool = False) -> None:
        """A checkpoint of this step; only the first rank writes it.

        It `counts` among those that are kept and averaged unless it is there only because the run stops. Right after a
        skipped update, when nobody knows whether the next one will do better, there is none unless `in_doubt`.
        """

    def stop(self) -> NoReturn:
        """Raises Stopped, when the first rank has saved: torchrun ends all ranks soon after one of them has ended."""
        self.ranks.share("saved", None, is_patient=True)
        raise Stopped(self.ranks.stop_signal, "the first rank has saved")

    def diverge(self, step: int) -> NoReturn:
        """Raises DivergedError, when the first rank has kept the incident."""
        self.ranks.share("incident", None, is_patient=True)
        raise self.divergence(step)

    def divergence(self, step: int, hint: str = "") -> DivergedError:
        key = "factor" if self.config.schedule.factor is not None else "lr"
        return DivergedError(
            f"step {step}: the loss or a weight is not a finite number ({self.learner.skips.counts()[0]} in a row),"
            f" at learning rate {self.schedule(step):.3g}{hint}. Lower schedule.{key}, or set train.clip_norm"
        )


def warn_of_uneven_shares(batches: Sequence[Batch], n_ranks: int, max_tokens: int) -> None:
    """Say which `train.tokens_per_batch` would give every rank as much to do as the others.

    It cannot be chosen for the user: how an update is cut decides its dropout, which does not depend on the ranks.
    """
    n_even = -(-len(batches) // n_ranks) * n_ranks
    if n_even > len(batches):
        n_tokens = max(sum(len(one.source_S) for one in batches), sum(one.n_target_tokens for one in batches))
        LOGGER.warning(
            "train.tokens_per_batch=%d: an update is %d batches for %d ranks, some of which wait for others."
            " train.tokens_per_batch=%d makes %d, and other dropout",
            *(max_tokens, len(batches), n_ranks, n_tokens / (n_even - 0.5), n_even),  # no update is exactly as large
        )


class FirstRun(Run):
    """What the first rank does beside: it reads, evaluates, writes and speaks."""

    def __init__(
        self, config: TrainConfig, prepared: Prepared, device: torch.device, ranks: Ranks, store: CheckpointStore
    ) -> None:
        super().__init__(config, prepared, device, ranks)
        self.store, self.run_dir = store, store.run_dir
        self.plain_config = to_plain(config)
        self.unit = "sentences" if config.data.task is Task.classification else "tokens"  # has one target each
        self.validator = make_validator(config, prepared, device)
        self.ranked_by = self.validator.ranked_by()
        if config.decode.exact and isinstance(self.learner.whole_model, Transformer):
            check_batch_invariance(self.learner.whole_model, device)  # not at the first evaluation, hours later
        self.scores: DevScores | None = None  # of this step
        self.recorder: Recorder
        self.saver: Saver
        self.trace: Trace

    @property
    def environment(self) -> dict[str, Any]:
        """What the last bits depend on beside config and data, as it is now: a compiler may fail on the way."""
        chosen = {
            "tokens_per_batch": self.config.train.tokens_per_batch,
            "compiled": bool(self.learner.compiled_sizes),
        }
        return {**environment(self.learner.device, self.ranks), **chosen}

    def resume(self, checkpoint: Checkpoint | None) -> None:
        if checkpoint is None:
            LOGGER.info("%s: starting a new run", self.run_dir)
            if self.config.encoder.init_from is not None:
                self.learner.whole_model.load_state_dict(encoder_weights(self.config), strict=False)
            self.go_on_from(None)
            return
        is_own = checkpoint.step in self.store.steps()
        if is_own:  # dev scores go on as they began
            self.validator.multi_sentence_share = checkpoint.model.multi_sentence_share
        try:
            if not is_own:  # what was best there has no checkpoint here
                checkpoint.state["progress"]["n_without_best"] = 0
            came_from = str(self.run_dir) if is_own else f"resume={self.config.resume}"
            refuse_other_data(came_from, checkpoint, self.prepared, force=self.config.force)
            if is_own and self.validator.keep_metric(checkpoint.state.get("ranked_by", {})):
                self.ranked_by = self.validator.ranked_by()
            rank_anew_if_other(checkpoint, self.prepared, self.ranked_by, steps=self.store.steps())
            warn_of_other_environment(checkpoint.state, self.environment)
            self.go_on_from(checkpoint, steps=self.store.steps())
            if self.progress.step != checkpoint.step:
                raise ValueError(f"its progress is at step {self.progress.step}")
        except (RuntimeError, *MALFORMED) as error:  # whole, but not what a run of this config writes
            where = self.store.path(checkpoint.step) if is_own else f"resume={self.config.resume}"
            raise CheckpointError(
                f"{where}: does not fit this model and config ({quoted(str(error))})."
                " Choose those that it was made with, or another name="
            ) from error
        if not is_own and self.progress.is_over(self.config.train):
            raise CheckpointError(
                f"resume={self.config.resume}: is at its last step, {checkpoint.step}. Raise train.max_steps"
            )
        self._tidy(self.progress)
        LOGGER.info("%s: resuming from step %d", self.run_dir, self.progress.step)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """What is open while the run learns."""
        progress, settings, unit = self.progress, self.config.train, self.unit
        with (
            Recorder(
                self.run_dir,
                progress.step,
                progress.evaluated,
                max_steps=settings.max_steps,
                unit=unit,
                log_seconds=settings.log_seconds,
            ) as self.recorder,
            Saver(self.store, self.learner.device) as self.saver,
            Trace(self.run_dir, self.learner.device, enabled=settings.profile) as self.trace,
        ):
            yield

    def learn(self) -> None:
        try:
            super().learn()
        except (LostRankError, ElsewhereError):
            self._save_alone()
            raise
        self.saver.wait()

    def update(self) -> None:
        self.saver.check()
        n_tokens = self.progress.n_tokens
        super().update()
        with self.recorder.paused():
            self.trace.advance(self.progress.step)
        # Only now has the optimizer something to remember.
        if not self.saver.has_memory and not self.learner.is_sharded:
            self.saver.reserve(self.learner.model.state_dict(), self.learner.remembered())
        self.recorder.advance(self.progress.n_tokens - n_tokens)
        settings = self.config.train
        if self.recorder.is_silent() and not self.progress.is_due(settings.log_every, settings):
            means = self.interval.means()  # waits for the device, which is why it is not asked more often
            self.recorder.tell(self.progress.step, None if means is None else means["loss"])

    def log(self) -> None:
        step, means = self.progress.step, self.interval.means()
        if means is not None:
            counts = {"skipped": self.n_skipped, "split": self.learner.n_splits}
            noted = {name: count for name, count in counts.items() if count}
            self.recorder.train(step, {**means, "lr": self.schedule(step), self.unit: self.progress.n_tokens, **noted})
        super().log()

    def evaluate(self) -> str | None:
        """Dev scores at this step, in all the places where somebody may look for them."""
        step, failed = self.progress.step, sorted(self.saver.failed_steps)
        try:
            if not self.learner.is_sound():
                raise CheckpointError(UNSOUND)
            with self.recorder.paused(), self._faults_of_evaluating(), self.learner.whole() as model:
                scores = self.validator.score(model, self.learner.autocast, self.refuse_to_go_on)
                averaged = self._score_ema()
                pictures = self.validator.attention(model)
        except StopNow:
            return json.dumps(None)
        except CheckpointError as error:  # the model gives no numbers
            LOGGER.warning("step %d: no dev scores: %s", step, error)
            return json.dumps([[math.nan, math.nan], failed])
        self.scores = scores
        self.recorder.dev(step, {**scores.as_dict(), **averaged})
        LOGGER.info("step %d: dev %s", step, scores.told)
        if "ema_nll" in averaged:
            LOGGER.info("step %d: dev nll %.3f of the moving average", step, averaged["ema_nll"])
        for i, sample in enumerate(self.validator.samples(scores)):
            told = (sample.source, sample.reference, sample.output)
            LOGGER.info("  source %s, reference %s, output %s", *map(quoted, told))
            self.recorder.text(step, f"sample/{i + 1}", "{}\n\n{}\n\n**{}**".format(*told))
        for name, layers_BHTS in pictures.items():
            self.recorder.picture(step, f"attention/{name}", attention_picture(layers_BHTS))
        return json.dumps([scores.rank(self.config.train.best_metric), failed])

    @contextmanager
    def _faults_of_evaluating(self) -> Iterator[None]:
        """Raise EnvironmentFault where the memory is too small for it."""
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise EnvironmentFault(
                f"step {self.progress.step}: out of memory while evaluating."
                " Lower decode.batch_tokens or train.tokens_per_batch"
            ) from error

    def _score_ema(self) -> dict[str, float]:
        """The dev NLL of the moving average, if there is one."""
        ema = self.learner.ema
        if ema is None or not ema.is_sound():
            return {}
        with ema.in_place():
            nll = self.validator.nll(self.learner.model, self.learner.autocast, self.refuse_to_go_on)
        return {"ema_nll": nll} if math.isfinite(nll) else {}

    def refuse_to_go_on(self) -> None:
        """Raise StopNow if a signal came: an evaluation may take longer than the system waits."""
        if self.ranks.is_asked_to_stop():
            raise StopNow

    def refuse_if_signalled(self) -> None:
        """The same when the other ranks have left already."""
        if self.ranks.request.signal:
            raise StopNow

    def save(self, *, counts: bool, in_doubt: bool = False) -> None:
        """A checkpoint of this step, published while training goes on; older ones go afterwards."""
        start = time.perf_counter()
        step, progress = self.progress.step, self.progress
        if not self.learner.is_sound() or (self.learner.skips.counts()[0] and not in_doubt):
            LOGGER.warning("step %d: not saved: %s", step, UNSOUND)
            progress.forget([step])
            return
        self.saver.join()  # so that its failure is known before others are given up
        progress.forget(self.saver.failed_steps)
        if counts:
            progress.keep(self.config.train)
        state = {
            "data": self.prepared.fingerprint,
            "inputs": self.prepared.inputs,
            "ranked_by": self.ranked_by,
            "config": self.plain_config,
            "environment": self.environment,
            "progress": progress.state(),
            "interval": self.interval.state(),
            **self.learner.state(),
        }
        checkpoint, now = Checkpoint(step, self._model_file(), self.learner.remembered(), state), replace(progress)
        with self.recorder.paused():
            self.saver.save(checkpoint, lambda: self._tidy(now), since=start)

    def stop(self) -> NoReturn:
        is_due = self.progress.is_due(self.config.train.save_every, self.config.train)
        self.save(counts=is_due, in_doubt=True)
        self.saver.wait()
        self.ranks.share("saved", "")
        raise Stopped(self.ranks.stop_signal, f"{self.run_dir}: {self._newest()}")

    def diverge(self, step: int) -> NoReturn:
        """Raises DivergedError, when what led to it is kept for `tfm replay`."""
        self.saver.join()
        try:
            kept = f"`tfm replay {self._keep_incident(step)}` runs the update again"
        except (EnvironmentFault, RuntimeError, MemoryError) as error:
            if isinstance(error, RuntimeError) and not is_out_of_memory(error):
                raise
            kept = f"its incident could not be kept ({quoted(str(error))})"
        self.ranks.share("incident", "")
        raise self.divergence(step, f"; {self._newest()}. {kept[0].upper()}{kept[1:]}")

    def _keep_incident(self, step: int) -> Path:
        if self.learner.is_sharded:
            raise EnvironmentFault("train.sharding=full")
        pairs, tokenizers = self.feed.pairs(step), self.prepared.tokenizers
        with wrap_os_errors(self.run_dir, "keep the incident"):
            return write_incident(
                self.run_dir, self.learner, self._model_file(), self.config, tokenizers, step=step, pairs=pairs
            )

    def ship(self) -> TrainResult:
        """Write `model.safetensors`: the best checkpoint, or the best of those averages that are no worse."""
        progress, metric = self.progress, self.config.train.best_metric
        best = progress.best[0] if progress.best else Ranked((-math.inf, -math.inf), progress.step)
        shipped, what = self.store.load_model(best.step), f"the checkpoint of step {best.step}"
        rank = best.rank
        outcome: dict[str, Any] = {"best": {"step": best.step, **shipped.scores}}
        for candidate in self._averages():
            self.learner.whole_model.load_state_dict(candidate.weights)
            try:
                with self._faults_of_evaluating(), self.learner.whole() as model:
                    scores = self.validator.score(model, self.learner.autocast, self.refuse_if_signalled)
            except StopNow:
                raise Stopped(self.ranks.request.signal, f"{self.run_dir}: {self._newest()}") from None
            outcome[candidate.name] = {**candidate.told, **scores.as_dict()}
            if scores.rank(metric) >= rank:
                shipped = replace(self._model_file(), weights=candidate.weights, scores=scores.as_dict())
                rank, what = scores.rank(metric), candidate.what
        path = self.run_dir / MODEL_FILE
        dev_score = shipped.scores.get(f"dev_{self.validator.metric_name}")
        measured = {"dev_score": dev_score, "dev_metric": self.validator.metric_name}
        outcome |= {"step": progress.step, "shipped": what, **measured}
        self.recorder.final(progress.step, outcome)
        with wrap_os_errors(path, "save the model"):
            write_model(path, shipped)
            write_whole(self.run_dir / RESULT_FILE, json.dumps(outcome, indent=1).encode())  # last: it ends the run
        LOGGER.info("%s: %s (%s)", path, what, shown(shipped.scores))
        result = read_result(self.run_dir, progress.step)
        assert result is not None
        return result

    def _averages(self) -> Iterator[Average]:
        """Of all updates, and of the last checkpoints."""
        ema, steps = self.learner.ema, self.progress.saved[-self.config.train.average_last :]
        if ema is not None and ema.is_sound():
            decay = self.config.train.ema
            yield Average("ema", {"decay": decay}, f"the moving average of all updates, decay {decay}", ema.weights())
        if len(steps) > 1:
            weights = average(self.store.load_model(step).weights for step in steps)
            what = f"the average of {len(steps)} checkpoints, steps {', '.join(map(str, steps))}"
            yield Average("average", {"steps": steps}, what, weights)

    def _save_alone(self) -> None:
        """Another rank is gone. What was learnt until then is whole here; but a GPU may still be adding up."""
        self.saver.join()
        is_whole = self.learner.device.type == "cpu" and not self.learner.is_sharded
        if is_whole and self.progress.step and self.progress.step not in self.store.steps():
            try:
                self.save(counts=False, in_doubt=True)
                self.saver.wait()
            except TfmError as error:
                LOGGER.warning("%s", error)

    def _newest(self) -> str:
        steps = self.store.steps()
        return f"step {steps[-1]} is the newest that is saved" if steps else "no step was sound enough to be saved"

    def _model_file(self) -> ModelFile:
        is_of_this_step = self.scores is not None and self.progress.evaluated == self.progress.step
        return ModelFile(
            config=self.config.model,
            tokenizers=self.prepared.tokenizers,
            weights=self.learner.whole_model.state_dict(),
            source_lang=self.config.data.source_lang,
            target_lang=self.config.data.target_lang,
            step=self.progress.step,
            fingerprint=self.prepared.fingerprint,
            data={key: value for key, value in self.plain_config["data"].items() if key not in _OF_THIS_MACHINE},
            multi_sentence_share=self.validator.multi_sentence_share,
            scores=self.scores.as_dict() if self.scores is not None and is_of_this_step else {},
        )

    def _tidy(self, progress: Progress) -> None:
        """What follows a save, and is repeated after a crash in between: `best`, `latest`, and no more than is kept."""
        steps = self.store.steps()
        best = [ranked.step for ranked in progress.best if ranked.step in steps]
        if best:
            self.store.mark_best(best[0])
        else:
            self.store.unmark_best()
        self.store.prune({progress.step, *progress.saved, *best})
        self.store.mark_latest()


def read_result(run_dir: Path, step: int) -> TrainResult | None:
    """What a run that ended at `step` has shipped; None if it has not come to that, or its model is damaged."""
    try:
        outcome = json.loads((run_dir / RESULT_FILE).read_bytes())
        score = outcome["dev_score"]
        score = math.nan if score is None else float(score)
        metric = str(outcome.get("dev_metric", ""))
        result = TrainResult(run_dir / MODEL_FILE, score, int(outcome["step"]), metric)
    except (OSError, *MALFORMED):
        return None
    if result.step != step:
        return None
    try:
        read_model(result.model_path)
    except CheckpointError:
        return None
    return result
