"""Scaled dot-product attention written out in products and a softmax (Vaswani et al. 2017, section 3.2.1).

`models.attention.attend` takes torch's fused kernels; these are for where those return too little or are too slow.

Shapes: B batch, S source, T target, H heads, E head width, N queries of each of G beam groups, M cached positions.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def attention_weights(
    q_BHTE: Tensor, k_BHSE: Tensor, mask_B11S: Tensor | None = None, *, causal: bool = False
) -> Tensor:
    """softmax(Q Kᵀ / √d_k) of equation 1, which the fused kernels never materialise."""
    scores_BHTS = q_BHTE @ k_BHSE.transpose(-1, -2) / math.sqrt(q_BHTE.size(-1))
    if causal:
        scores_BHTS = scores_BHTS.masked_fill(torch.ones_like(scores_BHTS, dtype=torch.bool).triu(1), -math.inf)
    if mask_B11S is not None:
        scores_BHTS = scores_BHTS.masked_fill(~mask_B11S, -math.inf)
    return scores_BHTS.softmax(-1)


def decode_attention(q_GNHE: Tensor, k_GHME: Tensor, v_GHME: Tensor, mask_GHNM: Tensor | None) -> Tensor:
    """One step of attention over a cache, for the N queries of each group, [G, N, H, E]. The mask is additive."""
    if not q_GNHE.is_cpu:
        y_GHNE = F.scaled_dot_product_attention(q_GNHE.transpose(1, 2), k_GHME, v_GHME, mask_GHNM)
        return y_GHNE.transpose(1, 2)
    # So few queries are two batched products of small matrices; torch's fused kernel for CPUs is made for many.
    n_groups, n_queries, n_heads, width = q_GNHE.shape
    q_KNE = q_GNHE.transpose(1, 2).reshape(-1, n_queries, width)
    scores_KNM = torch.bmm(q_KNE, k_GHME.flatten(0, 1).transpose(1, 2)).mul_(width**-0.5)
    if mask_GHNM is not None:
        scores_KNM.view(n_groups, n_heads, n_queries, -1).add_(mask_GHNM)
    y_KNE = torch.bmm(scores_KNM.softmax(-1), v_GHME.flatten(0, 1))
    return y_KNE.view(n_groups, n_heads, n_queries, -1).transpose(1, 2)
