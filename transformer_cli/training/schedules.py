"""Learning rate schedules: the rate of update n, counted from 1, as pure functions of n.

A schedule that ends at `max_steps` comes to zero after that update, not with it: the last one learns something too.
"""

import math
from collections.abc import Callable

from transformer_cli.config.train import ScheduleConfig
from transformer_cli.registry import Registry

Schedule = Callable[[int], float]

SCHEDULES: Registry[Callable[[ScheduleConfig, int, int], Schedule]] = Registry("schedule")


def build_schedule(config: ScheduleConfig, *, d_model: int, max_steps: int) -> Schedule:
    return SCHEDULES[config.name](config, d_model, max_steps)


@SCHEDULES.register("noam")
def noam(config: ScheduleConfig, d_model: int, max_steps: int) -> Schedule:
    """Equation 3 of Vaswani et al. 2017, times a factor."""
    assert config.factor is not None
    scale, warmup = config.factor * d_model**-0.5, config.warmup_steps
    return lambda n: scale * min(n**-0.5, n * warmup**-1.5)


@SCHEDULES.register("inverse_sqrt")
def inverse_sqrt(config: ScheduleConfig, d_model: int, max_steps: int) -> Schedule:
    """The shape of `noam`, named by its peak (Ott et al. 2018)."""
    warmup = config.warmup_steps
    return _after_warmup(config, lambda n: math.sqrt(warmup / n))


@SCHEDULES.register("cosine")
def cosine(config: ScheduleConfig, d_model: int, max_steps: int) -> Schedule:
    """Half a cosine from the peak to zero after `max_steps` (Loshchilov and Hutter 2017)."""
    return _after_warmup(config, lambda n: 0.5 * (1 + math.cos(math.pi * _elapsed(n, config, max_steps))))


@SCHEDULES.register("linear")
def linear(config: ScheduleConfig, d_model: int, max_steps: int) -> Schedule:
    """A straight line from the peak to zero after `max_steps`."""
    return _after_warmup(config, lambda n: 1 - _elapsed(n, config, max_steps))


@SCHEDULES.register("wsd")
def wsd(config: ScheduleConfig, d_model: int, max_steps: int) -> Schedule:
    """Warm-up, stable, decay (Hu et al. 2024): the peak rate, and a straight line to zero after the last part.

    The steps before that part do not depend on `max_steps`: a longer run can start from any of their checkpoints.
    """
    assert config.decay is not None
    n_decaying = config.decay * max_steps
    return _after_warmup(config, lambda n: min(1.0, max(0, max_steps + 1 - n) / (n_decaying + 1)))


@SCHEDULES.register("constant")
def constant(config: ScheduleConfig, d_model: int, max_steps: int) -> Schedule:
    return _after_warmup(config, lambda n: 1.0)


def _after_warmup(config: ScheduleConfig, shape: Callable[[int], float]) -> Schedule:
    """A linear rise to `config.lr` at the last warm-up step, and from there on that rate times `shape`."""
    assert config.lr is not None
    peak, warmup = config.lr, int(config.warmup_steps)
    return lambda n: peak * (n / warmup if n <= warmup else shape(n))


def _elapsed(n: int, config: ScheduleConfig, max_steps: int) -> float:
    """The part of the decay, from 0 to 1, that is over at update n: 0 at the last warm-up step, 1 after `max_steps`."""
    warmup = int(config.warmup_steps)
    return min(1.0, (n - warmup) / max(1, max_steps + 1 - warmup))
