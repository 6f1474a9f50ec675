"""The comparison of two ways to the same step: every loss, every tensor of the checkpoint, and its counts, by bits."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transformer_cli.training.checkpoints import Checkpoint

_WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by the bytes of an element
_COUNTS = (
    "progress",
    "interval",
    "scaler",
    "skipped",
    "spikes",
)  # in the state of a checkpoint: what the next updates read
_SHOWN = 5
FEW_ULPS = 10_000  # from here on, as between values of either sign, the number says nothing


@dataclass(frozen=True)
class Reached:
    """What a process has reached: its losses by step, in hexadecimal, and its last checkpoint."""

    losses: Mapping[int, str]
    checkpoint: Checkpoint
    precision: str

    def tensors(self) -> dict[str, Tensor]:
        """All tensors of the checkpoint: weights, and what the optimizer's file holds, the moving average included."""
        weights = {f"weights {name}": x for name, x in self.checkpoint.model.weights.items()}
        return weights | {f"optimizer {name}": x for name, x in self.checkpoint.optimizer.items()}


@dataclass(frozen=True)
class TensorDifference:
    name: str
    what: str
    relative: float  # largest difference over the largest value; infinite for another shape, or no number


@dataclass(frozen=True)
class Differences:
    """What differs between `one` and `other`; nothing, if the two are equal to the last bit."""

    loss: tuple[int, str, str] | None  # the first update whose loss differs, and the two losses
    tensors: list[TensorDifference]  # the largest first
    counts: list[str]  # their names in the state
    n_tensors: int

    def __bool__(self) -> bool:
        return bool(self.loss or self.tensors or self.counts)

    def lines(self, one: str, other: str) -> Iterator[str]:
        """Lines for people, given the names of the two."""
        if self.loss is None:
            yield "losses: equal"
        else:
            step, before, now = self.loss
            first, second = float.fromhex(before), float.fromhex(now)
            yield f"losses: update {step} is the first that differs: {one} {first:.9g}, {other} {second:.9g}"
        yield f"tensors: {len(self.tensors)} of {self.n_tensors} differ"
        yield from (f"  {found.name}: {found.what}" for found in self.tensors[:_SHOWN])
        if len(self.tensors) > _SHOWN:
            yield f"  and {len(self.tensors) - _SHOWN} with smaller differences"
        if self.counts:
            yield f"counts of the checkpoint that differ: {', '.join(self.counts)}"


def difference_of(one: Reached, other: Reached) -> Differences:
    """Compare all that the two have."""
    steps = sorted({*one.losses, *other.losses})
    unlike = ((step, one.losses.get(step, "nan"), other.losses.get(step, "nan")) for step in steps)
    first = next((found for found in unlike if found[1] != found[2]), None)
    before, now = one.tensors(), other.tensors()
    names = {**before, **now}
    found = [difference for name in names if (difference := compared(name, before.get(name), now.get(name)))]
    found.sort(key=lambda difference: difference.relative, reverse=True)
    states: list[Mapping[str, Any]] = [one.checkpoint.state, other.checkpoint.state]
    counts = [name for name in _COUNTS if states[0].get(name) != states[1].get(name)]
    return Differences(first, found, counts, len(names))


def compared(name: str, one: Tensor | None, other: Tensor | None) -> TensorDifference | None:
    """The difference of two tensors of one name; None if they have the same bits."""
    if one is None or other is None:
        return TensorDifference(name, f"is only in the {'second' if one is None else 'first'}", float("inf"))
    if one.shape != other.shape or one.dtype != other.dtype:
        shapes = f"{tuple(one.shape)} {one.dtype} and {tuple(other.shape)} {other.dtype}"
        return TensorDifference(name, f"has another form: {shapes}", float("inf"))
    bits = [x.contiguous().view(_WHOLE[x.element_size()]).to(torch.int64) for x in (one, other)]
    n_differing = int((bits[0] != bits[1]).sum())
    if n_differing == 0:
        return None
    of_all = f"{n_differing:,} of {one.numel():,} values"
    values = [x.to(torch.float64) for x in (one, other)]
    largest, scale = float((values[0] - values[1]).abs().max()), float(values[0].abs().max())
    relative = largest / scale if scale else float("inf")
    if not relative < float("inf"):
        return TensorDifference(name, f"{of_all}, by up to {largest:.3g}", float("inf"))
    ulps = _ulps(bits[0], bits[1], one.element_size()) if one.dtype.is_floating_point else FEW_ULPS
    in_ulps = f", {ulps:,} ulps" if ulps < FEW_ULPS else ""
    return TensorDifference(name, f"{of_all}, by up to {relative:.2g} of the largest value{in_ulps}", relative)


def _ulps(one: Tensor, other: Tensor, n_bytes: int) -> int:
    """The largest number of floating-point steps between two values, from their bits as whole numbers.

    The bits of positive numbers count upwards; of negative ones they are mirrored, so that -0 and 0 are one place.
    """
    lowest = -(1 << (8 * n_bytes - 1))
    places = [torch.where(bits < 0, lowest - bits, bits) for bits in (one, other)]
    high, low = ([(x >> 32, x & 0xFFFFFFFF)[part] for x in places] for part in (0, 1))  # or 64 bits would overflow
    apart = (high[0] - high[1]).to(torch.float64) * 2.0**32 + (low[0] - low[1]).to(torch.float64)
    return int(apart.abs().max())
