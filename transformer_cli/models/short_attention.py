"""Attention of packed sentences on a GPU in two Triton kernels, for sentences of translation: some 30 tokens.

Flash attention computes tiles of 128 queries and 128 keys, of which a sentence of 30 tokens fills a sixteenth. Here a
program computes one head of one sentence, in a tile of 32, 64 or 128 tokens as its length wants. A sentence that is
longer takes several tiles, one after another. Nothing is added by atomic operations: equal runs give equal bits.

Shapes: L tokens of all sentences, T of the queries and S of the keys, N + 1 offsets of N sentences, H heads, E head
width.
"""

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

LONGEST_SENTENCE = 512  # tokens: from here on flash attention, which divides a sentence among many programs, is faster


class Tile(NamedTuple):
    """Tokens of a tile, the lengths of the sentences that it is for, and the warps of a program."""

    size: int
    above: int
    up_to: int
    n_warps: int


_TILES = (Tile(32, -1, 32, 2), Tile(64, 32, 64, 4), Tile(128, 64, LONGEST_SENTENCE, 8))


@triton.jit
def _sentence(starts):  # type: ignore[no-untyped-def]
    """The start of this program's sentence, wide enough for the address of any element, and its tokens."""
    start = tl.load(starts + tl.program_id(0)).to(tl.int64)
    return start, (tl.load(starts + tl.program_id(0) + 1) - start).to(tl.int32)


