"""The schedules: linear warm-up, and what comes after it."""

import math

from transformer_cli.config.train import ScheduleConfig
from transformer_cli.training.schedules.registry import SCHEDULES, Schedule, ScheduleKind, after_warmup, elapsed


def noam(config: ScheduleConfig, d_model: int, max_steps: int) -> Schedule:
    """Equation 3 of Vaswani et al. 2017, times a factor: the inverse square root of the step."""
    assert config.factor is not None
    scale, warmup = config.factor * d_model**-0.5, config.warmup_steps
    return lambda n: scale * min(n**-0.5, n * warmup**-1.5)


def inverse_sqrt(config: ScheduleConfig, d_model: int, max_steps: int) -> Schedule:
    """The shape of `noam`, named by its peak (Ott et al. 2018)."""
    warmup = config.warmup_steps
    return after_warmup(config, lambda n: math.sqrt(warmup / n))


def constant(config: ScheduleConfig, d_model: int, max_steps: int) -> Schedule:
    """The peak rate throughout."""
    return after_warmup(config, lambda n: 1.0)


def linear(config: ScheduleConfig, d_model: int, max_steps: int) -> Schedule:
    """A straight line from the peak to zero."""
    return after_warmup(config, lambda n: 1 - elapsed(n, config, max_steps))


def cosine(config: ScheduleConfig, d_model: int, max_steps: int) -> Schedule:
    """Half a cosine from the peak to zero (Loshchilov and Hutter 2017, without restarts)."""
    return after_warmup(config, lambda n: 0.5 * (1 + math.cos(math.pi * elapsed(n, config, max_steps))))


def wsd(config: ScheduleConfig, d_model: int, max_steps: int) -> Schedule:
    """Warm-up, stable, decay (Hu et al. 2024): the peak rate, and a straight line to zero in the last part.

    The steps before that part do not depend on `max_steps`: a longer run can start from any of their checkpoints.
    """
    assert config.decay is not None
    n_decaying = config.decay * max_steps
    return after_warmup(config, lambda n: min(1.0, max(0, max_steps + 1 - n) / (n_decaying + 1)))


SCHEDULES.register("noam")(ScheduleKind(noam, height="factor"))
SCHEDULES.register("inverse_sqrt")(ScheduleKind(inverse_sqrt))
SCHEDULES.register("constant")(ScheduleKind(constant))
SCHEDULES.register("linear")(ScheduleKind(linear, ends_at_max_steps=True))
SCHEDULES.register("cosine")(ScheduleKind(cosine, ends_at_max_steps=True))
SCHEDULES.register("wsd")(ScheduleKind(wsd, ends_at_max_steps=True))
