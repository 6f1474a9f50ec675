"""Muon for the matrices of the layers (Jordan et al. 2024), AdamW for all else.

torch.optim.Muon takes one matrix after another: some 30 operations for each, which a GPU waits for. Here matrices of
one shape are a batch, with the same numbers; a test compares them with torch's.

Shapes: X × Y of a matrix, N of them.
"""

import math
from collections import defaultdict

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from transformer_cli.config.train import OptimizerConfig
from transformer_cli.errors import ConfigError
from transformer_cli.training.optimizers.registry import OPTIMIZERS, OptimizerKind, decay_groups

MOMENTUM = 0.95
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the iteration, as Jordan et al. have them
N_STEPS = 5
SMALLEST_NORM = 1e-7
LIKE_ADAMW = 0.2  # the root mean square of AdamW's updates (Liu et al. 2025, section 2.2)


class MuonAndAdamW(Optimizer):
    """Muon for matrices and AdamW for the rest.

    Muon's updates are scaled to be as large as AdamW's (Liu et al. 2025), so that one rate serves both.

    Queries, keys and values, like the gate and the value of swiglu, are matrices of their own: where they share one
    tensor, each part of it is orthogonalised by itself. Its momentum has the shape of the tensor.

    As torch's fused optimizers do, `step` reads `found_inf` on the device: above 0, nothing changes. What Muon has
    changed is then restored, at the price of a copy of its matrices and their momentum.
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
        self._widths = {matrix: list(its_widths) for matrix, its_widths in widths.items()}
        if not widths:
            raise ConfigError(
                "optimizer=muon: is for the matrices of the layers, and none of them is trained. Set optimizer=adamw"
            )
        others = [parameter for parameter in model.parameters() if parameter not in widths]
        self._adamw = torch.optim.AdamW(decay_groups(others, config), betas=config.betas, eps=config.eps, fused=True)
        by_muon = {"params": list(widths), "lr": 1e-3, "weight_decay": config.weight_decay}
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
        lr, decay = self.param_groups[0]["lr"], self.param_groups[0]["weight_decay"]
        by_shape: dict[torch.Size, list[tuple[Tensor, Tensor, Tensor]]] = defaultdict(list)
        for matrix, widths in self._widths.items():
            if matrix.grad is None:
                continue
            each = (torch.split(x, widths) for x in (matrix, matrix.grad, self.state[matrix]["momentum_buffer"]))
            for part in zip(*each, strict=True):
                by_shape[part[0].shape].append(part)
        for shape, parts in by_shape.items():
            weights, gradients, momenta = map(list, zip(*parts, strict=True))
            torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
            nesterov = torch._foreach_lerp(gradients, momenta, MOMENTUM)
            updates = orthogonalised(torch.stack(list(nesterov))).to(weights[0].dtype).unbind()
            torch._foreach_mul_(weights, 1 - lr * decay)
            torch._foreach_add_(weights, updates, alpha=-lr * LIKE_ADAMW * math.sqrt(max(shape)))


def orthogonalised(x_NXY: Tensor) -> Tensor:
    """Each matrix with singular values near 1 in place of its own: five steps of Newton and Schulz, in bf16."""
    a, b, c = COEFFICIENTS
    y_NXY = x_NXY.bfloat16()
    is_tall = y_NXY.size(1) > y_NXY.size(2)
    if is_tall:
        y_NXY = y_NXY.mT
    y_NXY = y_NXY / y_NXY.norm(dim=(1, 2), keepdim=True).clamp(min=SMALLEST_NORM)
    for _ in range(N_STEPS):
        gram_NXX = y_NXY @ y_NXY.mT
        polynomial_NXX = torch.baddbmm(gram_NXX, gram_NXX, gram_NXX, beta=b, alpha=c)
        y_NXY = torch.baddbmm(y_NXY, polynomial_NXX, y_NXY, beta=a)
    return y_NXY.mT if is_tall else y_NXY


def muon(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """AdamW takes embeddings, output layers, biases and norms."""
    return MuonAndAdamW(model, config)


OPTIMIZERS.register("muon")(OptimizerKind(muon, needs_whole_model=True))
