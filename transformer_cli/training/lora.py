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
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transformer_cli.config.train import LoraConfig
from transformer_cli.errors import ConfigError
from transformer_cli.models.layers import Dropout
from transformer_cli.models.linear import Linear, has_onednn, project
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
        self.is_merged = False  # whether the product is by W + scale · B A, one matrix
        self.has_merged = False  # whether that is what `weight` is, for the time being

    def forward(self, x_LK: Tensor) -> Tensor:
        if self.is_merged:
            return project(x_LK, self.matrix(), self.bias)
        y_LN = super().forward(x_LK)
        h_LPR = torch.unflatten(project(self.dropout(x_LK), self.lora_a), -1, (len(self.parts), self.rank))
        added = [
            project(h_LR, b_NR)
            for h_LR, b_NR in zip(h_LPR.unbind(-2), torch.split(self.lora_b, self.parts), strict=True)
        ]
        return y_LN + self.scale * torch.cat(added, dim=-1)

    @torch.no_grad()
    def merged(self, weight_NK: Tensor, lora_a: Tensor, lora_b: Tensor) -> Tensor:
        """W + scale · B A of tensors like those of this module, [N, K], in their precision."""
        a_PRK = torch.unflatten(lora_a, 0, (len(self.parts), self.rank))
        factors = zip(torch.split(lora_b, self.parts), a_PRK, strict=True)
        with torch.autocast(lora_a.device.type, enabled=False):
            return torch.cat([b_NR @ a_RK for b_NR, a_RK in factors]).mul_(self.scale).add_(weight_NK)

    def matrix(self) -> Tensor:
        return self.weight if self.has_merged else self.merged(self.weight, self.lora_a, self.lora_b)


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


@dataclass(frozen=True)
class MergedWeights(Mapping[str, Tensor]):
    """The weights that a model file has, in float32.

    Those of a projection with an adapter, and those that are in memory in 16 bits, are computed each time that they are
    asked for.
    """

    tensors: Mapping[str, Tensor]  # of the model: W, A and B
    projections: Mapping[str, LoraLinear]  # name of W → what computes the sum

    def __getitem__(self, name: str) -> Tensor:
        projection = self.projections.get(name)
        if projection is None:
            tensor = self.tensors[name]
            return tensor.float() if tensor.dtype is torch.bfloat16 else tensor
        return projection.merged(*(self.tensors[name.removesuffix("weight") + one] for one in ("weight", *_ADAPTERS)))

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.tensors if not is_adapter(name))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def model_weights(model: nn.Module) -> Mapping[str, Tensor]:
    """The weights that a model file has: those of `model`, with the adapters merged where it has any.

    Frozen ones are the parameters themselves, by which `is_frozen` knows them, unless they are in 16 bits.
    """
    own = {name: x if is_frozen(x) else x.detach() for name, x in model.state_dict(keep_vars=True).items()}
    projections = {f"{name}.weight": module for name, module in _projections(model).items() if not module.has_merged}
    if projections or any(x.dtype is torch.bfloat16 for x in own.values()):
        return MergedWeights(own, projections)
    return {name: x for name, x in own.items() if not is_adapter(name)}


def is_frozen(tensor: Tensor) -> bool:
    """Whether a tensor is a parameter that training leaves as it is."""
    return isinstance(tensor, nn.Parameter) and not tensor.requires_grad


@torch.no_grad()
def load_model_weights(model: nn.Module, weights: Mapping[str, Tensor], *, widens: bool = False) -> None:
    """The inverse of `model_weights`, but for the adapters, which add nothing from here on. Raises RuntimeError.

    What is frozen in 16 bits is rounded; with `widens`, for a model that is only evaluated from here on, projections
    are in float32 again: a sum with what an adapter has added is none of 16 bits.
    """
    for module in _projections(model).values() if widens else ():
        module.weight.data = module.weight.data.float()
    adapters = {name: weight for name, weight in model.state_dict().items() if is_adapter(name)}
    model.load_state_dict({**weights, **adapters})
    for module in _projections(model).values():
        module.lora_b.zero_()


@contextmanager
def merged_in_place(model: nn.Module) -> Iterator[None]:
    """Multiplies by merged matrices in the block; after it, the projections are as they were.

    Where a search has its own copies of the matrices (inference/prepack.py), they are computed for each product in
    between, of which there are few, and memory has one at a time. Elsewhere all are there during the block.
    """
    projections = list(_projections(model).values())
    own = [module.weight for module in projections]
    for module in projections:
        module.is_merged = True
        if not (module.weight.is_cpu and has_onednn()):
            module.weight, module.has_merged = nn.Parameter(module.matrix(), requires_grad=False), True
    try:
        yield
    finally:
        for module, weight in zip(projections, own, strict=True):
            module.weight, module.is_merged, module.has_merged = weight, False, False


def adapter_tensors(model: nn.Module) -> dict[str, Tensor]:
    """What training needs to go on beside the merged weights: A and B, and W as it was."""
    tensors = {}
    for name, module in _projections(model).items():
        tensors[f"{BASE}{name}.weight"] = module.weight if is_frozen(module.weight) else module.weight.detach()
        tensors |= {f"{PREFIX}{name}.{one}": getattr(module, one).detach() for one in _ADAPTERS}
    return tensors


@torch.no_grad()
def restore_adapters(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """The inverse of `adapter_tensors`, whose names and shapes are those of `tensors`."""
    for name, own in adapter_tensors(model).items():
        own.copy_(tensors[name])
