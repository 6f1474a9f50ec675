"""Muon for the matrices of the layers (Jordan et al. 2024), AdamW for all else."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from transformer_cli.config.train import OptimizerConfig
from transformer_cli.errors import ConfigError
from transformer_cli.training.optimizers.registry import OPTIMIZERS, OptimizerKind, decay_groups


class MuonAndAdamW(Optimizer):
    """Muon for matrices and AdamW for the rest.

    Muon's updates are scaled to be as large as AdamW's (Liu et al. 2025), so that one rate serves both.

    Queries, keys and values, like the gate and the value of swiglu, are matrices of their own: where they share one
    tensor, each part of it is orthogonalised by itself. Its momentum has the shape of the tensor.

    As torch's fused optimizers do, `step` reads `found_inf` on the device: above 0, nothing changes. torch's Muon does
    not read it, so what it has changed is restored, at the price of a copy of its matrices and their momentum.
    """

    _step_supports_amp_scaling = True  # by which GradScaler finds those that read `found_inf`

    def __init__(self, model: nn.Module, config: OptimizerConfig) -> None:
        linear = [module for module in model.modules() if isinstance(module, nn.Linear) and module.weight.requires_grad]
        outputs = {module.weight for module in linear if getattr(module, "is_output", False)}
        widths = {
            module.weight: getattr(module, "parts", [module.out_features])
            for module in linear
            if module.weight not in outputs
        }
        self._parts = {matrix: _views(matrix, widths[matrix]) for matrix in widths}
        if not widths:
            raise ConfigError(
                "optimizer=muon: is for the matrices of the layers, and none of them is trained. Set optimizer=adamw"
            )
        others = [parameter for parameter in model.parameters() if parameter not in widths]
        parts = [part for parts in self._parts.values() for part in parts]
        self._muon = torch.optim.Muon(parts, weight_decay=config.weight_decay, adjust_lr_fn="match_rms_adamw")
        self._adamw = torch.optim.AdamW(decay_groups(others, config), betas=config.betas, eps=config.eps, fused=True)
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
    """The parts of a matrix, as views: what changes one, changes the matrix."""
    return [nn.Parameter(part) for part in torch.split(matrix.detach(), list(widths))]


def muon(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """AdamW takes embeddings, output layers, biases and norms."""
    return MuonAndAdamW(model, config)


OPTIMIZERS.register("muon")(OptimizerKind(muon, needs_whole_model=True))
