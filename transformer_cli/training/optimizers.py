"""Optimizers by name, and their state as plain tensors by parameter name."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from transformer_cli.config.train import OptimizerConfig
from transformer_cli.errors import CheckpointError, quoted
from transformer_cli.logs import LOGGER
from transformer_cli.registry import Registry

OPTIMIZERS: Registry[Callable[[nn.Module, OptimizerConfig], Optimizer]] = Registry("optimizer")


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """The rate is set by the schedule before every update."""
    return OPTIMIZERS[config.name](model, config)


@OPTIMIZERS.register("adam")
def adam(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """Kingma and Ba 2015; weight decay, if any, is added to the gradient."""
    return torch.optim.Adam(_groups(list(model.parameters()), config), betas=config.betas, eps=config.eps, fused=True)


@OPTIMIZERS.register("adamw")
def adamw(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """Adam whose weight decay does not pass through the moments (Loshchilov and Hutter 2019)."""
    return torch.optim.AdamW(_groups(list(model.parameters()), config), betas=config.betas, eps=config.eps, fused=True)


@OPTIMIZERS.register("muon")
def muon(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """Muon (Jordan et al. 2024) for the matrices of the layers, AdamW for embeddings, output layers, biases, norms."""
    return MuonAndAdamW(model, config)


class MuonAndAdamW(Optimizer):
    """Both as one. Muon's updates are scaled to be as large as AdamW's (Liu et al. 2025), so that one rate serves both.

    Queries, keys and values, like the gate and the value of swiglu, are matrices of their own: where they share one
    tensor, each part of it is orthogonalised by itself. What Muon remembers has the shape of the tensor.

    As torch's fused optimizers do, `step` looks at `found_inf` on the device: above 0, nothing changes. Muon knows
    nothing of it, so what it has changed is put back, at the price of a copy of its matrices and their momentum.
    """

    _step_supports_amp_scaling = True  # by which GradScaler knows those that look at `found_inf`

    def __init__(self, model: nn.Module, config: OptimizerConfig) -> None:
        linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
        outputs = {module.weight for module in linear if getattr(module, "is_output", False)}
        widths = {
            module.weight: getattr(module, "parts", [module.out_features])
            for module in linear
            if module.weight not in outputs
        }
        self.began_with_muon = outputs  # in checkpoints of earlier versions
        self._parts = {matrix: _views(matrix, widths[matrix]) for matrix in widths}
        others = [parameter for parameter in model.parameters() if parameter not in widths]
        parts = [part for parts in self._parts.values() for part in parts]
        self._muon = torch.optim.Muon(parts, weight_decay=config.weight_decay, adjust_lr_fn="match_rms_adamw")
        self._adamw = torch.optim.AdamW(_groups(others, config), betas=config.betas, eps=config.eps, fused=True)
        by_muon = {**self._muon.param_groups[0], "params": list(widths)}
        super().__init__([by_muon, *self._adamw.param_groups], {})
        self._adamw.state = self.state

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        found_inf: Tensor | None = getattr(self, "found_inf", None)
        matrices = self.param_groups[0]["params"]
        for matrix in matrices:
            self.state[matrix].setdefault("momentum_buffer", torch.zeros_like(matrix))
        changing = [*matrices, *(self.state[matrix]["momentum_buffer"] for matrix in matrices)]
        before = [] if found_inf is None else [tensor.clone() for tensor in changing]
        self._step_of_muon()
        if found_inf is not None:
            for tensor, old in zip(changing, before, strict=True):
                tensor.copy_(torch.where(found_inf > 0, old, tensor))
        self._adamw.found_inf = found_inf  # type: ignore[attr-defined]
        self._adamw.step()

    def _step_of_muon(self) -> None:
        """Each part has its rows of the tensor, of its gradient and of its momentum."""
        self._muon.param_groups[0]["lr"] = self.param_groups[0]["lr"]
        for matrix, parts in self._parts.items():
            sizes = [len(part) for part in parts]
            gradients = [None] * len(parts) if matrix.grad is None else torch.split(matrix.grad, sizes)
            momenta = torch.split(self.state[matrix]["momentum_buffer"], sizes)
            for part, gradient, momentum in zip(parts, gradients, momenta, strict=True):
                part.grad, self._muon.state[part] = gradient, {"momentum_buffer": momentum}
        self._muon.step()  # type: ignore[no-untyped-call]
        for part in self._muon.param_groups[0]["params"]:
            part.grad = None  # which would hold on to the whole tensor's


def _views(matrix: Tensor, widths: Sequence[int]) -> list[nn.Parameter]:
    """Its parts, which are no tensors of their own: what changes one, changes the matrix."""
    return [nn.Parameter(part) for part in torch.split(matrix.detach(), list(widths))]


def _groups(parameters: Sequence[nn.Parameter], config: OptimizerConfig) -> list[dict[str, Any]]:
    """Only matrices decay: biases and norms have no reason to be near zero."""
    return [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]


def set_rate(optimizer: Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def take_step(optimizer: Optimizer, *, skip: Tensor) -> None:
    """One step; where `skip`, a boolean on the device, is True, nothing changes.

    Those of torch's optimizers that cannot look at it there make the CPU wait for it.
    """
    if getattr(optimizer, "_step_supports_amp_scaling", False):
        optimizer.found_inf = skip.float()  # type: ignore[attr-defined]
        optimizer.step()
    elif not skip:
        optimizer.step()


def optimizer_tensors(optimizer: Optimizer, parameters: Iterable[tuple[str, nn.Parameter]]) -> dict[str, Tensor]:
    """All that the optimizer remembers: `exp_avg/encoder.layers.0.…` → tensor. Plain numbers become tensors."""
    return {
        f"{key}/{name}": value if isinstance(value, Tensor) else _as_tensor(value)
        for name, parameter in parameters
        for key, value in optimizer.state.get(parameter, {}).items()
        if value is not None
    }


def _as_tensor(value: float) -> Tensor:
    assert isinstance(value, bool | int | float), f"an optimizer that remembers a {type(value).__name__}"
    return torch.tensor(value, dtype={bool: torch.bool, int: torch.int64, float: torch.float64}[type(value)])


def load_optimizer_tensors(
    optimizer: Optimizer,
    parameters: Iterable[tuple[str, nn.Parameter]],
    tensors: Mapping[str, Tensor],
    *,
    put: Callable[[Tensor, Tensor], object] = Tensor.copy_,
) -> None:
    """The inverse of `optimizer_tensors`; `put` writes the second tensor into the first.

    Raises CheckpointError if `tensors` belong to another model or optimizer.
    """
    by_name = dict(parameters)
    begin_remembering(optimizer)
    kept = dict(tensors)
    for name in _moved_from_muon(optimizer, by_name, tensors):
        LOGGER.warning("%s: was Muon's, and is AdamW's now, which begins anew with it", name)
        del kept[f"momentum_buffer/{name}"]
        del optimizer.state[by_name[name]]
    refuse_unlike(optimizer_tensors(optimizer, by_name.items()), kept)
    for full_name, value in kept.items():
        key, _, name = full_name.partition("/")
        own = optimizer.state[by_name[name]]
        if isinstance(own[key], Tensor):
            put(own[key], value)
        else:
            number = _as_tensor(own[key])
            put(number, value)
            own[key] = number.item()


def begin_remembering(optimizer: Optimizer) -> None:
    """Let the optimizer make what it remembers of each parameter, by a step that leaves all else as it was."""
    parameters = [one for group in optimizer.param_groups for one in group["params"] if one.requires_grad]
    kept = [(one, one.grad, one.detach().clone()) for one in parameters]
    groups = [{**group} for group in optimizer.param_groups]
    try:
        set_rate(optimizer, 0.0)
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


def _moved_from_muon(
    optimizer: Optimizer, by_name: Mapping[str, nn.Parameter], tensors: Mapping[str, Tensor]
) -> list[str]:
    """Names of the parameters of which `tensors` have what Muon remembered when it still took output layers."""
    moved = getattr(optimizer, "began_with_muon", ())
    return [name for name, one in by_name.items() if one in moved and f"momentum_buffer/{name}" in tensors]


def refuse_unlike(like: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Raise CheckpointError if `tensors` differ from `like` in names, shapes or types."""
    for name in sorted(like.keys() | tensors.keys()):
        wanted, found = _kind(like.get(name)), _kind(tensors.get(name))
        if wanted != found:
            raise CheckpointError(
                f"optimizer state {quoted(name)}: {found}, but this model asks for {wanted}."
                " Resume with the config that the run was started with"
            )


def _kind(tensor: Tensor | None) -> str:
    return "nothing" if tensor is None else f"{list(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"
