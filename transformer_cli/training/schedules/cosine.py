"""Half a cosine from the peak to zero."""

import math

from transformer_cli.config.train import ScheduleConfig
from transformer_cli.training.schedules.registry import SCHEDULES, Schedule, ScheduleKind, after_warmup, elapsed


def cosine(config: ScheduleConfig, d_model: int, max_steps: int) -> Schedule:
    """Loshchilov and Hutter 2017, without restarts."""
    return after_warmup(config, lambda n: 0.5 * (1 + math.cos(math.pi * elapsed(n, config, max_steps))))


SCHEDULES.register("cosine")(ScheduleKind(cosine, ends_at_max_steps=True))
