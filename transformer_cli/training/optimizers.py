"""Optimizers by name, and their state as plain tensors by parameter name."""

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from transformer_cli.errors import CheckpointError, quoted
from transformer_cli.registry import Registry
from transformer_cli.schema import OptimizerConfig

OPTIMIZERS: Registry[Callable[[nn.Module, OptimizerConfig], Optimizer]] = Registry("optimizer")
REMEMBERED = ("step", "exp_avg", "exp_avg_sq")  # by all of them for each parameter
_STEP = torch.tensor(0.0)  # is counted in one number


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """The rate is set by the schedule before every update."""
    return OPTIMIZERS[config.name](model, config)


@OPTIMIZERS.register("adam")
def adam(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """Kingma and Ba 2015; weight decay, if any, is added to the gradient."""
    return torch.optim.Adam(_groups(model, config), betas=config.betas, eps=config.eps, fused=True)


@OPTIMIZERS.register("adamw")
def adamw(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """Adam whose weight decay does not pass through the moments (Loshchilov and Hutter 2019)."""
    return torch.optim.AdamW(_groups(model, config), betas=config.betas, eps=config.eps, fused=True)


def _groups(model: nn.Module, config: OptimizerConfig) -> list[dict[str, object]]:
    """Only matrices decay: biases and norms have no reason to be near zero."""
    parameters = list(model.parameters())
    return [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]


def set_rate(optimizer: Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def optimizer_tensors(optimizer: Optimizer, parameters: Iterable[tuple[str, nn.Parameter]]) -> dict[str, Tensor]:
    """All that the optimizer remembers: `exp_avg/encoder.layers.0.…` → tensor."""
    return {
        f"{key}/{name}": value for name, parameter in parameters for key, value in optimizer.state[parameter].items()
    }


def load_optimizer_tensors(
    optimizer: Optimizer, parameters: Iterable[tuple[str, nn.Parameter]], tensors: Mapping[str, Tensor]
) -> None:
    """The inverse of `optimizer_tensors`. Raises as `check_optimizer_tensors` does."""
    by_name = dict(parameters)
    check_optimizer_tensors(by_name.items(), tensors)
    for full_name, value in tensors.items():
        key, _, name = full_name.partition("/")
        parameter = by_name[name]
        optimizer.state[parameter][key] = value.to(parameter.device, copy=True)


def check_optimizer_tensors(parameters: Iterable[tuple[str, nn.Parameter]], tensors: Mapping[str, Tensor]) -> None:
    """Raises CheckpointError when the optimizer's tensors belong to another model."""
    by_name = dict(parameters)
    like = {f"{key}/{name}": by_name[name] if key != "step" else _STEP for name in by_name for key in REMEMBERED}
    for full_name in sorted(like.keys() | tensors.keys()) if tensors else ():  # there are none before the first update
        wanted, found = _kind(like.get(full_name)), _kind(tensors.get(full_name))
        if wanted != found:
            raise CheckpointError(
                f"optimizer state {quoted(full_name)}: {found}, but this model asks for {wanted}."
                " Resume with the config that the run was started with"
            )


def _kind(tensor: Tensor | None) -> str:
    return "nothing" if tensor is None else f"{list(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"
