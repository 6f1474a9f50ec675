"""Forward and backward passes of batches of constant sizes as CUDA graphs.

An update of base launches some 1,200 kernels, and one of a small model as many: launching them takes the CPU longer
than the GPU needs to run those of a small update. A graph is launched at once. It reads the batch, and what the loss is
divided by, from tensors that stay where they are; so do the weights and the gradients, to which it adds. Its dropout
draws from torch's generator, whose seed is set before each batch: a replay drops what the same kernels would drop
without a graph.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transformer_cli.data.batching import Batch
from transformer_cli.data.fixed_size import FixedSizeBatch, Sizes
from transformer_cli.logs import LOGGER
from transformer_cli.models.memory import is_out_of_memory

_FIRST = 2  # batches of a size that are computed without a graph: kernels are compiled and chosen, and memory reserved

Pass = Callable[[Tensor, Sizes, Tensor], Tensor]  # of a batch in memory, of this size, of an update of so many tokens


@dataclass
class Captured:
    """The pass of one size, and the tensors that its graph reads and writes."""

    memory: Tensor  # of the batch
    n_tokens: Tensor
    sums: Tensor
    graph: Any


class CapturedPasses:
    """Replays of `work`, which adds the gradient of a batch and returns its sums."""

    def __init__(self, work: Pass, device: torch.device) -> None:
        self._work, self._device = work, device
        self._seen: Counter[Sizes] = Counter()
        self._captured: dict[Sizes, Captured] = {}
        self._pool: Any = None
        self._is_off = False  # a capture has failed

    def has(self, batch: Batch, sizes: list[Sizes]) -> bool:
        """Whether the next pass of `batch` is a replay: captured now, unless it was, if its size is one of `sizes`."""
        if self._is_off or not isinstance(batch, FixedSizeBatch) or batch.sizes not in sizes:
            return False
        if batch.sizes in self._captured:
            return True
        self._seen[batch.sizes] += 1
        if self._seen[batch.sizes] <= _FIRST:
            return False
        try:
            self._captured[batch.sizes] = self._capture(batch)
        except RuntimeError as error:  # nothing was computed meanwhile, nor added to any gradient
            why = "the memory is too small" if is_out_of_memory(error) else str(error).strip().split("\n")[0]
            LOGGER.warning("training goes on without CUDA graphs, as capturing one fails (%s)", why)
            self._is_off = True
        if self._is_off:  # outside the handler, where the error no longer holds on to what it was computing with
            self._captured.clear()
            torch.cuda.empty_cache()
        return not self._is_off

    def __call__(self, batch: FixedSizeBatch, n_tokens: float) -> Tensor:
        """The sums of `batch`, whose gradient is added."""
        captured = self._captured[batch.sizes]
        captured.memory.copy_(batch.memory, non_blocking=True)
        captured.n_tokens.fill_(n_tokens)
        captured.graph.replay()
        return captured.sums.clone()

    def _capture(self, batch: FixedSizeBatch) -> Captured:
        memory, n_tokens = batch.memory.to(self._device), torch.ones((), device=self._device)
        torch.cuda.empty_cache()  # what was reserved for a pass without a graph is free for one with it
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        # In this mode other threads may pin memory meanwhile. All graphs share their memory: one runs after the other.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            sums = self._work(memory, batch.sizes, n_tokens)
        return Captured(memory, n_tokens, sums, graph)
