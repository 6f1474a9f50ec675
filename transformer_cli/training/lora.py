"""LoRA: a product of two thin matrices is added to each projection, and they alone are trained (Hu et al. 2021).

    y = x Wᵀ + scale · (x Aᵀ) Bᵀ,    which is the projection by W + scale · B A

W stays as it is. B begins at zero, so training begins with the model itself. Projections that share one matrix for
speed (queries, keys and values) have an A and a B each, as they would have if they did not. That is why the `peft`
library is not used here: it takes the shared matrix for one projection.

Model files have W + scale · B A under the name of W: whatever reads a model knows nothing of LoRA. To go on, training
needs W itself, as it was: it is kept beside the optimizer's state, with A and B.

Shapes: L rows of all sentences, K columns in, N columns out, P projections that share a matrix, R rank.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from transformer_cli.config.train import LoraConfig
from transformer_cli.errors import ConfigError
from transformer_cli.models.layers import Dropout
from transformer_cli.models.linear import Linear, project
from transformer_cli.models.transformer import Model

PREFIX, BASE = "lora/", "lora_base/"  # of its tensors among those of the optimizer
_ADAPTERS = ("lora_a", "lora_b")


class LoraLinear(Linear):
    """A projection with an adapter."""

    def __init__(self, linear: Linear, config: LoraConfig) -> None:
        n_out, n_in = linear.weight.shape
        super().__init__(n_in, n_out, bias=linear.bias is not None, parts=linear.parts)
        self.weight, self.bias = linear.weight, linear.bias
        self.rank, self.scale = config.rank, config.scale
        self.dropout = Dropout(config.dropout)
        self.lora_a = nn.Parameter(torch.empty(len(self.parts) * self.rank, n_in))  # [P · R, K]
        self.lora_b = nn.Parameter(torch.zeros(n_out, self.rank))
        nn.init.uniform_(self.lora_a, -(n_in**-0.5), n_in**-0.5)  # as the projections of its authors' code begin
        self.is_merged = False  # whether W has the product added to it

    def forward(self, x_LK: Tensor) -> Tensor:
        y_LN = super().forward(x_LK)
        if self.is_merged:
            return y_LN
        h_LPR = torch.unflatten(project(self.dropout(x_LK), self.lora_a), -1, (len(self.parts), self.rank))
        added = [
            project(h_LR, b_NR)
            for h_LR, b_NR in zip(h_LPR.unbind(-2), torch.split(self.lora_b, self.parts), strict=True)
        ]
        return y_LN + self.scale * torch.cat(added, dim=-1)

    @torch.no_grad()
    def merged_weight(self) -> Tensor:
        """W + scale · B A, [N, K]."""
        if self.is_merged:
            return self.weight.detach().clone()
        a_PRK = torch.unflatten(self.lora_a, 0, (len(self.parts), self.rank))
        products = [b_NR @ a_RK for b_NR, a_RK in zip(torch.split(self.lora_b, self.parts), a_PRK, strict=True)]
        return self.weight + self.scale * torch.cat(products)


def is_adapter(name: str) -> bool:
    """Whether the parameter `name` is one of LoRA's."""
    return name.rpartition(".")[2] in _ADAPTERS


def add_adapters(model: Model, config: LoraConfig) -> None:
    """Give every projection of the layers an adapter, which draws its A from torch's generator.

    Raises ConfigError for a rank that a projection does not have.
    """
    for module in [module for stack in model.stacks for module in stack.modules()]:
        for name, child in list(module.named_children()):
            if isinstance(child, Linear):
                most = min(child.in_features, *child.parts)
                if config.rank > most:
                    raise ConfigError(
                        f"lora.rank={config.rank}: larger than the {most} that a projection of this model has."
                        f" Choose at most {most}; far fewer are usual, as 8"
                    )
                setattr(module, name, LoraLinear(child, config))


def _projections(model: nn.Module) -> dict[str, LoraLinear]:
    return {name: module for name, module in model.named_modules() if isinstance(module, LoraLinear)}


def model_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights that a model file has: those of `model`, with the adapters merged where it has any."""
    weights = {name: weight for name, weight in model.state_dict().items() if not is_adapter(name)}
    return weights | {f"{name}.weight": module.merged_weight() for name, module in _projections(model).items()}


@torch.no_grad()
def load_model_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """The inverse of `model_weights`, but for the adapters, which add nothing from here on. Raises RuntimeError."""
    adapters = {name: weight for name, weight in model.state_dict().items() if is_adapter(name)}
    model.load_state_dict({**weights, **adapters})
    for module in _projections(model).values():
        module.lora_b.zero_()


@contextmanager
def merged_in_place(model: nn.Module) -> Iterator[None]:
    """Merges the projections' weights in the block; after it, they are as before, to the last bit."""
    projections = list(_projections(model).values())
    own = [module.weight.detach().clone() for module in projections]
    for module in projections:
        _put(module.weight, module.merged_weight())
        module.is_merged = True
    try:
        yield
    finally:
        for module, weight in zip(projections, own, strict=True):
            module.is_merged = False
            _put(module.weight, weight)


def adapter_tensors(model: nn.Module) -> dict[str, Tensor]:
    """What training needs to go on beside the merged weights: A and B, and W as it was."""
    tensors = {}
    for name, module in _projections(model).items():
        tensors[f"{BASE}{name}.weight"] = module.weight.detach()
        tensors |= {f"{PREFIX}{name}.{one}": getattr(module, one).detach() for one in _ADAPTERS}
    return tensors


def restore_adapters(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """The inverse of `adapter_tensors`, whose names and shapes are those of `tensors`."""
    for name, own in adapter_tensors(model).items():
        _put(own, tensors[name])


@torch.no_grad()
def _put(own: Tensor, value: Tensor) -> None:
    own.copy_(value)
