"""Optimizers by name, each with what saving and resuming it needs."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from transformer_cli.config.options import checked_options
from transformer_cli.config.train import OptimizerConfig
from transformer_cli.registry import Registry, check_callable, guarded

BuildOptimizer = Callable[[nn.Module, OptimizerConfig], Optimizer]


def allocate_state(optimizer: Optimizer) -> None:
    """Let the optimizer create its state of each parameter, by a step that leaves all else as it was."""
    parameters = [one for group in optimizer.param_groups for one in group["params"] if one.requires_grad]
    kept = [(one, one.grad, one.detach().clone()) for one in parameters]
    groups = [{**group} for group in optimizer.param_groups]
    try:
        set_lr(optimizer, 0.0)
        for one in parameters:
            one.grad = torch.zeros_like(one)
        optimizer.step()
    finally:
        for group, before in zip(optimizer.param_groups, groups, strict=True):
            group.update(before)
        with torch.no_grad():
            for one, gradient, value in kept:
                one.copy_(value)
                one.grad = gradient


@dataclass(frozen=True)
class OptimizerKind:
    """A builder, and all that saving and resuming its optimizers needs to know.

    Saved are the tensors and numbers in `optimizer.state[parameter]`, and those in `param_groups` that `group_state`
    names; all else has to follow from the config.
    """

    build: BuildOptimizer
    group_state: tuple[str, ...] = ()  # keys of `param_groups` whose numbers or tensors change from step to step
    allocate: Callable[[Optimizer], None] = allocate_state  # for state that a step with zero gradients does not create
    needs_whole_model: bool = False  # so that train.sharding=full is refused


def _adopted(name: str, entry: Any) -> OptimizerKind:
    """An OptimizerKind, or the builder of one whose state is all in `optimizer.state`."""
    kind = entry if isinstance(entry, OptimizerKind) else OptimizerKind(entry)
    check_callable(kind.build, what="an optimizer", arguments="model, config")
    return replace(kind, build=guarded(kind.build, _fault_of))


def _fault_of(made: object, model: nn.Module, *_: object) -> str | None:
    if not isinstance(made, Optimizer):
        return f"{made!r:.80}, not a torch.optim.Optimizer"
    try:
        inspect.signature(made.step).bind()
    except TypeError as error:
        return f"a {type(made).__name__}, whose step() cannot be called alone ({error}), as training does"
    updated = {id(one) for group in made.param_groups for one in group["params"]}
    trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
    if left_out := [name for name, one in trained.items() if id(one) not in updated]:
        return (
            f"a {type(made).__name__} without {len(left_out)} of the {len(trained)} trained parameters, as"
            f" {left_out[0]}, which would never change: give it all, or set requires_grad=False on them"
        )
    return None


OPTIMIZERS: Registry[OptimizerKind] = Registry("optimizer", adopt=_adopted, options_key="optimizer.options")


def check_optimizer(config: OptimizerConfig) -> OptimizerKind:
    """Raise ConfigError for a name that is not registered, or options that its optimizer does not take."""
    kind = OPTIMIZERS[config.name]
    checked_options(OPTIMIZERS, config.name, config.options)
    return kind


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """The learning rate is set by the schedule before every update."""
    options = checked_options(OPTIMIZERS, config.name, config.options)
    return OPTIMIZERS[config.name].build(model, replace(config, options=options))


def decay_groups(parameters: Sequence[nn.Parameter], config: OptimizerConfig) -> list[dict[str, Any]]:
    """The parameter groups of the trained parameters.

    Only matrices decay: biases and norms have no reason to be near zero.
    """
    parameters = [p for p in parameters if p.requires_grad]
    return [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]


def set_lr(optimizer: Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr


def take_step(optimizer: Optimizer, *, skip: Tensor) -> None:
    """One step; where `skip`, a boolean on the device, is True, nothing changes.

    For those of torch's optimizers that cannot read it there, the CPU waits for the device.
    """
    if getattr(optimizer, "_step_supports_amp_scaling", False):
        optimizer.found_inf = skip.float()  # type: ignore[attr-defined]
        optimizer.step()
    elif not skip:
        optimizer.step()
