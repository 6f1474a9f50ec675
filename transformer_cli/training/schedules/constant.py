"""The peak rate throughout, after a warm-up."""

from transformer_cli.config.train import ScheduleConfig
from transformer_cli.training.schedules.registry import SCHEDULES, Schedule, ScheduleKind, after_warmup


def constant(config: ScheduleConfig, d_model: int, max_steps: int) -> Schedule:
    return after_warmup(config, lambda n: 1.0)


SCHEDULES.register("constant")(ScheduleKind(constant))
