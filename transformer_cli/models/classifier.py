"""The encoder alone, and a class told from what it makes of a sentence.

Shapes: B batch, S source, L either length, D width, N sentences, C classes. A tensor that begins with S holds sentences
padded, [B, S, …], or packed, [S, …].
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from transformer_cli.config.model import ModelConfig, Pooling
from transformer_cli.models.attention import initialise
from transformer_cli.models.embeddings import TokenEmbedding
from transformer_cli.models.layers import Dropout
from transformer_cli.models.layouts import Packed, Padded, Sentences
from transformer_cli.models.linear import Linear
from transformer_cli.models.transformer import MODELS, Encoder, Model, Stack, Transformer


@MODELS.register("classifier")
class Classifier(Model):
    """Embeddings and encoder as the Transformer's, whose weights fit; one vector of each sentence; a linear layer."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        source_vocab_size: int,
        target_vocab_size: int,
        source_pad_id: int,
        target_pad_id: int,
    ) -> None:
        super().__init__()
        self.source_pad_id, self.pooling = source_pad_id, config.pooling
        self.source_embedding = TokenEmbedding(
            source_vocab_size, config.d_model, pad_id=source_pad_id, scaled=config.scale_embeddings
        )
        self.encoder = Encoder(config)
        self.dropout = Dropout(config.dropout)
        self.to_classes = Linear(config.d_model, target_vocab_size, is_output=True)
        initialise(self.to_classes)

    @property
    def stacks(self) -> Sequence[Stack]:
        return [self.encoder]

    def forward(self, source_BS: Tensor) -> Tensor:
        """Logits of the classes, [B, C]."""
        return self._logits(source_BS, padded(source_BS, self.source_pad_id))

    def predict(self, source_S: Tensor, source: Sentences, target_in_T: Tensor, target: Sentences) -> Tensor:
        """As every model does: each sentence has one target, its class. [N, C]"""
        return self._logits(source_S, source)

    def _logits(self, source_S: Tensor, source: Sentences) -> Tensor:
        memory_SD = self.encoder(self.source_embedding(source_S), source)
        logits_NC: Tensor = self.to_classes(self.dropout(pooled(memory_SD, source, self.pooling)))
        return logits_NC


def padded(source_BS: Tensor, pad_id: int) -> Padded:
    return Padded(source_BS.size(1), (source_BS != pad_id)[:, None, None, :])


def sentence_vectors(model: Transformer | Classifier, source_BS: Tensor, pooling: Pooling) -> Tensor:
    """What the encoder makes of each sentence, [B, D], without a translator's decoder or a classifier's output."""
    source = padded(source_BS, model.source_pad_id)
    return pooled(model.encoder(model.source_embedding(source_BS), source), source, pooling)


def pooled(x_SD: Tensor, source: Sentences, pooling: Pooling) -> Tensor:
    """One vector of each sentence, [N, D]: that of its first token, or the mean of all."""
    if isinstance(source, Packed):
        runs = torch.split(x_SD, [n_sentences * length for n_sentences, length in source.runs])
        each = [torch.unflatten(run, 0, (n, -1)) for run, (n, _) in zip(runs, source.runs, strict=True)]
        return torch.cat([x_NLD[:, 0] if pooling is Pooling.first else x_NLD.mean(dim=1) for x_NLD in each])
    assert isinstance(source, Padded)
    if pooling is Pooling.first:
        return x_SD[:, 0]
    if source.mask_B11L is None:
        return x_SD.mean(dim=1)
    weight_BS1 = source.mask_B11L[:, 0, 0, :, None].to(x_SD.dtype)
    return (x_SD * weight_BS1).sum(dim=1) / weight_BS1.sum(dim=1)
