"""A tagger: the encoder, a vector of each word, and a linear layer.

Shapes: B batch, S source, T words of all sentences, N sentences, D width, C labels. A tensor that begins with S holds
sentences padded, [B, S, …], or packed, [S, …].
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from transformer_cli.addons.embedding.pooling import sentence_starts, source_layout
from transformer_cli.config.model import ModelConfig, Vocabulary
from transformer_cli.models.attention import initialise
from transformer_cli.models.embeddings import make_embedding
from transformer_cli.models.inputs import Inputs
from transformer_cli.models.layers import Dropout
from transformer_cli.models.layouts import AttentionLayout, PackedLayout
from transformer_cli.models.linear import Linear
from transformer_cli.models.transformer import DEFAULT_MODEL_OPTIONS, Encoder, Model, ModelOptions


class Tagger(Model):
    """Embeddings and encoder are those of a Transformer, and can take over its weights."""

    kind = "tagger"

    def __init__(
        self, config: ModelConfig, source: Vocabulary, target: Vocabulary, options: ModelOptions = DEFAULT_MODEL_OPTIONS
    ) -> None:
        super().__init__()
        self.source_pad_id, self.pooling = source.pad_id, config.pooling
        self.source_embedding = make_embedding(config, source.size, pad_id=source.pad_id)
        self.encoder = Encoder(config, options)
        self.dropout = Dropout(config.dropout)
        self.to_classes = Linear(config.d_model, target.size, is_output=True)  # called as a classifier's output layer
        initialise(self.to_classes)

    def forward(self, source_BS: Tensor) -> Tensor:
        """Logits at every token, [B, S, C]; those of a word are `word_logits` of them."""
        memory_BSD = self.encoder(self.source_embedding(source_BS), source_layout(source_BS, self.source_pad_id))
        logits_BSC: Tensor = self.to_classes(self.dropout(memory_BSD))
        return logits_BSC

    def predict(self, source_S: Tensor, source: PackedLayout, word_ends_T: Tensor, words: PackedLayout) -> Tensor:
        """Logits of each word, [T, C]; `word_ends_T` is the position of its last token in its sentence."""
        memory_SD = self.encoder(self.source_embedding(source_S), source)
        first_T, last_T = word_rows(word_ends_T, source, words)
        vectors_TD = memory_SD[first_T] if self.pooling == "first" else span_means(memory_SD, first_T, last_T)
        logits_TC: Tensor = self.to_classes(self.dropout(vectors_TD))
        return logits_TC

    def encoder_input(self, source_S: Tensor, source: AttentionLayout) -> Tensor:
        x_SD: Tensor = self.source_embedding(source_S)
        return x_SD

    def logits(self, given: Inputs) -> Tensor:
        return self.predict(given.source_S, given.source, given.target_in_T, given.target)


def word_rows(word_ends_T: Tensor, source: PackedLayout, words: PackedLayout) -> tuple[Tensor, Tensor]:
    """The row of the first and of the last token of each word; words lie one behind the other in their sentence."""
    start_T = sentence_starts(source, words, len(word_ends_T), word_ends_T.device)
    last_T = start_T + word_ends_T
    after_T = torch.cat([start_T[:1], last_T[:-1] + 1])
    return torch.where(words.positions == 0, start_T, after_T), last_T


def span_means(x_SD: Tensor, first_T: Tensor, last_T: Tensor) -> Tensor:
    """The mean of the rows `first` to `last` of each span, [T, D]; the spans are in order and do not overlap."""
    row_S = torch.arange(len(x_SD), device=x_SD.device)
    span_S = torch.searchsorted(last_T, row_S).clamp(max=len(last_T) - 1)
    is_inside_S1 = ((row_S >= first_T[span_S]) & (row_S <= last_T[span_S])).unsqueeze(1)
    sum_TD = x_SD.new_zeros(len(last_T), x_SD.size(1)).index_add(0, span_S, torch.where(is_inside_S1, x_SD, 0.0))
    return sum_TD / (last_T - first_T + 1).unsqueeze(1)


def word_logits(logits_SC: Tensor, word_ends: Sequence[int], pooling: str) -> Tensor:
    """The logits of each word of one sentence, [T, C], pooled from those of its tokens."""
    last_T = torch.tensor(word_ends, device=logits_SC.device)
    first_T = torch.cat([last_T.new_zeros(1), last_T[:-1] + 1])
    return logits_SC[first_T] if pooling == "first" else span_means(logits_SC, first_T, last_T)
