"""The settings that a config leaves open: a pure function of the corpus and the kind of device.

docs/settings.md explains where the numbers come from.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from transformer_cli.config.checks import AUTO
from transformer_cli.config.recipes import OF_ADAM
from transformer_cli.config.tasks import Task
from transformer_cli.config.train import TrainConfig, TrainSettings
from transformer_cli.data.feed import Epoch, epoch_of
from transformer_cli.data.prepare import Prepared
from transformer_cli.training.auto_recipe import choices, epochs_of, is_as_in_the_paper, recipe_lines
from transformer_cli.training.budget import Pace, fit_budget, measured_pace
from transformer_cli.training.ranks import Ranks
from transformer_cli.training.run_directory import Config, with_values


class Bounds(NamedTuple):
    low: int
    high: int

    def clamp(self, value: float) -> int:
        return round(max(self.low, min(self.high, value)))

    def __str__(self) -> str:
        return f"{self.low:,} to {self.high:,}"


@dataclass(frozen=True)
class Budget:
    """What one kind of device can afford."""

    tokens_per_update: Bounds
    epochs: Bounds
    tokens: float  # target tokens of the whole run, as far as `epochs` lets it


# A CPU learns most from few tokens by many small updates; a GPU would wait for the next update if they were as small.
CPU_BUDGET = Budget(Bounds(1024, 4096), Bounds(3, 30), 1e8)
GPU = Budget(Bounds(4096, 25_000), Bounds(3, 50), 2.5e9)  # the paper's 100,000 updates of 25,000
PER_ROOT = 2.2  # tokens of an update, by the square root of those of the corpus
UPDATES_PER_EPOCH = 10  # at least, where data.max_length is no larger than such an update
EPOCHS_AT_MOST = 100  # to come to the fewest updates
WARMUP = 4000  # at most: the paper's
EVALUATIONS = 20
BETWEEN_EVALUATIONS, BETWEEN_LOGS = Bounds(1, 5000), Bounds(1, 100)
FINE_TUNING_RATE = 0.128  # times 1 / d_model: 1e-3 at width 128, 2.5e-4 at 512
LORA_RATE = 10  # times that of all weights (Hu et al. 2021)
TOO_HIGH = 3  # times the rate for fine-tuning
MANY_EPOCHS, MANY_SECONDS = 100, 3 * 86_400  # more are likely a mistake


@dataclass(frozen=True)
class Chosen:
    """A setting that was left open: its key, what was chosen, and between which bounds, or why by recipe=auto."""

    key: str
    value: Any
    bounds: str
    by_recipe: bool = False

    def __str__(self) -> str:
        is_share = isinstance(self.value, float) and self.value < 1
        return f"{self.key}={self.value:g} ({self.bounds})" if is_share else f"{self.key}={self.value} ({self.bounds})"


def planned(
    config: Config, epoch: Epoch, device_type: str, pace: Callable[[Config], Pace] | None = None
) -> tuple[Config, list[Chosen]]:
    """`config` with a value for every setting that is left open, and what was chosen.

    A value that the user gives stays, and the others follow from it. train.max_steps=auto stays where
    train.max_epochs says how long the run is: `limited` gives its number. `pace` measures for train.budget.
    """
    budget, task = GPU if device_type == "cuda" else CPU_BUDGET, config.data.trained
    by_recipe, is_large = set(config.left_open), is_as_in_the_paper(config, epoch, device_type)
    config, chosen = _by_recipe(config, epoch, device_type)

    def choose(key: str, value: float, bounds: object) -> Config:
        chosen.append(Chosen(key, value, str(bounds)))
        return with_values(config, {key: value})

    if config.train.tokens_per_update == AUTO:
        config = choose("train.tokens_per_update", _tokens_per_update(config, epoch, budget), budget.tokens_per_update)
    if config.train.max_steps == AUTO and config.train.max_epochs is None:
        per_epoch = epoch.updates(config.train.tokens_per_update)
        if config.train.budget is not None and pace is not None:
            fit = fit_budget(config, per_epoch, pace, may_drop_rdrop="train.rdrop" in by_recipe)
            config = with_values(config, {key: value for key, (value, _) in fit.items()})
            chosen += [Chosen(key, value, why) for key, (value, why) in fit.items()]
        elif "train.max_steps" in by_recipe and not is_large:
            epochs = epochs_of(epoch.n_tokens)
            config = choose("train.max_steps", math.ceil(epochs * per_epoch), f"{epochs:.3g} epochs, by recipe=auto")
        else:
            n_updates = _updates(task, epoch, per_epoch, budget)
            config = choose("train.max_steps", n_updates, f"{_epochs(task, budget)} epochs")
    n_updates = updates(config.train, epoch)
    if config.schedule.warmup_steps == AUTO:
        config = choose("schedule.warmup_steps", _warmup(config, n_updates), Bounds(_least_warmup(config), WARMUP))
    if config.schedule.lr == AUTO:
        config = choose("schedule.lr", fine_tuning_rate(config), _rate_bounds(config))
    for key, parts, bounds in (
        ("log_every", 5 * EVALUATIONS, BETWEEN_LOGS),
        ("eval_every", EVALUATIONS, BETWEEN_EVALUATIONS),
        ("save_every", EVALUATIONS, BETWEEN_EVALUATIONS),
    ):
        if getattr(config.train, key) == AUTO:
            config = choose(f"train.{key}", bounds.clamp(_round(n_updates / parts)), bounds)
    return config, chosen


def _by_recipe(config: Config, epoch: Epoch, device_type: str) -> tuple[Config, list[Chosen]]:
    """`config` with what recipe=auto chooses for the keys that it has left open."""
    if not config.left_open:
        return config, []
    chosen = [
        Chosen(key, value, choice.reason, by_recipe=True)
        for choice in choices(config, epoch, device_type)
        for key, value in choice.values.items()
        if key in config.left_open
    ]
    return with_values(config, {**{one.key: one.value for one in chosen}, "left_open": []}), chosen


@dataclass(frozen=True)
class RunPlan:
    """A config with all its numbers, and where they come from."""

    config: TrainConfig  # whose train.max_steps is the number of the last update
    stored_config: TrainConfig  # as config.yaml has it: train.max_epochs is not resolved
    chosen: list[Chosen]
    epoch: Epoch
    recipe: Sequence[str] = ()  # lines on what recipe=auto has chosen

    def ended_by(self, step: int) -> str:
        """The key that has ended a run at `step`."""
        if step < self.config.train.max_steps:
            return "train.patience"
        is_limited = self.stored_config.train.max_steps != self.config.train.max_steps
        return "train.max_epochs" if is_limited else "train.max_steps"


def plan_run(config: TrainConfig, prepared: Prepared, device: torch.device, ranks: Ranks | None = None) -> RunPlan:
    """The plan of a run; for train.budget the first of the `ranks` measures an update, unless there are none."""
    epoch = epoch_of(config, prepared)

    def pace(config: TrainConfig) -> Pace:
        assert ranks is not None
        return measured_pace(limited(config, epoch), prepared, device, ranks)

    stored, chosen = planned(config, epoch, device.type, pace if ranks is not None else None)
    recipe = recipe_lines(config, epoch, device.type)
    return RunPlan(limited(stored, epoch), stored, chosen, epoch, recipe)


def limited(config: TrainConfig, epoch: Epoch) -> TrainConfig:
    """`config` whose train.max_steps is the number of updates that the run ends after, whichever key says so."""
    return replace(config, train=replace(config.train, max_steps=updates(config.train, epoch)))


def updates(settings: TrainSettings, epoch: Epoch) -> int:
    """How many the run makes at most: those of train.max_steps or of train.max_epochs, whichever are fewer."""
    limits: list[int] = [] if settings.max_steps == AUTO else [settings.max_steps]
    if settings.max_epochs is not None:
        limits.append(_updates_of_epochs(settings.max_epochs, epoch.updates(settings.tokens_per_update)))
    return min(limits)


def _updates_of_epochs(epochs: float, per_epoch: int) -> int:
    return max(1, math.ceil(epochs * per_epoch - 1e-6))  # 0.1 · 30 is a little more than 3


def _tokens_per_update(config: TrainConfig, epoch: Epoch, budget: Budget) -> int:
    """The tokens per update, which grow with the square root of the corpus; its epochs have enough updates."""
    wanted = budget.tokens_per_update.clamp(_round(PER_ROOT * math.sqrt(epoch.n_tokens)))
    least = config.data.max_length
    return max(least, min(wanted, epoch.n_tokens // UPDATES_PER_EPOCH))


def _epochs(task: Task, budget: Budget) -> Bounds:
    return Bounds(budget.epochs.low, min(budget.epochs.high, task.most_epochs))


def _updates(task: Task, epoch: Epoch, per_epoch: int, budget: Budget) -> int:
    n_updates = _epochs(task, budget).clamp(budget.tokens / epoch.n_tokens) * per_epoch
    return max(n_updates, min(task.fewest_updates, EPOCHS_AT_MOST * per_epoch))


def _warmup(config: TrainConfig, n_updates: int) -> int:
    """A tenth of the run."""
    return Bounds(_least_warmup(config), WARMUP).clamp(_round(n_updates / 10))


def _least_warmup(config: TrainConfig) -> int:
    """Fewer would make the highest rate by noam too high for a model of this width; others do not depend on it."""
    return min(WARMUP, 4 * config.model.d_model) if config.schedule.name == "noam" else 1


def fine_tuning_rate(config: TrainConfig) -> float:
    """The peak rate for weights that are trained already, as benchmarks/fine_tuning.md measured it with Adam."""
    rate = FINE_TUNING_RATE / config.model.d_model * (LORA_RATE if config.lora.rank else 1)
    return float(f"{rate:.2g}")


def _rate_bounds(config: TrainConfig) -> str:
    return f"for fine-tuning{' with LoRA' if config.lora.rank else ''} at width {config.model.d_model}"


def _round(value: float) -> int:
    """The value rounded to two digits."""
    unit = int(10 ** max(0, len(str(int(value))) - 2))
    return max(1, round(value / unit) * unit)


@dataclass(frozen=True)
class PlanWarning:
    """A plan that is likely a mistake: the check that finds it, what is wrong, and what to do."""

    check: str
    what: str
    todo: str


def plan_warnings(config: TrainConfig, epoch: Epoch, chosen: Sequence[Chosen] = ()) -> Iterator[PlanWarning]:
    """Likely mistakes in a plan with all its numbers, of which the user has not set those in `chosen`."""
    train, warmup = config.train, config.schedule.warmup_steps
    n_updates, per_epoch = updates(train, epoch), epoch.updates(train.tokens_per_update)
    not_set = {one.key for one in chosen}
    if warmup >= n_updates and "schedule.warmup_steps" in not_set:
        if "train.max_steps" not in not_set:
            what = f"the run ends after {n_updates:,} updates, while the learning rate rises until update {warmup:,}"
            yield PlanWarning("warmup", what, "Make it longer, if it is more than a trial")
    elif warmup >= n_updates:
        what = (
            f"schedule.warmup_steps={warmup}: the run ends after {n_updates:,} updates, while the learning rate rises"
        )
        yield PlanWarning("warmup", what, "Lower schedule.warmup_steps, or raise train.max_steps")
    if config.init.from_ is not None and not config.data.trained.has_labels and config.optimizer.name in OF_ADAM:
        peak, rate = _peak_rate(config), fine_tuning_rate(config)
        what = f"schedule={config.schedule.name}: its highest rate, {peak:.2g}, is one for weights that are drawn"
        todo = f"Set schedule.lr={rate:g} for one that keeps what the model knows, or leave the schedule out"
        if peak > TOO_HIGH * rate:
            yield PlanWarning("rate", what, todo)
    if train.max_epochs is not None and n_updates < _updates_of_epochs(train.max_epochs, per_epoch):
        what = (
            f"train.max_epochs={train.max_epochs:g}: train.max_steps={n_updates} ends the run before, after"
            f" {n_updates / per_epoch:.3g} epochs"
        )
        yield PlanWarning("epochs", what, "Set train.max_steps=auto, and epochs alone decide")
    if n_updates > MANY_EPOCHS * per_epoch:
        what = f"{n_updates:,} updates are {n_updates / per_epoch:,.0f} epochs of {per_epoch:,} updates"
        yield PlanWarning("epochs", what, "Set train.max_epochs: a model knows a corpus by heart long before")
    if n_updates < per_epoch:
        what = f"{n_updates:,} updates are {n_updates / per_epoch:.1g} of an epoch of {per_epoch:,} updates"
        yield PlanWarning("epochs", what, "Raise train.max_steps or train.max_epochs: some of the text is never seen")
    if train.eval_every > n_updates:
        what = f"train.eval_every={train.eval_every}: the run ends after {n_updates:,} updates, with its only dev score"
        yield PlanWarning("eval_every", what, f"Set train.eval_every={max(1, _round(n_updates / EVALUATIONS))}")
    n_evaluations = -(-n_updates // train.eval_every)
    # A run that is too short for `EVALUATIONS` has fewer, whatever its patience.
    is_short = "train.eval_every" in not_set and train.patience is not None and train.patience < EVALUATIONS
    if train.patience is not None and n_evaluations <= train.patience and not is_short:
        what = f"train.patience={train.patience}: never ends this run, which evaluates {n_evaluations} times"
        yield PlanWarning("patience", what, "Lower train.patience or train.eval_every")
    if train.tokens_per_update > epoch.n_tokens:
        corpus = f"the corpus has {epoch.n_tokens:,} {config.data.trained.counted} in all"
        what = f"train.tokens_per_update={train.tokens_per_update}: {corpus}"
        yield PlanWarning("update", what, "Lower train.tokens_per_update")
    if (train.rdrop or train.simcut) and not _passes_differ(config):
        kind, alpha = ("rdrop", train.rdrop) if train.rdrop else ("simcut", train.simcut)
        what = f"train.{kind}={alpha:g}: without dropout both passes of a batch are the same, at twice the time of one"
        yield PlanWarning("passes", what, f"Set model.dropout=0.1 or more, or train.{kind}=0")


def _peak_rate(config: TrainConfig) -> float:
    """The highest rate of a schedule, which all of ours have at the last step of the warm-up."""
    schedule = config.schedule
    if schedule.name == "noam":
        return float(schedule.factor or 0.0) / math.sqrt(config.model.d_model * int(schedule.warmup_steps))
    return float(schedule.lr or 0.0)


def _passes_differ(config: TrainConfig) -> bool:
    """Whether R-Drop or SimCut has any noise to draw apart: layers that are dropped, and subwords, are so in both."""
    model, train = config.model, config.train
    dropout = model.dropout, model.attention_dropout, model.activation_dropout, config.lora.dropout * config.lora.rank
    words = train.source_word_dropout, train.target_word_dropout, train.token_cutoff * train.simcut
    return any([*dropout, *words])
