"""A pool of worker processes, one for each core.

A search is many small products, and each process computes its own with one thread. Forked processes share the weights.
"""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import Any, Generic, TypeVar

import torch

from transformer_cli.errors import EnvironmentFault, TfmError
from transformer_cli.models.memory import is_out_of_memory
from transformer_cli.plugins import RAISED, plugin_fault
from transformer_cli.system import c_function, can_fork

_ItemT = TypeVar("_ItemT")
_ResultT = TypeVar("_ResultT")

_PR_SET_PDEATHSIG = 1  # of Linux's prctl.h
# A terminal, Slurm or systemd sends these to every process; the main one handles them, and the others end with it.
_OF_MAIN = {getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1") if hasattr(signal, name)}
_work: Callable[[Any], Any] | None = None  # of a forked process


class WorkerPool(Generic[_ItemT, _ResultT]):
    """`work`, done in order by as many processes as torch has threads, or as there are items; two of them at least."""

    def __init__(self, work: Callable[[_ItemT], _ResultT]) -> None:
        self.work = work
        self.n_workers = torch.get_num_threads() if can_fork() else 1  # which computes with as many threads
        self.executor: ProcessPoolExecutor | None = None
        self.n_forked = 0  # processes of the pool

    def __call__(self, items: Iterable[_ItemT]) -> Iterator[tuple[_ItemT, _ResultT]]:
        """Each item with what `work` makes of it, in order. Raises EnvironmentFault if a process was killed."""
        rest = iter(items)
        ahead = list(islice(rest, self.n_workers))
        if len(ahead) < 2:  # there is one item, or one worker
            yield from ((item, self.work(item)) for part in (ahead, rest) for item in part)
            return
        pool = self._open(len(ahead))
        waiting: deque[tuple[_ItemT, Future[_ResultT]]] = deque()
        try:
            for item in ahead:
                waiting.append((item, pool.submit(_do, item)))
            while waiting:
                # More than there are workers, so that none waits while results are taken in order.
                for item in islice(rest, 2 * self.n_workers - len(waiting)):
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
        """The processes; new ones where they are too few, or were killed while idle."""
        if self.executor is not None and self.n_forked >= n_wanted:
            try:
                self.executor.submit(_do, None).result()
                return self.executor
            except BrokenProcessPool:
                pass
        if self.executor is not None:
            self._abandon(self.executor)
        self.n_forked = n_wanted
        self.executor = ProcessPoolExecutor(
            n_wanted,
            multiprocessing.get_context("fork"),
            initializer=_begin,
            initargs=(self.work, os.getpid()),
        )
        # They are held back for a moment: a process that is half started could not end in order.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_MAIN)
        try:
            self.executor.submit(_do, None)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return self.executor

    def _abandon(self, pool: ProcessPoolExecutor) -> None:
        processes = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()  # or this process would wait at its end for results that are not needed
        self.executor = None


def _begin(work: Callable[[Any], Any], parent: int) -> None:
    global _work
    _work = work  # inherited by forking: nothing is sent
    for signum in _OF_MAIN:
        signal.signal(signum, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _OF_MAIN)
    c_function("prctl")(_PR_SET_PDEATHSIG, signal.SIGKILL)  # no process would take the results
    if os.getppid() != parent:
        os._exit(1)
    torch.set_num_threads(1)


def _do(item: Any) -> Any:
    assert _work is not None
    if item is None:  # a check that the worker is alive
        return None
    try:
        with torch.inference_mode():
            return _work(item)
    except RAISED as error:
        if isinstance(error, TfmError | OSError) or is_out_of_memory(error):
            raise
        # Named here: an exception comes to the main process without the lines of code that it was raised by.
        if fault := plugin_fault(error):
            raise fault from error
        raise
