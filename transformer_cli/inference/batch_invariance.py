"""Shapes that the neighbours of a sentence have no say in, so that its scores are the same to the last bit.

Kernels round differently in different shapes. Here a sentence is padded to a bucket of its own length, is searched
among a number of places that its bucket sets, and keeps these shapes until it ends: who leaves is followed by a filler.
What is left is that a kernel gives a row the same bits in any place and beside any others. On a CPU torch's do so with
one thread, and tests/test_invariance.py holds them to it; with two, attention rounds differently in each.

What it costs, scripts/bench_exact says.

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
from transformer_cli.models.cache import DecoderCache
from transformer_cli.models.ensemble import AnyModel, Ensemble, EnsembleCache

EXACT_BUCKET = 16  # lengths are rounded up to a multiple of this
# With a multiple of 32 rows every element of a tensor is in a full vector: what is left over is rounded in another way.
PLACES = 32
LONGEST_TOGETHER = 256  # tokens; a longer sentence is searched alone, whose row is always the first

ALIGNED = 16  # numbers: attention rounds by where a row begins in memory, and these begin at 64 bytes each


def bucket_length(n_tokens: int, *, size: int, longest: int) -> int:
    """What a source of `n_tokens` is padded to, EOS counted: a multiple of `size`, and `longest` at most."""
    return min(-(-n_tokens // size) * size, longest)


def places(bucket: int) -> int:
    """How many sentences of this bucket are searched together, fillers counted."""
    return PLACES if bucket <= LONGEST_TOGETHER else 1


def check(model: AnyModel, device: torch.device) -> None:
    """Raises ConfigError where scores may depend on the neighbours after all."""
    if device.type != "cpu":
        raise ConfigError(
            f"decode.batch_invariant=true: not proved on device={device.type}. Choose device=cpu, or leave"
            " decode.batch_invariant out"
        )
    for member in model.members if isinstance(model, Ensemble) else [model]:
        attention = member.decoder.layers[0].self_attention
        for key, width in zip(("d_k", "d_v"), attention.widths[1:], strict=True):
            if width % ALIGNED:
                raise ConfigError(
                    f"decode.batch_invariant=true: not proved for a model whose model.n_heads × model.{key} is {width},"
                    f" no multiple of {ALIGNED}. Leave decode.batch_invariant out, or train such a model"
                )


@dataclass
class FixedCache:
    """A cache that never shrinks: places that are given up keep what is in them."""

    cache: DecoderCache | EnsembleCache
    n_sentences: int
    n_rows: int
    n_going: int  # sentences that the search still has

    @property
    def attention_BNS(self) -> Tensor:
        assert self.cache.attention_BNS is not None
        return self.cache.attention_BNS[: self.n_going]

    def reorder(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        self.n_going = self.n_going if sentences_B is None else len(sentences_B)
        sentences_B = sentences_B if sentences_B is None else filled(sentences_B, self.n_sentences)
        self.cache.reorder(filled(rows_R, self.n_rows), sentences_B)


def filled(which: Tensor, n: int) -> Tensor:
    """`which` and, up to `n` of them, those that stood in the places behind it."""
    return torch.cat([which, torch.arange(len(which), n, device=which.device)])


def fixed(step: Callable[[Tensor, Any], Tensor]) -> Callable[[Tensor, FixedCache], Tensor]:
    """`step` on all rows of the cache, of which the caller knows the first R."""

    def step_all(ids_R: Tensor, cache: FixedCache) -> Tensor:
        logits_RV = step(F.pad(ids_R, (0, cache.n_rows - len(ids_R))), cache.cache)
        return logits_RV[: len(ids_R)]

    return step_all


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, torch's kernels use one thread; outside, as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
