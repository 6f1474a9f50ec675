"""Memory that is too small: how it is recognised, and work that is tried again with half as much at a time."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

import torch

from transformer_cli.errors import EnvironmentFault
from transformer_cli.logs import LOGGER

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

# What libraries say where torch has no class for it: its CPU allocator, C++, CUDA, cuBLAS, cuDNN and so on.
_SAID = ("DefaultCPUAllocator", "bad_alloc", "out of memory", "ALLOC_FAILED", "ALLOCATION_FAILED")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the memory of the CPU or of the GPU was too small. Torch has a class for the GPU only."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in _SAID)
    )


def in_halves(
    batch: Sequence[ItemT],
    work: Callable[[Sequence[ItemT]], list[ResultT]],
    *,
    lower: str,
    alone: str,
    on_split: Callable[[], object] = lambda: None,
) -> list[ResultT]:
    """`work` of the batch, one result for each item; where the memory is too small, of its halves, one after the other.

    `lower` is the key that bounds a batch, `alone` what to do where a single item is too large: EnvironmentFault says
    it. `on_split` may give memory back.
    """
    try:
        return work(batch)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        kind = type(error).__name__
    # Outside the handler, where the error no longer holds on to what it was computing with.
    if len(batch) == 1:
        raise EnvironmentFault(f"out of memory with a single sentence ({kind}). {alone}")
    _warn_once(len(batch), lower)
    on_split()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()  # what is left in pieces may be enough in one piece
    half = len(batch) // 2
    parts = (batch[:half], batch[half:])
    return [result for part in parts for result in in_halves(part, work, lower=lower, alone=alone, on_split=on_split)]


@cache
def _warned(lower: str) -> list[int]:
    return []


def _warn_once(n_items: int, lower: str) -> None:
    """Once for each kind of work: a corpus has many batches."""
    if not _warned(lower):
        _warned(lower).append(n_items)
        LOGGER.warning(
            "out of memory with a batch of %d sentences; it is cut in two and tried again, here and wherever it happens"
            " again. Lower %s to save that time",
            *(n_items, lower),
        )
