"""The decoder alone: a stack that looks at nothing but its own past, and says what comes next.

The decoder of section 3.1 without its attention to a source, as Liu et al. 2018 (section 4.2.3) have it.

Shapes: B batch, T target, D width, V vocabulary. A tensor that begins with T holds sentences padded, [B, T, …], or
packed, [T, …].
"""

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from transformer_cli.models.embeddings import TokenEmbedding
from transformer_cli.models.layers import CausalLayer
from transformer_cli.models.sentences import Padded, Sentences
from transformer_cli.models.transformer import MODELS, Model, Stack, make_layer
from transformer_cli.schema import ModelConfig, Tying


class CausalStack(Stack):
    """Identical layers over the text so far."""

    layers: Sequence[CausalLayer]

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        layers = nn.ModuleList(make_layer(CausalLayer, config) for _ in range(config.n_decoder_layers))
        self.layers = cast(Sequence[CausalLayer], layers)  # torch's list does not tell what it holds

    def forward(self, x_TD: Tensor, target: Sentences) -> Tensor:
        x_TD, rotation = self.enter(x_TD, target)
        for layer in self.layers:
            x_TD = self.through(layer, x_TD, target, rotation)
        y_TD: Tensor = self.norm(x_TD)
        return y_TD


@MODELS.register("decoder")
class LanguageModel(Model):
    """From the ids of a text to logits of what comes after each of them.

    The output layer is the embedding, unless the config says tie_embeddings=none.
    """

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
        d_model, scaled = config.d_model, config.scale_embeddings
        self.embedding = TokenEmbedding(target_vocab_size, d_model, pad_id=target_pad_id, scaled=scaled)
        is_tied = config.tie_embeddings is not Tying.none
        self.own_output = (
            None if is_tied else TokenEmbedding(target_vocab_size, d_model, pad_id=target_pad_id, scaled=False)
        )
        self.decoder = CausalStack(config)

    @property
    def stacks(self) -> Sequence[Stack]:
        return [self.decoder]

    def forward(self, target_in_BT: Tensor) -> Tensor:
        """Logits of the token after each of `target_in_BT`, [B, T, V]; padding stands at the end."""
        return self._logits(target_in_BT, Padded(target_in_BT.size(1)))

    def predict(self, source_S: Tensor, source: Sentences, target_in_T: Tensor, target: Sentences) -> Tensor:
        """As every model does; there is no source."""
        return self._logits(target_in_T, target)

    def _logits(self, target_in_T: Tensor, target: Sentences) -> Tensor:
        y_TD = self.decoder(self.embedding(target_in_T), target)
        output = self.embedding if self.own_output is None else self.own_output
        return output.logits(y_TD, multiple_of=self.multiple_of)
