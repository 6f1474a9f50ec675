"""The simpler simple recurrent unit, which a decoder may have in place of self-attention (Kim et al. 2019).

Its state is one vector for each layer, whatever the length of the sentence, where self-attention keeps keys and values
of all tokens. In training all positions are computed together.

Shapes: B batch, T target, L either, D width, R rows of a search. A tensor that begins with T or L holds sentences
padded, [B, L, …], or packed, [L, …].
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_cli.models.attention import initialise
from transformer_cli.models.cache_protocol import EncoderDecoderCache
from transformer_cli.models.embeddings import Rotation
from transformer_cli.models.layouts import AttentionLayout
from transformer_cli.models.linear import Linear


class SSRU(nn.Module):
    """c_t = f_t ⊙ c_{t-1} + (1 - f_t) ⊙ W x_t with the forget gate f_t = σ(W_f x_t + b_f); its output is relu(c_t).

    A sentence begins with c_0 = 0. The state is kept in float32, though products may be of 16 bits.
    """

    def __init__(self, d_model: int, *, bias: bool) -> None:
        super().__init__()
        self.to_input = Linear(d_model, d_model, bias=False)
        self.to_forget = Linear(d_model, d_model, bias=bias)
        initialise(self.to_input)
        initialise(self.to_forget)

    def forward(
        self, x_TD: Tensor, target: AttentionLayout, *, causal: bool = True, rotation: Rotation | None = None
    ) -> Tensor:
        """The output at each position, of it and those before it. The arguments of self-attention: it is causal."""
        assert causal
        forget_TD, input_TD = self.gate_and_input(x_TD)
        state_TD = states(forget_TD, (1 - forget_TD) * input_TD, target)
        return F.relu(state_TD).to(x_TD.dtype)

    def step(self, x_RD: Tensor, layer: int, cache: EncoderDecoderCache, rotation: Rotation | None) -> Tensor:
        """`forward` for the newest token of each row; the cache holds the state."""
        forget_RD, input_RD = self.gate_and_input(x_RD)
        state_RD = cache.states_RD[layer]
        state_RD.copy_(forget_RD * state_RD + (1 - forget_RD) * input_RD)
        return F.relu(state_RD).to(x_RD.dtype)

    def gate_and_input(self, x_LD: Tensor) -> tuple[Tensor, Tensor]:
        dtype = state_dtype(x_LD.dtype)
        return torch.sigmoid(self.to_forget(x_LD).to(dtype)), self.to_input(x_LD).to(dtype)


def state_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def states(forget_LD: Tensor, new_LD: Tensor, layout: AttentionLayout) -> Tensor:
    """c_t = forget_t ⊙ c_{t-1} + new_t of each sentence of a batch, from zero before its first token."""
    positions = layout.positions
    if isinstance(positions, Tensor):  # packed: the first token of each sentence forgets what is before it
        forget_LD = forget_LD.masked_fill((positions == 0)[:, None], 0)
    recurrence: Callable[..., Tensor] = _Recurrence.apply
    return recurrence(forget_LD, new_LD, layout.max_length)


class _Recurrence(torch.autograd.Function):
    """c_l = a_l ⊙ c_{l-1} + b_l, and its gradient, which is the same recurrence from the end.

    Where a_l is 0, what follows does not depend on what is before: so packed sentences are one recurrence.
    """

    @staticmethod
    def forward(ctx: Any, a_LD: Tensor, b_LD: Tensor, longest: int) -> Tensor:
        c_LD = _scan(a_LD, b_LD, longest)
        ctx.save_for_backward(a_LD, c_LD)
        ctx.longest = longest
        return c_LD

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        a_LD, c_LD = ctx.saved_tensors
        # ∂/∂b_l = grad_l + a_{l+1} ⊙ ∂/∂b_{l+1}, and ∂/∂a_l = c_{l-1} ⊙ ∂/∂b_l
        next_LD = F.pad(a_LD.narrow(-2, 1, a_LD.size(-2) - 1), (0, 0, 0, 1))
        grad_b_LD = _scan(next_LD.flip(-2), grads[0].flip(-2), ctx.longest).flip(-2)
        grad_a_LD = F.pad(c_LD.narrow(-2, 0, c_LD.size(-2) - 1), (0, 0, 1, 0)) * grad_b_LD
        return grad_a_LD, grad_b_LD, None


def _scan(a_LD: Tensor, b_LD: Tensor, longest: int) -> Tensor:
    """The recurrence in ⌈log₂ longest⌉ passes (Hillis and Steele 1986): after n of them, a position has taken in the
    2^n - 1 before it. `longest` is a bound for the positions until an a_l is 0.
    """
    n_rows, distance = a_LD.size(-2), 1
    while distance < min(longest, n_rows):
        n_late = n_rows - distance
        first_a_LD, late_a_LD = a_LD.narrow(-2, 0, distance), a_LD.narrow(-2, distance, n_late)
        first_b_LD, late_b_LD = b_LD.narrow(-2, 0, distance), b_LD.narrow(-2, distance, n_late)
        b_LD = torch.cat([first_b_LD, torch.addcmul(late_b_LD, late_a_LD, b_LD.narrow(-2, 0, n_late))], dim=-2)
        a_LD = torch.cat([first_a_LD, late_a_LD * a_LD.narrow(-2, 0, n_late)], dim=-2)
        distance *= 2
    return b_LD
