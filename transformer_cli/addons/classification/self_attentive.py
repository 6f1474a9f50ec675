"""The structured self-attentive sentence embedding (Lin et al. 2017).

Shapes: N sentences, L tokens, D width, A width of the hidden layer, R hops.
"""

import torch
from torch import Tensor

from transformer_cli.addons.embedding.pooling import Pooling
from transformer_cli.models.attention import initialise
from transformer_cli.models.linear import Linear


class SelfAttentivePooling(Pooling):
    """M = A H, flattened, with A = softmax(W_s2 tanh(W_s1 Hᵀ)): R weighted sums of the states (equations 6 and 7).

    Each row of A, a hop, has its own weights of the tokens. `penalty` times ‖A Aᵀ - I‖² (equation 8) is added to the
    loss of each sentence: it is 0 where each hop has one token, and no two hops the same.
    """

    def __init__(self, d_model: int, *, hops: int, width: int, penalty: float) -> None:
        super().__init__()
        self.to_hidden, self.to_hops = Linear(d_model, width, bias=False), Linear(width, hops, bias=False)
        initialise(self.to_hidden)
        initialise(self.to_hops)
        self.width, self.penalty = hops * d_model, penalty

    def of_sentences(self, x_NLD: Tensor, is_real_NL: Tensor) -> Tensor:
        weights_NRL = self.token_weights(x_NLD, is_real_NL)
        if self.penalty and self.penalties is not None:
            self.add_penalty(self.penalty * redundancy(weights_NRL, is_real_NL.any(dim=1)))
        return (weights_NRL.to(x_NLD.dtype) @ x_NLD).flatten(1)

    def token_weights(self, x_NLD: Tensor, is_real_NL: Tensor) -> Tensor:
        scores_NRL: Tensor = self.to_hops(self.to_hidden(x_NLD).tanh()).transpose(1, 2)
        is_padding_N1L = ~is_real_NL.unsqueeze(1)
        # The lowest number, not -inf: a sentence of nothing but padding would have no softmax.
        scores_NRL = scores_NRL.masked_fill(is_padding_N1L, torch.finfo(scores_NRL.dtype).min)
        return scores_NRL.softmax(dim=-1).masked_fill(is_padding_N1L, 0.0)


def redundancy(weights_NRL: Tensor, counts_N: Tensor) -> Tensor:
    """‖A Aᵀ - I‖² (Frobenius), summed over the sentences that count."""
    with torch.autocast(weights_NRL.device.type, enabled=False):
        weights_NRL = weights_NRL.to(torch.promote_types(weights_NRL.dtype, torch.float32))
        identity_RR = torch.eye(weights_NRL.size(1), dtype=weights_NRL.dtype, device=weights_NRL.device)
        each_N = (weights_NRL @ weights_NRL.mT - identity_RR).square().sum(dim=(1, 2))
        return (each_N * counts_N).sum()
