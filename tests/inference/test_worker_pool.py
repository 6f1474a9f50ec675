"""Work side by side is the same work, and a process that dies is noticed."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.data.test_prefetch import eventually
from tests.toy.translator import sentences, toy_tokenizer, translator_of
from transformer_cli import plugins
from transformer_cli.decoding.torch_engine import TorchEngine
from transformer_cli.errors import ConfigError, EnvironmentFault
from transformer_cli.inference.worker_pool import WorkerPool

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")


def with_pid(n: int) -> tuple[int, int]:
    return n * n, os.getpid()


@pytest.fixture(autouse=True)
def nobody_is_left() -> Iterator[None]:
    yield
    for workers in opened:
        if workers.executor is not None:
            workers._abandon(workers.executor)
    opened.clear()
    for process in multiprocessing.active_children():
        process.join()


opened: list[WorkerPool[Any, Any]] = []


def two(work: object) -> WorkerPool[int, tuple[int, int]]:
    workers: WorkerPool[int, tuple[int, int]] = WorkerPool(work)  # type: ignore[arg-type]
    workers.n_workers = 2
    opened.append(workers)
    return workers


def test_results_come_in_order_from_other_processes() -> None:
    found = list(two(with_pid)(range(20)))
    assert [(n, result[0]) for n, result in found] == [(n, n * n) for n in range(20)]
    assert os.getpid() not in {result[1] for _, result in found}


def raising(error: BaseException) -> Any:
    def work(n: int) -> None:
        raise error

    return work


@pytest.mark.parametrize("error", [ValueError("no head"), SystemExit(0)], ids=str)
def test_what_the_code_of_a_plugin_raises_in_a_process_names_the_plugin(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_loaded", [__name__])
    what = rf"^plugin {__name__} \(.*test_worker_pool\.py:\d+\): {type(error).__name__}: {error}\. Correct it"
    with pytest.raises(ConfigError, match=what):
        list(two(raising(error))(range(2)))
    with pytest.raises(EnvironmentFault, match="no memory"):  # one of our own errors keeps its class
        list(two(raising(EnvironmentFault("no memory")))(range(2)))


def test_a_single_item_is_worked_on_here() -> None:
    assert list(two(with_pid)([3])) == [(3, (9, os.getpid()))]


def test_one_thread_is_one_stream() -> None:
    workers: WorkerPool[int, tuple[int, int]] = WorkerPool(with_pid)
    assert workers.n_workers == torch.get_num_threads() == 1  # as conftest and scripts/test have it
    assert {result[1] for _, result in workers(range(5))} == {os.getpid()}


def test_no_more_is_taken_than_there_is_work_for() -> None:
    taken: list[int] = []
    results = two(with_pid)(taken.append(n) or n for n in range(100))  # type: ignore[func-returns-value]
    next(results)
    assert len(taken) <= 5
    results.close()


def test_no_more_processes_are_forked_than_there_is_work_for() -> None:
    workers = two(with_pid)
    workers.n_workers = 64
    assert [result[0] for _, result in workers(range(2))] == [0, 1]
    assert len(multiprocessing.active_children()) == 2
    assert [result[0] for _, result in workers(range(5))] == [n * n for n in range(5)]
    # Those of before were killed, and may still be ending.
    assert eventually(lambda: len(multiprocessing.active_children()) == 5), "more, when there is more to do"
    first = set(multiprocessing.active_children())
    assert len(list(workers(range(3)))) == 3
    assert set(multiprocessing.active_children()) == first


def die(n: int) -> tuple[int, int]:
    os.kill(os.getpid(), signal.SIGKILL)
    return n, n


def test_a_process_that_is_killed_is_one_clear_line_and_the_next_call_works() -> None:
    workers = two(die)
    with pytest.raises(EnvironmentFault, match=r"a process that translates was killed.* Lower decode.batch_tokens"):
        list(workers(range(3)))
    assert workers.executor is None, "the others are still there"
    workers.work = with_pid
    assert [result[0] for _, result in workers(range(3))] == [0, 1, 4]


def test_translations_of_a_worker_pool_are_the_same() -> None:
    tokenizer, lines = toy_tokenizer(), sentences(40, seed=3)
    alone = translator_of(tokenizer, batch_tokens=200)
    beside = translator_of(tokenizer, batch_tokens=200, parallel=True)
    engine = beside.engine
    assert isinstance(engine, TorchEngine)
    assert engine.pool is not None
    engine.pool.n_workers = 2
    opened.append(engine.pool)
    assert [r.text for r in beside.translate(lines)] == [r.text for r in alone.translate(lines)]
    assert engine.pool.executor is not None


def test_processes_that_are_killed_while_idle_are_replaced() -> None:
    workers = two(with_pid)
    assert len(list(workers(range(8)))) == 8
    first = multiprocessing.active_children()  # all of them, though one may have done all the work
    assert len(first) == 2
    for process in first:
        process.kill()
    second = {result[1] for _, result in workers(range(8))}
    assert not {process.pid for process in first} & second


def stuck_behind_a_fault(n: int) -> tuple[int, int]:
    if n == 0:
        raise ValueError("of the first")
    while True:
        signal.pause()


def test_a_fault_does_not_wait_for_work_that_never_ends() -> None:
    with pytest.raises(ValueError, match="of the first"):
        list(two(stuck_behind_a_fault)([0, 1]))


def test_what_is_left_unread_is_not_finished() -> None:
    workers = two(with_pid)
    results = workers(range(8))
    next(results)
    results.close()
    assert workers.executor is None


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_what_reaches_every_process_is_for_the_main_one(signum: int) -> None:
    """Slurm sends SIGTERM to all; a handler that was inherited would print a traceback for each of them."""
    before = signal.signal(signum, lambda *_: pytest.fail("the handler of the main process, in this one"))
    try:
        found = list(two(lambda n: signal.raise_signal(signum) or (n, os.getpid()))(range(4)))
        assert [result[0] for _, result in found] == [0, 1, 2, 3]
    finally:
        signal.signal(signum, before)
