"""An exponential moving average of the weights, beside the weights that are trained."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from transformer_cli.training.optimizers import refuse_other_tensors

EMA_PREFIX = "ema/"  # of its tensors among those of the optimizer


class Ema:
    """Moving average of the weights, in float32: ema ← ema + (1 - d) · (weight - ema) after each effective update.

    d is `decay`, but min(decay, (1 + n) / (10 + n)) after update n while that is less, so that the drawn weights are
    soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = decay
        self._weights = dict(model.named_parameters())
        self._means = {name: weight.detach().to(torch.float32, copy=True) for name, weight in self._weights.items()}

    @torch.no_grad()
    def update(self, step: int, *, changed: Tensor) -> None:
        """Average in the weights of update `step`; where `changed`, a boolean on their device, is False, stay."""
        means = list(self._means.values())
        distance = torch._foreach_sub(list(self._weights.values()), means)
        torch._foreach_mul_(distance, (1 - min(self._decay, (1 + step) / (10 + step))) * changed)
        torch._foreach_add_(means, distance)

    def weights(self) -> dict[str, Tensor]:
        """The averaged weights, on the CPU."""
        return {name: mean.to("cpu", copy=True) for name, mean in self._means.items()}

    def is_sound(self) -> bool:
        return bool(get_total_norm(self._means.values()).isfinite())

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model has these weights inside the block, and its own again afterwards, to the last bit."""
        own = {name: weight.detach().clone() for name, weight in self._weights.items()}
        self._put(self._means)
        try:
            yield
        finally:
            self._put(own)

    @torch.no_grad()
    def _put(self, weights: Mapping[str, Tensor]) -> None:
        for name, weight in self._weights.items():
            weight.copy_(weights[name])

    def tensors(self) -> dict[str, Tensor]:
        """The state for a checkpoint."""
        return {EMA_PREFIX + name: mean for name, mean in self._means.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """The inverse of `tensors`; where there are none, start from the current weights.

        Raises CheckpointError when they belong to another model.
        """
        if tensors:
            refuse_other_tensors(self.tensors(), tensors)
        for name, mean in self._means.items():
            mean.copy_(tensors.get(EMA_PREFIX + name, self._weights[name].detach()))
