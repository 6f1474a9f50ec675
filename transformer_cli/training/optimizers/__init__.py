"""Optimizers; a module registers what it holds."""

from transformer_cli.training.optimizers import adafactor, adam, muon  # noqa: F401
from transformer_cli.training.optimizers.registry import (
    OPTIMIZERS,
    OptimizerKind,
    build_optimizer,
    check_optimizer,
    set_lr,
    take_step,
)
from transformer_cli.training.optimizers.state import load_optimizer_tensors, optimizer_tensors, refuse_other_tensors

__all__ = [
    "OPTIMIZERS",
    "OptimizerKind",
    "build_optimizer",
    "check_optimizer",
    "load_optimizer_tensors",
    "optimizer_tensors",
    "refuse_other_tensors",
    "set_lr",
    "take_step",
]
