"""What a layer requires of a cache of keys and values. The caches themselves are in `inference.kv_cache`.

Shapes: as in `models.attention`.
"""

from typing import Protocol

from torch import Tensor

from transformer_cli.models.layouts import SequenceLayout


class SelfAttentionCache(Protocol):
    """Keys and values of the target tokens so far: all that a language model needs."""

    @property
    def mask_GHNM(self) -> Tensor | None:
        """Additive: 0 where a row may attend, -inf elsewhere. H may be 1."""

    @property
    def next_layout(self) -> SequenceLayout:
        """The position of the next token, the same for all rows."""

    def extend(self) -> None:
        """Reserve the memory of one more token of each row."""

    def append(self, layer: int, k_RHE: Tensor, v_RHE: Tensor) -> tuple[Tensor, Tensor]:
        """Store keys and values of the newest tokens; return those that they attend to, [G, H, M, E]."""


class EncoderDecoderCache(SelfAttentionCache, Protocol):
    """The cache of a decoder: also the keys and values of the source, of each layer."""

    @property
    def memory_keys_BHSE(self) -> list[Tensor]: ...

    @property
    def memory_values_BHSE(self) -> list[Tensor]: ...

    @property
    def source_mask_BHNS(self) -> Tensor:
        """Additive; N is 1, and H may be."""

    @property
    def states_RD(self) -> list[Tensor]:
        """The state of each layer that is recurrent, which the layer writes over; zero before a search."""

    @property
    def keeps_attention(self) -> bool:
        """Whether `keep_attention` is to be called in the last layer."""

    def keep_attention(self, attention_BNS: Tensor) -> None:
        """Store the attention weights of the newest tokens over the source, averaged over heads."""
