"""The peak rate throughout, after a warm-up."""

from transformer_cli.config.train import ScheduleConfig
from transformer_cli.training.schedules.registry import Schedule, after_warmup, register_schedule


@register_schedule("constant")
def constant(config: ScheduleConfig, d_model: int, max_steps: int) -> Schedule:
    return after_warmup(config, lambda n: 1.0)
