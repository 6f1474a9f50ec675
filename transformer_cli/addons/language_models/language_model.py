"""The decoder alone: a language model, which predicts each token of a text from those before it.

The decoder of section 3.1 without cross-attention, as in Liu et al. 2018 (section 4.2.3).

Shapes: B batch, T target, K target tokens of all texts, D width, V vocabulary, R rows of a search. A tensor that begins
with T holds sentences padded, [B, T, …], or packed, [T, …].
"""

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from transformer_cli.config.model import DecoderStart, ModelConfig
from transformer_cli.errors import ConfigError
from transformer_cli.models.attention import KeysAndValues
from transformer_cli.models.cache_protocol import SelfAttentionCache
from transformer_cli.models.embeddings import TokenEmbedding, make_embedding, make_output
from transformer_cli.models.inputs import Inputs
from transformer_cli.models.layers import CausalLayer
from transformer_cli.models.layouts import AttentionLayout, PaddedLayout
from transformer_cli.models.transformer import DEFAULT_MODEL_OPTIONS, ModelOptions, Stack, TokenModel, make_layer


class CausalStack(Stack):
    """Identical layers over the text so far."""

    layers: Sequence[CausalLayer]

    def __init__(self, config: ModelConfig, options: ModelOptions = DEFAULT_MODEL_OPTIONS) -> None:
        super().__init__(config, options)
        layers = nn.ModuleList(make_layer(CausalLayer, config) for _ in range(config.n_decoder_layers))
        self.layers = cast(Sequence[CausalLayer], layers)  # torch's list does not declare the type of its items

    def forward(self, x_TD: Tensor, target: AttentionLayout, past: list[KeysAndValues] | None = None) -> Tensor:
        """Append the keys and values of each layer to `past`, if given."""
        x_TD, rotation = self.call(self.embed_positions, x_TD, target)
        for layer in self.layers:
            x_TD = self.run_layer(layer, x_TD, target, rotation, past)
        y_TD: Tensor = self.norm(x_TD)
        return y_TD

    def step(self, x_RD: Tensor, cache: SelfAttentionCache) -> Tensor:
        """`forward` for the newest token of each row; the cache holds keys and values of all others."""
        x_RD, rotation = self.embed_positions(x_RD, cache.next_layout)
        cache.extend()
        for i, layer in enumerate(self.layers):
            x_RD = layer.step(x_RD, i, cache, rotation)
        y_RD: Tensor = self.norm(x_RD)
        return y_RD


class LanguageModel(TokenModel):
    """A decoder-only model: ids of a text to logits of the token after each of them.

    The output layer is the embedding, unless the config gives it its own with tie_embeddings=none or source_target.
    """

    kind = "decoder"

    def __init__(
        self, config: ModelConfig, *, vocab_size: int, pad_id: int, options: ModelOptions = DEFAULT_MODEL_OPTIONS
    ) -> None:
        super().__init__()
        if config.decoder_start is DecoderStart.zero:
            raise ConfigError("model.decoder_start=zero: for models that translate. Leave it out")
        is_tied, multiple_of = not config.tie_embeddings.has_own_output, options.vocab_multiple_of
        bias = config.output_bias and is_tied
        self.embedding = make_embedding(
            config, vocab_size, pad_id=pad_id, is_output=is_tied, multiple_of=multiple_of, bias=bias
        )
        self.own_output: TokenEmbedding | None = None
        if not is_tied:
            self.own_output = make_output(config, vocab_size, pad_id=pad_id, multiple_of=multiple_of)
        self.decoder = CausalStack(config, options)

    @property
    def output_embedding(self) -> TokenEmbedding:
        return self.embedding if self.own_output is None else self.own_output

    def forward(self, target_in_BT: Tensor) -> Tensor:
        """Logits of the token after each of `target_in_BT`, [B, T, V]; padding is at the end."""
        return self.predict(target_in_BT, PaddedLayout(target_in_BT.size(1)))

    def predict(self, target_in_T: Tensor, target: AttentionLayout) -> Tensor:
        """Logits of the token after each of `target_in_T`: [T, V] of packed texts, [B, T, V] of padded ones."""
        return self.output_embedding.training_logits(self.decode(target_in_T, target))

    def logits(self, given: Inputs) -> Tensor:
        return self.predict(given.target_in_T, given.target)

    def states(self, given: Inputs) -> Tensor:
        return self.decode(given.target_in_T, given.target)

    def padded_states(self, source_BS: Tensor, target_in_BT: Tensor) -> Tensor:
        return self.decode(target_in_BT, PaddedLayout(target_in_BT.size(1)))

    def decode(self, target_in_T: Tensor, target: AttentionLayout, past: list[KeysAndValues] | None = None) -> Tensor:
        """The output of the last layer. Append the keys and values of each layer to `past`, if given."""
        y_TD: Tensor = self.decoder(self.embedding(target_in_T), target, past)
        return y_TD
