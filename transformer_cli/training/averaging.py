"""The mean of several checkpoints' weights (Vaswani et al. 2017, section 6.1)."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def average(checkpoints: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each tensor, summed in float64 and returned in its own type.

    Checkpoints that are mapped, as by `models.file.map_model`, are in memory one tensor at a time.
    """
    assert checkpoints, "nothing to average"
    first, *others = checkpoints
    assert all(other.keys() == first.keys() for other in others), "checkpoints of different models"
    return {name: _mean([one[name] for one in checkpoints]) for name in first}


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    total = tensors[0].to(torch.float64, copy=True)
    for tensor in tensors[1:]:
        total += tensor.double()
    return total.div_(len(tensors)).to(tensors[0].dtype)
