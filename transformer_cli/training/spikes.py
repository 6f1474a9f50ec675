"""Loss spikes: what is one and what is noise, and which batches a run that goes back skips.

A spike is `IN_A_ROW` updates whose losses are each at least `DEVIATIONS` standard deviations above the running mean:
the threshold of the spike score of OLMo 2 (2025), which counts single values. Several in a row are asked for because a
single update with an unusual batch is high and does no harm; a spike that does harm lasts. Mean and standard deviation
are exponential, of about the last `1 / WEIGHT` updates, and begin anew after a spike; as long as the loss falls fast,
at the start of training, they lag behind it, and nothing but a jump above what was there before is a spike.

The answer is that of PaLM (Chowdhery et al. 2022, section 5.1): "we re-started training from a checkpoint roughly 100
steps before the spike started, and skipped roughly 200–500 data batches, which cover the batches that were seen before
and during the spike". Checkpoints here are rarely at that step: the run goes back to the newest one that is old enough,
repeats the updates until `BEFORE` steps before the spike, which are the same ones, and skips `SKIPPED` batches there.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

DEVIATIONS = 7.0
LEAST_RISE = 0.1  # nats: a loss that hardly varies is not to rise by less
IN_A_ROW = 3
WEIGHT = 0.01  # of an update in the running statistics
LEAST_UPDATES = 100  # in the statistics, before anything is a spike
BEFORE = 100  # updates before the spike, from which on other batches are taken
SKIPPED = 200  # batches


@dataclass(frozen=True)
class Spike:
    """Updates `first` to `last`, whose loss was too high, or not finite."""

    first: int
    last: int
    loss: float  # the highest; nats per target token
    mean: float  # of the updates before
    deviation: float  # the standard deviation of these
    grad_norm: float  # the largest
    mean_grad_norm: float
    is_finite: bool = True

    def values(self) -> dict[str, float]:
        """The entries of metrics.jsonl; numbers only, and none of a loss that is not finite."""
        steps: dict[str, float] = {"first": self.first, "last": self.last}
        if not self.is_finite:
            return steps
        numbers = {key: asdict(self)[key] for key in ("loss", "mean", "deviation", "grad_norm", "mean_grad_norm")}
        return {**steps, **{key: value for key, value in numbers.items() if math.isfinite(value)}}


def not_finite(first: int, last: int) -> Spike:
    """Updates that were skipped, of whose loss there is no more to say."""
    nan = math.nan
    return Spike(first, last, nan, nan, nan, nan, nan, is_finite=False)


@dataclass
class SpikeDetector:
    """Running statistics of the loss, and the last updates that were above its threshold."""

    mean: float = 0.0
    variance: float = 0.0
    mean_grad_norm: float = 0.0
    n_updates: int = 0
    high: list[tuple[int, float, float]] = field(default_factory=list)  # step, loss and gradient norm

    def add(self, step: int, loss: float, grad_norm: float) -> Spike | None:
        """Count an update whose loss is finite; return the spike that it completes, if it does."""
        if self.n_updates >= LEAST_UPDATES and loss >= self.threshold:
            self.high.append((step, loss, grad_norm if math.isfinite(grad_norm) else 0.0))  # fp16 overflows at times
            return self._spike() if len(self.high) >= IN_A_ROW else None
        self.high = []  # noise, of which the statistics learn nothing
        self.n_updates += 1
        weight = max(WEIGHT, 1 / self.n_updates)
        distance = loss - self.mean
        self.mean += weight * distance
        self.variance = (1 - weight) * (self.variance + weight * distance * distance)
        if math.isfinite(grad_norm):
            self.mean_grad_norm += weight * (grad_norm - self.mean_grad_norm)
        return None

    @property
    def threshold(self) -> float:
        return self.mean + max(DEVIATIONS * math.sqrt(self.variance), LEAST_RISE)

    def _spike(self) -> Spike:
        steps, losses, norms = zip(*self.high, strict=True)
        deviation = math.sqrt(self.variance)
        found = Spike(steps[0], steps[-1], max(losses), self.mean, deviation, max(norms), self.mean_grad_norm)
        self.mean, self.variance, self.mean_grad_norm, self.n_updates, self.high = 0.0, 0.0, 0.0, 0, []
        return found

    def state(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "SpikeDetector":
        """The inverse of `state`. Raises what MALFORMED lists."""
        high = [(int(step), float(loss), float(norm)) for step, loss, norm in state["high"]]
        numbers = {key: float(state[key]) for key in ("mean", "variance", "mean_grad_norm")}
        if numbers["variance"] < 0 or int(state["n_updates"]) < 0:
            raise ValueError(f"a spread or a count below 0 in {state}")
        return cls(**numbers, n_updates=int(state["n_updates"]), high=high)


@dataclass(frozen=True)
class Skip:
    """A gap in the batches: from update `step` on, each one is that of `n_batches` further on."""

    step: int
    n_batches: int


def batch_number(step: int, skips: Sequence[Skip]) -> int:
    """The number of the global batch of an update, both counted from 1."""
    return step + sum(skip.n_batches for skip in skips if skip.step <= step)


def with_skip(skips: Sequence[Skip], spike: Spike, *, since: int) -> tuple[Skip, ...]:
    """`skips` with those for a `spike`, in a run that has gone back to the checkpoint of step `since`.

    An earlier skip that would begin later begins there too, so that none of its batches comes back.
    """
    step = max(since + 1, spike.first - BEFORE)
    earlier = [replace(skip, step=min(skip.step, step)) for skip in skips]
    return (*earlier, Skip(step, max(SKIPPED, spike.last + 1 - step)))
