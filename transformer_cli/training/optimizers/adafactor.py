"""Adafactor (Shazeer and Stern 2018): the second moment of a matrix as the product of a column and a row.

Beside the weights and their gradient it holds next to nothing, where Adam holds two numbers for each weight.
"""

import torch
from torch import nn
from torch.optim import Optimizer

from transformer_cli.config.train import OptimizerConfig
from transformer_cli.errors import ConfigError
from transformer_cli.training.optimizers.registry import OPTIMIZERS, OptimizerKind, decay_groups

_LEAST_GRADIENT = 1e-16  # a mean square, whose own square float32 has; torch's default, 1e-7, is that of many models
_ABSOLUTE = 1.0  # more than the root mean square of most weights: the rate is not multiplied by theirs


def adafactor(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """A step is at most as large as the rate, in the root mean square, so that rates are those of Adam.

    Raises ConfigError for `betas` and `eps`, which are Adam's: its moment has no fixed decay rate.
    """
    for name in ("betas", "eps"):
        if (value := getattr(config, name)) != getattr(OptimizerConfig(), name):
            shown = list(value) if isinstance(value, tuple) else value
            raise ConfigError(f"optimizer.{name}={shown}: optimizer=adafactor has none. Leave it out")
    groups = decay_groups(list(model.parameters()), config)
    return torch.optim.Adafactor(groups, eps=(_LEAST_GRADIENT, _ABSOLUTE))


OPTIMIZERS.register("adafactor")(OptimizerKind(adafactor, needs_whole_model=True))
