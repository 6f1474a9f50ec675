"""A text classifier: the encoder, a vector of each sentence, and a linear layer.

Shapes: B batch, S source, L either length, D width, N sentences, C classes. A tensor that begins with S holds sentences
padded, [B, S, …], or packed, [S, …].
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from transformer_cli.config.model import ModelConfig, Pooling
from transformer_cli.models.attention import initialise
from transformer_cli.models.embeddings import make_embedding
from transformer_cli.models.layers import Dropout
from transformer_cli.models.layouts import AttentionLayout, PackedLayout, PaddedLayout
from transformer_cli.models.linear import Linear
from transformer_cli.models.transformer import DEFAULT_OPTIONS, Encoder, Model, ModelOptions, Stack, Transformer


class Classifier(Model):
    """Embeddings and encoder are those of a Transformer, and can take over its weights."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        vocab_size: int,
        pad_id: int,
        n_classes: int,
        options: ModelOptions = DEFAULT_OPTIONS,
    ) -> None:
        super().__init__()
        self.source_pad_id, self.pooling = pad_id, config.pooling
        self.source_embedding = make_embedding(config, vocab_size, pad_id=pad_id)
        self.encoder = Encoder(config, options)
        self.dropout = Dropout(config.dropout)
        self.to_classes = Linear(config.d_model, n_classes, is_output=True)
        initialise(self.to_classes)

    @property
    def stacks(self) -> Sequence[Stack]:
        return [self.encoder]

    def forward(self, source_BS: Tensor) -> Tensor:
        """Logits of the classes, [B, C]."""
        return self.predict(source_BS, source_layout(source_BS, self.source_pad_id))

    def predict(self, source_S: Tensor, source: AttentionLayout) -> Tensor:
        """Logits of the classes of each sentence, [N, C]."""
        memory_SD = self.encoder(self.source_embedding(source_S), source)
        logits_NC: Tensor = self.to_classes(self.dropout(pool(memory_SD, source, self.pooling)))
        return logits_NC


def source_layout(source_BS: Tensor, pad_id: int) -> PaddedLayout:
    return PaddedLayout(source_BS.size(1), (source_BS != pad_id)[:, None, None, :])


def sentence_vectors(model: Transformer | Classifier, source_BS: Tensor, pooling: Pooling) -> Tensor:
    """The encoder's output of each sentence, pooled, [B, D]."""
    source = source_layout(source_BS, model.source_pad_id)
    return pool(model.encoder(model.source_embedding(source_BS), source), source, pooling)


def pool(x_SD: Tensor, source: AttentionLayout, pooling: Pooling) -> Tensor:
    """One vector of each sentence, [N, D]: that of its first token, or the mean of all."""
    if isinstance(source, PackedLayout):
        if source.groups is None:
            return _pool_by_offsets(x_SD, source, pooling)
        groups = torch.split(x_SD, [n_sentences * length for n_sentences, length in source.groups])
        each = [torch.unflatten(group, 0, (n, -1)) for group, (n, _) in zip(groups, source.groups, strict=True)]
        return torch.cat([x_NLD[:, 0] if pooling is Pooling.first else x_NLD.mean(dim=1) for x_NLD in each])
    if pooling is Pooling.first:
        return x_SD[:, 0]
    if source.mask_B11L is None:
        return x_SD.mean(dim=1)
    weight_BS1 = source.mask_B11L[:, 0, 0, :, None].to(x_SD.dtype)
    return (x_SD * weight_BS1).sum(dim=1) / weight_BS1.sum(dim=1)


def _pool_by_offsets(x_SD: Tensor, source: PackedLayout, pooling: Pooling) -> Tensor:
    """`pool` where only the device knows the lengths; none is 0."""
    assert source.cu_seqlens_N is not None
    start_N, end_N = source.cu_seqlens_N[:-1], source.cu_seqlens_N[1:]
    if pooling is Pooling.first:
        return x_SD.index_select(0, start_N)
    sentence_S = torch.searchsorted(end_N, torch.arange(len(x_SD), device=x_SD.device, dtype=end_N.dtype), right=True)
    sum_ND = x_SD.new_zeros(len(start_N), x_SD.size(1)).index_add(0, sentence_S, x_SD)
    return sum_ND / (end_N - start_N)[:, None]
