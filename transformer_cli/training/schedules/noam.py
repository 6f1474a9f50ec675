"""The paper's schedule: linear warm-up, then the inverse square root of the step."""

from transformer_cli.config.train import ScheduleConfig
from transformer_cli.training.schedules.registry import SCHEDULES, Schedule, ScheduleKind


def noam(config: ScheduleConfig, d_model: int, max_steps: int) -> Schedule:
    """Equation 3 of Vaswani et al. 2017, times a factor."""
    assert config.factor is not None
    scale, warmup = config.factor * d_model**-0.5, config.warmup_steps
    return lambda n: scale * min(n**-0.5, n * warmup**-1.5)


SCHEDULES.register("noam")(ScheduleKind(noam, height="factor"))
