"""The largest few of many numbers, with a defined order of ties, and near ties.

Shapes: R rows, V vocabulary.
"""

import torch
from torch import Tensor

# Ten times the largest difference that batch composition made to the score of a line in float32 (9.4e-6,
# test_invariance.py).
NEAR_TIE = 1e-4
# Of 128 rows of 8,000, 9 are found in 0.36 ms in chunks of 64; 0.64 of 32, 0.52 of 128, and 1.6 by torch.topk alone.
CHUNK = 64
FEW = 20_000  # numbers; of fewer, torch.topk takes less time than eight calls do


def largest(x_RV: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The `n` largest of each row, in order, and their indices; of equals any, as torch.topk gives them.

    They are in the `n` chunks of a row with the largest maxima, so that only these are sorted.
    """
    n_vocab = x_RV.size(1)
    n_chunks = n_vocab // CHUNK
    if n_chunks < 4 * n or x_RV.numel() < FEW:
        top = x_RV.topk(n)
        return top.values, top.indices
    heads_RC = x_RV[:, : n_chunks * CHUNK].view(-1, n_chunks, CHUNK).amax(dim=2)
    chunks_Rn = heads_RC.topk(n, sorted=False).indices
    ids_RM = (chunks_Rn[..., None] * CHUNK + torch.arange(CHUNK, device=x_RV.device)).flatten(1)
    if n_vocab > n_chunks * CHUNK:  # the remainder is no chunk
        tail_M = torch.arange(n_chunks * CHUNK, n_vocab, device=x_RV.device)
        ids_RM = torch.cat([ids_RM, tail_M.expand(len(x_RV), -1)], dim=1)
    top = x_RV.gather(1, ids_RM).topk(n)
    return top.values, ids_RM.gather(1, top.indices)


def lowest_of_the_largest(x_RV: Tensor, n: int) -> Tensor:
    """Indices of the `n` largest of each row, in no order; of equals the lowest indices."""
    least_R1 = x_RV.topk(n).values[:, -1:]
    rank_RV = (x_RV > least_R1).long() + (x_RV >= least_R1).long()  # 2 in, 1 as far as there is room, 0 out
    n_columns = x_RV.size(1)
    return (rank_RV * n_columns - torch.arange(n_columns, device=x_RV.device)).topk(n).indices


def is_near_tie(one_B: Tensor, other_B: Tensor, tolerance: float) -> Tensor:
    """Whether rounding may change the order of two numbers; never that of infinities."""
    return (one_B - other_B).abs() < tolerance
