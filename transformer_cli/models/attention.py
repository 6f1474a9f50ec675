"""Multi-head attention (Vaswani et al. 2017, section 3.2).

Shapes: B batch, S source, T target, L either length, D width, H heads, E head width, N queries of each of G groups,
R rows of a search, M positions that they look at. A tensor that begins with S, T or L holds sentences padded,
[B, L, …], or packed, [L, …].
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_cli.models.cache import DecoderCache, PastCache
from transformer_cli.models.embeddings import Rotation
from transformer_cli.models.layouts import Padded, Sentences
from transformer_cli.models.linear import Linear, project

KeysAndValues = tuple[Tensor, Tensor]


def attention_weights(
    q_BHTE: Tensor, k_BHSE: Tensor, mask_B11S: Tensor | None = None, *, causal: bool = False
) -> Tensor:
    """softmax(Q Kᵀ / √d_k) of equation 1, written out for whoever wants to see it: the fast kernels never hold it."""
    scores_BHTS = q_BHTE @ k_BHSE.transpose(-1, -2) / math.sqrt(q_BHTE.size(-1))
    if causal:
        scores_BHTS = scores_BHTS.masked_fill(torch.ones_like(scores_BHTS, dtype=torch.bool).triu(1), -math.inf)
    if mask_B11S is not None:
        scores_BHTS = scores_BHTS.masked_fill(~mask_B11S, -math.inf)
    return scores_BHTS.softmax(-1)


def look(q_GNHE: Tensor, k_GHME: Tensor, v_GHME: Tensor, mask_GHNM: Tensor | None) -> Tensor:
    """Equation 1 for a few queries of each group, [G, N, H, E]; the mask is added to the scores."""
    if not q_GNHE.is_cpu:
        y_GHNE = F.scaled_dot_product_attention(q_GNHE.transpose(1, 2), k_GHME, v_GHME, mask_GHNM)
        return y_GHNE.transpose(1, 2)
    # So few queries are two products of many small matrices; torch's kernel for CPUs is made for many.
    n_groups, n_queries, n_heads, width = q_GNHE.shape
    q_KNE = q_GNHE.transpose(1, 2).reshape(-1, n_queries, width)
    scores_KNM = torch.bmm(q_KNE, k_GHME.flatten(0, 1).transpose(1, 2)).mul_(width**-0.5)
    if mask_GHNM is not None:
        scores_KNM.view(n_groups, n_heads, n_queries, -1).add_(mask_GHNM)
    y_KNE = torch.bmm(scores_KNM.softmax(-1), v_GHME.flatten(0, 1))
    return y_KNE.view(n_groups, n_heads, n_queries, -1).transpose(1, 2)


class Attention(nn.Module):
    """Several heads at once (section 3.2.2): what self- and cross-attention share."""

    def __init__(self, d_model: int, n_heads: int, *, d_k: int, d_v: int, dropout: float, bias: bool) -> None:
        super().__init__()
        self.n_heads, self.dropout = n_heads, dropout
        self.to_out = Linear(n_heads * d_v, d_model, bias=bias)
        initialise(self.to_out)

    def attend(
        self, queries: Sentences, keys: Sentences, q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False
    ) -> Tensor:
        y = queries.attend(keys, q, k, v, dropout=self.dropout if self.training else 0.0, causal=causal)
        out: Tensor = self.to_out(y.flatten(-2))
        return out

    def split_heads(self, x_LD: Tensor) -> Tensor:
        return torch.unflatten(x_LD, -1, (self.n_heads, -1))


class SelfAttention(Attention):
    """A sentence looks at itself; with `causal`, only at what came before."""

    def __init__(self, d_model: int, n_heads: int, *, d_k: int, d_v: int, dropout: float, bias: bool) -> None:
        super().__init__(d_model, n_heads, d_k=d_k, d_v=d_v, dropout=dropout, bias=bias)
        self.widths = [n_heads * d_k, n_heads * d_k, n_heads * d_v]
        self.to_qkv = Linear(d_model, sum(self.widths), bias=bias, parts=self.widths)
        initialise(self.to_qkv, self.widths)

    def forward(
        self,
        x_LD: Tensor,
        sentences: Sentences,
        *,
        causal: bool = False,
        rotation: Rotation | None = None,
        past: list[KeysAndValues] | None = None,
    ) -> Tensor:
        """`past` is given the keys and values, where later tokens will look for them."""
        q_LHE, k_LHE, v_LHE = self.project(x_LD, rotation)
        if past is not None:
            past.append((k_LHE, v_LHE))
        return self.attend(sentences, sentences, q_LHE, k_LHE, v_LHE, causal=causal)

    def step(self, x_RD: Tensor, layer: int, cache: PastCache, rotation: Rotation | None) -> Tensor:
        """The newest token of each row looks at all so far, its own key and value among them."""
        q_RHE, k_RHE, v_RHE = self.project(x_RD, rotation)
        k_GHME, v_GHME = cache.write(layer, k_RHE, v_RHE)
        q_GFHE = torch.unflatten(q_RHE, 0, (len(k_GHME), -1))
        out_RD: Tensor = self.to_out(look(q_GFHE, k_GHME, v_GHME, cache.mask_GHFM).reshape(len(x_RD), -1))
        return out_RD

    def project(self, x_LD: Tensor, rotation: Rotation | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, from one matrix product."""
        q_LHE, k_LHE, v_LHE = map(self.split_heads, torch.split(self.to_qkv(x_LD), self.widths, dim=-1))
        if rotation is not None:
            q_LHE, k_LHE = rotation.turn(q_LHE), rotation.turn(k_LHE)
        return q_LHE, k_LHE, v_LHE

    def weights(
        self,
        x_BLD: Tensor,
        sentences: Padded,
        *,
        causal: bool = False,
        rotation: Rotation | None = None,
        past: list[KeysAndValues] | None = None,
    ) -> Tensor:
        """What `forward` multiplies the values with, [B, H, L, L]."""
        q_BLHE, k_BLHE, _ = self.project(x_BLD, rotation)
        return attention_weights(q_BLHE.transpose(1, 2), k_BLHE.transpose(1, 2), sentences.mask_B11L, causal=causal)


