"""Label-smoothed cross entropy (Vaswani et al. 2017, section 5.4; Szegedy et al. 2015, section 7).

Shapes: K target tokens that are real, V vocabulary.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def smoothed_nll(logits_KV: Tensor, targets_K: Tensor, *, smoothing: float) -> tuple[Tensor, Tensor]:
    """The loss that is trained on and the plain negative log-likelihood, both in nats, summed over the K tokens.

    The wanted distribution has 1 - smoothing at the target and smoothing / V at each of the V tokens: also at the
    target, as in torch's F.cross_entropy. The logits are used up: their memory becomes that of their gradient.
    """
    apply: Callable[..., tuple[Tensor, Tensor]] = _SmoothedNll.apply
    return apply(logits_KV, targets_K, smoothing)


class _SmoothedNll(torch.autograd.Function):
    """Computes the gradient along with the loss, in place.

    [K, V] is the largest tensor of all. Left to autograd, the logits, their log-softmax and two gradients of the same
    size would be held and moved; this way there is one.
    """

    @staticmethod
    def forward(ctx: Any, logits_KV: Tensor, targets_K: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        half = logits_KV.dtype in (torch.float16, torch.bfloat16)  # too coarse for a sum over the vocabulary
        z_KV, targets_K1 = logits_KV.float() if half else logits_KV, targets_K.unsqueeze(1)
        target_K1, mean_K1 = z_KV.gather(1, targets_K1), z_KV.mean(dim=1, keepdim=True)
        largest_K1 = z_KV.amax(dim=1, keepdim=True)
        exp_KV = z_KV.sub_(largest_K1).exp_()
        sum_K1 = exp_KV.sum(dim=1, keepdim=True)
        lse_K1 = largest_K1 + sum_K1.log()
        nll, uniform = (lse_K1 - target_K1).sum(), (lse_K1 - mean_K1).sum()

        # Softmax minus the wanted distribution.
        grad_KV = exp_KV.mul_(1 / sum_K1).sub_(smoothing / z_KV.size(1))
        grad_KV.scatter_add_(1, targets_K1, torch.full_like(target_K1, smoothing - 1))
        # In float16 smoothing / V is next to nothing: there the gradient is rounded only after it has been scaled.
        ctx.dtype = logits_KV.dtype
        ctx.save_for_backward(grad_KV if ctx.dtype is torch.float16 else grad_KV.to(ctx.dtype))
        ctx.mark_non_differentiable(nll)
        return (1 - smoothing) * nll + smoothing * uniform, nll

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (grad_KV,) = ctx.saved_tensors
        grad_KV.mul_(grads[0])
        return grad_KV.to(ctx.dtype), None, None  # torch refuses a second backward through a tensor that has changed
