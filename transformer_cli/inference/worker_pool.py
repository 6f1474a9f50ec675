"""Work that is done side by side, by a process for each core.

A search is many small products, and each process makes its own with one thread. Processes that were forked share the
weights, and nothing else.
"""

import ctypes
import multiprocessing
import os
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
    """`work`, done by as many processes as torch has threads, or as there are items; two of them at least."""

    def __init__(self, work: Callable[[ItemT], ResultT]) -> None:
        self.work = work
        self.n_streams = torch.get_num_threads() if sys.platform == "linux" else 1  # elsewhere forking is not safe
        self.pool: ProcessPoolExecutor | None = None
        self.n_forked = 0  # processes of the pool

    def __call__(self, items: Iterable[ItemT]) -> Iterator[tuple[ItemT, ResultT]]:
        """Each item with what `work` makes of it, in order. Raises EnvironmentFault if a process was killed."""
        rest = iter(items)
        ahead = list(islice(rest, self.n_streams))
        if len(ahead) < 2:  # there is one item, or one stream
            yield from ((item, self.work(item)) for part in (ahead, rest) for item in part)
            return
        pool = self._open(len(ahead))
        waiting: deque[tuple[ItemT, Future[ResultT]]] = deque()
        try:
            for item in ahead:
                waiting.append((item, pool.submit(_do, item)))
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

    def _open(self, n_wanted: int) -> ProcessPoolExecutor:
        """The processes; other ones where they are fewer, or were killed while they had nothing to do."""
        if self.pool is not None and self.n_forked >= n_wanted:
            try:
                self.pool.submit(_do, None).result()
                return self.pool
            except BrokenProcessPool:
                pass
        if self.pool is not None:
            self._abandon(self.pool)
        self.n_forked = n_wanted
        self.pool = ProcessPoolExecutor(
            n_wanted,
            multiprocessing.get_context("fork"),
            initializer=_begin,
            initargs=(self.work, os.getpid()),
        )
        # Whoever presses Ctrl-C now is heard a moment later: half a process could not end in order.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.pool.submit(_do, None)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return self.pool

    def _abandon(self, pool: ProcessPoolExecutor) -> None:
        processes = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()  # or the end of this one would wait for what nobody wants
        self.pool = None


def _begin(work: Callable[[Any], Any], parent: int) -> None:
    global _work
    _work = work  # which forking has brought here: nothing is sent
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # which the first process answers for all
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # nobody would take the results
    if os.getppid() != parent:
        os._exit(1)
    torch.set_num_threads(1)


def _do(item: Any) -> Any:
    assert _work is not None
    if item is None:  # whether there is anybody
        return None
    with torch.inference_mode():
        return _work(item)
