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
    """`F.linear`; in training, by the faster of torch's two libraries for this CPU."""
    is_plain = (
        x_LK.dtype is torch.float32 and not torch.is_autocast_enabled("cpu") and not torch.compiler.is_compiling()
    )
    if x_LK.is_cpu and is_plain and torch.is_grad_enabled() and prefers_onednn():
        by_onednn: Callable[..., Tensor] = _ByOneDnn.apply
        return by_onednn(x_LK, weight_NK, bias_N)
    return F.linear(x_LK, weight_NK, bias_N)


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


class _ByOneDnn(torch.autograd.Function):
    """The gradient of the weight is left to MKL, which is faster there too."""

    @staticmethod
    def forward(ctx: Any, x_LK: Tensor, weight_NK: Tensor, bias_N: Tensor | None) -> Tensor:
        ctx.save_for_backward(x_LK, weight_NK)
        return _product(x_LK, weight_NK, bias_N)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x_LK, weight_NK = ctx.saved_tensors
        grad_LN = grads[0].reshape(-1, len(weight_NK))
        of_x, of_weight, of_bias = ctx.needs_input_grad
        return (
            _product(grad_LN, weight_NK.T, None).view_as(x_LK) if of_x else None,
            grad_LN.T @ x_LK.reshape(-1, x_LK.size(-1)) if of_weight else None,
            grad_LN.sum(0) if of_bias else None,
        )


def _product(x_LK: Tensor, weight_NK: Tensor, bias_N: Tensor | None) -> Tensor:
    y_LN: Tensor = torch.ops.mkldnn._linear_pointwise(x_LK, weight_NK, bias_N, "none", [], "")
    return y_LN
