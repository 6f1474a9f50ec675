"""One step of attention over a cache on a GPU, as one Triton kernel: it reads keys and values once, and nothing else.

Torch's fused kernels are made for many queries. Here there are one or a few, of the beams that share the keys, and a
program takes those of one group and one head. In float32 the products are exact ones of float32, and the order of all
sums is the same whatever else is in the batch.

Shapes: N queries of each of G beam groups, M cached positions, H heads, E head width.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

MOST_QUERIES = 64
POSITIONS_AT_ONCE = 32  # positions at once
_FEWEST_ROWS = 16  # of a matrix product


# Nothing is compiled anew for another number of positions.
@triton.jit(do_not_specialize=["n_queries", "n_keys", "m_group", "m_head", "m_query", "m_key"])
def _attend(  # type: ignore[no-untyped-def]
    q, k, v, mask, y, n_queries, n_keys, scale, q_group, q_query, q_head, k_group, k_head, k_key, v_group, v_head,
    v_key, m_group, m_head, m_query, m_key,
    HAS_MASK: tl.constexpr, N: tl.constexpr, M: tl.constexpr, H: tl.constexpr, E: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    group, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    query, column = tl.arange(0, N), tl.arange(0, WIDE)
    is_query, is_column = query < n_queries, column < E
    q_at = q + group * q_group + query[:, None] * q_query + head * q_head + column[None, :]
    q_tile = tl.load(q_at, mask=is_query[:, None] & is_column[None, :], other=0.0)
    largest = tl.full([N], float("-inf"), tl.float32)
    total = tl.zeros([N], tl.float32)
    sums = tl.zeros([N, WIDE], tl.float32)
    for first in range(0, n_keys, M):
        key = first + tl.arange(0, M)
        is_key = key < n_keys
        there = is_key[:, None] & is_column[None, :]
        k_tile = tl.load(k + group * k_group + head * k_head + key[:, None] * k_key + column[None, :], there, 0.0)
        v_tile = tl.load(v + group * v_group + head * v_head + key[:, None] * v_key + column[None, :], there, 0.0)
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee") * scale
        if HAS_MASK:
            m_at = mask + group * m_group + head * m_head + query[:, None] * m_query + key[None, :] * m_key
            shown = tl.load(m_at, mask=is_query[:, None] & is_key[None, :], other=float("-inf"))
            scores += shown.to(tl.float32) * 1.4426950408889634
        else:
            scores = tl.where(is_key[None, :], scores, float("-inf"))
        largest_now = tl.maximum(largest, tl.max(scores, 1))
        shift = tl.where(largest_now == float("-inf"), 0.0, largest_now)
        p = tl.exp2(scores - shift[:, None])
        shrunk = tl.exp2(largest - shift)
        total = total * shrunk + tl.sum(p, 1)
        sums = sums * shrunk[:, None] + tl.dot(p.to(v_tile.dtype), v_tile, input_precision="ieee")
        largest = largest_now
    sums = sums / tl.where(total > 0, total, 1.0)[:, None]
    y_at = y + ((group * n_queries + query)[:, None] * H + head) * E + column[None, :]
    tl.store(y_at, sums.to(q_tile.dtype), mask=is_query[:, None] & is_column[None, :])


def serves(q_GNHE: Tensor, k_GHME: Tensor, v_GHME: Tensor) -> bool:
    """Whether the kernel computes this: not in float64, nor for many queries or heads of unusual tensors."""
    is_narrow = q_GNHE.size(1) <= MOST_QUERIES and q_GNHE.size(-1) <= 256
    is_dense = all(x.stride(-1) == 1 for x in (q_GNHE, k_GHME, v_GHME)) and k_GHME.size(-1) == v_GHME.size(-1)
    return is_narrow and is_dense and q_GNHE.dtype in (torch.float32, torch.bfloat16, torch.float16)


def cached_attention(q_GNHE: Tensor, k_GHME: Tensor, v_GHME: Tensor, mask_GHNM: Tensor | None) -> Tensor:
    """softmax(Q Kᵀ / √d_k + mask) V, [G, N, H, E]; the mask is additive, and may be broadcast."""
    n_groups, n_queries, n_heads, width = q_GNHE.shape
    n_keys = k_GHME.size(2)
    y_GNHE = torch.empty_like(q_GNHE, memory_format=torch.contiguous_format)
    mask = None if mask_GHNM is None else mask_GHNM.expand(n_groups, n_heads, n_queries, n_keys)
    kernel: Any = _attend
    kernel[n_groups, n_heads](
        q_GNHE, k_GHME, v_GHME, q_GNHE if mask is None else mask, y_GNHE, n_queries, n_keys,
        math.log2(math.e) / math.sqrt(width),
        *q_GNHE.stride()[:3], *k_GHME.stride()[:3], *v_GHME.stride()[:3],
        *((0, 0, 0, 0) if mask is None else mask.stride()),
        HAS_MASK=mask is not None, N=max(_FEWEST_ROWS, triton.next_power_of_2(n_queries)), M=POSITIONS_AT_ONCE,
        H=n_heads, E=width, WIDE=max(16, triton.next_power_of_2(width)), num_warps=4, num_stages=2,
    )  # fmt: skip
    return y_GNHE
