"""Variable-length attention: all packed sentences in one kernel, and in one graph, whatever their lengths.

Importing this module imports torch's compiler.

Shapes: L tokens of all sentences, T of the queries and S of the keys, N + 1 offsets of N sentences, H heads, E head
width.
"""

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from transformer_cli.models.attention_kernels import attention_weights, fused_attention, is_restricted, widened
from transformer_cli.models.layouts import LengthGroups, PackedLayout, concatenate_groups, split_groups
from transformer_cli.models.triton_support import triton_runs

HAS_TRITON = triton_runs()
if HAS_TRITON:
    from transformer_cli.models.short_attention import LONGEST_SENTENCE, attend_short


def attend_varlen(
    q_THE: Tensor,
    k_SHE: Tensor,
    v_SHE: Tensor,
    queries: PackedLayout,
    keys: PackedLayout,
    *,
    causal: bool,
    window: int | None = None,
) -> Tensor:
    """Attention of sentences whose lengths only the device knows; some of them may be empty."""
    assert queries.cu_seqlens_N is not None
    assert keys.cu_seqlens_N is not None
    if not is_restricted(queries.max_length, window, causal=causal):
        window = None
    offsets = queries.cu_seqlens_N, keys.cu_seqlens_N
    if q_THE.is_cpu:
        y_THE: Tensor = varlen_attention_on_cpu(q_THE, k_SHE, v_SHE, *offsets, causal, window)
        return y_THE
    left, right = (-1 if window is None else window - 1, 0) if causal else (-1, -1)
    if window is not None and not causal:
        left = right = window // 2
    longest = max(queries.max_length, keys.max_length)
    if HAS_TRITON and longest <= LONGEST_SENTENCE:
        return attend_short(q_THE, k_SHE, v_SHE, *offsets, longest=longest, left=left, right=right)
    options: dict[str, Any] = {} if (left, right) == (-1, -1) else {"window_size": (left, right)}
    return cast(Tensor, varlen_attn(q_THE, k_SHE, v_SHE, *offsets, queries.max_length, keys.max_length, **options))


def _length_groups(cu_seqlens_N: Tensor, key_cu_seqlens_N: Tensor) -> tuple[LengthGroups, LengthGroups]:
    """The length groups of the queries and of the keys."""
    lengths_N2 = torch.stack([cu_seqlens_N.diff(), key_cu_seqlens_N.diff()], dim=1)
    groups_R2, counts_R = torch.unique_consecutive(lengths_N2, dim=0, return_counts=True)
    found = [(n, *lengths) for n, lengths in zip(counts_R.tolist(), groups_R2.tolist(), strict=True) if any(lengths)]
    return [(n, length) for n, length, _ in found], [(n, length) for n, _, length in found]


@torch.library.custom_op("tfm::varlen_attention_on_cpu", mutates_args=())
def varlen_attention_on_cpu(
    q_THE: Tensor,
    k_SHE: Tensor,
    v_SHE: Tensor,
    cu_seqlens_N: Tensor,
    key_cu_seqlens_N: Tensor,
    causal: bool,
    window: int | None,
) -> Tensor:
    """Grouped by length. A custom operator, opaque to a compiler: the number of groups depends on the data.

    In float32 at least, as `fused_attention`; compiled code calls it without autocast.
    """
    groups, key_groups = _length_groups(cu_seqlens_N, key_cu_seqlens_N)
    q, k, v = widened(q_THE, k_SHE, v_SHE)
    each = zip(split_groups(q, groups), split_groups(k, key_groups), split_groups(v, key_groups), strict=True)
    attended = [fused_attention(*group, None, causal=causal, window=window, dropout=0.0) for group in each]
    return concatenate_groups(attended).to(v_SHE.dtype)


@torch.library.custom_op("tfm::varlen_attention_on_cpu_backward", mutates_args=())
def varlen_attention_on_cpu_backward(
    grad_THE: Tensor,
    q_THE: Tensor,
    k_SHE: Tensor,
    v_SHE: Tensor,
    cu_seqlens_N: Tensor,
    key_cu_seqlens_N: Tensor,
    causal: bool,
    window: int | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Written out: autograd does not see into a custom operator."""
    groups, key_groups = _length_groups(cu_seqlens_N, key_cu_seqlens_N)
    of_groups = zip(widened(grad_THE, q_THE, k_SHE, v_SHE), (groups, groups, key_groups, key_groups), strict=True)
    each = [split_groups(x, its_groups) for x, its_groups in of_groups]
    grads = []
    for grad_NHTE, q_NHTE, k_NHSE, v_NHSE in zip(*each, strict=True):
        p_NHTS = attention_weights(q_NHTE, k_NHSE, causal=causal, window=window)
        p_grad_NHTS = grad_NHTE @ v_NHSE.mT
        scores_grad_NHTS = p_NHTS * (p_grad_NHTS - (p_NHTS * p_grad_NHTS).sum(-1, keepdim=True))
        scores_grad_NHTS = scores_grad_NHTS / math.sqrt(q_NHTE.size(-1))
        grads.append((scores_grad_NHTS @ k_NHSE, scores_grad_NHTS.mT @ q_NHTE, p_NHTS.mT @ grad_NHTE))
    q_grad_THE, k_grad_SHE, v_grad_SHE = map(concatenate_groups, zip(*grads, strict=True))
    return q_grad_THE.to(q_THE.dtype), k_grad_SHE.to(k_SHE.dtype), v_grad_SHE.to(v_SHE.dtype)


@varlen_attention_on_cpu.register_fake
def _(q_THE: Tensor, k_SHE: Tensor, v_SHE: Tensor, *rest: Any) -> Tensor:
    return q_THE.new_empty(*q_THE.shape[:2], v_SHE.size(-1))


@varlen_attention_on_cpu_backward.register_fake
def _(grad_THE: Tensor, q_THE: Tensor, k_SHE: Tensor, v_SHE: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    q_grad, k_grad, v_grad = (x.new_empty(x.shape) for x in (q_THE, k_SHE, v_SHE))
    return q_grad, k_grad, v_grad


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.causal, ctx.window = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, grad_THE: Tensor) -> tuple[Tensor | None, ...]:
    grads = varlen_attention_on_cpu_backward(grad_THE, *ctx.saved_tensors, ctx.causal, ctx.window)
    return *grads, None, None, None, None


varlen_attention_on_cpu.register_autograd(_backward, setup_context=_save_for_backward)
