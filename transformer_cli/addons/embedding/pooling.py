"""One vector of each sentence, from those of its tokens.

Shapes: B batch, S source, T words or tokens of all sentences, L either length, D width, N sentences, P width of what is
pooled, R rows of weights.
"""

from itertools import accumulate

import torch
from torch import Tensor

from transformer_cli.data.transfer import to_device
from transformer_cli.models.layouts import AttentionLayout, PackedLayout, PaddedLayout
from transformer_cli.models.penalty import Penalised


class Pooling(Penalised):
    """A pooling of a classifier: a subclass has a `width` and defines `of_sentences`, for sentences that are padded.

    It is a part of the model: its parameters are trained and saved. What it passes to `add_penalty` is added to the
    loss of training.
    """

    width: int  # of the vector of a sentence

    def of_sentences(self, x_NLD: Tensor, is_real_NL: Tensor) -> Tensor:
        """The vector of each sentence, [N, P], from the states of its tokens, which are where `is_real_NL` is True."""
        raise NotImplementedError

    def token_weights(self, x_NLD: Tensor, is_real_NL: Tensor) -> Tensor | None:
        """The weights with which tokens are summed, [N, R, L], for pictures; None where there are none."""
        return None

    def forward(self, x_SD: Tensor, source: AttentionLayout, segment_S: Tensor | None = None) -> Tensor:
        """The vector of each sentence, [N, P].

        `segment_S` is the text of its pair, 0 or 1, that each token belongs to; None where the model reads no pairs.
        """
        return torch.cat([self.of_sentences(*part) for part in padded_sentences(x_SD, source)])


class FixedPooling(Pooling):
    """The state of the first token, or the mean or the maximum of all, without weights."""

    def __init__(self, kind: str, d_model: int) -> None:
        super().__init__()
        self.kind, self.width = kind, d_model

    def forward(self, x_SD: Tensor, source: AttentionLayout, segment_S: Tensor | None = None) -> Tensor:
        return pool(x_SD, source, self.kind)


def source_layout(source_BS: Tensor, pad_id: int) -> PaddedLayout:
    return PaddedLayout(source_BS.size(1), (source_BS != pad_id)[:, None, None, :])


def padded_sentences(x_SD: Tensor, source: AttentionLayout) -> list[tuple[Tensor, Tensor]]:
    """The states of sentences, [N, L, D], and which are those of tokens, [N, L]: in one part, or one of each length."""
    if isinstance(source, PaddedLayout):
        is_real_BS = x_SD.new_ones(x_SD.shape[:2], dtype=torch.bool)
        if source.mask_B11L is not None:
            is_real_BS = source.mask_B11L[:, 0, 0, :].expand_as(is_real_BS)
        return [(x_SD, is_real_BS)]
    if source.groups is not None:
        return [(x_NLD, x_NLD.new_ones(x_NLD.shape[:2], dtype=torch.bool)) for x_NLD in _groups(x_SD, source)]
    # Only the device knows the lengths: all sentences get as much room as the longest can have.
    n_sentences, length = len(offsets(source)) - 1, source.max_length
    slot_S = _sentence_of_each(x_SD, source).long() * length + source.positions.long()
    x_ND = x_SD.new_zeros(n_sentences * length, x_SD.size(1)).index_copy(0, slot_S, x_SD)
    is_real_N = torch.zeros(len(x_ND), dtype=torch.bool, device=x_SD.device).index_fill(0, slot_S, True)
    return [(x_ND.view(n_sentences, length, -1), is_real_N.view(n_sentences, length))]


def pool(x_SD: Tensor, source: AttentionLayout, kind: str) -> Tensor:
    """One vector of each sentence, [N, D]: that of its first token, or the mean or the maximum of all."""
    if isinstance(source, PackedLayout):
        if source.groups is None:
            return _pool_by_offsets(x_SD, source, kind)
        return torch.cat([_pool_whole(x_NLD, kind) for x_NLD in _groups(x_SD, source)])
    if kind == "first" or source.mask_B11L is None:
        return _pool_whole(x_SD, kind)
    is_real_BS1 = source.mask_B11L[:, 0, 0, :, None]
    if kind == "max":
        return x_SD.masked_fill(~is_real_BS1, -torch.inf).amax(dim=1)
    weight_BS1 = is_real_BS1.to(x_SD.dtype)
    return (x_SD * weight_BS1).sum(dim=1) / weight_BS1.sum(dim=1)


def _groups(x_SD: Tensor, source: PackedLayout) -> list[Tensor]:
    """The sentences of each length, [N, L, D]."""
    assert source.groups is not None
    parts = torch.split(x_SD, [n_sentences * length for n_sentences, length in source.groups])
    return [torch.unflatten(part, 0, (n, -1)) for part, (n, _) in zip(parts, source.groups, strict=True)]


def _pool_whole(x_NLD: Tensor, kind: str) -> Tensor:
    """`pool` of sentences without padding."""
    if kind == "first":
        return x_NLD[:, 0]
    return x_NLD.amax(dim=1) if kind == "max" else x_NLD.mean(dim=1)


def _pool_by_offsets(x_SD: Tensor, source: PackedLayout, kind: str) -> Tensor:
    """`pool` where only the device knows the lengths; none is 0."""
    offsets_N = offsets(source)
    start_N, end_N = offsets_N[:-1], offsets_N[1:]
    if kind == "first":
        return x_SD.index_select(0, start_N)
    sentence_S = _sentence_of_each(x_SD, source)
    if kind == "max":
        row_SD = sentence_S[:, None].expand_as(x_SD)
        return x_SD.new_full((len(start_N), x_SD.size(1)), -torch.inf).scatter_reduce(0, row_SD, x_SD, "amax")
    sum_ND = x_SD.new_zeros(len(start_N), x_SD.size(1)).index_add(0, sentence_S, x_SD)
    return sum_ND / (end_N - start_N)[:, None]


def _sentence_of_each(x_SD: Tensor, source: PackedLayout) -> Tensor:
    """The number of the sentence that each row is of, [S]."""
    end_N = offsets(source)[1:]
    return torch.searchsorted(end_N, torch.arange(len(x_SD), device=x_SD.device, dtype=end_N.dtype), right=True)


def offsets(source: PackedLayout) -> Tensor:
    assert source.cu_seqlens_N is not None
    return source.cu_seqlens_N


def sentence_starts(source: PackedLayout, target: PackedLayout, n_targets: int, device: torch.device) -> Tensor:
    """The row of the first token of the sentence that each target belongs to, [T]."""
    if source.groups is None:
        assert source.cu_seqlens_N is not None
        assert target.cu_seqlens_N is not None
        lengths_N = (target.cu_seqlens_N[1:] - target.cu_seqlens_N[:-1]).long()
        return source.cu_seqlens_N[:-1].long().repeat_interleave(lengths_N, output_size=n_targets)
    assert target.groups is not None
    begins = accumulate((n * length for n, length in source.groups), initial=0)
    parts = [
        (begin + torch.arange(n) * length).repeat_interleave(n_in_each)
        for begin, (n, length), (_, n_in_each) in zip(begins, source.groups, target.groups, strict=False)
    ]
    return to_device(torch.cat(parts), device)
