"""Incremental decoding of a language model: token by token on a key-value cache.

Shapes: B prompts, T tokens, R rows = B × beam, D width, V vocabulary.
"""

import torch
from torch import Tensor

from transformer_cli.addons.language_models.language_model import LanguageModel
from transformer_cli.inference.kv_cache import KVCache
from transformer_cli.models.attention import KeysAndValues
from transformer_cli.models.layouts import PaddedLayout


class LanguageModelDecoder:
    """Incremental decoding of a language model."""

    def __init__(self, model: LanguageModel) -> None:
        self.model = model

    @torch.no_grad()
    def start(self, text_BT: Tensor, *, beam_size: int, max_length: int) -> tuple[Tensor, KVCache]:
        """Encode prompts of one length in one pass.

        Returns the logits of the next token, [B, V], and a cache for texts of at most `max_length` tokens, prompt and
        BOS included, with `beam_size` rows for each.
        """
        past: list[KeysAndValues] = []
        y_BTD = self.model.decode(text_BT, PaddedLayout(text_BT.size(1)), past)
        window = self.model.decoder.attention_window
        cache = KVCache.empty(past, len(text_BT), beam_size=beam_size, max_length=max_length, window=window)
        cache.prefill(past)
        return self.model.output_embedding.logits(y_BTD[:, -1]), cache

    @torch.no_grad()
    def step(self, ids_R: Tensor, cache: KVCache) -> Tensor:
        """Logits of the token after `ids_R`, the newest token of each row; `cache` grows by one position."""
        y_RD = self.model.decoder.step(self.model.embedding(ids_R), cache)
        return self.model.output_embedding.logits(y_RD)