@triton.jit
def _rows(x, start, first, length, by_token, by_head, head, TILE: tl.constexpr, E: tl.constexpr, WIDE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Pointers to the rows of a tile of one sentence, and which of their elements there are."""
    row, column = first + tl.arange(0, TILE), tl.arange(0, WIDE)
    pointers = x + (start + row)[:, None] * by_token + head * by_head + column[None, :]
    return pointers, (row < length)[:, None] & (column < E)[None, :]


@triton.jit
def _allowed(first, first_key, length, n_keys, LEFT: tl.constexpr, RIGHT: tl.constexpr, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    """The keys of a tile that its queries may attend to: LEFT before them and RIGHT behind them, -1: all."""
    row, key = (first + tl.arange(0, TILE))[:, None], (first_key + tl.arange(0, TILE))[None, :]
    allowed = (row < length) & (key < n_keys)
    if LEFT >= 0:
        allowed = allowed & (row - key <= LEFT)
    if RIGHT >= 0:
        allowed = allowed & (key - row <= RIGHT)
    return allowed


@triton.jit(do_not_specialize=["n_tokens"])
def _forward(  # type: ignore[no-untyped-def]
    q, k, v, y, lse, starts, key_starts, n_tokens, scale, q_token, q_head, k_token, k_head, v_token, v_head,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, ABOVE: tl.constexpr, UP_TO: tl.constexpr, TILE: tl.constexpr,
    H: tl.constexpr, E: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    start, length = _sentence(starts)
    key_start, n_keys = _sentence(key_starts)
    longest = tl.maximum(length, n_keys)
    if (longest > ABOVE) & (longest <= UP_TO):
        for first in range(0, length, TILE):
            q_at, is_row = _rows(q, start, first, length, q_token, q_head, head, TILE, E, WIDE)
            q_tile = tl.load(q_at, mask=is_row, other=0.0)
            largest = tl.full([TILE], float("-inf"), tl.float32)
            total = tl.zeros([TILE], tl.float32)
            sums = tl.zeros([TILE, WIDE], tl.float32)
            for first_key in range(0, n_keys, TILE):
                k_at, is_key = _rows(k, key_start, first_key, n_keys, k_token, k_head, head, TILE, E, WIDE)
                v_at, _ = _rows(v, key_start, first_key, n_keys, v_token, v_head, head, TILE, E, WIDE)
                k_tile, v_tile = tl.load(k_at, mask=is_key, other=0.0), tl.load(v_at, mask=is_key, other=0.0)
                scores = tl.dot(q_tile, tl.trans(k_tile)) * scale
                scores = tl.where(_allowed(first, first_key, length, n_keys, LEFT, RIGHT, TILE), scores, float("-inf"))
                largest_now = tl.maximum(largest, tl.max(scores, 1))
                shift = tl.where(largest_now == float("-inf"), 0.0, largest_now)
                p = tl.exp2(scores - shift[:, None])
                shrunk = tl.exp2(largest - shift)
                total = total * shrunk + tl.sum(p, 1)
                sums = sums * shrunk[:, None] + tl.dot(p.to(v_tile.dtype), v_tile)
                largest = largest_now
            is_any = total > 0
            sums = sums / tl.where(is_any, total, 1.0)[:, None]
            y_at, _ = _rows(y, start, first, length, H * E, E, head, TILE, E, WIDE)
            tl.store(y_at, sums.to(q_tile.dtype), mask=is_row)
            row = first + tl.arange(0, TILE)
            found = tl.where(is_any, largest + tl.log2(tl.where(is_any, total, 1.0)), float("inf"))
            tl.store(lse + head * n_tokens + start + row, found, mask=row < length)


@triton.jit(do_not_specialize=["n_tokens"])
def _backward(  # type: ignore[no-untyped-def]
    grad, q, k, v, y, lse, q_grad, k_grad, v_grad, starts, key_starts, n_tokens, scale, scale_of_grad,
    g_token, g_head, q_token, q_head, k_token, k_head, v_token, v_head,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, ABOVE: tl.constexpr, UP_TO: tl.constexpr, TILE: tl.constexpr,
    H: tl.constexpr, E: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    start, length = _sentence(starts)
    key_start, n_keys = _sentence(key_starts)
    longest = tl.maximum(length, n_keys)
    if (longest > ABOVE) & (longest <= UP_TO):
        for first_key in range(0, tl.maximum(n_keys, 1), TILE):  # of queries without keys the gradient is 0
            k_at, is_key = _rows(k, key_start, first_key, n_keys, k_token, k_head, head, TILE, E, WIDE)
            v_at, _ = _rows(v, key_start, first_key, n_keys, v_token, v_head, head, TILE, E, WIDE)
            k_tile, v_tile = tl.load(k_at, mask=is_key, other=0.0), tl.load(v_at, mask=is_key, other=0.0)
            k_sums, v_sums = tl.zeros([TILE, WIDE], tl.float32), tl.zeros([TILE, WIDE], tl.float32)
            for first in range(0, length, TILE):
                q_at, is_row = _rows(q, start, first, length, q_token, q_head, head, TILE, E, WIDE)
                g_at, _ = _rows(grad, start, first, length, g_token, g_head, head, TILE, E, WIDE)
                y_at, _ = _rows(y, start, first, length, H * E, E, head, TILE, E, WIDE)
                q_tile, g_tile = tl.load(q_at, mask=is_row, other=0.0), tl.load(g_at, mask=is_row, other=0.0)
                y_tile = tl.load(y_at, mask=is_row, other=0.0)
                row = first + tl.arange(0, TILE)
                its_lse = tl.load(lse + head * n_tokens + start + row, mask=row < length, other=float("inf"))
                scores = tl.dot(q_tile, tl.trans(k_tile)) * scale
                allowed = _allowed(first, first_key, length, n_keys, LEFT, RIGHT, TILE)
                p = tl.where(allowed, tl.exp2(scores - its_lse[:, None]), 0.0)
                v_sums += tl.dot(tl.trans(p.to(g_tile.dtype)), g_tile)
                p_grad = tl.dot(g_tile, tl.trans(v_tile))
                mean = tl.sum(g_tile.to(tl.float32) * y_tile.to(tl.float32), 1)
                scores_grad = (p * (p_grad - mean[:, None]) * scale_of_grad).to(q_tile.dtype)
                k_sums += tl.dot(tl.trans(scores_grad), q_tile)
                q_sums = tl.dot(scores_grad, k_tile)
                to_at, _ = _rows(q_grad, start, first, length, H * E, E, head, TILE, E, WIDE)
                if first_key > 0:  # this program has written those of the earlier keys
                    tl.debug_barrier()
                    q_sums += tl.load(to_at, mask=is_row, other=0.0)
                tl.store(to_at, q_sums.to(q_grad.dtype.element_ty), mask=is_row)
            to_at, _ = _rows(k_grad, key_start, first_key, n_keys, H * E, E, head, TILE, E, WIDE)
            tl.store(to_at, k_sums.to(k_tile.dtype), mask=is_key)
            to_at, _ = _rows(v_grad, key_start, first_key, n_keys, H * E, E, head, TILE, E, WIDE)
            tl.store(to_at, v_sums.to(v_tile.dtype), mask=is_key)


def _launch(kernel: Any, pointers: list[Tensor], rows: list[Tensor], *numbers: float, options: dict[str, Any]) -> None:
    """Run `kernel` for each tile that sentences of up to `longest` tokens need; `rows` are those with strides."""
    starts_N, longest = options.pop("starts_N"), options.pop("longest")
    n_heads, width = rows[-1].shape[1:]
    strides = [stride for x_LHE in rows for stride in x_LHE.stride()[:2]]
    for tile in _TILES:
        if tile.above < longest:
            kernel[len(starts_N) - 1, n_heads](
                *pointers, *numbers, *strides, **options,
                ABOVE=tile.above, UP_TO=tile.up_to, TILE=tile.size,
                H=n_heads, E=width, WIDE=max(16, triton.next_power_of_2(width)),
                num_warps=tile.n_warps, num_stages=1,
            )  # fmt: skip


@torch.library.custom_op("tfm::short_attention", mutates_args=())
def short_attention(
    q_THE: Tensor, k_SHE: Tensor, v_SHE: Tensor, starts_N: Tensor, key_starts_N: Tensor, longest: int, left: int,
    right: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """softmax(Q Kᵀ / √d_k) V of each sentence, of at most `longest` tokens, and the logarithm of each denominator.

    A query attends to `left` keys before its position and to `right` behind it; -1: to all. The rows of each tensor
    are contiguous. The logarithm is to base 2, [H, T].
    """
    y_THE = q_THE.new_empty(q_THE.shape)
    lse_HT = q_THE.new_empty(q_THE.size(1), len(q_THE), dtype=torch.float32)
    scale = math.log2(math.e) / math.sqrt(q_THE.size(-1))
    pointers = [q_THE, k_SHE, v_SHE, y_THE, lse_HT, starts_N, key_starts_N]
    options = {"starts_N": starts_N, "longest": longest, "LEFT": left, "RIGHT": right}
    _launch(_forward, pointers, [q_THE, k_SHE, v_SHE], len(q_THE), scale, options=options)
    return y_THE, lse_HT


@torch.library.custom_op("tfm::short_attention_backward", mutates_args=())
def short_attention_backward(
    grad_THE: Tensor, q_THE: Tensor, k_SHE: Tensor, v_SHE: Tensor, y_THE: Tensor, lse_HT: Tensor, starts_N: Tensor,
    key_starts_N: Tensor, longest: int, left: int, right: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of queries, keys and values."""
    q_grad, k_grad, v_grad = (x.new_empty(x.shape) for x in (q_THE, k_SHE, v_SHE))
    scale = 1 / math.sqrt(q_THE.size(-1))
    pointers = [grad_THE, q_THE, k_SHE, v_SHE, y_THE, lse_HT, q_grad, k_grad, v_grad, starts_N, key_starts_N]
    options = {"starts_N": starts_N, "longest": longest, "LEFT": left, "RIGHT": right}
    rows = [grad_THE, q_THE, k_SHE, v_SHE]
    _launch(_backward, pointers, rows, len(q_THE), scale * math.log2(math.e), scale, options=options)
    return q_grad, k_grad, v_grad


@short_attention.register_fake
def _(q_THE: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return q_THE.new_empty(q_THE.shape), q_THE.new_empty(q_THE.size(1), q_THE.size(0), dtype=torch.float32)


@short_attention_backward.register_fake
def _(grad_THE: Tensor, q_THE: Tensor, k_SHE: Tensor, v_SHE: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    q_grad, k_grad, v_grad = (x.new_empty(x.shape) for x in (q_THE, k_SHE, v_SHE))
    return q_grad, k_grad, v_grad


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, starts_N, key_starts_N, *ctx.options = inputs
    ctx.save_for_backward(q, k, v, *output, starts_N, key_starts_N)
    ctx.mark_non_differentiable(output[1])


def _backward_of(ctx: Any, grad_THE: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    grads = short_attention_backward(grad_THE.contiguous(), *ctx.saved_tensors, *ctx.options)
    return *grads, None, None, None, None, None


short_attention.register_autograd(_backward_of, setup_context=_save_for_backward)


def attend_short(
    q_THE: Tensor, k_SHE: Tensor, v_SHE: Tensor, starts_N: Tensor, key_starts_N: Tensor, *, longest: int, left: int,
    right: int,
) -> Tensor:  # fmt: skip
    """`short_attention` without the second result."""
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q_THE, k_SHE, v_SHE))
    y_THE: Tensor
    y_THE, _ = short_attention(q, k, v, starts_N, key_starts_N, longest, left, right)
    return y_THE