class CrossAttention(Attention):
    """The target looks at the encoded source, its memory."""

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
        target: Sentences,
        memory_SD: Tensor,
        source: Sentences,
        projected: KeysAndValues | None = None,
    ) -> Tensor:
        """`projected` is what `project_memory` finds, where it is at hand."""
        return self.attend(
            target, source, self.split_heads(self.to_q(x_TD)), *(projected or self.project_memory(memory_SD))
        )

    def step(self, x_RD: Tensor, layer: int, cache: DecoderCache) -> Tensor:
        """The newest token of each row looks at its source, which the beams of a sentence share."""
        k_BHSE, v_BHSE = cache.memory_keys_BHSE[layer], cache.memory_values_BHSE[layer]
        q_BNHE = torch.unflatten(self.split_heads(self.to_q(x_RD)), 0, (len(k_BHSE), -1))
        if cache.keeps_attention and layer == len(cache.memory_keys_BHSE) - 1:
            scores_BHNS = q_BNHE.transpose(1, 2) @ k_BHSE.transpose(-1, -2) / math.sqrt(k_BHSE.size(-1))
            attention_BNS = (scores_BHNS + cache.source_mask_BHNS).softmax(-1).mean(1)
            cache.keep_attention(attention_BNS.expand(-1, cache.beam_size, -1))
        out_RD: Tensor = self.to_out(look(q_BNHE, k_BHSE, v_BHSE, cache.source_mask_BHNS).reshape(len(x_RD), -1))
        return out_RD

    def project_memory(self, memory_SD: Tensor) -> KeysAndValues:
        return self._divided(self.to_kv(memory_SD))

    def _divided(self, kv_SD: Tensor) -> KeysAndValues:
        k_SHE, v_SHE = map(self.split_heads, torch.split(kv_SD, self.widths, dim=-1))
        return k_SHE, v_SHE

    def weights(
        self,
        x_BTD: Tensor,
        target: Padded,
        memory_BSD: Tensor,
        source: Padded,
        projected: KeysAndValues | None = None,
    ) -> Tensor:
        """What `forward` multiplies the values with, [B, H, T, S]."""
        k_BSHE, _ = self.project_memory(memory_BSD)
        q_BTHE = self.split_heads(self.to_q(x_BTD))
        return attention_weights(q_BTHE.transpose(1, 2), k_BSHE.transpose(1, 2), source.mask_B11L)


def project_for_all(layers: Sequence[CrossAttention], memory_SD: Tensor) -> list[KeysAndValues]:
    """What each of them finds by `project_memory`, from one matrix product."""
    weight_YDD = torch.cat([layer.to_kv.weight for layer in layers])
    bias_YD = torch.cat([layer.to_kv.bias for layer in layers]) if layers[0].to_kv.bias is not None else None
    kv_YSD = project(memory_SD, weight_YDD, bias_YD).chunk(len(layers), dim=-1)
    return [layer._divided(kv_SD) for layer, kv_SD in zip(layers, kv_YSD, strict=True)]


@torch.no_grad()
def initialise(projection: nn.Linear, widths: list[int] | None = None) -> None:
    """Xavier uniform for the weights, zero for the bias.

    `widths` are the queries, keys and values that share one matrix. Each is drawn on its own and √½ smaller, as in
    fairseq: for square ones that is also what torch draws for its fused matrix.
    """
    if widths is None:
        nn.init.xavier_uniform_(projection.weight)
    else:
        for weight in torch.split(projection.weight, widths):
            nn.init.xavier_uniform_(weight, gain=math.sqrt(0.5))
    if projection.bias is not None:
        nn.init.zeros_(projection.bias)
