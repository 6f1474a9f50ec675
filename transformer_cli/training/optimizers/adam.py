"""Adam (Kingma and Ba 2015), and AdamW (Loshchilov and Hutter 2019)."""

import torch
from torch import nn
from torch.optim import Optimizer

from transformer_cli.config.train import OptimizerConfig
from transformer_cli.training.optimizers.registry import OPTIMIZERS, OptimizerKind, decay_groups


def adam(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """Weight decay, if any, is added to the gradient."""
    groups = decay_groups(list(model.parameters()), config)
    return torch.optim.Adam(groups, betas=config.betas, eps=config.eps, fused=True)


def adamw(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """Adam whose weight decay does not pass through the moments."""
    groups = decay_groups(list(model.parameters()), config)
    return torch.optim.AdamW(groups, betas=config.betas, eps=config.eps, fused=True)


OPTIMIZERS.register("adam")(OptimizerKind(adam))
OPTIMIZERS.register("adamw")(OptimizerKind(adamw))
