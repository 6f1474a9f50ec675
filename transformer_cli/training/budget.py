"""The updates that fit into train.budget, by the speed of this device that a dry run measures."""

import gc
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, TypeVar

import torch

from transformer_cli.config.checks import AUTO
from transformer_cli.config.train import TrainConfig, seconds_of
from transformer_cli.data.prepare import Prepared
from transformer_cli.logs import LOGGER
from transformer_cli.training.dry_run import DryRun
from transformer_cli.training.ranks import Ranks
from transformer_cli.training.run_directory import with_values

WARM_UP, TIMED, TIMED_SECONDS = 2, 8, 15.0  # updates; after these seconds no other one is timed
# A dev token is translated in the time in which so many are trained without R-Drop, and R-Drop takes an update so many
# times as long (benchmarks/small_models.md).
EVALUATION_COST, RDROP_COST = 2.6, 1.84
EVALUATIONS, EVALUATION_SHARE = 20, 0.15  # at most, of a run and of its time
RDROP_FROM = 12.0  # epochs: with fewer, plain updates did better in the same time
MOST_EPOCHS = 100.0  # more were never measured
Config = TypeVar("Config", bound=TrainConfig)


@dataclass(frozen=True)
class Pace:
    """Seconds of an update, and of an evaluation on the dev set."""

    update: float
    evaluation: float


def fit_budget(
    config: Config, per_epoch: int, pace: Callable[[Config], Pace], *, may_drop_rdrop: bool
) -> dict[str, tuple[Any, str]]:
    """Key → value and reason: how long the run is, and whether it has R-Drop, so that it ends with train.budget."""
    assert config.train.budget is not None
    seconds, fit = seconds_of(config.train.budget), dict[str, tuple[Any, str]]()
    speed = pace(_with_numbers(config))
    n_updates, every = _updates(config, seconds, speed)
    if may_drop_rdrop and config.train.rdrop and n_updates < RDROP_FROM * per_epoch:
        fit["train.rdrop"] = (
            0.0,
            f"with it {n_updates / per_epoch:.2g} epochs would fit, and it pays from {RDROP_FROM:g}",
        )
        speed = pace(_with_numbers(with_values(config, {"train.rdrop": 0.0})))
        n_updates, every = _updates(config, seconds, speed)
    most = max(1, round(MOST_EPOCHS * per_epoch))
    why = f"{speed.update:.3g} s each, in {config.train.budget}"
    if n_updates > most:
        why = f"{MOST_EPOCHS:g} epochs, the most that were measured, take less than {config.train.budget}"
    fit["train.max_steps"] = min(n_updates, most), why
    if config.train.eval_every == AUTO:
        fit["train.eval_every"] = min(every, max(1, most // EVALUATIONS)), f"some {speed.evaluation:.2g} s each"
    return fit


def _updates(config: TrainConfig, seconds: float, pace: Pace) -> tuple[int, int]:
    """The updates that fit into the time beside the evaluations, and the updates between two of these."""
    if config.train.eval_every != AUTO:
        every = int(config.train.eval_every)
        return max(1, int(seconds / (pace.update + pace.evaluation / every))), every
    n_evaluations = max(1, min(EVALUATIONS, int(EVALUATION_SHARE * seconds / pace.evaluation)))
    n_updates = max(1, int((seconds - n_evaluations * pace.evaluation) / pace.update))
    return n_updates, -(-n_updates // n_evaluations)


def _with_numbers(config: Config) -> Config:
    """`config` with any number for what a dry run needs and is not chosen yet."""
    values: dict[str, Any] = {"train.max_steps": 1000}
    values |= {"schedule.warmup_steps": 100} if config.schedule.warmup_steps == AUTO else {}
    values |= {"schedule.lr": 1e-4} if config.schedule.lr == AUTO else {}
    values |= {"train.max_tokens_per_microbatch": 8192} if config.train.max_tokens_per_microbatch == AUTO else {}
    return with_values(config, values)


def measured_pace(config: TrainConfig, prepared: Prepared, device: torch.device, ranks: Ranks) -> Pace:
    """The pace of all `ranks` together, as the first one measures its share of an update; the same on each of them."""
    pace = None
    if ranks.is_first:
        LOGGER.info("train.budget=%s: timing a few updates", config.train.budget)
        update = _seconds_of_update(config, prepared, device) / ranks.world_size
        passes = RDROP_COST if config.train.rdrop or config.train.simcut else 1.0
        n_lines = min(len(prepared.dev), config.train.eval_lines)
        n_tokens = n_lines * len(prepared.train.target_ids) / len(prepared.train)
        per_token = update * ranks.world_size / passes / config.train.tokens_per_update
        pace = json.dumps(asdict(Pace(update, EVALUATION_COST * n_tokens * per_token)))
    what = f"the pace of updates with R-Drop {config.train.rdrop:g}"  # both may be asked for, and a name keeps its text
    return Pace(**json.loads(ranks.publish_and_wait(what, pace)))


def _seconds_of_update(config: TrainConfig, prepared: Prepared, device: torch.device) -> float:
    """The median of a few whole updates, after those that pay for what is loaded."""
    run, seconds, begin = DryRun(config, prepared, device), list[float](), time.perf_counter()
    for step in range(1, WARM_UP + TIMED + 1):
        seconds.append(run.run(run.feed.batches(step), step=step))
        if step > WARM_UP and time.perf_counter() - begin > TIMED_SECONDS:
            break
    del run
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return median(seconds[WARM_UP:])
