"""The shape of `noam`, named by its peak."""

import math

from transformer_cli.config.train import ScheduleConfig
from transformer_cli.training.schedules.registry import Schedule, after_warmup, register_schedule


@register_schedule("inverse_sqrt")
def inverse_sqrt(config: ScheduleConfig, d_model: int, max_steps: int) -> Schedule:
    """Ott et al. 2018."""
    warmup = config.warmup_steps
    return after_warmup(config, lambda n: math.sqrt(warmup / n))
