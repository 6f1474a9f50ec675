"""The largest few of many numbers, with a defined order of ties, and near ties.

Shapes: R rows, V vocabulary.
"""

import math

import torch
from torch import Tensor

# Ten times the largest difference that batch composition made to the score of a line in float32 (9.4e-6,
# test_invariance.py).
NEAR_TIE = 1e-4
# Numbers of a chunk. The 9 largest of 4 x 8,000 are found for 85 sentences in 0.46 ms, and in 0.64 in chunks of 64: the
# largest of a row of few numbers takes long, and so does a choice of many chunks. 160 divides many a vocabulary.
CHUNK = 160
FEW = 50_000  # numbers; of fewer, torch.topk takes less time than ten calls do


def largest(x_RV: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The `n` largest of each row, in order, and their indices; of equals any, as torch.topk gives them."""
    if is_small(x_RV, n):
        top = x_RV.topk(n)
        return top.values, top.indices
    values_Rn, ids_Rn, _ = largest_sums(x_RV.new_zeros(1, 1).expand(len(x_RV), 1), x_RV, n)
    return values_Rn, ids_Rn


def largest_two(x_RV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The two largest of each row, in order, and the index of the first; of equals any.

    The first is in the chunk with the largest maximum, and so is the second, or it is the maximum of another one.
    """
    n_vocab = x_RV.size(1)
    if is_small(x_RV, 2):
        top = x_RV.topk(2)
        return top.values[:, 0], top.values[:, 1], top.indices[:, 0]
    n_in_chunks = n_vocab - n_vocab % CHUNK
    heads_RC = x_RV[:, :n_in_chunks].view(len(x_RV), -1, CHUNK).amax(dim=2)
    if n_in_chunks < n_vocab:
        heads_RC = torch.cat([heads_RC, x_RV[:, n_in_chunks:].amax(dim=1, keepdim=True)], dim=1)
    heads_R2, chunk_R2 = heads_RC.topk(2)
    from_R = (chunk_R2[:, 0] * CHUNK).clamp_(max=n_vocab - CHUNK)  # what is left behind the chunks is shorter
    at_R = torch.arange(0, x_RV.numel(), n_vocab, device=x_RV.device) + from_R
    chunk_RK = x_RV.reshape(-1).unfold(0, CHUNK, 1).index_select(0, at_R)
    first_R1, which_R1 = chunk_RK.max(dim=1, keepdim=True)
    second_R = torch.maximum(chunk_RK.scatter_(1, which_R1, -math.inf).amax(dim=1), heads_R2[:, 1])
    return first_R1.squeeze(1), second_R, from_R + which_R1.squeeze(1)


def largest_sums(before_BN: Tensor, x_RV: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """The `n` largest `before + x` of each sentence, in order, their tokens and their hypotheses; of equals any.

    They are in the `n` chunks with the largest maxima, so that only these are sorted. What is left behind the chunks of
    a row is sorted with them.
    """
    n_sentences, n_live = before_BN.shape
    n_vocab = x_RV.size(1)
    n_chunks = n_vocab // CHUNK
    if is_small(x_RV, n):
        top = x_RV.topk(min(n, n_vocab))
        sums_BM = (before_BN.reshape(-1, 1) + top.values).view(n_sentences, -1)  # [R, M] -> [B, N·M]
        sums_Bn, at_Bn = sums_BM.topk(n)
        ids_Bn = top.indices.view(n_sentences, -1).gather(1, at_Bn)
        return sums_Bn, ids_Bn, at_Bn.div(top.indices.size(1), rounding_mode="floor")
    n_in_chunks = n_chunks * CHUNK
    x_RCK = x_RV[:, :n_in_chunks].view(-1, n_chunks, CHUNK)
    heads_BC = (before_BN.reshape(-1, 1) + x_RCK.amax(dim=2)).view(n_sentences, -1)  # [R, C] -> [B, N·C]
    chunk_Bn = heads_BC.topk(n, sorted=False).indices
    hypothesis_Bn = chunk_Bn.div(n_chunks, rounding_mode="floor")
    row_Bn = hypothesis_Bn + torch.arange(0, len(x_RV), n_live, device=x_RV.device)[:, None]
    first_Bn = (chunk_Bn - hypothesis_Bn * n_chunks) * CHUNK  # the token of a chunk
    at_Bn = row_Bn * n_vocab + first_Bn
    x_BnK = x_RV.reshape(-1).unfold(0, CHUNK, 1).index_select(0, at_Bn.flatten()).view(n_sentences, n, CHUNK)
    sums_BM = (x_BnK + before_BN.gather(1, hypothesis_Bn)[..., None]).flatten(1)
    if n_in_chunks < n_vocab:
        behind_BNM = before_BN[..., None] + torch.unflatten(x_RV[:, n_in_chunks:], 0, (n_sentences, n_live))
        sums_BM = torch.cat([sums_BM, behind_BNM.flatten(1)], dim=1)
    sums_Bn, at_Bn = sums_BM.topk(n)
    which_Bn = at_Bn.div(CHUNK, rounding_mode="floor").clamp_(max=n - 1)
    ids_Bn, beam_Bn = first_Bn.gather(1, which_Bn) + at_Bn % CHUNK, hypothesis_Bn.gather(1, which_Bn)
    if n_in_chunks < n_vocab:
        behind_Bn, n_behind = at_Bn - n * CHUNK, n_vocab - n_in_chunks
        is_behind_Bn = behind_Bn >= 0
        ids_Bn = torch.where(is_behind_Bn, n_in_chunks + behind_Bn % n_behind, ids_Bn)
        beam_Bn = torch.where(is_behind_Bn, behind_Bn.div(n_behind, rounding_mode="floor"), beam_Bn)
    return sums_Bn, ids_Bn, beam_Bn


def is_small(x_RV: Tensor, n: int) -> bool:
    """Whether one call of torch.topk takes less time than chunks do."""
    return x_RV.size(1) // CHUNK < 2 * n or x_RV.numel() < FEW


def lowest_of_the_largest(x_RV: Tensor, n: int) -> Tensor:
    """Indices of the `n` largest of each row, in no order; of equals the lowest indices."""
    least_R1 = x_RV.topk(n).values[:, -1:]
    rank_RV = (x_RV > least_R1).long() + (x_RV >= least_R1).long()  # 2 in, 1 as far as there is room, 0 out
    n_columns = x_RV.size(1)
    return (rank_RV * n_columns - torch.arange(n_columns, device=x_RV.device)).topk(n).indices


def is_near_tie(one_B: Tensor, other_B: Tensor, tolerance: float) -> Tensor:
    """Whether rounding may change the order of two numbers; never that of infinities."""
    return (one_B - other_B).abs() < tolerance
