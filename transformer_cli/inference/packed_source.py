"""Encoding without padding: on a CPU, the encoder computes the tokens of a batch alone.

Sentences that are searched together are padded to the longest, a fifth of all tokens in a file sorted by length. For
the encoder they are packed, in parts that stay in a processor's cache; the decoder attends to padded keys and values.

Shapes: B sentences, S source, K tokens of a part, H heads, E head width.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_cli.models.attention import KeysAndValues
from transformer_cli.models.layouts import PackedLayout
from transformer_cli.models.transformer import Transformer

_MOST_TOKENS = 1024  # of a part, unless one sentence has more
# Tokens of a part are a multiple of this, with fillers: oneDNN compiles a kernel for each number of rows.
_MULTIPLE = 64
# Padding that has to be saved for each length: attention is called for sentences of one length.
_WORTH_A_CALL = 8


def project_packed_memory(model: Transformer, source_BS: Tensor) -> list[KeysAndValues] | None:
    """Keys and values of the source for each decoder layer, [B, S, H, E]; None where packing would not pay.

    They are zero at padding, and in sentences of padding alone.
    """
    is_real_BS = source_BS != model.source_pad_id
    lengths = is_real_BS.sum(dim=1).tolist()
    n_padding = source_BS.numel() - sum(lengths)
    is_worth_it = any(lengths) and n_padding > _WORTH_A_CALL * len(set(lengths))
    if not is_worth_it or bool((is_real_BS[:, 1:] > is_real_BS[:, :-1]).any()):  # padding between tokens
        return None
    n_sentences, n_source = source_BS.shape
    memory: list[KeysAndValues] = []
    for sentences in _parts(lengths):
        part = [lengths[sentence] for sentence in sentences]
        n_fillers = -sum(part) % _MULTIPLE
        groups = [(len(list(equal)), length) for length, equal in groupby(part)] + [(n_fillers, 1)] * (n_fillers > 0)
        layout = PackedLayout.of_groups(groups, source_BS.device)
        row_K = torch.tensor(sentences).repeat_interleave(torch.tensor(part))
        position_K = layout.positions[: len(row_K)]
        ids_K = F.pad(source_BS[row_K, position_K], (0, n_fillers), value=model.source_pad_id)
        found = model.decoder.project_memory(model.encode(ids_K, layout))
        memory = memory or [_zeros(n_sentences, n_source, each) for each in found]
        at_K = position_K * n_sentences + row_K
        for padded, packed in zip(memory, found, strict=True):
            for x_BSHE, x_KHE in zip(padded, packed, strict=True):
                x_BSHE.transpose(0, 1).flatten(0, 1).index_copy_(0, at_K, x_KHE[: len(row_K)])
    return memory


def _parts(lengths: Sequence[int]) -> Iterator[list[int]]:
    """The sentences that have tokens, the longest first, so many at a time as a part has."""
    part: list[int] = []
    n_tokens = 0
    for sentence in sorted((i for i, length in enumerate(lengths) if length), key=lambda i: -lengths[i]):
        if part and n_tokens + lengths[sentence] > _MOST_TOKENS:
            yield part
            part, n_tokens = [], 0
        part.append(sentence)
        n_tokens += lengths[sentence]
    if part:
        yield part


def _zeros(n_sentences: int, n_source: int, like: KeysAndValues) -> KeysAndValues:
    """Keys and values, [B, S, H, E], with all sentences of one position together in memory, as a cache has them."""
    k, v = (x_KHE.new_zeros(n_source, n_sentences, *x_KHE.shape[1:]).transpose(0, 1) for x_KHE in like)
    return k, v
