"""One vector of each sentence, from those of its tokens.

Shapes: B batch, S source, L either length, D width, N sentences.
"""

import torch
from torch import Tensor

from transformer_cli.config.model import Pooling
from transformer_cli.models.layouts import AttentionLayout, PackedLayout, PaddedLayout


def source_layout(source_BS: Tensor, pad_id: int) -> PaddedLayout:
    return PaddedLayout(source_BS.size(1), (source_BS != pad_id)[:, None, None, :])


def pool(x_SD: Tensor, source: AttentionLayout, pooling: Pooling) -> Tensor:
    """One vector of each sentence, [N, D]: that of its first token, or the mean or the maximum of all."""
    assert pooling is not Pooling.segments
    if isinstance(source, PackedLayout):
        if source.groups is None:
            return _pool_by_offsets(x_SD, source, pooling)
        groups = torch.split(x_SD, [n_sentences * length for n_sentences, length in source.groups])
        each = [torch.unflatten(group, 0, (n, -1)) for group, (n, _) in zip(groups, source.groups, strict=True)]
        return torch.cat([_pool_whole(x_NLD, pooling) for x_NLD in each])
    if pooling is Pooling.first or source.mask_B11L is None:
        return _pool_whole(x_SD, pooling)
    is_real_BS1 = source.mask_B11L[:, 0, 0, :, None]
    if pooling is Pooling.max:
        return x_SD.masked_fill(~is_real_BS1, -torch.inf).amax(dim=1)
    weight_BS1 = is_real_BS1.to(x_SD.dtype)
    return (x_SD * weight_BS1).sum(dim=1) / weight_BS1.sum(dim=1)


def _pool_whole(x_NLD: Tensor, pooling: Pooling) -> Tensor:
    """`pool` of sentences without padding."""
    if pooling is Pooling.first:
        return x_NLD[:, 0]
    return x_NLD.amax(dim=1) if pooling is Pooling.max else x_NLD.mean(dim=1)


def _pool_by_offsets(x_SD: Tensor, source: PackedLayout, pooling: Pooling) -> Tensor:
    """`pool` where only the device knows the lengths; none is 0."""
    offsets_N = offsets(source)
    start_N, end_N = offsets_N[:-1], offsets_N[1:]
    if pooling is Pooling.first:
        return x_SD.index_select(0, start_N)
    sentence_S = torch.searchsorted(end_N, torch.arange(len(x_SD), device=x_SD.device, dtype=end_N.dtype), right=True)
    if pooling is Pooling.max:
        row_SD = sentence_S[:, None].expand_as(x_SD)
        return x_SD.new_full((len(start_N), x_SD.size(1)), -torch.inf).scatter_reduce(0, row_SD, x_SD, "amax")
    sum_ND = x_SD.new_zeros(len(start_N), x_SD.size(1)).index_add(0, sentence_S, x_SD)
    return sum_ND / (end_N - start_N)[:, None]


def offsets(source: PackedLayout) -> Tensor:
    assert source.cu_seqlens_N is not None
    return source.cu_seqlens_N
