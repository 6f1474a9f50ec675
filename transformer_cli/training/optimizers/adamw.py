"""AdamW (Loshchilov and Hutter 2019)."""

import torch
from torch import nn
from torch.optim import Optimizer

from transformer_cli.config.train import OptimizerConfig
from transformer_cli.training.optimizers.registry import OPTIMIZERS, OptimizerKind, decay_groups


def adamw(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """Adam whose weight decay does not pass through the moments."""
    groups = decay_groups(list(model.parameters()), config)
    return torch.optim.AdamW(groups, betas=config.betas, eps=config.eps, fused=True)


OPTIMIZERS.register("adamw")(OptimizerKind(adamw))
