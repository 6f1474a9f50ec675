"""The projections, and the products of matrices that they are made of.

Shapes: L rows of all sentences (or B, L: padded), K columns in, N columns out.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_cli.system import processor


class Linear(nn.Linear):
    """y = x Wᵀ + b, by `project`.

    `parts` are the output widths of the projections that share this matrix for speed; optimizers of whole matrices
    treat each of them separately. `is_output` marks the output layer of a model, whose rows are classes.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        parts: Sequence[int] | None = None,
        is_output: bool = False,
    ) -> None:
        super().__init__(in_features, out_features, bias=bias)
        self.parts, self.is_output = list(parts or [out_features]), is_output
        assert sum(self.parts) == out_features

    def matrix(self) -> Tensor:
        """W, [N, K], by which inputs are multiplied."""
        return self.weight

    def forward(self, x_LK: Tensor) -> Tensor:
        return project(x_LK, self.weight, self.bias)


def project(x_LK: Tensor, weight_NK: Tensor, bias_N: Tensor | None = None) -> Tensor:
    """`F.linear`; in training, by the faster of torch's two libraries for this CPU.

    A frozen matrix may be in 16 bits: it is widened for this product, unless autocast rounds the input as well.
    """
    is_narrow = weight_NK.dtype.itemsize < x_LK.dtype.itemsize and not torch.is_autocast_enabled(x_LK.device.type)
    is_training = torch.is_grad_enabled() and not torch.compiler.is_compiling()
    is_plain = x_LK.is_cpu and x_LK.dtype is torch.float32 and not torch.is_autocast_enabled("cpu")
    by_onednn = is_training and is_plain and prefers_onednn()
    if by_onednn or (is_training and is_narrow):
        product: Callable[..., Tensor] = _Product.apply
        return product(x_LK, weight_NK, bias_N, by_onednn)
    return F.linear(x_LK, weight_NK.to(x_LK.dtype) if is_narrow else weight_NK, bias_N)


@cache
def prefers_onednn() -> bool:
    """Whether this CPU is one of AMD's, on which MKL, torch's default, is slower (benchmarks/training.md)."""
    has_mkl: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    return has_mkl and has_onednn() and "AuthenticAMD" in processor()


@cache
def has_onednn() -> bool:
    """Whether oneDNN multiplies on this processor: torch has builds without it, and it none for some processors."""
    try:
        weight = torch.ops.mkldnn._reorder_linear_weight(torch.eye(16), 16)
        y_LN: Tensor = torch.ops.mkldnn._linear_pointwise(torch.ones(16, 16), weight, None, "relu", [], "")
    except (AttributeError, RuntimeError):  # NotImplementedError is one of the latter
        return False
    return bool((y_LN == 1).all())


class _Product(torch.autograd.Function):
    """A product by oneDNN, or with a matrix in 16 bits, of which autograd would keep the wide copy.

    The gradient of the weight is left to MKL, which is faster there too.
    """

    @staticmethod
    def forward(ctx: Any, x_LK: Tensor, weight_NK: Tensor, bias_N: Tensor | None, by_onednn: bool) -> Tensor:
        ctx.save_for_backward(x_LK if ctx.needs_input_grad[1] else None, weight_NK)
        ctx.multiply = _by_onednn if by_onednn else F.linear
        y_LN: Tensor = ctx.multiply(x_LK, weight_NK.to(x_LK.dtype), bias_N)
        return y_LN

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x_LK, weight_NK = ctx.saved_tensors
        grad_LN = grads[0].reshape(-1, len(weight_NK))
        of_x, of_weight, of_bias, _ = ctx.needs_input_grad
        return (
            ctx.multiply(grad_LN, weight_NK.to(grad_LN.dtype).T, None).view(*grads[0].shape[:-1], -1) if of_x else None,
            grad_LN.T @ x_LK.reshape(-1, x_LK.size(-1)) if of_weight else None,
            grad_LN.sum(0) if of_bias else None,
            None,
        )


def _by_onednn(x_LK: Tensor, weight_NK: Tensor, bias_N: Tensor | None) -> Tensor:
    y_LN: Tensor = torch.ops.mkldnn._linear_pointwise(x_LK, weight_NK, bias_N, "none", [], "")
    return y_LN
