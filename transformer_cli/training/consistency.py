"""Consistency regularization: each batch passes twice, with different noise, and predictions that differ cost.

R-Drop (Wu et al. 2021) draws the dropout of the two passes apart. SimCut (Gao et al. 2022) also cuts tokens from the
input of the second pass: their embeddings are zero. Both passes are computed as one batch of twice as many sentences.

Shapes: S source and T target tokens of all pairs, K targets, V vocabulary, R some rows of K.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from transformer_cli.config.train import Sharding, TrainSettings
from transformer_cli.data.batching import Batch
from transformer_cli.models.embeddings import TokenEmbedding
from transformer_cli.models.inputs import Inputs
from transformer_cli.models.kernel_choice import PackedKernel
from transformer_cli.models.transformer import Model, TokenModel
from transformer_cli.training.forward import inputs
from transformer_cli.training.word_dropout import WordDropout, embeddings_scaled

BLOCK = 1 << 22  # logits that are computed at a time: 16 MB
LEAST_PAIRS = 256  # of rows in a block: fewer make small products of the gradient of a large vocabulary
PAIRED_ROWS = 32  # of each pass: the six blocks of these rows fit a cache of 4 MB with 6,000 types


def rdrop_loss(
    logits_2KV: Tensor, targets_K: Tensor, *, smoothing: float, alpha: float, has_padding: bool = False
) -> tuple[Tensor, Tensor]:
    """The loss of R-Drop and the plain negative log-likelihood, both in nats, summed over the K targets.

    With P and Q of the two passes: the mean of their label-smoothed cross entropies, plus alpha / 2 times the mean of
    KL(P ‖ Q) and KL(Q ‖ P). That is half of equation 4 of the paper, which adds the two cross entropies: so that the
    loss and the learning rate compare with those of plain training. The NLL is the mean of both passes.

    The first K rows are of the first pass. They are used up: their memory becomes that of their gradient. With
    `has_padding` targets below 0 (IGNORE_INDEX) are ignored.
    """
    return _apply(logits_2KV, targets_K, smoothing, alpha, True, has_padding)


def simcut_loss(logits_2KV: Tensor, targets_K: Tensor, *, smoothing: float, alpha: float) -> tuple[Tensor, Tensor]:
    """The loss of SimCut (equation 5 of its paper) and the NLL of the first pass, as `rdrop_loss`.

    The label-smoothed cross entropy of the first pass, P, plus alpha times KL(P ‖ Q), where Q is of the pass whose
    input was cut. The gradient passes through both.
    """
    return _apply(logits_2KV, targets_K, smoothing, alpha, False, False)


def _apply(*args: Any) -> tuple[Tensor, Tensor]:
    apply: Callable[..., tuple[Tensor, Tensor]] = _ConsistencyLoss.apply
    return apply(*args)


class _ConsistencyLoss(torch.autograd.Function):
    """Computes the gradient along with the loss and in place, a few rows at a time on a CPU, as `smoothed_nll` does.

    With logits Y and Z of the passes, D = Y - Z and T the smoothed target distribution, the terms that both passes
    contribute to one gradient are collected, so that few passes over [R, V] are left:

        R-Drop   4 / alpha · dY = P (D - Σ P D + 1 + 2 / alpha) - Q - 2 / alpha · T, and dZ with P, Y and Q, Z swapped
        SimCut   1 / alpha · dY = P (D - Σ P D + 1 / alpha) - 1 / alpha · T, and 1 / alpha · dZ = Q - P

    D differs from log P - log Q by a number for each row, which cancels in these.
    """

    @staticmethod
    def forward(
        ctx: Any,
        logits_2KV: Tensor,
        targets_K: Tensor,
        smoothing: float,
        alpha: float,
        is_symmetric: bool,
        has_padding: bool,
    ) -> tuple[Tensor, Tensor]:
        n_vocab = logits_2KV.size(1)
        grad_2KV = logits_2KV.float() if logits_2KV.dtype is torch.float16 else logits_2KV
        wide = torch.promote_types(logits_2KV.dtype, torch.float32)
        nll, uniform, divergence = logits_2KV.new_zeros(3, dtype=wide)
        rows = PAIRED_ROWS if logits_2KV.is_cpu else max(1, len(targets_K))
        parts = zip(
            *(torch.split(half_KV, rows) for half_KV in grad_2KV.chunk(2)), torch.split(targets_K, rows), strict=True
        )
        weight = alpha / 2 if is_symmetric else alpha  # of the divergence
        share = 0.5 if is_symmetric else 1.0  # of the cross entropy of the first pass
        factor = alpha / 4 if is_symmetric else alpha
        of_target = share / factor
        of_uniform = of_target * smoothing / n_vocab
        for y_RV, z_RV, targets_R in parts:
            targets_R1 = targets_R.unsqueeze(1)
            if has_padding:  # with equal logits in both passes, and no part in the rest
                is_padding_R1 = targets_R1 < 0
                targets_R1 = targets_R1.clamp(min=0)
                y_RV.masked_fill_(is_padding_R1, 0.0)
                z_RV.masked_fill_(is_padding_R1, 0.0)
                is_real_R = ~is_padding_R1.squeeze(1)
            off_R1 = torch.full_like(targets_R1, of_target * (smoothing - 1), dtype=wide)
            first_RV, second_RV = y_RV.to(wide), z_RV.to(wide)  # in float32 the logits themselves
            p_RV, q_RV = first_RV.softmax(dim=1), second_RV.softmax(dim=1)
            lse_R, other_lse_R = _log_sum_exp(first_RV, p_RV), _log_sum_exp(second_RV, q_RV)
            for x_RV, its_lse_R, its_share in ((first_RV, lse_R, share), (second_RV, other_lse_R, 1 - share)):
                if its_share:
                    of_target_R, of_all_R = (
                        its_lse_R - x_RV.gather(1, targets_R1).squeeze(1),
                        its_lse_R - x_RV.mean(dim=1),
                    )
                    if has_padding:
                        of_target_R, of_all_R = of_target_R * is_real_R, of_all_R * is_real_R
                    nll += its_share * of_target_R.sum()
                    uniform += its_share * of_all_R.sum()
            d_RV = first_RV.sub_(second_RV)
            mean_R1 = torch.linalg.vecdot(p_RV, d_RV).unsqueeze(1)
            if is_symmetric:
                other_mean_R1 = torch.linalg.vecdot(q_RV, d_RV).unsqueeze(1)
                divergence += (mean_R1 - other_mean_R1).sum() / 2
                torch.sub(other_mean_R1 + (1 + of_target), d_RV, out=second_RV)
                d_RV.sub_(mean_R1 - (1 + of_target))
                torch.addcmul(torch.rsub(q_RV, -of_uniform), p_RV, d_RV, out=d_RV)
                torch.addcmul(torch.rsub(p_RV, -of_uniform), q_RV, second_RV, out=second_RV)
                second_RV.scatter_add_(1, targets_R1, off_R1)
            else:
                divergence += (mean_R1.squeeze(1) - lse_R + other_lse_R).sum()
                d_RV.sub_(mean_R1 - of_target).mul_(p_RV).sub_(of_uniform)
                torch.sub(q_RV, p_RV, out=second_RV)
            d_RV.scatter_add_(1, targets_R1, off_R1)
            if has_padding:
                d_RV.masked_fill_(is_padding_R1, 0.0)
                second_RV.masked_fill_(is_padding_R1, 0.0)
            y_RV.copy_(d_RV.mul_(factor))  # in float32 these are the same memory
            z_RV.copy_(second_RV.mul_(factor))
        ctx.dtype = logits_2KV.dtype
        ctx.save_for_backward(grad_2KV)
        ctx.mark_non_differentiable(nll)
        return (1 - smoothing) * nll + smoothing * uniform + weight * divergence, nll

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        (grad_2KV,) = ctx.saved_tensors
        if not grads[0].is_cpu or grads[0] != 1:  # that of a block is 1, which saves a pass over its logits
            grad_2KV.mul_(grads[0])
        return grad_2KV.to(ctx.dtype), None, None, None, None, None


def _log_sum_exp(x_RV: Tensor, p_RV: Tensor) -> Tensor:
    """The log-sum-exp of the logits whose softmax is `p_RV`: at the largest logit, which never underflows."""
    return x_RV.amax(dim=1) - p_RV.amax(dim=1).log()


def loss_by_blocks(
    y_2KD: Tensor, targets_K: Tensor, output: TokenEmbedding, loss_of: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    """`loss_of` the logits that the output layer makes of `y_2KD`, and of the targets, a block at a time.

    The logits of both passes are hundreds of megabytes, which a CPU would fetch from its memory again and again.
    """
    apply: Callable[..., tuple[Tensor, Tensor]] = _LossByBlocks.apply
    trained = [parameter for parameter in output.parameters() if parameter.requires_grad]
    return apply(y_2KD, targets_K, output, loss_of, *trained)


class _LossByBlocks(torch.autograd.Function):
    """Computes the gradients of the states and of the output layer along with the loss."""

    @staticmethod
    def forward(
        ctx: Any, y_2KD: Tensor, targets_K: Tensor, output: TokenEmbedding, loss_of: Any, *trained: nn.Parameter
    ) -> tuple[Tensor, Tensor]:
        rows = max(LEAST_PAIRS, BLOCK // (2 * len(output.weight)))
        grad_2KD, sums = torch.empty_like(y_2KD), y_2KD.new_zeros(2)
        grads = [torch.zeros_like(parameter) for parameter in trained]
        blocks = zip(
            *(torch.split(half_KD, rows) for half_KD in (*y_2KD.chunk(2), *grad_2KD.chunk(2))),
            torch.split(targets_K, rows),
            strict=True,
        )
        for first_RD, second_RD, to_first_RD, to_second_RD, targets_R in blocks:
            with torch.enable_grad():
                block_2RD = torch.cat([first_RD, second_RD]).requires_grad_()
                loss, nll = loss_of(output.training_logits(block_2RD), targets_R)
                # Zeros for what these logits do not use: the projection behind a narrow embedding.
                of_block_2RD, *of_trained = torch.autograd.grad(loss, [block_2RD, *trained], materialize_grads=True)
            for out_RD, part_RD in zip((to_first_RD, to_second_RD), of_block_2RD.chunk(2), strict=True):
                out_RD.copy_(part_RD)
            if grads:  # none of a frozen layer
                torch._foreach_add_(grads, of_trained)
            sums += torch.stack((loss.detach(), nll))
        ctx.save_for_backward(grad_2KD, *grads)
        loss, nll = sums.unbind()
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad_2KD, *of_trained = (saved * grads[0] for saved in ctx.saved_tensors)
        return grad_2KD, None, None, None, *of_trained


class TwoPasses:
    """The loss of a batch that passes twice. SimCut's program never cuts BOS and EOS; we spare tags, too."""

    def __init__(self, settings: TrainSettings, words: WordDropout) -> None:
        self.settings, self.words = settings, words

    def loss(self, model: Model, batch: Batch, device: torch.device, kernel: PackedKernel) -> tuple[Tensor, Tensor]:
        """Computes the loss of both passes; to be called within autocast."""
        given = inputs(batch, device, kernel)
        settings, twice = self.settings, given.twice()
        kind, alpha = (rdrop_loss, settings.rdrop) if settings.rdrop else (simcut_loss, settings.simcut)
        loss_of = partial(kind, smoothing=settings.label_smoothing, alpha=alpha)
        with self.cuts(model, twice), self.words.applied(model, twice):
            if not self._goes_by_blocks(model, device):
                return loss_of(model.logits(twice), given.target_out_T)
            assert isinstance(model, TokenModel)
            y_2KD = model.states(twice)
        return loss_by_blocks(y_2KD, given.target_out_T, model.output_embedding, loss_of)

    def cuts(self, model: Model, twice: Inputs) -> AbstractContextManager[None]:
        """Cuts tokens of the second pass with SimCut in the block."""
        if not self.settings.simcut:
            return nullcontext()
        source, target = (partial(self._kept, spared=spared) for spared in self.words.spared)
        return embeddings_scaled(model, twice, source, target)

    def _goes_by_blocks(self, model: Model, device: torch.device) -> bool:
        """Whether the logits of all tokens are never there at once: on a CPU, with all weights on this rank."""
        is_whole = self.settings.sharding is Sharding.none and isinstance(model, TokenModel)
        return device.type == "cpu" and is_whole

    def _kept(self, ids_2L: Tensor, *, spared: Tensor) -> Tensor:
        """False where a token is cut, [2L]: of the second pass, with the probability `train.token_cutoff`."""
        first_L, second_L = ids_2L.chunk(2)
        drawn_L = torch.rand(second_L.shape, device=second_L.device) >= self.settings.token_cutoff
        kept_L = drawn_L | torch.isin(second_L, spared)
        return torch.cat([torch.ones_like(first_L, dtype=torch.bool), kept_L])
