"""Label-smoothed cross entropy (Vaswani et al. 2017, section 5.4; Szegedy et al. 2015, section 7).

Shapes: K target tokens that are real, V vocabulary.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_ROWS = 128  # of the vocabulary's width: 4 MB of 8,000 types


def smoothed_nll(
    logits_KV: Tensor, targets_K: Tensor, *, smoothing: float, has_padding: bool = False
) -> tuple[Tensor, Tensor]:
    """The loss that is trained on and the plain negative log-likelihood, both in nats, summed over the K tokens.

    The target distribution has 1 - smoothing at the target and smoothing / V at each of the V tokens: also at the
    target, as in torch's F.cross_entropy. The logits are used up: their memory becomes that of their gradient. With
    `has_padding` targets below 0 (IGNORE_INDEX) are ignored.
    """
    apply: Callable[..., tuple[Tensor, Tensor]] = _SmoothedNll.apply
    return apply(logits_KV, targets_K, smoothing, has_padding)


def masked_smoothed_nll(logits_KV: Tensor, targets_K: Tensor, *, smoothing: float) -> tuple[Tensor, Tensor]:
    """`smoothed_nll` for a compiler, which makes one kernel of it and one of its gradient: neither holds [K, V].

    Targets below 0 (IGNORE_INDEX) are ignored. Nothing is written in place.
    """
    is_target_K = targets_K >= 0
    z_KV = logits_KV.to(torch.promote_types(logits_KV.dtype, torch.float32))
    lse_K = z_KV.logsumexp(dim=1)
    # Not `gather`: the gradient of that is a tensor of zeros, and one number in each row.
    is_wanted_KV = torch.arange(z_KV.size(1), device=z_KV.device) == targets_K.unsqueeze(1)
    nll_K = torch.where(is_target_K, lse_K - torch.where(is_wanted_KV, z_KV, 0.0).sum(dim=1), 0.0)
    uniform_K = torch.where(is_target_K, lse_K - z_KV.mean(dim=1), 0.0)
    nll, uniform = nll_K.sum(), uniform_K.sum()
    return (1 - smoothing) * nll + smoothing * uniform, nll.detach()


class _SmoothedNll(torch.autograd.Function):
    """Computes the gradient along with the loss, in place.

    [K, V] is the largest tensor of all. Left to autograd, the logits, their log-softmax and two gradients of the same
    size would be held and moved; this way there is one, and on a CPU a few rows of it at a time stay in the cache.
    """

    @staticmethod
    def forward(
        ctx: Any, logits_KV: Tensor, targets_K: Tensor, smoothing: float, has_padding: bool
    ) -> tuple[Tensor, Tensor]:
        n_vocab = logits_KV.size(1)
        # float16 has too few small numbers for a gradient that is not yet scaled.
        grad_KV = logits_KV.float() if logits_KV.dtype is torch.float16 else logits_KV
        nll, uniform = logits_KV.new_zeros(2, dtype=torch.promote_types(logits_KV.dtype, torch.float32))
        rows = _ROWS if logits_KV.is_cpu else max(1, len(logits_KV))
        for z_RV, targets_R in zip(torch.split(grad_KV, rows), torch.split(targets_K, rows), strict=True):
            targets_R1 = targets_R.unsqueeze(1)
            log_p_RV = z_RV.log_softmax(dim=1, dtype=nll.dtype)
            if has_padding:  # as if its target were certain
                is_padding_R1 = targets_R1 < 0
                targets_R1 = targets_R1.clamp(min=0)
                log_p_RV.masked_fill_(is_padding_R1, 0.0)
            nll -= log_p_RV.gather(1, targets_R1).sum()
            uniform -= log_p_RV.sum() / n_vocab
            # Softmax minus the target distribution.
            p_RV = log_p_RV.exp_().sub_(smoothing / n_vocab)
            p_RV.scatter_add_(1, targets_R1, torch.full_like(targets_R1, smoothing - 1, dtype=p_RV.dtype))
            if has_padding:
                p_RV.masked_fill_(is_padding_R1, 0.0)
            z_RV.copy_(p_RV)
        ctx.dtype = logits_KV.dtype
        ctx.save_for_backward(grad_KV)
        ctx.mark_non_differentiable(nll)
        return (1 - smoothing) * nll + smoothing * uniform, nll

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (grad_KV,) = ctx.saved_tensors
        grad_KV.mul_(grads[0])
        return (
            grad_KV.to(ctx.dtype),
            None,
            None,
            None,
        )  # torch refuses a second backward through a tensor that has changed
