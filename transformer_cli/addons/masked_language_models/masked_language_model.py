"""A masked language model: the encoder alone, and an output layer that is tied to its embeddings (Devlin et al. 2019).

Shapes: B batch, S source, T masked tokens of all sentences, D width, V vocabulary. A tensor that begins with S holds
sentences padded, [B, S, …], or packed, [S, …].
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_cli.addons.embedding.pooling import sentence_starts, source_layout
from transformer_cli.config.model import ModelConfig, Vocabulary
from transformer_cli.models.attention import initialise
from transformer_cli.models.embeddings import make_embedding
from transformer_cli.models.inputs import Inputs
from transformer_cli.models.layers import make_norm
from transformer_cli.models.layouts import AttentionLayout
from transformer_cli.models.linear import Linear
from transformer_cli.models.transformer import DEFAULT_MODEL_OPTIONS, Encoder, Model, ModelOptions


class MaskedLanguageModel(Model):
    """Embeddings and encoder are those of a Transformer, and can take over its weights."""

    kind = "encoder"

    def __init__(self, config: ModelConfig, source: Vocabulary, options: ModelOptions = DEFAULT_MODEL_OPTIONS) -> None:
        super().__init__()
        self.source_pad_id, self.mask_id, multiple_of = source.pad_id, source.size, options.vocab_multiple_of
        self.source_embedding = make_embedding(
            config, source.size, pad_id=source.pad_id, is_output=True, multiple_of=multiple_of, bias=True
        )
        self.mask_embedding = nn.Parameter(torch.empty(config.d_model))
        nn.init.normal_(self.mask_embedding, std=1.0 if config.scale_embeddings else config.d_model**-0.5)
        self.encoder = Encoder(config, options)
        self.head = Head(config)

    def forward(self, source_BS: Tensor) -> Tensor:
        """Logits of what stands at every token, [B, S, V]; a token that is not masked is known to the model."""
        return self.predict(self.encode(source_BS, source_layout(source_BS, self.source_pad_id)))

    def encode(self, source_S: Tensor, source: AttentionLayout) -> Tensor:
        memory_SD: Tensor = self.encoder(self.encoder_input(source_S, source), source)
        return memory_SD

    def predict(self, memory_TD: Tensor) -> Tensor:
        """Logits of the token at each of these states of the encoder, [T, V]."""
        return self.source_embedding.training_logits(self.head(memory_TD))

    def encoder_input(self, source_S: Tensor, source: AttentionLayout) -> Tensor:
        """Embeddings as they enter the encoder."""
        is_mask_S = source_S == self.mask_id
        x_SD: Tensor = self.source_embedding(source_S.masked_fill(is_mask_S, self.source_pad_id))
        return torch.where(is_mask_S.unsqueeze(-1), self.mask_embedding.to(x_SD.dtype), x_SD)

    def logits(self, given: Inputs) -> Tensor:
        """Logits of the masked tokens of a batch, [T, V], whose positions are `target_in_T`."""
        memory_SD = self.encode(given.source_S, given.source)
        positions_T = given.target_in_T
        start_T = sentence_starts(given.source, given.target, len(positions_T), positions_T.device)
        return self.predict(memory_SD[start_T + positions_T])


class Head(nn.Module):
    """A layer between the encoder and the output layer, as in BERT: a projection, GELU, and a norm."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.to_hidden = Linear(config.d_model, config.d_model)
        self.norm = make_norm(config)
        initialise(self.to_hidden)

    def forward(self, x_TD: Tensor) -> Tensor:
        y_TD: Tensor = self.norm(F.gelu(self.to_hidden(x_TD)))
        return y_TD
