"""The training loop: update, log, evaluate, save, and at the end ship the better of best and average.

There is no random state to restore: every micro-batch draws its dropout from (seed, step, micro-batch), and every
update its sentences from (seed, step).
"""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from transformer_cli.config import to_plain
from transformer_cli.data.batching import BatchPlan, micro_batches
from transformer_cli.data.prepare import Prepared
from transformer_cli.errors import DataError, DivergedError, quoted
from transformer_cli.files import faults, write_whole
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import MODEL_FILE, ModelFile, write_model
from transformer_cli.schema import TrainConfig
from transformer_cli.training.averaging import average
from transformer_cli.training.checkpoints import Checkpoint, CheckpointStore
from transformer_cli.training.learner import Learner
from transformer_cli.training.pictures import attention_picture
from transformer_cli.training.progress import Interval, Progress, Ranked
from transformer_cli.training.schedules import build_schedule
from transformer_cli.training.validation import DevScores, Validator, shown
from transformer_cli.training.writers import Recorder, log_file

RESULT_FILE = "result.json"
_OF_THIS_MACHINE = ("root", "cache")  # keys of the data config that a shared model file should not tell


@dataclass(frozen=True)
class TrainResult:
    model_path: Path  # of the model that is shipped
    dev_score: float  # its train.best_metric: BLEU, or nats per target token
    step: int  # the last one


def train(config: TrainConfig, prepared: Prepared, run_dir: Path, *, device: torch.device) -> TrainResult:
    """Train in `run_dir`, from its newest sound checkpoint if it has one, and ship `model.safetensors` there.

    Raises DivergedError when the loss stops being a number, and what the checkpoint store raises.
    """
    with log_file(run_dir / "tfm.log"):
        store = CheckpointStore(run_dir)
        store.sweep()
        run = Run(config, prepared, store, device)
        run.resume()
        if run.progress.is_over(config.train) and (result := read_result(run_dir, run.progress.step)) is not None:
            LOGGER.info("%s: already finished at step %d; raise train.max_steps to go on", run_dir, result.step)
            return result
        with Recorder(run_dir, step=run.progress.step, max_steps=config.train.max_steps) as recorder:
            run.learn(recorder)
            return run.ship(recorder)


