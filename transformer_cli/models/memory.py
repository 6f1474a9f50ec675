"""Memory that is too small: how it is recognised, and work that is tried again with half as much at a time."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

import torch

from transformer_cli.errors import EnvironmentFault
from transformer_cli.logs import LOGGER

_ItemT = TypeVar("_ItemT")
_ResultT = TypeVar("_ResultT")

# What libraries say where torch has no class for it: its CPU allocator, C++, CUDA, cuBLAS, cuDNN and so on.
_SAID = ("DefaultCPUAllocator", "bad_alloc", "out of memory", "ALLOC_FAILED", "ALLOCATION_FAILED")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the memory of the CPU or of the GPU was too small. Torch has a class for the GPU only."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in _SAID)
    )


def free_memory(device: torch.device) -> int | None:
    """Bytes that tensors on a GPU may still take; None where the device does not say."""
    if device.type != "cuda":
        return None
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def gigabytes(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:,.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:,.1f} MB"


class SplitBatches:
    """Runs work on batches, with fewer items at a time where memory is too small, and remembers how many fitted.

    `lower` is the key that bounds a batch, `alone` what to do where a single item is too large: EnvironmentFault says
    it. `on_split` may give memory back.
    """

    def __init__(self, *, lower: str, alone: str, on_split: Callable[[], object] = lambda: None) -> None:
        self.lower, self.alone, self.on_split = lower, alone, on_split
        self.most: int | None = None  # items at a time; None: memory has sufficed so far

    def __call__(
        self, batch: Sequence[_ItemT], work: Callable[[Sequence[_ItemT]], Sequence[_ResultT]]
    ) -> list[_ResultT]:
        """`work` of the batch, one result for each item, in order."""
        results: list[_ResultT] = []
        has_freed = False
        while len(results) < len(batch):
            part = batch[len(results) : len(results) + (self.most or len(batch))]
            try:
                results += work(part)
                continue
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                kind = type(error).__name__
            # Outside the handler, where the error no longer holds on to what it was computing with.
            self.on_split()
            if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
                torch.cuda.empty_cache()  # what is left in pieces may be enough in one piece
                if not has_freed:  # and with what other shapes held all of it may fit
                    has_freed = True
                    continue
            if len(part) == 1:
                raise EnvironmentFault(f"out of memory with a single sentence ({kind}). {self.alone}")
            _warn_once(len(part), self.lower)
            self.most = -(-len(part) // 2)
        return results


@cache
def _warned(lower: str) -> list[int]:
    return []


def _warn_once(n_items: int, lower: str) -> None:
    """Once for each kind of work: a corpus has many batches."""
    if not _warned(lower):
        _warned(lower).append(n_items)
        LOGGER.warning(
            "out of memory with a batch of %d sentences; it is cut in two and tried again, and later batches begin with"
            " as many as fitted. Lower %s to save that time",
            *(n_items, lower),
        )
