"""What a model says of translations that are given: the log-probability of each token, and where it looked.

Shapes: B pairs, S source and T target, both with their EOS, K target tokens of all pairs, V vocabulary.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.errors import CheckpointError
from transformer_cli.models.ensemble import AnyModel
from transformer_cli.models.language_model import LanguageModel
from transformer_cli.models.memory import in_halves

ROWS = 256  # of logits at a time: few enough for a processor's cache

Pair = tuple[Sequence[int], Sequence[int]]  # ids of source and target, both without EOS


@dataclass(frozen=True)
class ReadBack:
    """A given translation; T counts its EOS, S that of the source."""

    log_probs: list[float]  # natural logarithms: of each target token, then of EOS
    attention_TS: Tensor | None = None  # where each of them comes from; a row sums to 1

    @property
    def log_prob(self) -> float:
        return math.fsum(self.log_probs)


@torch.inference_mode()
def read_back(
    model: AnyModel | LanguageModel,
    pairs: Sequence[Pair],
    tokenizers: Tokenizers,
    *,
    device: torch.device,
    batch_tokens: int,
    with_attention: bool = False,
) -> list[ReadBack]:
    """One for each of `pairs`, in order; its numbers do not depend on its neighbours, but for the kernels' rounding.

    The log-probability of what a search has found is what the search said of it. `batch_tokens` bounds rows × longest
    side; a longer pair is read alone. Attention costs another pass. A language model reads the targets alone, and
    tells of no attention. Raises CheckpointError if logits are not numbers.
    """
    found: dict[int, ReadBack] = {}
    was_training = model.training
    model.eval()
    try:
        for batch in _batches(pairs, max_cells=batch_tokens):
            read = in_halves(
                [pairs[i] for i in batch],
                lambda part: _read(model, part, tokenizers, device, with_attention=with_attention),
                lower="batch_tokens",
                alone="Shorten the longest sentences, or choose another device=",
            )
            found.update(zip(batch, read, strict=True))
    finally:
        model.train(was_training)
    return [found[i] for i in range(len(pairs))]


def _batches(pairs: Sequence[Pair], *, max_cells: int) -> Iterator[list[int]]:
    """Numbers of pairs, the longest first: rows × longest side ≤ `max_cells`, or a single pair."""
    lengths = [(len(source) + 1, len(target) + 1) for source, target in pairs]  # both with EOS
    batch: list[int] = []
    longest = 0
    for i in sorted(range(len(pairs)), key=lambda i: lengths[i], reverse=True):
        longest = max(longest, *lengths[i])
        if batch and (len(batch) + 1) * longest > max_cells:
            yield batch
            batch, longest = [], max(lengths[i])
        batch.append(i)
    if batch:
        yield batch


def _read(
    model: AnyModel | LanguageModel,
    pairs: Sequence[Pair],
    tokenizers: Tokenizers,
    device: torch.device,
    *,
    with_attention: bool,
) -> list[ReadBack]:
    source, target = tokenizers.source, tokenizers.target
    source_BS = _padded([[*ids, source.eos_id] for ids, _ in pairs], source.pad_id).to(device)
    target_in_BT = _padded([[target.bos_id, *ids] for _, ids in pairs], target.pad_id).to(device)
    n_tokens = [len(ids) + 1 for _, ids in pairs]
    real_BT = torch.arange(target_in_BT.size(1))[None, :] < torch.tensor(n_tokens)[:, None]
    ids_K = torch.tensor([i for _, ids in pairs for i in (*ids, target.eos_id)], device=device)

    real_BT = real_BT.to(device)
    if isinstance(model, LanguageModel):
        parts = model.predict_in_parts(target_in_BT, real_BT, n_rows=ROWS)
    else:
        parts = model.predict_in_parts(source_BS, target_in_BT, real_BT, n_rows=ROWS)
    log_p = [_log_probs(logits_KV, part_K) for logits_KV, part_K in zip(parts, torch.split(ids_K, ROWS), strict=True)]
    log_p_K = torch.cat(log_p).cpu()
    if not log_p_K.isfinite().all():
        raise CheckpointError(
            "the model: its scores are not numbers (NaN or infinite). Its training diverged or its file is damaged:"
            " use an earlier checkpoint"
        )
    attention: list[Tensor | None] = [None] * len(pairs)
    if with_attention:
        assert not isinstance(model, LanguageModel)
        attention_BTS = model.alignment(source_BS, target_in_BT).cpu()
        attention = [
            attention_BTS[b, :n, : len(ids) + 1] for b, (n, (ids, _)) in enumerate(zip(n_tokens, pairs, strict=True))
        ]
    return [
        ReadBack(one.tolist(), looked) for one, looked in zip(torch.split(log_p_K, n_tokens), attention, strict=True)
    ]


def _log_probs(logits_KV: Tensor, ids_K: Tensor) -> Tensor:
    """In float64, of what is float32 at least."""
    logits_KV = logits_KV.to(torch.promote_types(logits_KV.dtype, torch.float32))
    chosen_K = logits_KV.gather(1, ids_K[:, None]).squeeze(1)
    return chosen_K.double() - logits_KV.logsumexp(dim=-1).double()


def _padded(rows: Sequence[Sequence[int]], pad_id: int) -> Tensor:
    padded_BL = torch.full((len(rows), max(map(len, rows))), pad_id)
    for row_L, ids in zip(padded_BL, rows, strict=True):
        row_L[: len(ids)] = torch.tensor(ids)
    return padded_BL
