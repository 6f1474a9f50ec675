"""The layers of the two stacks (Vaswani et al. 2017, sections 3.1 and 3.3).

Shapes: B batch, S source, T target, L either length, D width, F feed-forward, R rows of a search.
A tensor that begins with S, T or L holds sentences padded, [B, L, …], or packed, [L, …].
"""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_cli.config.model import Activation, ModelConfig, Norm
from transformer_cli.models.attention import CrossAttention, KeysAndValues, SelfAttention, initialise
from transformer_cli.models.cache_protocol import EncoderDecoderCache, SelfAttentionCache
from transformer_cli.models.embeddings import Rotation
from transformer_cli.models.layouts import AttentionLayout
from transformer_cli.models.linear import Linear
from transformer_cli.models.norms import NORMS
from transformer_cli.models.ssru import SSRU

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.relu: F.relu,
    Activation.gelu: F.gelu,
    Activation.silu: F.silu,
    Activation.swiglu: F.silu,  # of the gate
}


def make_norm(config: ModelConfig) -> nn.Module:
    norm: nn.Module = NORMS[config.norm_kind](config.d_model, config.epsilon)
    return norm


class Dropout(nn.Module):
    """Zero with probability `p`, and the rest scaled up to keep the mean (section 5.4)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        uses_numpy = x.is_cpu and not torch.compiler.is_compiling()
        return x * dropout_mask(x, self.p) if uses_numpy else F.dropout(x, self.p)


def dropout_mask(x: Tensor, p: float) -> Tensor:
    """The factors of dropout on a CPU: 0 with probability `p`, rounded to 16 bits, and otherwise 1 / (1 - p).

    Torch draws its random numbers one by one, of 32 bits each, which takes four times as long. Here torch's generator
    only seeds one of numpy's, which is faster, and each of its numbers serves four elements.
    """
    n_values = 1 << 16
    n_dropped = min(round(p * n_values), n_values - 1)
    bits = np.random.SFC64(int(torch.randint(2**62, ()))).random_raw(-(-x.numel() // 4))
    is_kept = bits.view(np.uint16)[: x.numel()] >= n_dropped
    mask = np.empty(x.numel(), np.float32)
    np.multiply(is_kept, np.float32(n_values / (n_values - n_dropped)), out=mask)
    return torch.from_numpy(mask).view_as(x).to(x.dtype)


class Residual(nn.Module):
    """The connection around each sub-layer: LayerNorm(x + Sublayer(x)), or the norm first (sections 3.1 and 5.4)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.pre_norm = config.norm is Norm.pre
        self.norm = make_norm(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, x_LD: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        y_LD: Tensor
        if self.pre_norm:
            y_LD = x_LD + self.dropout(sublayer(self.norm(x_LD)))
        else:
            y_LD = self.norm(x_LD + self.dropout(sublayer(x_LD)))
        return y_LD


class FeedForward(nn.Module):
    """Position-wise feed-forward network: two projections with an activation between them (section 3.3).

    swiglu multiplies a second projection with the activated first one (Shazeer 2020): half as many parameters again.
    """

    def __init__(self, d_model: int, d_ff: int, *, activation: Activation, dropout: float, bias: bool) -> None:
        super().__init__()
        self.gated, self.activate = activation is Activation.swiglu, ACTIVATIONS[activation]
        widths = [d_ff, d_ff] if self.gated else [d_ff]
        self.to_hidden = Linear(d_model, sum(widths), bias=bias, parts=widths)
        self.to_out = Linear(d_ff, d_model, bias=bias)
        self.dropout = Dropout(dropout)
        initialise(self.to_hidden)
        initialise(self.to_out)

    def forward(self, x_LD: Tensor) -> Tensor:
        hidden_LF = self.to_hidden(x_LD)
        if self.gated:
            gate_LF, value_LF = hidden_LF.chunk(2, dim=-1)
            hidden_LF = self.activate(gate_LF) * value_LF
        else:
            hidden_LF = self.activate(hidden_LF)
        y_LD: Tensor = self.to_out(self.dropout(hidden_LF))
        return y_LD


class EncoderLayer(nn.Module):
    """Self-attention over the source, then the position-wise feed-forward network."""

    def __init__(
        self, self_attention: SelfAttention, feed_forward: FeedForward, residual: Callable[[], Residual]
    ) -> None:
        super().__init__()
        self.self_attention, self.around_self_attention = self_attention, residual()
        self.feed_forward, self.around_feed_forward = feed_forward, residual()

    def forward(self, x_SD: Tensor, source: AttentionLayout, rotation: Rotation | None) -> Tensor:
        x_SD = self.around_self_attention(x_SD, lambda x: self.self_attention(x, source, rotation=rotation))
        x_SD = self.around_feed_forward(x_SD, self.feed_forward)
        return x_SD


class CausalLayer(EncoderLayer):
    """The same with causal self-attention: the layer of a decoder without a source."""

    def forward(
        self, x_TD: Tensor, target: AttentionLayout, rotation: Rotation | None, past: list[KeysAndValues] | None = None
    ) -> Tensor:
        """Append the keys and values of self-attention to `past`, if given."""
        x_TD = self.around_self_attention(
            x_TD, lambda x: self.self_attention(x, target, causal=True, rotation=rotation, past=past)
        )
        x_TD = self.around_feed_forward(x_TD, self.feed_forward)
        return x_TD

    def step(self, x_RD: Tensor, layer: int, cache: SelfAttentionCache, rotation: Rotation | None) -> Tensor:
        """`forward` for the newest token of each row; keys and values of the others are cached."""
        # Of few rows the call of a module takes as long as what it computes.
        x_RD = self.around_self_attention.forward(x_RD, lambda x: self.self_attention.step(x, layer, cache, rotation))
        x_RD = self.around_feed_forward.forward(x_RD, self.feed_forward)
        return x_RD


class DecoderLayer(nn.Module):
    """Causal self-attention over the target, cross-attention to the source, then the feed-forward network.

    An SSRU may stand in the place of self-attention.
    """

    def __init__(
        self,
        self_attention: SelfAttention | SSRU,
        cross_attention: CrossAttention,
        feed_forward: FeedForward,
        residual: Callable[[], Residual],
    ) -> None:
        super().__init__()
        self.self_attention, self.around_self_attention = self_attention, residual()
        self.cross_attention, self.around_cross_attention = cross_attention, residual()
        self.feed_forward, self.around_feed_forward = feed_forward, residual()

    def forward(
        self,
        x_TD: Tensor,
        target: AttentionLayout,
        memory_SD: Tensor,
        source: AttentionLayout,
        rotation: Rotation | None,
        projected: KeysAndValues | None = None,
        causal: bool = True,
    ) -> Tensor:
        # Padding is at the end of a target, so no real token can attend to it: the causal mask is enough.
        x_TD = self.around_self_attention(
            x_TD, lambda x: self.self_attention(x, target, causal=causal, rotation=rotation)
        )
        x_TD = self.around_cross_attention(
            x_TD, lambda x: self.cross_attention(x, target, memory_SD, source, projected)
        )
        x_TD = self.around_feed_forward(x_TD, self.feed_forward)
        return x_TD

    def cross_scores(
        self, x_TD: Tensor, target: AttentionLayout, memory_SD: Tensor, rotation: Rotation | None
    ) -> tuple[Tensor, Tensor]:
        """Queries and keys of cross-attention, where self-attention is not causal."""
        x_TD = self.around_self_attention(
            x_TD, lambda x: self.self_attention(x, target, causal=False, rotation=rotation)
        )
        around = self.around_cross_attention
        return self.cross_attention.queries_and_keys(around.norm(x_TD) if around.pre_norm else x_TD, memory_SD)

    def step(self, x_RD: Tensor, layer: int, cache: EncoderDecoderCache, rotation: Rotation | None) -> Tensor:
        """`forward` for the newest token of each row; keys and values of the others and of the source are cached."""
        x_RD = self.around_self_attention.forward(x_RD, lambda x: self.self_attention.step(x, layer, cache, rotation))
        x_RD = self.around_cross_attention.forward(x_RD, lambda x: self.cross_attention.step(x, layer, cache))
        x_RD = self.around_feed_forward.forward(x_RD, self.feed_forward)
        return x_RD
