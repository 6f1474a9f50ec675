"""Work that is done side by side, by a process for each core.

A search is many small products: two threads that share them are hardly quicker than one, and two threads of Python wait
for each other between them. Processes that were forked share the weights, and nothing else.
"""

import ctypes
import multiprocessing
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import Any, Generic, TypeVar

import torch

from transformer_cli.errors import EnvironmentFault

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

_PR_SET_PDEATHSIG = 1  # of Linux's prctl.h
_work: Callable[[Any], Any] | None = None  # of a process that was forked


class Streams(Generic[ItemT, ResultT]):
    """`work`, done by as many processes as torch has threads; they begin when there is enough to do for two."""

    def __init__(self, work: Callable[[ItemT], ResultT]) -> None:
        self.work = work
        self.n_streams = torch.get_num_threads() if sys.platform == "linux" else 1  # elsewhere forking is not safe
        self.pool: ProcessPoolExecutor | None = None

    def __call__(self, items: Iterable[ItemT]) -> Iterator[tuple[ItemT, ResultT]]:
        """Each item with what `work` makes of it, in order. Raises EnvironmentFault if a process was killed."""
        rest = iter(items)
        ahead = list(islice(rest, 2))
        if len(ahead) < 2 or self.n_streams == 1:
            yield from ((item, self.work(item)) for part in (ahead, rest) for item in part)
            return
        pool = self.pool = self.pool or ProcessPoolExecutor(
            self.n_streams, multiprocessing.get_context("fork"), initializer=_begin, initargs=(self.work,)
        )
        waiting: deque[tuple[ItemT, Future[ResultT]]] = deque((item, pool.submit(_do, item)) for item in ahead)
        try:
            while waiting:
                # More than there are streams, so that none waits while results are taken in order.
                for item in islice(rest, 2 * self.n_streams - len(waiting)):
                    waiting.append((item, pool.submit(_do, item)))
                item, result = waiting.popleft()
                yield item, result.result()
        except BrokenProcessPool as error:
            self._abandon(pool)
            raise EnvironmentFault(
                "a process that translates was killed, perhaps for want of memory. Lower decode.batch_tokens, or set"
                " OMP_NUM_THREADS=1, and run the same command again"
            ) from error
        except BaseException:
            self._abandon(pool)
            raise

    def _abandon(self, pool: ProcessPoolExecutor) -> None:
        pool.shutdown(wait=False, cancel_futures=True)
        self.pool = None


def _begin(work: Callable[[Any], Any]) -> None:
    global _work
    _work = work  # which forking has brought here: nothing is sent
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # nobody would take the results
    torch.set_num_threads(1)


def _do(item: Any) -> Any:
    assert _work is not None
    with torch.inference_mode():
        return _work(item)
