"""A model whose products wait in the order in which a CPU multiplies best: for translating, not for training.

In training the weights change with every update, and arranging them costs as much as some products. A search multiplies
with the same weights at every step, with few rows.

Shapes: L rows of all sentences, K columns in, N columns out.
"""

import copy
import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_cli.models.layers import FeedForward
from transformer_cli.models.linear import Linear
from transformer_cli.models.transformer import Transformer

ROWS = 128  # that the order is best for; from 32 to 1,024 it is the same
LARGEST = 127  # the largest absolute value of a byte of W


def pack(model: Transformer, *, quantize: bool) -> Transformer:
    """`model` for translating on this CPU: its other parameters are shared, its products are arranged anew.

    With `quantize` the products, that with the vocabulary among them, are of bytes: faster, and not quite the
    same numbers (benchmarks/decoding.md).
    """
    if model.output_embedding.as_output is not None:
        return model  # it is packed already
    arranged = Int8Linear if quantize else PackedLinear
    packed = copy.deepcopy(model, {id(parameter): parameter for parameter in model.parameters()})
    for module in list(packed.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, Linear):
                setattr(module, name, arranged(child.weight, child.bias))
        if isinstance(module, FeedForward) and isinstance(module.to_hidden, PackedLinear) and module.activate is F.relu:
            module.to_hidden.then, module.activate = "relu", as_it_is
    output = packed.output_embedding
    output.as_output = arranged(output.weight, None)
    return packed.eval()


def as_it_is(x: Tensor) -> Tensor:
    return x


def can_pack(model: nn.Module, *, quantize: bool) -> bool:
    """Whether this torch has what `pack` needs, for a model of this precision on this device."""
    if any(parameter.dtype is not torch.float32 or not parameter.is_cpu for parameter in model.parameters()):
        return False
    if quantize:
        return has_fbgemm() or has_onednn()
    return hasattr(torch.ops.mkldnn, "_linear_pointwise") and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")


class PackedLinear(nn.Module):
    """y = x Wᵀ + b in float32, and what follows on it."""

    def __init__(self, weight_NK: Tensor, bias_N: Tensor | None) -> None:
        super().__init__()
        self.weight: Any = torch.ops.mkldnn._reorder_linear_weight(weight_NK.detach(), ROWS)
        self.bias_N = None if bias_N is None else bias_N.detach()
        self.then = "none"  # or "relu", as oneDNN has it

    @torch.no_grad()
    def forward(self, x_LK: Tensor) -> Tensor:
        y_LN: Tensor = torch.ops.mkldnn._linear_pointwise(x_LK, self.weight, self.bias_N, self.then, [], "")
        return y_LN


class Int8Linear(nn.Module):
    """y ≈ x Wᵀ + b: the weights as signed bytes, scaled column by column of y, and x as bytes, scaled row by row.

    Each row of x has a scale of its own, so that it is rounded alike beside any neighbours.
    """

    def __init__(self, weight_NK: Tensor, bias_N: Tensor | None) -> None:
        super().__init__()
        weight_NK = weight_NK.detach()
        scale_N = (weight_NK.abs().amax(1) / LARGEST).clamp_min(torch.finfo(torch.float32).tiny)
        self.product = (ByFbgemm if has_fbgemm() else ByOneDnn)(weight_NK, scale_N, largest_input())
        self.bias_N = None if bias_N is None else bias_N.detach()

    @torch.no_grad()
    def forward(self, x_LK: Tensor) -> Tensor:
        largest_L1 = x_LK.abs().amax(-1, keepdim=True).clamp_min_(1e-30)
        y_LN = self.product(x_LK / largest_L1)
        if self.bias_N is None:
            return y_LN.mul_(largest_L1)
        return torch.addcmul(self.bias_N, y_LN, largest_L1, out=y_LN)


def largest_input() -> int:
    """The largest absolute value of a byte of x. CPUs without VNNI add two products in 16 bits, which have to hold."""
    return LARGEST if torch.cpu._is_vnni_supported() else LARGEST // 2


class ByFbgemm:
    """x Wᵀ of bytes, for x between -1 and 1: rounds x on the way, and so has less to do than oneDNN around it.

    Torch has marked what it needs as deprecated. Once it is gone, oneDNN finds the same numbers.
    """

    def __init__(self, weight_NK: Tensor, scale_N: Tensor, largest: int) -> None:
        self.scale, self.zero = 1 / largest, largest + 1
        no_shift_N, before = torch.zeros(len(scale_N), dtype=torch.int64), torch.backends.quantized.engine
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.quantize_per_tensor, ", UserWarning)
            bytes_NK = torch.quantize_per_channel(weight_NK, scale_N, no_shift_N, 0, torch.qint8)
        torch.backends.quantized.engine = "fbgemm"
        try:
            self.weight: Any = torch.ops.quantized.linear_prepack(bytes_NK, None)
        finally:
            torch.backends.quantized.engine = before

    def __call__(self, x_LK: Tensor) -> Tensor:
        y_LN: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            x_LK, self.scale, self.zero, self.weight
        )
        return y_LN


class ByOneDnn:
    """The same product by the other library."""

    def __init__(self, weight_NK: Tensor, scale_N: Tensor, largest: int) -> None:
        self.largest, self.zero = largest, largest + 1  # oneDNN is fast only with unsigned bytes
        bytes_NK = (weight_NK / scale_N[:, None]).round().to(torch.int8)
        self.weight: Any = torch.ops.onednn.qlinear_prepack(bytes_NK, [ROWS, weight_NK.size(1)])
        self.scale_N, self.no_shift_N = scale_N / largest, torch.zeros(len(scale_N), dtype=torch.int64)

    def __call__(self, x_LK: Tensor) -> Tensor:
        bytes_LK = (x_LK * self.largest).round_().add_(self.zero).to(torch.uint8)
        y_LN: Tensor = torch.ops.onednn.qlinear_pointwise(
            bytes_LK, 1.0, self.zero, self.weight, self.scale_N, self.no_shift_N,
            None, 1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip
        return y_LN


def has_fbgemm() -> bool:
    return (
        "fbgemm" in torch.backends.quantized.supported_engines
        and hasattr(torch, "quantize_per_channel")
        and hasattr(torch.ops.quantized, "linear_with_input_q_dq_qweight_dq_output_fp32")
    )


def has_onednn() -> bool:
    return hasattr(torch.ops.onednn, "qlinear_pointwise") and hasattr(torch.ops.onednn, "qlinear_prepack")
