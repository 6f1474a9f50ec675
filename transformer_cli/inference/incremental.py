"""Incremental decoding: a model run token by token on a key-value cache, as a search calls it.

A decoder has `start`, which encodes the source and returns a cache, and `step`, from the newest token of each row and
the cache to the logits of the next one.

Shapes: B sentences, S source, T target, R rows = B × beam, D width, V vocabulary, K tokens of a shortlist.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from transformer_cli.inference.kv_cache import DecoderCache, EnsembleCache, StaticCache, StaticEnsembleCache
from transformer_cli.inference.packed_source import project_packed_memory
from transformer_cli.models.attention import KeysAndValues
from transformer_cli.models.embeddings import RestrictedOutput
from transformer_cli.models.ensemble import AnyModel, Ensemble, mean
from transformer_cli.models.transformer import Transformer


class TransformerDecoder:
    """Incremental decoding of an encoder-decoder."""

    def __init__(self, model: Transformer, *, packs_source: bool = False) -> None:
        self.model, self.packs_source = model, packs_source

    @torch.no_grad()
    def start(
        self, source_BS: Tensor, *, beam_size: int, max_length: int, keeps_attention: bool = False
    ) -> DecoderCache:
        """A cache for at most `max_length` calls of `step` on `beam_size` rows for each source sentence.

        With `keeps_attention` it holds, after each step, the attention weights of the newest tokens.
        """
        return DecoderCache.start(
            *self._encode(source_BS),
            beam_size=beam_size,
            max_length=max_length,
            keeps_attention=keeps_attention,
            window=self.model.decoder.attention_window,
            state_width=self.model.decoder.state_width,
        )

    @torch.no_grad()
    def static_cache(
        self,
        example_BS: Tensor,
        *shape: int,
        beam_size: int,
        max_length: int,
        keeps_attention: bool = False,
        device: torch.device | None = None,
    ) -> StaticCache:
        """A cache of `shape` (sentences, source tokens) whose tensors keep their addresses; `restart` begins with it.

        `example_BS` is any source, whose device it is on; on the device "meta" it takes no memory, but has its sizes.
        """
        memory, _ = self._encode(example_BS[:1, :1])
        like = [(k.to(device or k.device), v.to(device or v.device)) for k, v in memory]
        return StaticCache.allocate(
            like,
            *shape,
            beam_size=beam_size,
            max_length=max_length,
            keeps_attention=keeps_attention,
            window=self.model.decoder.attention_window,
            state_width=self.model.decoder.state_width,
        )

    @torch.no_grad()
    def restart(self, source_BS: Tensor, cache: StaticCache) -> None:
        """Put other sentences into `cache`, at most as many as it has room for, and padded to its length."""
        cache.restart(*self._encode(source_BS))

    def _encode(self, source_BS: Tensor) -> tuple[list[KeysAndValues], Tensor]:
        source = self.model.source_layout(source_BS)
        assert source.mask_B11L is not None
        if self.packs_source and (memory := project_packed_memory(self.model, source_BS)) is not None:
            return memory, source.mask_B11L
        return self.model.decoder.project_memory(self.model.encode(source_BS, source)), source.mask_B11L

    def step(self, ids_R: Tensor, cache: DecoderCache) -> Tensor:
        """Logits of the token after `ids_R`, the newest token of each row, [R, V]; `cache` grows by one position.

        All rows of a sentence have to begin with the same token: in the first step identical rows have one of logits.
        """
        return self._step(ids_R, cache, self.model.output_embedding.logits)

    def restricted_outputs(self, ids_BK: Tensor, is_behind_BK: Tensor) -> list[RestrictedOutput]:
        """The output layer for the tokens `ids_BK` of each sentence; those that are `is_behind_BK` have no chance."""
        return [self.model.output_embedding.restricted(ids_BK, is_behind_BK)]

    def restricted_step(self, ids_R: Tensor, cache: DecoderCache, outputs: Sequence[RestrictedOutput]) -> Tensor:
        """`step` with the logits of these tokens alone, [R, K]."""
        return self._step(ids_R, cache, outputs[0])

    @torch.no_grad()
    def _step(self, ids_R: Tensor, cache: DecoderCache, logits: Callable[[Tensor], Tensor]) -> Tensor:
        ids_X = ids_R[:: cache.n_identical_rows]
        return logits(self.model.decoder.step(self.model.target_embedding(ids_X), cache))


class EnsembleDecoder:
    """Incremental decoding of several models side by side; the logits are their mean."""

    def __init__(self, members: Sequence[Transformer], *, packs_source: bool = False) -> None:
        self.members = [TransformerDecoder(member, packs_source=packs_source) for member in members]

    def start(
        self, source_BS: Tensor, *, beam_size: int, max_length: int, keeps_attention: bool = False
    ) -> EnsembleCache:
        """Starts a search as `TransformerDecoder.start` does."""
        return EnsembleCache(
            [
                member.start(source_BS, beam_size=beam_size, max_length=max_length, keeps_attention=keeps_attention)
                for member in self.members
            ]
        )

    def static_cache(self, example_BS: Tensor, *shape: int, **options: Any) -> StaticEnsembleCache:
        """Allocates a cache as `TransformerDecoder.static_cache` does."""
        return StaticEnsembleCache([member.static_cache(example_BS, *shape, **options) for member in self.members])

    def restart(self, source_BS: Tensor, cache: StaticEnsembleCache) -> None:
        """Restarts a search as `TransformerDecoder.restart` does."""
        for member, its_cache in zip(self.members, cache.caches, strict=True):
            member.restart(source_BS, its_cache)

    def step(self, ids_R: Tensor, cache: EnsembleCache) -> Tensor:
        """Computes a step as `TransformerDecoder.step` does, [R, V]."""
        each = zip(self.members, cache.caches, strict=True)
        return mean_of_rows([member.step(ids_R, its_cache) for member, its_cache in each])

    def restricted_outputs(self, ids_BK: Tensor, is_behind_BK: Tensor) -> list[RestrictedOutput]:
        """The output layer of each member."""
        return [output for member in self.members for output in member.restricted_outputs(ids_BK, is_behind_BK)]

    def restricted_step(self, ids_R: Tensor, cache: EnsembleCache, outputs: Sequence[RestrictedOutput]) -> Tensor:
        """Computes a step as `TransformerDecoder.restricted_step` does, [R, K]."""
        each = zip(self.members, cache.caches, outputs, strict=True)
        return mean_of_rows([member.restricted_step(ids_R, its_cache, [out]) for member, its_cache, out in each])


def of_each_row(logits_XV: Tensor, n_rows: int) -> Tensor:
    """The logits of a step for each row, [R, V]: in the first one identical rows have the same."""
    n_identical = n_rows // len(logits_XV)
    return logits_XV if n_identical == 1 else logits_XV.repeat_interleave(n_identical, dim=0)


def mean_of_rows(each: Sequence[Tensor]) -> Tensor:
    """The mean of the members' logits, of which some have one row for identical ones."""
    n_rows = max(map(len, each))
    return mean([of_each_row(logits_XV, n_rows) for logits_XV in each])


IncrementalDecoder: TypeAlias = TransformerDecoder | EnsembleDecoder


def incremental_decoder(model: AnyModel, *, packs_source: bool = False) -> IncrementalDecoder:
    """`packs_source`: the encoder computes no padding, see `packed_source`; for a CPU."""
    if isinstance(model, Ensemble):
        return EnsembleDecoder(model.members, packs_source=packs_source)
    return TransformerDecoder(model, packs_source=packs_source)
