"""A straight line from the peak to zero."""

from transformer_cli.config.train import ScheduleConfig
from transformer_cli.training.schedules.registry import SCHEDULES, Schedule, ScheduleKind, after_warmup, elapsed


def linear(config: ScheduleConfig, d_model: int, max_steps: int) -> Schedule:
    return after_warmup(config, lambda n: 1 - elapsed(n, config, max_steps))


SCHEDULES.register("linear")(ScheduleKind(linear, ends_at_max_steps=True))
