"""The shape of `noam`, named by its peak."""

import math

from transformer_cli.config.train import ScheduleConfig
from transformer_cli.training.schedules.registry import SCHEDULES, Schedule, ScheduleKind, after_warmup


def inverse_sqrt(config: ScheduleConfig, d_model: int, max_steps: int) -> Schedule:
    """Ott et al. 2018."""
    warmup = config.warmup_steps
    return after_warmup(config, lambda n: math.sqrt(warmup / n))


SCHEDULES.register("inverse_sqrt")(ScheduleKind(inverse_sqrt))
