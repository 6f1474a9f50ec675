"""Prepacked weights: matrices in the layout that oneDNN multiplies with fastest, for inference on a CPU.

In training the weights change with every update, and reordering them costs as much as some products. A search
multiplies with the same weights at every step, with few rows.

Shapes: L rows of all sentences, K columns in, N columns out.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_cli.inference.precision import dtype_of
from transformer_cli.models.attention import SelfAttention
from transformer_cli.models.device import release_cpu_memory
from transformer_cli.models.layers import Dropout, FeedForward
from transformer_cli.models.linear import Linear, has_onednn, prefers_onednn
from transformer_cli.models.transformer import Transformer

_ROWS = 128  # that the layout is chosen for; from 32 to 1,024 it is the same
# Numbers of a matrix. For smaller ones and few rows oneDNN does not pay: a call takes 13 µs.
_LARGE = (1 << 16) + 1
# From so many rows on it takes 0.4 to 0.9 of the time of MKL on a CPU of AMD; a source, whose number of tokens seldom
# returns, has to save as much as its kernels take to compile.
_MANY_ROWS, _MANY_TOKENS = 64, 512


def prepack(model: Transformer) -> Transformer:
    """`model` with prepacked weights; its other parameters are shared."""
    if model.output_embedding.as_output is not None:
        return model  # it is prepacked already
    packed = copy.deepcopy(model, {id(parameter): parameter for parameter in model.parameters()})
    output = packed.output_embedding
    output.as_output = PrepackedLinear(output.weight, output.bias)
    if output.weight.dtype is not torch.float32:  # the largest: its wide copy is gone before the others are packed
        release_cpu_memory()
    has_pairs = turn_pairs_as_complex(packed)
    for module in list(packed.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, Linear):
                weight_NK: Tensor = child.matrix()
                bias_N: Tensor | None = child.bias
                if has_pairs and isinstance(module, SelfAttention) and child is module.to_qkv:
                    order_N = pairs_side_by_side(module)
                    weight_NK, bias_N = weight_NK[order_N], None if bias_N is None else bias_N[order_N]
                setattr(module, name, PrepackedLinear(weight_NK, bias_N))
        hidden = module.to_hidden if isinstance(module, FeedForward) else None
        if isinstance(hidden, PrepackedLinear) and module.activate is F.relu:
            hidden.activation, module.activate = "relu", _identity
    call_directly(packed)
    return packed.eval()


def turn_pairs_as_complex(model: Transformer) -> bool:
    """Whether the model has rotary positions that multiply complex numbers: a third of the time of sines and cosines.

    Those that it has are made so, if complex numbers can be rows of its projections.
    """
    rotary = [stack.rotary for stack in model.stacks if stack.rotary is not None]
    widths = [module.widths for module in model.modules() if isinstance(module, SelfAttention)]
    if not rotary or any(sum(each) % 2 for each in widths):
        return False
    for one in rotary:
        one.is_complex = True
    return True


def pairs_side_by_side(attention: SelfAttention) -> Tensor:
    """The rows of its matrix, with (2i, 2i + 1) in the place of each pair (i, i + E/2) of a query or key, [N]."""
    n_rotated = sum(attention.widths[:2])
    order_N = torch.arange(n_rotated).view(2 * attention.n_heads, 2, -1).transpose(1, 2).flatten()
    return torch.cat([order_N, torch.arange(n_rotated, sum(attention.widths))])


def call_directly(model: nn.Module) -> None:
    """Replace the parts that a step calls most by functions: for few rows, a call costs as much as a product.

    What a module does around its `forward`, as asking for hooks, is left out, and so is dropout.
    """
    for module in list(model.modules()):
        for name, part in list(module.named_children()):
            if (function := _as_function(part)) is not None:
                delattr(module, name)  # a module cannot be replaced by a function
                setattr(module, name, function)


def _as_function(part: nn.Module) -> Callable[[Tensor], Tensor] | None:
    if isinstance(part, PrepackedLinear | FeedForward):
        return part.forward
    if type(part) is nn.LayerNorm:
        shape, weight, bias = part.normalized_shape, part.weight, part.bias
        return partial(torch.layer_norm, normalized_shape=shape, weight=weight, bias=bias, eps=part.eps)
    return _identity if isinstance(part, Dropout | nn.Identity) else None


def _identity(x: Tensor) -> Tensor:
    return x


def can_prepack(model: nn.Module) -> bool:
    """Whether oneDNN can compute a model of this precision on this device."""
    return dtype_of(model) is torch.float32 and all(one.is_cpu for one in model.parameters()) and has_onednn()


def has_many_rows(x_LK: Tensor) -> bool:
    """Whether a product with a small matrix, of a step, [R, K], or of sources, [B, S, K], is for oneDNN."""
    return x_LK.numel() >= (_MANY_ROWS if x_LK.dim() == 2 else _MANY_TOKENS) * x_LK.size(-1)


class PrepackedLinear(nn.Module):
    """y = activation(x Wᵀ + b) in float32; of small matrices those with few rows are left to torch's default library.

    All of them where that is as fast: `prefers_onednn`.
    """

    def __init__(self, weight_NK: Tensor, bias_N: Tensor | None) -> None:
        super().__init__()
        weight_NK = weight_NK.detach().float()  # in training it may be frozen in 16 bits
        self.uses_mkl = weight_NK.numel() < _LARGE
        self.uses_onednn = not self.uses_mkl or prefers_onednn()
        self.weight: Any = None
        if self.uses_mkl:
            self.weight_KN = weight_NK.T.clone(memory_format=torch.contiguous_format)
        if self.uses_onednn:
            self.weight = torch.ops.mkldnn._reorder_linear_weight(weight_NK, _ROWS)
        self.bias_N = None if bias_N is None else bias_N.detach()
        self.activation = "none"  # or "relu", as oneDNN names it

    def forward(self, x_LK: Tensor) -> Tensor:
        y_LN: Tensor
        if self.uses_mkl and not (self.uses_onednn and has_many_rows(x_LK)):
            if self.bias_N is None:
                y_LN = x_LK @ self.weight_KN
            elif x_LK.dim() == 2:
                y_LN = torch.addmm(self.bias_N, x_LK, self.weight_KN)
            else:
                y_LN = F.linear(x_LK, self.weight_KN.T, self.bias_N)
            return y_LN.relu_() if self.activation == "relu" else y_LN
        y_LN = torch.ops.mkldnn._linear_pointwise(x_LK, self.weight, self.bias_N, self.activation, [], "")
        return y_LN
