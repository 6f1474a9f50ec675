"""Batch-invariant mode: shapes that do not depend on batch composition, so that scores are equal to the last bit.

Kernels round differently in different shapes. Here a sentence is padded to a bucket of its own length, is searched in a
batch whose size its bucket sets, and keeps these shapes until it ends: finished rows are replaced by fillers. What is
left is that a kernel gives a row the same bits at any index and beside any others. On a CPU torch's do so with one
thread, which tests/inference/test_invariance.py checks; with two, attention rounds differently in each.

scripts/bench_exact measures what it costs.

Shapes: B sentences, S source, R rows, V vocabulary.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_cli.errors import ConfigError
from transformer_cli.inference.kv_cache import DecoderCache, EnsembleCache
from transformer_cli.models.ensemble import AnyModel, Ensemble

EXACT_BUCKET = 16  # lengths are rounded up to a multiple of this
# With a multiple of 32 rows every element of a tensor is in a full vector: what is left over is rounded in another way.
BATCH_SIZE = 32
LONGEST_TOGETHER = 256  # tokens; a longer sentence is searched on its own, always in the first row

_ALIGNED = 16  # numbers: attention rounds by where a row begins in memory, and these begin at 64 bytes each


def bucket_length(n_tokens: int, *, size: int, longest: int) -> int:
    """What a source of `n_tokens` is padded to, EOS counted: a multiple of `size`, and `longest` at most."""
    return min(-(-n_tokens // size) * size, longest)


def batch_size_of(bucket: int) -> int:
    """Sentences of this bucket in a batch, fillers counted."""
    return BATCH_SIZE if bucket <= LONGEST_TOGETHER else 1


def check_batch_invariance(model: AnyModel, device: torch.device) -> None:
    """Raises ConfigError where scores may depend on batch composition after all."""
    if device.type != "cpu":
        raise ConfigError(
            f"decode.batch_invariant=true: not proved on device={device.type}. Choose device=cpu, or leave"
            " decode.batch_invariant out"
        )
    for member in model.members if isinstance(model, Ensemble) else [model]:
        attention = member.decoder.layers[0].cross_attention  # of the same heads as self-attention
        for key, width in zip(("d_k", "d_v"), attention.widths, strict=True):
            if width % _ALIGNED:
                raise ConfigError(
                    f"decode.batch_invariant=true: not proved for a model whose model.n_heads × model.{key} is {width},"
                    f" no multiple of {_ALIGNED}. Leave decode.batch_invariant out, or train such a model"
                )


@dataclass
class FixedShapeCache:
    """A cache that never shrinks: rows of finished sentences stay as fillers."""

    cache: DecoderCache | EnsembleCache
    n_sentences: int
    beam_size: int
    n_live: int  # sentences that are not finished

    @property
    def n_rows(self) -> int:
        return self.n_sentences * self.beam_size

    @property
    def attention_BNS(self) -> Tensor:
        assert self.cache.attention_BNS is not None
        return self.cache.attention_BNS[: self.n_live]

    def padded(self, ids_R: Tensor) -> Tensor:
        """An id for each row, of which fillers have any."""
        n_fillers = self.n_rows - len(ids_R)
        return F.pad(ids_R, (0, n_fillers)) if n_fillers else ids_R

    def reorder(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        self.n_live = self.n_live if sentences_B is None else len(sentences_B)
        sentences_B = sentences_B if sentences_B is None else with_fillers(sentences_B, self.n_sentences)
        self.cache.reorder(with_fillers(rows_R, self.n_rows), sentences_B)


def with_fillers(which: Tensor, n: int) -> Tensor:
    """`which`, extended to `n` indices by those of the rows behind it."""
    if len(which) == n:
        return which
    return torch.cat([which, torch.arange(len(which), n, device=which.device)])


def fixed_shape(step: Callable[[Tensor, Any], Tensor]) -> Callable[[Tensor, FixedShapeCache], Tensor]:
    """`step` on all rows of the cache, of which the caller gives the first R."""

    def step_all(ids_R: Tensor, cache: FixedShapeCache) -> Tensor:
        logits_XV = step(cache.padded(ids_R), cache.cache)
        return logits_XV[: len(logits_XV) * cache.n_live // cache.n_sentences]

    return step_all


@contextmanager
def one_thread() -> Iterator[None]:
    """Limits torch's kernels to one thread in the block; after it, there are as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
