"""The mean of several checkpoints' weights (Vaswani et al. 2017, section 6.1)."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor


def average(checkpoints: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each tensor, summed in float64 and returned in its own type; one checkpoint is held at a time."""
    sums: dict[str, Tensor] = {}
    dtypes: dict[str, torch.dtype] = {}
    n = 0
    for n, weights in enumerate(checkpoints, start=1):
        assert n == 1 or weights.keys() == sums.keys(), "checkpoints of different models"
        for name, weight in weights.items():
            dtypes[name] = weight.dtype
            sums[name] = sums[name] + weight.double() if n > 1 else weight.double()
    assert n > 0, "nothing to average"
    return {name: (total / n).to(dtypes[name]) for name, total in sums.items()}
