"""Batches of few different sizes: oneDNN compiles a kernel for each number of rows that it multiplies.

That takes 0.3 to 0.8 ms and 0.6 MB for each matrix of another shape. The sentences of a search end one by one; here as
many as a multiple of 16 or 32 rows stay in the batch, of which those that are finished are fillers.

Shapes: B sentences, S source, R rows, K tokens of a shortlist, V vocabulary, X rows of the first or another step.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from transformer_cli.inference.batch_invariance import FixedShapeCache, fixed_shape
from transformer_cli.inference.incremental import IncrementalDecoder
from transformer_cli.models.embeddings import RestrictedOutput

_FEW_ROWS, _MANY_ROWS = 32, 128


def rounded_size(n_sentences: int, beam_size: int) -> int:
    """How many sentences a batch has for so many live ones; a batch of few rows is as it is."""
    n_rows = n_sentences * beam_size
    if n_rows <= _FEW_ROWS:
        return n_sentences
    multiple = max(1, (16 if n_rows <= _MANY_ROWS else 32) // beam_size)
    return -(-n_sentences // multiple) * multiple


class RoundedCache(FixedShapeCache):
    """A cache that shrinks by many sentences at once."""

    def reorder(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        if sentences_B is not None:
            self.n_sentences = rounded_size(len(sentences_B), self.beam_size)
        super().reorder(rows_R, sentences_B)


class RoundedDecoder:
    """A decoder with its `start` and `step`, in batches of rounded sizes."""

    def __init__(self, decoder: IncrementalDecoder, *, source_pad_id: int) -> None:
        self.decoder: Any = decoder
        self.step = fixed_shape(self.decoder.step)
        self.restricted_outputs = self.decoder.restricted_outputs
        self.source_pad_id = source_pad_id

    def start(
        self, source_BS: Tensor, *, beam_size: int, max_length: int, keeps_attention: bool = False
    ) -> RoundedCache:
        """Starts a search as `TransformerDecoder.start` does."""
        n_live = len(source_BS)
        n_sentences = rounded_size(n_live, beam_size)
        source_BS = F.pad(source_BS, (0, 0, 0, n_sentences - n_live), value=self.source_pad_id)
        cache = self.decoder.start(
            source_BS, beam_size=beam_size, max_length=max_length, keeps_attention=keeps_attention
        )
        return RoundedCache(cache, n_sentences, beam_size, n_live)

    def restricted_step(self, ids_R: Tensor, cache: RoundedCache, outputs: Sequence[RestrictedOutput]) -> Tensor:
        """Computes a step as `TransformerDecoder.restricted_step` does, [R, K]; `outputs` are of live sentences."""

        def of_live(output: RestrictedOutput, y_XD: Tensor) -> Tensor:
            return output(y_XD[: len(y_XD) * cache.n_live // cache.n_sentences])

        live: list[Any] = [partial(of_live, output) for output in outputs]
        logits_RK: Tensor = self.decoder.restricted_step(cache.padded(ids_R), cache.cache, live)
        return logits_RK
