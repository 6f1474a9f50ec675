"""Multi-head attention (Vaswani et al. 2017, section 3.2).

Shapes: B batch, S source, T target, L either length, D width, H heads, E head width, R rows = B × beam.
Masks are boolean, True where a query may look, and may be None where everything is real.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_cli.models.embeddings import Rotation


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


class Attention(nn.Module):
    """Several heads at once (section 3.2.2): what self- and cross-attention share."""

    def __init__(self, d_model: int, n_heads: int, *, d_k: int, d_v: int, dropout: float, bias: bool) -> None:
        super().__init__()
        self.n_heads, self.dropout = n_heads, dropout
        self.to_out = nn.Linear(n_heads * d_v, d_model, bias=bias)
        initialise(self.to_out)

    def attend(
        self, q_BHTE: Tensor, k_BHSE: Tensor, v_BHSE: Tensor, mask_B11S: Tensor | None = None, *, causal: bool = False
    ) -> Tensor:
        y_BHTE = F.scaled_dot_product_attention(
            q_BHTE, k_BHSE, v_BHSE, mask_B11S, self.dropout if self.training else 0.0, is_causal=causal
        )
        y_BTD: Tensor = self.to_out(y_BHTE.transpose(1, 2).flatten(2))
        return y_BTD

    def split_heads(self, x_BLD: Tensor) -> Tensor:
        return torch.unflatten(x_BLD, -1, (self.n_heads, -1)).transpose(1, 2)


class SelfAttention(Attention):
    """A sentence looks at itself; with `causal`, only at what came before."""

    def __init__(self, d_model: int, n_heads: int, *, d_k: int, d_v: int, dropout: float, bias: bool) -> None:
        super().__init__(d_model, n_heads, d_k=d_k, d_v=d_v, dropout=dropout, bias=bias)
        self.widths = [n_heads * d_k, n_heads * d_k, n_heads * d_v]
        self.to_qkv = nn.Linear(d_model, sum(self.widths), bias=bias)
        initialise(self.to_qkv, self.widths)

    def forward(
        self,
        x_BLD: Tensor,
        mask_B11L: Tensor | None = None,
        *,
        causal: bool = False,
        rotation: Rotation | None = None,
    ) -> Tensor:
        return self.attend(*self.project(x_BLD, rotation), mask_B11L, causal=causal)

    def step(self, x_R1D: Tensor, k_RHTE: Tensor, v_RHTE: Tensor, rotation: Rotation | None) -> Tensor:
        """The newest token looks at all T so far: its own key and value are written to the end of `k` and `v` first."""
        q_RH1E, k_RH1E, v_RH1E = self.project(x_R1D, rotation)
        k_RHTE[:, :, -1:] = k_RH1E
        v_RHTE[:, :, -1:] = v_RH1E
        return self.attend(q_RH1E, k_RHTE, v_RHTE)

    def project(self, x_BLD: Tensor, rotation: Rotation | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, from one matrix product."""
        q_BHLE, k_BHLE, v_BHLE = map(self.split_heads, torch.split(self.to_qkv(x_BLD), self.widths, dim=-1))
        if rotation is not None:
            q_BHLE, k_BHLE = rotation.turn(q_BHLE), rotation.turn(k_BHLE)
        return q_BHLE, k_BHLE, v_BHLE

    def weights(
        self,
        x_BLD: Tensor,
        mask_B11L: Tensor | None = None,
        *,
        causal: bool = False,
        rotation: Rotation | None = None,
    ) -> Tensor:
        """What `forward` multiplies the values with, [B, H, L, L]."""
        q_BHLE, k_BHLE, _ = self.project(x_BLD, rotation)
        return attention_weights(q_BHLE, k_BHLE, mask_B11L, causal=causal)


class CrossAttention(Attention):
    """The target looks at the encoded source, its memory."""

    def __init__(self, d_model: int, n_heads: int, *, d_k: int, d_v: int, dropout: float, bias: bool) -> None:
        super().__init__(d_model, n_heads, d_k=d_k, d_v=d_v, dropout=dropout, bias=bias)
        self.widths = [n_heads * d_k, n_heads * d_v]
        self.to_q = nn.Linear(d_model, n_heads * d_k, bias=bias)
        self.to_kv = nn.Linear(d_model, sum(self.widths), bias=bias)
        initialise(self.to_q, [n_heads * d_k])
        initialise(self.to_kv, self.widths)

    def forward(self, x_BTD: Tensor, memory_BSD: Tensor, mask_B11S: Tensor | None = None) -> Tensor:
        return self.look_up(x_BTD, *self.project_memory(memory_BSD), mask_B11S)

    def look_up(self, x_BTD: Tensor, k_BHSE: Tensor, v_BHSE: Tensor, mask_B11S: Tensor | None) -> Tensor:
        """`forward` with the memory's keys and values at hand, as they are during a search."""
        return self.attend(self.split_heads(self.to_q(x_BTD)), k_BHSE, v_BHSE, mask_B11S)

    def project_memory(self, memory_BSD: Tensor) -> tuple[Tensor, Tensor]:
        k_BHSE, v_BHSE = map(self.split_heads, torch.split(self.to_kv(memory_BSD), self.widths, dim=-1))
        return k_BHSE, v_BHSE

    def weights(self, x_BTD: Tensor, memory_BSD: Tensor, mask_B11S: Tensor | None = None) -> Tensor:
        """What `forward` multiplies the values with, [B, H, T, S]."""
        k_BHSE, _ = self.project_memory(memory_BSD)
        return attention_weights(self.split_heads(self.to_q(x_BTD)), k_BHSE, mask_B11S)


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
