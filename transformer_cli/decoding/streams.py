"""Batches that are searched side by side: products of a few rows are too small for several threads to share one.

Each stream is a thread of Python with its own threads of torch; torch lets go of Python's lock in every kernel.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

import torch

MOST_STREAMS = 4  # beyond that they wait for Python's lock

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


def side_by_side(work: Callable[[ItemT], ResultT], items: Iterable[ItemT]) -> Iterator[tuple[ItemT, ResultT]]:
    """Each item with what `work` makes of it, in order; all of torch's threads are at work, under inference mode."""
    rest = iter(items)
    ahead = list(islice(rest, 2))
    n_threads = torch.get_num_threads()
    n_streams = min(n_threads, MOST_STREAMS) if len(ahead) > 1 else 1
    if n_streams == 1:
        yield from ((item, work(item)) for item in ahead)
        yield from ((item, work(item)) for item in rest)
        return
    with threads_as_before(), ThreadPoolExecutor(n_streams, "tfm-stream", _begin, (n_threads // n_streams,)) as pool:
        waiting = deque((item, pool.submit(_inferring, work, item)) for item in ahead)
        try:
            while waiting:
                # One more than there are streams, so that none waits for the next item to be made.
                for item in islice(rest, n_streams + 1 - len(waiting)):
                    waiting.append((item, pool.submit(_inferring, work, item)))
                item, result = waiting.popleft()
                yield item, result.result()
        finally:
            for _, result in waiting:
                result.cancel()


def _begin(n_threads: int) -> None:
    torch.set_num_threads(n_threads)  # of this thread


def _inferring(work: Callable[[ItemT], ResultT], item: ItemT) -> ResultT:
    with torch.inference_mode():  # of this thread
        return work(item)


@contextmanager
def threads_as_before() -> Iterator[None]:
    """Threads of Python that begin later find as many of torch's as this one has: the last call counts for them."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
