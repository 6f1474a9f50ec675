"""Scaled dot-product attention written out in products and a softmax (Vaswani et al. 2017, section 3.2.1).

`models.attention.attend` takes torch's fused kernels; these are for where those return too little or are too slow.

Shapes: B batch, S source, T target, L either length, H heads, E head width, N queries of each of G beam groups,
M cached positions.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_cli.models.triton_support import triton_runs

# Multiplications of one batched product, below which torch computes it on a CPU in a loop without vector instructions:
# for more than a few such products, sums of all of them at once are faster.
_PLAIN_LOOP, _FEW_PRODUCTS = 400, 16
# Numbers of a vector: torch's softmax takes those of a shorter row one by one, from so many scores on eight times as
# long as padded rows.
_VECTOR, _MANY_SCORES = 16, 512


def is_restricted(length: int, window: int | None, *, causal: bool) -> bool:
    """Whether a window keeps any position of a sentence from another that it would attend to without it."""
    return window is not None and (window if causal else window // 2 + 1) < length


def window_mask(
    length: int, window: int, *, causal: bool, device: torch.device, mask_B11L: Tensor | None = None
) -> Tensor:
    """True where restricted self-attention may attend (section 4), [L, L], or [B, 1, L, L] with the mask of the keys.

    Each position attends to itself and `window` // 2 positions on either side, or, `causal`, to the last `window`, of
    which it is one. Padding may attend to itself, too: a softmax over nothing is NaN.
    """
    position_L = torch.arange(length, device=device)
    distance_LL = position_L[:, None] - position_L  # of the query from the key before it
    near_LL = (distance_LL >= 0) & (distance_LL < window) if causal else distance_LL.abs() <= window // 2
    return near_LL if mask_B11L is None else near_LL & mask_B11L | (distance_LL == 0)


def fused_attention(
    q_BHTE: Tensor,
    k_BHSE: Tensor,
    v_BHSE: Tensor,
    mask_B11S: Tensor | None,
    *,
    causal: bool,
    window: int | None,
    dropout: float,
) -> Tensor:
    """torch's fused attention of sentences of one length, [B, H, T, E]; a window is of self-attention.

    Causal attention needs no mask of the keys: padding stands behind all that a real token attends to. In bf16 training
    on a CPU it computes in float32: with its gradient torch's kernel takes seven times as long in 16 bits
    (scripts/bench_choices.py).
    """
    mask = None if causal else mask_B11S
    if window is not None and is_restricted(q_BHTE.size(2), window, causal=causal):
        mask = window_mask(q_BHTE.size(2), window, causal=causal, device=q_BHTE.device, mask_B11L=mask)
        causal = False
    if q_BHTE.is_cpu and torch.is_autocast_enabled("cpu"):
        with torch.autocast("cpu", enabled=False):
            q_BHTE, k_BHSE, wide_BHSE = widened(q_BHTE, k_BHSE, v_BHSE)
            y_BHTE = F.scaled_dot_product_attention(q_BHTE, k_BHSE, wide_BHSE, mask, dropout, is_causal=causal)
        return y_BHTE.to(v_BHSE.dtype)
    return F.scaled_dot_product_attention(q_BHTE, k_BHSE, v_BHSE, mask, dropout, is_causal=causal)


def widened(*tensors: Tensor) -> list[Tensor]:
    """The tensors, those of 16 bits in float32."""
    return [x.to(torch.promote_types(x.dtype, torch.float32)) for x in tensors]


def attention_weights(
    q_BHTE: Tensor,
    k_BHSE: Tensor,
    mask_B11S: Tensor | None = None,
    *,
    causal: bool = False,
    window: int | None = None,
) -> Tensor:
    """softmax(Q Kᵀ / √d_k) of equation 1, which the fused kernels never materialise."""
    scores_BHTS = q_BHTE @ k_BHSE.transpose(-1, -2) / math.sqrt(q_BHTE.size(-1))
    if window is not None:
        length, device = q_BHTE.size(2), q_BHTE.device
        mask_B11S = window_mask(length, window, causal=causal, device=device, mask_B11L=mask_B11S)
        causal = False
    if causal:
        scores_BHTS = scores_BHTS.masked_fill(torch.ones_like(scores_BHTS, dtype=torch.bool).triu(1), -math.inf)
    if mask_B11S is not None:
        scores_BHTS = scores_BHTS.masked_fill(~mask_B11S, -math.inf)
    return scores_BHTS.softmax(-1)


def decode_attention(q_GNHE: Tensor, k_GHME: Tensor, v_GHME: Tensor, mask_GHNM: Tensor | None) -> Tensor:
    """One step of attention over a cache, for the N queries of each group, [G, N, H, E]. The mask is additive."""
    if q_GNHE.is_cuda and triton_runs():
        from transformer_cli.models import cached_attention

        if cached_attention.serves(q_GNHE, k_GHME, v_GHME):
            return cached_attention.cached_attention(q_GNHE, k_GHME, v_GHME, mask_GHNM)
    if not q_GNHE.is_cpu:
        y_GHNE = F.scaled_dot_product_attention(q_GNHE.transpose(1, 2), k_GHME, v_GHME, mask_GHNM)
        return y_GHNE.transpose(1, 2)
    # So few queries are two batched products of small matrices; torch's fused kernel for CPUs is made for many.
    n_groups, n_queries, n_heads, width = q_GNHE.shape
    if n_queries == 1 and n_groups * n_heads > _FEW_PRODUCTS and k_GHME.size(2) * width < _PLAIN_LOOP:
        scores_GHM = (q_GNHE.transpose(1, 2) * k_GHME).sum(-1).mul_(width**-0.5)
        if mask_GHNM is not None:
            scores_GHM += mask_GHNM.squeeze(2)
        return (_softmax(scores_GHM)[..., None] * v_GHME).sum(2)[:, None]
    q_KNE = (q_GNHE if n_queries == 1 else q_GNHE.transpose(1, 2)).reshape(-1, n_queries, width)
    k_KEM = k_GHME.flatten(0, 1).transpose(1, 2)
    if mask_GHNM is None:
        scores_KNM = torch.bmm(q_KNE, k_KEM).mul_(width**-0.5)
    else:
        mask_KNM = mask_GHNM.expand(n_groups, n_heads, -1, -1).flatten(0, 1)
        scores_KNM = torch.baddbmm(mask_KNM, q_KNE, k_KEM, alpha=width**-0.5)
    y_KNE = torch.bmm(_softmax(scores_KNM), v_GHME.flatten(0, 1))
    return y_KNE.view(n_groups, n_heads, n_queries, -1).transpose(1, 2)


def _softmax(scores_XM: Tensor) -> Tensor:
    """The softmax of rows of any length on a CPU; many short ones are padded for torch to take whole vectors."""
    n_keys = scores_XM.size(-1)
    if n_keys >= _VECTOR or scores_XM.numel() < _MANY_SCORES:
        return scores_XM.softmax(-1)
    return F.pad(scores_XM, (0, _VECTOR - n_keys), value=-math.inf).softmax(-1)[..., :n_keys]
