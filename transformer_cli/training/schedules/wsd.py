"""Warm-up, stable, decay."""

from transformer_cli.config.train import ScheduleConfig
from transformer_cli.training.schedules.registry import SCHEDULES, Schedule, ScheduleKind, after_warmup


def wsd(config: ScheduleConfig, d_model: int, max_steps: int) -> Schedule:
    """Hu et al. 2024: the peak rate, and a straight line to zero after the last part.

    The steps before that part do not depend on `max_steps`: a longer run can start from any of their checkpoints.
    """
    assert config.decay is not None
    n_decaying = config.decay * max_steps
    return after_warmup(config, lambda n: min(1.0, max(0, max_steps + 1 - n) / (n_decaying + 1)))


SCHEDULES.register("wsd")(ScheduleKind(wsd, ends_at_max_steps=True))
