"""Multi-head attention (Vaswani et al. 2017, section 3.2).

Shapes: B batch, S source, T target, L either length, D width, H heads, E head width, R rows of a search, N of them in
each of G beam groups, M cached positions. A tensor that begins with S, T or L holds sentences padded, [B, L, …], or
packed, [L, …].
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from transformer_cli.models.attention_kernels import attention_weights, decode_attention, fused_attention
from transformer_cli.models.cache_protocol import EncoderDecoderCache, SelfAttentionCache
from transformer_cli.models.embeddings import Rotation, apply_rotary
from transformer_cli.models.layouts import (
    AttentionLayout,
    PackedLayout,
    PaddedLayout,
    concatenate_groups,
    split_groups,
)
from transformer_cli.models.linear import Linear, project

KeysAndValues = tuple[Tensor, Tensor]


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    queries: AttentionLayout,
    keys: AttentionLayout,
    *,
    causal: bool = False,
    window: int | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """softmax(Q Kᵀ / √d_k) V (equation 1) by the kernel for these layouts; its arguments and its result are […, H, E].

    Padded sentences take one kernel, with a mask of the keys unless they are `causal`: padding stands at the end of a
    sentence, after all that a real token may attend to. Packed ones take a kernel for each group of one length, or for
    each bucket, or variable-length attention where only the device knows the lengths: see `kernel_choice`. A `window`
    restricts self-attention, as `window_mask` has it.
    """
    fused = partial(fused_attention, causal=causal, window=window, dropout=dropout)
    if isinstance(queries, PaddedLayout):
        assert isinstance(keys, PaddedLayout)
        q_BHTE, k_BHSE, v_BHSE = (x_BLHE.transpose(1, 2) for x_BLHE in (q, k, v))
        return fused(q_BHTE, k_BHSE, v_BHSE, keys.mask_B11L).transpose(1, 2)
    assert isinstance(keys, PackedLayout)
    if queries.groups is not None:
        assert keys.groups is not None
        each = zip(
            split_groups(q, queries.groups), split_groups(k, keys.groups), split_groups(v, keys.groups), strict=True
        )
        return concatenate_groups([fused(*qkv, None) for qkv in each])
    if queries.buckets is not None:
        assert keys.buckets is not None
        padded = zip(queries.buckets.pad(q), keys.buckets.pad(k), keys.buckets.pad(v), strict=True)
        masks = keys.buckets.masks_N11L()
        return queries.buckets.unpad([fused(*qkv, mask_N11L) for qkv, mask_N11L in zip(padded, masks, strict=True)])
    from transformer_cli.models.packed_attention import attend_varlen  # imports torch's compiler

    assert dropout == 0, "see `kernel_choice.no_varlen_reason`"
    return attend_varlen(q, k, v, queries, keys, causal=causal, window=window)


class Attention(nn.Module):
    """Multi-head attention (section 3.2.2): what self- and cross-attention share."""

    def __init__(self, d_model: int, n_heads: int, *, d_k: int, d_v: int, dropout: float, bias: bool) -> None:
        super().__init__()
        self.n_heads, self.dropout = n_heads, dropout
        self.to_out = Linear(n_heads * d_v, d_model, bias=bias)
        initialise(self.to_out)

    @property
    def active_dropout(self) -> float:
        """The dropout of attention weights: none outside training."""
        return self.dropout if self.training else 0.0

    def split_heads(self, x_LD: Tensor) -> Tensor:
        return torch.unflatten(x_LD, -1, (self.n_heads, -1))


class SelfAttention(Attention):
    """Each position of a sentence attends to all of them; `causal`: to itself and those before it.

    With a `window` only to the near ones of these, as in `window_mask`.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        d_k: int,
        d_v: int,
        dropout: float,
        bias: bool,
        window: int | None = None,
    ) -> None:
        super().__init__(d_model, n_heads, d_k=d_k, d_v=d_v, dropout=dropout, bias=bias)
        self.window = window
        self.widths = [n_heads * d_k, n_heads * d_k, n_heads * d_v]
        self.to_qkv = Linear(d_model, sum(self.widths), bias=bias, parts=self.widths)
        initialise(self.to_qkv, self.widths)

    def forward(
        self,
        x_LD: Tensor,
        layout: AttentionLayout,
        *,
        causal: bool = False,
        rotation: Rotation | None = None,
        past: list[KeysAndValues] | None = None,
    ) -> Tensor:
        """Append the keys and values to `past`, if given: a cache begins with them."""
        q_LHE, k_LHE, v_LHE = self.project(x_LD, rotation)
        if past is not None:
            past.append((k_LHE, v_LHE))
        y_LHE = attend(
            q_LHE, k_LHE, v_LHE, layout, layout, causal=causal, window=self.window, dropout=self.active_dropout
        )
        out_LD: Tensor = self.to_out(y_LHE.flatten(-2))
        return out_LD

    def step(self, x_RD: Tensor, layer: int, cache: SelfAttentionCache, rotation: Rotation | None) -> Tensor:
        """`forward` for the newest token of each row, which attends to what the cache returns, itself included."""
        q_RHE, k_RHE, v_RHE = self.project(x_RD, rotation)
        k_GHME, v_GHME = cache.append(layer, k_RHE, v_RHE)
        q_GNHE = torch.unflatten(q_RHE, 0, (k_GHME.size(0), -1))
        y_GNHE = decode_attention(q_GNHE, k_GHME, v_GHME, cache.mask_GHNM)
        out_RD: Tensor = self.to_out(y_GNHE.reshape(x_RD.size(0), -1))
        return out_RD

    def project(self, x_LD: Tensor, rotation: Rotation | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, from one matrix product."""
        *qk_width, v_width = self.widths
        qk_LD, v_LD = torch.split_with_sizes(self.to_qkv(x_LD), [sum(qk_width), v_width], dim=-1)
        qk_LHE = torch.unflatten(qk_LD, -1, (2 * self.n_heads, -1))
        if rotation is not None:
            qk_LHE = apply_rotary(qk_LHE, rotation)
        q_LHE, k_LHE = qk_LHE.chunk(2, dim=-2)
        return q_LHE, k_LHE, self.split_heads(v_LD)

    def weights(
        self,
        x_BLD: Tensor,
        layout: PaddedLayout,
        *,
        causal: bool = False,
        rotation: Rotation | None = None,
        past: list[KeysAndValues] | None = None,
    ) -> Tensor:
        """The attention weights of `forward`, [B, H, L, L]."""
        q_BLHE, k_BLHE, _ = self.project(x_BLD, rotation)
        return attention_weights(
            q_BLHE.transpose(1, 2), k_BLHE.transpose(1, 2), layout.mask_B11L, causal=causal, window=self.window
        )


class CrossAttention(Attention):
    """The target attends to the encoded source, the memory.

    An `observer` is called with the queries and keys of each forward pass: guided alignment computes weights of them.
    """

    observer: Callable[[Tensor, Tensor], None] | None = None

    def __init__(self, d_model: int, n_heads: int, *, d_k: int, d_v: int, dropout: float, bias: bool) -> None:
        super().__init__(d_model, n_heads, d_k=d_k, d_v=d_v, dropout=dropout, bias=bias)
        self.widths = [n_heads * d_k, n_heads * d_v]
        self.to_q = Linear(d_model, n_heads * d_k, bias=bias)
        self.to_kv = Linear(d_model, sum(self.widths), bias=bias, parts=self.widths)
        initialise(self.to_q, [n_heads * d_k])
        initialise(self.to_kv, self.widths)

    def forward(
        self,
        x_TD: Tensor,
        target: AttentionLayout,
        memory_SD: Tensor,
        source: AttentionLayout,
        projected: KeysAndValues | None = None,
    ) -> Tensor:
        """`projected` are the keys and values of the memory, if they are computed already."""
        q_THE = self.split_heads(self.to_q(x_TD))
        k_SHE, v_SHE = projected or self.project_memory(memory_SD)
        if self.observer is not None:
            self.observer(q_THE, k_SHE)
        y_THE = attend(q_THE, k_SHE, v_SHE, target, source, dropout=self.active_dropout)
        out_TD: Tensor = self.to_out(y_THE.flatten(-2))
        return out_TD

    def step(self, x_RD: Tensor, layer: int, cache: EncoderDecoderCache) -> Tensor:
        """`forward` for the newest token of each row. All beams of a sentence share keys and values."""
        k_BHSE, v_BHSE = cache.memory_keys_BHSE[layer], cache.memory_values_BHSE[layer]
        q_BNHE = torch.unflatten(self.split_heads(self.to_q(x_RD)), 0, (k_BHSE.size(0), -1))
        if cache.keeps_attention and layer == len(cache.memory_keys_BHSE) - 1:
            scores_BHNS = q_BNHE.transpose(1, 2) @ k_BHSE.transpose(-1, -2) / math.sqrt(k_BHSE.size(-1))
            cache.keep_attention((scores_BHNS + cache.source_mask_BHNS).softmax(-1).mean(1))
        y_BNHE = decode_attention(q_BNHE, k_BHSE, v_BHSE, cache.source_mask_BHNS)
        out_RD: Tensor = self.to_out(y_BNHE.reshape(x_RD.size(0), -1))
        return out_RD

    def queries_and_keys(self, x_TD: Tensor, memory_SD: Tensor) -> tuple[Tensor, Tensor]:
        """The tensors that attention weights are computed of, [T, H, E] and [S, H, E]."""
        return self.split_heads(self.to_q(x_TD)), self.project_memory(memory_SD)[0]

    def project_memory(self, memory_SD: Tensor) -> KeysAndValues:
        return self.split_keys_and_values(self.to_kv(memory_SD))

    def split_keys_and_values(self, kv_SD: Tensor) -> KeysAndValues:
        k_SHE, v_SHE = map(self.split_heads, torch.split(kv_SD, self.widths, dim=-1))
        return k_SHE, v_SHE

    def weights(
        self,
        x_BTD: Tensor,
        target: PaddedLayout,
        memory_BSD: Tensor,
        source: PaddedLayout,
        projected: KeysAndValues | None = None,
    ) -> Tensor:
        """The attention weights of `forward`, [B, H, T, S]."""
        k_BSHE, _ = self.project_memory(memory_BSD)
        q_BTHE = self.split_heads(self.to_q(x_BTD))
        return attention_weights(q_BTHE.transpose(1, 2), k_BSHE.transpose(1, 2), source.mask_B11L)


def project_memory_at_once(layers: Sequence[CrossAttention], memory_SD: Tensor) -> list[KeysAndValues]:
    """`project_memory` of each layer, from one matrix product."""
    weight_YDD = torch.cat([layer.to_kv.weight for layer in layers])
    bias_YD = torch.cat([layer.to_kv.bias for layer in layers]) if layers[0].to_kv.bias is not None else None
    kv_YSD = project(memory_SD, weight_YDD, bias_YD).chunk(len(layers), dim=-1)
    return [layer.split_keys_and_values(kv_SD) for layer, kv_SD in zip(layers, kv_YSD, strict=True)]


@torch.no_grad()
def initialise(projection: nn.Linear, widths: list[int] | None = None) -> None:
    """Xavier uniform for the weights, zero for the bias.

    `widths` are those of the query, key and value projections that share one matrix. Each is initialised separately,
    with a gain of √½ as in fairseq: for square ones that is also the initialisation of torch's fused matrix.
    """
    if widths is None:
        nn.init.xavier_uniform_(projection.weight)
    else:
        for weight in torch.split(projection.weight, widths):
            nn.init.xavier_uniform_(weight, gain=math.sqrt(0.5))
    if projection.bias is not None:
        nn.init.zeros_(projection.bias)
