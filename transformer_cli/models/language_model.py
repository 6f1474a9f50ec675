"""The decoder alone: a stack that looks at nothing but its own past, and says what comes next.

The decoder of section 3.1 without its attention to a source, as Liu et al. 2018 (section 4.2.3) have it.

Shapes: B batch, T target, K target tokens of all texts, D width, V vocabulary, N beam, R = B × N. A tensor that begins
with T holds sentences padded, [B, T, …], or packed, [T, …].
"""

from collections.abc import Iterator, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from transformer_cli.config.model import ModelConfig, Tying
from transformer_cli.models.attention import KeysAndValues
from transformer_cli.models.cache import PastCache
from transformer_cli.models.embeddings import TokenEmbedding
from transformer_cli.models.layers import CausalLayer
from transformer_cli.models.layouts import Padded, Sentences
from transformer_cli.models.transformer import MODELS, Model, Stack, make_layer


class CausalStack(Stack):
    """Identical layers over the text so far."""

    layers: Sequence[CausalLayer]

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        layers = nn.ModuleList(make_layer(CausalLayer, config) for _ in range(config.n_decoder_layers))
        self.layers = cast(Sequence[CausalLayer], layers)  # torch's list does not tell what it holds

    def forward(self, x_TD: Tensor, target: Sentences, past: list[KeysAndValues] | None = None) -> Tensor:
        """`past` is given what each layer looks these tokens up by."""
        x_TD, rotation = self.enter(x_TD, target)
        for layer in self.layers:
            x_TD = self.through(layer, x_TD, target, rotation, past)
        y_TD: Tensor = self.norm(x_TD)
        return y_TD

    def step(self, x_RD: Tensor, cache: PastCache) -> Tensor:
        """`forward` for the newest token of each row."""
        x_RD, rotation = self.enter(x_RD, cache.newest)
        cache.grow()
        for i, layer in enumerate(self.layers):
            x_RD = layer.step(x_RD, i, cache, rotation)
        y_RD: Tensor = self.norm(x_RD)
        return y_RD


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

    @property
    def output_embedding(self) -> TokenEmbedding:
        return self.embedding if self.own_output is None else self.own_output

    def forward(self, target_in_BT: Tensor) -> Tensor:
        """Logits of the token after each of `target_in_BT`, [B, T, V]; padding stands at the end."""
        return self._logits(self._states(target_in_BT, Padded(target_in_BT.size(1))))

    def predict(self, source_S: Tensor, source: Sentences, target_in_T: Tensor, target: Sentences) -> Tensor:
        """As every model does; there is no source."""
        return self._logits(self._states(target_in_T, target))

    @torch.no_grad()
    def predict_in_parts(
        self, source_BS: Tensor, target_in_BT: Tensor, real_BT: Tensor, *, n_rows: int
    ) -> Iterator[Tensor]:
        """As `Transformer.predict_in_parts`, [K, V] in parts; there is no source."""
        y_BTD = self._states(target_in_BT, Padded(target_in_BT.size(1)))
        for y_KD in torch.split(y_BTD[real_BT], n_rows):  # [B, T, D] -> [K, D]
            yield self._logits(y_KD)

    @torch.no_grad()
    def start(self, text_BT: Tensor, *, beam_size: int, max_length: int) -> tuple[Tensor, PastCache]:
        """Read the beginnings of texts, as long as each other, in one pass.

        What comes back are the logits of the next token, [B, V], and a cache for texts of at most `max_length` tokens,
        these ones and BOS counted, with `beam_size` rows for each.
        """
        past: list[KeysAndValues] = []
        y_BTD = self._states(text_BT, Padded(text_BT.size(1)), past)
        cache = PastCache.empty(past, len(text_BT), beam_size=beam_size, max_length=max_length)
        cache.begin_with(past)
        return self._logits(y_BTD[:, -1]), cache

    @torch.no_grad()
    def step(self, ids_R: Tensor, cache: PastCache) -> Tensor:
        """Logits of the token after `ids_R`, the newest token of each row; `cache` grows by one."""
        return self._logits(self.decoder.step(self.embedding(ids_R), cache))

    def _states(self, target_in_T: Tensor, target: Sentences, past: list[KeysAndValues] | None = None) -> Tensor:
        y_TD: Tensor = self.decoder(self.embedding(target_in_T), target, past)
        return y_TD

    def _logits(self, y_TD: Tensor) -> Tensor:
        return self.output_embedding.logits(y_TD, multiple_of=self.multiple_of)
