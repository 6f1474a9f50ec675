"""Force-decoding: the log-probability of each token of given translations, and their cross-attention.

Shapes: B pairs, S source and T target, both with their EOS, K target tokens of all pairs, V vocabulary.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.data.transfer import to_device
from transformer_cli.errors import CheckpointError
from transformer_cli.inference.batch_size import BatchTokens, forward_tokens
from transformer_cli.inference.precision import dtype_of, overflow_named
from transformer_cli.models.ensemble import AnyModel, AnyTokenModel
from transformer_cli.models.memory import SplitBatches

ROWS = 256  # of logits at a time: few enough for a processor's cache
ROWS_ON_ACCELERATOR = 4096  # enough to fill a GPU

_NOT_FINITE = (
    "the model: its scores are not numbers (NaN or infinite). Its training diverged or its file is damaged:"
    " use an earlier checkpoint"
)

IdPair = tuple[Sequence[int], Sequence[int]]  # ids of source and target, both without EOS


@dataclass(frozen=True)
class ForcedScores:
    """Scores of a given translation; T counts its EOS, S that of the source."""

    log_probs: list[float]  # natural logarithms: of each target token, then of EOS
    attention_TS: Tensor | None = None  # cross-attention of each token; a row sums to 1

    @property
    def log_prob(self) -> float:
        return math.fsum(self.log_probs)


@dataclass(frozen=True)
class ForcedDistribution:
    """What the model predicts where one token of a given translation stands."""

    log_prob: float  # of the token, natural logarithm
    rank: int  # 1 + how many tokens of the vocabulary are likelier
    mean_log_prob: float  # over the vocabulary, which label smoothing adds to the loss
    likeliest: list[tuple[int, float]]  # id and log-probability of tokens, the likeliest first


@torch.inference_mode()
def force_decode(
    model: AnyTokenModel,
    pairs: Sequence[IdPair],
    tokenizers: Tokenizers,
    *,
    device: torch.device,
    batch_tokens: BatchTokens,
    with_attention: bool = False,
) -> list[ForcedScores]:
    """Scores of each of `pairs`, in order, which depend on batch composition only by the kernels' rounding.

    The log-probability of a hypothesis equals the one that its search found. `batch_tokens` bounds rows × longest side;
    a longer pair is a batch of its own. Attention, of a model with a source, costs another pass. Raises CheckpointError
    if logits are not finite.
    """
    found: dict[int, ForcedScores] = {}
    was_training = model.training
    model.eval()
    split = SplitBatches(lower="batch_tokens", alone="Shorten the longest sentences, or choose another device=")
    score = partial(_score, model, tokenizers, device, with_attention=with_attention)
    try:
        with overflow_named(dtype_of(model)):
            for batch in _batches(pairs, max_tokens=forward_tokens(batch_tokens, device)):
                scores = split([pairs[i] for i in batch], score)
                found.update(zip(batch, scores, strict=True))
    finally:
        model.train(was_training)
    return [found[i] for i in range(len(pairs))]


@torch.inference_mode()
def force_decode_distributions(
    model: AnyModel, pair: IdPair, tokenizers: Tokenizers, *, device: torch.device, n_likeliest: int
) -> list[ForcedDistribution]:
    """The distributions at each token of a given translation, its EOS last, as `force_decode` computes them.

    Raises CheckpointError if logits are not finite.
    """
    found: list[ForcedDistribution] = []
    was_training = model.training
    model.eval()
    try:
        with overflow_named(dtype_of(model)):
            source_BS, target_in_BT, real_K, ids_K = _inputs(tokenizers, device, [pair])
            n_rows = ROWS if device.type == "cpu" else ROWS_ON_ACCELERATOR
            parts = model.predict_in_parts(source_BS, target_in_BT, real_K, n_rows=n_rows)
            for logits_KV, part_K in zip(parts, torch.split(ids_K, n_rows), strict=True):
                found += _distributions(logits_KV, part_K, n_likeliest)
    finally:
        model.train(was_training)
    if not all(math.isfinite(one.log_prob) for one in found):
        raise CheckpointError(_NOT_FINITE)
    return found


def _distributions(logits_KV: Tensor, ids_K: Tensor, n_likeliest: int) -> list[ForcedDistribution]:
    log_p_K = _subtracted(_chosen_and_sum(logits_KV, ids_K).cpu()).tolist()
    log_p_KV = logits_KV.log_softmax(dim=-1, dtype=torch.promote_types(logits_KV.dtype, torch.float32))
    top = log_p_KV.topk(min(n_likeliest, log_p_KV.size(1)))
    rank_K = 1 + (log_p_KV > log_p_KV.gather(1, ids_K[:, None])).sum(dim=1)
    columns = (log_p_K, rank_K.tolist(), log_p_KV.double().mean(dim=1).tolist())
    options = zip(top.indices.tolist(), top.values.double().tolist(), strict=True)
    return [
        ForcedDistribution(log_p, rank, mean, list(zip(ids, values, strict=True)))
        for log_p, rank, mean, (ids, values) in zip(*columns, options, strict=True)
    ]


def _batches(pairs: Sequence[IdPair], *, max_tokens: int) -> Iterator[list[int]]:
    """Numbers of pairs, the longest first: rows × longest side ≤ `max_tokens`, or a single pair."""
    lengths = [(len(source) + 1, len(target) + 1) for source, target in pairs]  # both with EOS
    batch: list[int] = []
    longest = 0
    for i in sorted(range(len(pairs)), key=lambda i: lengths[i], reverse=True):
        longest = max(longest, *lengths[i])
        if batch and (len(batch) + 1) * longest > max_tokens:
            yield batch
            batch, longest = [], max(lengths[i])
        batch.append(i)
    if batch:
        yield batch


def _score(
    model: AnyTokenModel,
    tokenizers: Tokenizers,
    device: torch.device,
    pairs: Sequence[IdPair],
    *,
    with_attention: bool,
) -> list[ForcedScores]:
    source_BS, target_in_BT, real_K, ids_K = _inputs(tokenizers, device, pairs)
    n_tokens = [len(ids) + 1 for _, ids in pairs]
    n_rows = ROWS if device.type == "cpu" else ROWS_ON_ACCELERATOR
    parts = model.predict_in_parts(source_BS, target_in_BT, real_K, n_rows=n_rows)
    each = zip(parts, torch.split(ids_K, n_rows), strict=True)
    log_p_K = _subtracted(torch.cat([_chosen_and_sum(logits_KV, part_K) for logits_KV, part_K in each], dim=1).cpu())
    if not log_p_K.isfinite().all():
        raise CheckpointError(_NOT_FINITE)
    attention: list[Tensor | None] = [None] * len(pairs)
    if with_attention:
        attention_BTS = model.alignment(source_BS, target_in_BT).cpu()
        attention_BTS = attention_BTS.to(torch.promote_types(attention_BTS.dtype, torch.float32))
        attention = [
            attention_BTS[b, :n, : len(ids) + 1] for b, (n, (ids, _)) in enumerate(zip(n_tokens, pairs, strict=True))
        ]
    return [
        ForcedScores(one.tolist(), weights_TS)
        for one, weights_TS in zip(torch.split(log_p_K, n_tokens), attention, strict=True)
    ]


def _inputs(
    tokenizers: Tokenizers, device: torch.device, pairs: Sequence[IdPair]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Source and decoder input of each pair; the indices of the K real tokens in the latter, and what follows each."""
    source, target = tokenizers.source, tokenizers.target
    source_BS = to_device(_padded([[*ids, *source.end_ids] for ids, _ in pairs], source.pad_id), device)
    target_in_BT = to_device(_padded([[target.bos_id, *ids] for _, ids in pairs], target.pad_id), device)
    # Found on the host: on a device, the number of real tokens would have to be waited for.
    n_tokens = torch.tensor([len(ids) + 1 for _, ids in pairs])
    real_BT = torch.arange(target_in_BT.size(1))[None, :] < n_tokens[:, None]
    real_K = to_device(real_BT.flatten().nonzero().squeeze(1), device)
    ids_K = to_device(torch.tensor([i for _, ids in pairs for i in (*ids, target.eos_id)]), device)
    return source_BS, target_in_BT, real_K, ids_K


def _chosen_and_sum(logits_KV: Tensor, ids_K: Tensor) -> Tensor:
    """The logit of each token, and the logarithm of the sum over the vocabulary, [2, K], in float32 at least."""
    logits_KV = logits_KV.to(torch.promote_types(logits_KV.dtype, torch.float32))
    return torch.stack([logits_KV.gather(1, ids_K[:, None]).squeeze(1), logits_KV.logsumexp(dim=-1)])


def _subtracted(both_2K: Tensor) -> Tensor:
    """Log-probabilities in float64."""
    chosen_K, sum_K = both_2K.double().unbind()
    return chosen_K - sum_K


def _padded(rows: Sequence[Sequence[int]], pad_id: int) -> Tensor:
    padded_BL = torch.full((len(rows), max(map(len, rows))), pad_id)
    for row_L, ids in zip(padded_BL, rows, strict=True):
        row_L[: len(ids)] = torch.tensor(ids)
    return padded_BL