class Run:
    """The parts of one training run."""

    def __init__(self, config: TrainConfig, prepared: Prepared, store: CheckpointStore, device: torch.device) -> None:
        self.config, self.prepared, self.store, self.run_dir = config, prepared, store, store.run_dir
        self.plain_config = to_plain(config)
        self.learner = Learner(config, prepared.tokenizers, device)
        self.schedule = build_schedule(config.schedule, d_model=config.model.d_model, max_steps=config.train.max_steps)
        self.plan = BatchPlan(
            prepared.train.source_lengths,
            prepared.train.target_lengths,
            tokens_per_update=config.train.tokens_per_update,
            seed=config.seed,
        )
        self.validator = Validator(config, prepared, device)
        self.progress, self.interval = Progress(), Interval(device)

    def resume(self) -> None:
        """Go on from the newest sound checkpoint, if there is one."""
        checkpoint = self.store.newest()
        if checkpoint is None:
            LOGGER.info("%s: starting a new run", self.run_dir)
            return
        state = checkpoint.state
        if state["data"] != self.prepared.fingerprint:
            raise DataError(
                f"{self.run_dir}: was trained on data with fingerprint {state['data'][:12]}, which now has"
                f" {self.prepared.fingerprint[:12]}. Restore the data, or start again with another name="
            )
        self.learner.restore(checkpoint)
        self.progress = Progress.from_state(state["progress"], steps=self.store.steps())
        self.interval = Interval(self.learner.device, state["interval"])
        self._tidy()
        LOGGER.info("%s: resuming from step %d", self.run_dir, self.progress.step)

    def learn(self, recorder: Recorder) -> None:
        """Update until the last step, or until patience runs out."""
        settings, progress = self.config.train, self.progress
        while not progress.is_over(settings):
            self.update(recorder)
            if progress.is_due(settings.log_every, settings):
                self.log(recorder)
            scores = self.evaluate(recorder) if progress.is_due(settings.eval_every, settings) else None
            is_one_of_the_best = scores is not None and progress.rank(scores.rank(settings.best_metric), settings)
            if is_one_of_the_best or progress.is_due(settings.save_every, settings) or progress.is_over(settings):
                self.save(recorder, scores)

    def update(self, recorder: Recorder) -> None:
        """One update with the next sentences of the plan."""
        step, corpus = self.progress.step + 1, self.prepared.train
        indices = self.plan.update(step - 1)
        batches = micro_batches(corpus, indices, self.prepared.tokenizers, max_cells=self.config.train.max_batch_cells)
        stats = self.learner.update(batches, step=step, rate=self.schedule(step))
        self.progress.step = step
        self.progress.n_tokens += stats.n_tokens
        self.interval.add(stats, step=step, n_real=stats.n_tokens + int(corpus.source_lengths[indices].sum()))
        recorder.advance(stats.n_tokens)

    def log(self, recorder: Recorder) -> None:
        self._refuse_divergence()
        step = self.progress.step
        recorder.train(step, {**self.interval.means(), "lr": self.schedule(step), "tokens": self.progress.n_tokens})
        self.interval = Interval(self.learner.device)

    def evaluate(self, recorder: Recorder) -> DevScores:
        """Dev scores at this step, in all the places where somebody may look for them."""
        self._refuse_divergence()
        step, model = self.progress.step, self.learner.model
        with recorder.paused():
            scores = self.validator.score(model, self.learner.autocast)
        recorder.dev(step, scores.as_dict())
        LOGGER.info("step %d: dev nll %.3f, BLEU %.2f (%s)", step, scores.nll, scores.bleu.value, scores.bleu.signature)
        for i, (source, reference, translation) in enumerate(self.validator.examples(scores)):
            LOGGER.info("  source %s, reference %s, translation %s", *map(quoted, (source, reference, translation)))
            recorder.text(step, f"sample/{i + 1}", f"{source}\n\n{reference}\n\n**{translation}**")
        for name, layers_BHTS in self.validator.attention(model).items():
            recorder.picture(step, f"attention/{name}", attention_picture(layers_BHTS))
        return scores

    def save(self, recorder: Recorder, scores: DevScores | None) -> None:
        """A checkpoint of this step, published before older ones go."""
        self._refuse_divergence()
        state = {
            "data": self.prepared.fingerprint,
            "config": self.plain_config,
            "progress": self.progress.state(),
            "interval": self.interval.state(),
            "scaler": self.learner.scaler.state_dict(),
        }
        model, optimizer = self._model_file(scores), self.learner.remembered()
        with recorder.paused():
            self.store.save(Checkpoint(self.progress.step, model, optimizer, state))
            self._tidy()

    def ship(self, recorder: Recorder) -> TrainResult:
        """Write `model.safetensors`: the best checkpoint, or the average of the last ones if that is no worse."""
        progress, metric = self.progress, self.config.train.best_metric
        best = progress.best[0] if progress.best else Ranked((-math.inf, -math.inf), progress.step)
        shipped, what = self.store.load_model(best.step), f"the checkpoint of step {best.step}"
        outcome: dict[str, Any] = {"best": {"step": best.step, **shipped.scores}}
        steps = self.store.steps()[-self.config.train.average_last :]
        if len(steps) > 1:
            weights = average(self.store.load_model(step).weights for step in steps)
            self.learner.model.load_state_dict(weights)
            scores = self.validator.score(self.learner.model, self.learner.autocast)
            outcome["average"] = {"steps": steps, **scores.as_dict()}
            if scores.rank(metric) >= best.rank:
                shipped = replace(shipped, weights=weights, step=progress.step, scores=scores.as_dict())
                what = f"the average of {len(steps)} checkpoints, steps {', '.join(map(str, steps))}"
        path = self.run_dir / MODEL_FILE
        outcome |= {"step": progress.step, "shipped": what, "dev_score": shipped.scores.get(f"dev_{metric.name}")}
        recorder.final(progress.step, outcome)
        with faults(path, "save the model"):
            write_model(path, shipped)
            write_whole(self.run_dir / RESULT_FILE, json.dumps(outcome, indent=1).encode())  # last: it ends the run
        LOGGER.info("%s: %s (%s)", path, what, shown(shipped.scores))
        result = read_result(self.run_dir, progress.step)
        assert result is not None
        return result

    def _model_file(self, scores: DevScores | None) -> ModelFile:
        return ModelFile(
            config=self.config.model,
            tokenizers=self.prepared.tokenizers,
            weights=self.learner.model.state_dict(),
            source_lang=self.config.data.source_lang,
            target_lang=self.config.data.target_lang,
            step=self.progress.step,
            fingerprint=self.prepared.fingerprint,
            data={key: value for key, value in self.plain_config["data"].items() if key not in _OF_THIS_MACHINE},
            scores=scores.as_dict() if scores is not None else {},
        )

    def _tidy(self) -> None:
        """What follows a save, and is repeated after a crash in between: `best`, `latest`, and no more than is kept."""
        best = [ranked.step for ranked in self.progress.best]
        if best:
            self.store.mark_best(best[0])
        self.store.prune({*self.store.steps()[-self.config.train.keep_last :], *best})
        self.store.mark_latest()

    def _refuse_divergence(self) -> None:
        bad_step = self.interval.first_bad_step()
        if bad_step is not None:
            key = "factor" if self.config.schedule.factor is not None else "lr"
            raise DivergedError(
                f"step {bad_step}: the loss is not a finite number, at learning rate {self.schedule(bad_step):.3g}."
                f" Lower schedule.{key}, or set train.clip_norm; checkpoints from before are sound"
            )


def read_result(run_dir: Path, step: int) -> TrainResult | None:
    """What a run that ended at `step` has shipped; None if it has not come to that."""
    try:
        outcome = json.loads((run_dir / RESULT_FILE).read_bytes())
        score = outcome["dev_score"]
        result = TrainResult(run_dir / MODEL_FILE, math.nan if score is None else score, outcome["step"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return result if result.step == step and result.model_path.is_file() else None
