"""Learning rate schedules by name: the rate of update n, counted from 1, as pure functions of n.

A schedule that ends at `max_steps` reaches zero after that update, not with it: the last one changes the weights too.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from transformer_cli.config.options import checked_options
from transformer_cli.config.train import ScheduleConfig
from transformer_cli.errors import ConfigError
from transformer_cli.registry import Registry, check_callable, guarded, is_ours

Schedule = Callable[[int], float]
BuildSchedule = Callable[[ScheduleConfig, int, int], Schedule]  # is given the config, d_model and max_steps


@dataclass(frozen=True)
class ScheduleKind:
    """A builder, and what a run has to know of its schedules, which are pure functions of the step."""

    build: BuildSchedule
    height: Literal["lr", "factor"] = "lr"  # the key of ScheduleConfig that gives it
    ends_at_max_steps: bool = False  # a resumed run cannot change its length: every step before would have another rate


def _adopted(name: str, entry: Any) -> ScheduleKind:
    """A ScheduleKind, or the builder of one whose rates may depend on `max_steps`."""
    kind = entry if isinstance(entry, ScheduleKind) else ScheduleKind(entry, ends_at_max_steps=True)
    check_callable(kind.build, what="a schedule", arguments="config, d_model, max_steps")
    return kind if is_ours(kind.build) else replace(kind, build=_with_checked_rates(kind.build))


def _with_checked_rates(build: BuildSchedule) -> BuildSchedule:
    def build_checked(config: ScheduleConfig, d_model: int, max_steps: int) -> Schedule:
        return guarded(checked(config, d_model, max_steps), _fault_of_rate)

    checked = guarded(
        build, lambda made, *_: None if callable(made) else f"{made!r:.80}, not a function of the step, from 1 on"
    )
    return build_checked


def _fault_of_rate(rate: object, n: int) -> str | None:
    is_rate = isinstance(rate, int | float) and math.isfinite(rate) and rate >= 0
    return None if is_rate else f"{rate!r:.80} as the learning rate of update {n}, not a number from 0"


SCHEDULES: Registry[ScheduleKind] = Registry("schedule", adopt=_adopted, options_key="schedule.options")


def check_schedule(config: ScheduleConfig) -> ScheduleKind:
    """Raise ConfigError for a name that is not registered, or settings that its schedule does not take."""
    kind = SCHEDULES[config.name]
    checked_options(SCHEDULES, config.name, config.options)
    unused = "lr" if kind.height == "factor" else "factor"
    if getattr(config, kind.height) is None or getattr(config, unused) is not None:
        raise ConfigError(
            f"schedule.{kind.height if getattr(config, kind.height) is None else unused}: schedule.name={config.name}"
            f" takes schedule.{kind.height}, not schedule.{unused}."
            f" Set schedule.{kind.height}=VALUE and schedule.{unused}=null"
        )
    return kind


def build_schedule(config: ScheduleConfig, *, d_model: int, max_steps: int) -> Schedule:
    kind = check_schedule(config)
    options = checked_options(SCHEDULES, config.name, config.options)
    return kind.build(replace(config, options=options), d_model, max_steps)


def ends_at_max_steps(name: str) -> bool:
    """Whether the schedule depends on the length of the run; False for one that is not registered."""
    return name in SCHEDULES.names() and SCHEDULES[name].ends_at_max_steps


def after_warmup(config: ScheduleConfig, shape: Callable[[int], float]) -> Schedule:
    """A linear rise to `config.lr` at the last warm-up step, and from there on that rate times `shape`."""
    assert config.lr is not None
    peak, warmup = config.lr, int(config.warmup_steps)
    return lambda n: peak * (n / warmup if n <= warmup else shape(n))


def elapsed(n: int, config: ScheduleConfig, max_steps: int) -> float:
    """The part of the decay, from 0 to 1, that is over at update n: 0 at the last warm-up step, 1 after `max_steps`."""
    warmup = int(config.warmup_steps)
    return min(1.0, (n - warmup) / max(1, max_steps + 1 - warmup))
