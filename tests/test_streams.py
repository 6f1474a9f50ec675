"""Work side by side is the same work, and a process that dies is noticed."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.toy_translator import sentences, toy_tokenizer, translator_of
from transformer_cli.errors import EnvironmentFault
from transformer_cli.inference.worker_pool import Streams

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")


def with_pid(n: int) -> tuple[int, int]:
    return n * n, os.getpid()


@pytest.fixture(autouse=True)
def nobody_is_left() -> Iterator[None]:
    yield
    for streams in opened:
        if streams.pool is not None:
            streams._abandon(streams.pool)
    opened.clear()
    for process in multiprocessing.active_children():
        process.join()


opened: list[Streams[Any, Any]] = []


def two(work: object) -> Streams[int, tuple[int, int]]:
    streams: Streams[int, tuple[int, int]] = Streams(work)  # type: ignore[arg-type]
    streams.n_streams = 2
    opened.append(streams)
    return streams


def test_results_come_in_order_from_other_processes() -> None:
    found = list(two(with_pid)(range(20)))
    assert [(n, result[0]) for n, result in found] == [(n, n * n) for n in range(20)]
    assert os.getpid() not in {result[1] for _, result in found}


def test_a_single_item_is_worked_on_here() -> None:
    assert list(two(with_pid)([3])) == [(3, (9, os.getpid()))]


def test_one_thread_is_one_stream() -> None:
    streams: Streams[int, tuple[int, int]] = Streams(with_pid)
    assert streams.n_streams == torch.get_num_threads() == 1  # as conftest and scripts/test have it
    assert {result[1] for _, result in streams(range(5))} == {os.getpid()}


def test_no_more_is_taken_than_there_is_work_for() -> None:
    taken: list[int] = []
    results = two(with_pid)(taken.append(n) or n for n in range(100))  # type: ignore[func-returns-value]
    next(results)
    assert len(taken) <= 5
    results.close()


def test_no_more_processes_are_forked_than_there_is_work_for() -> None:
    streams = two(with_pid)
    streams.n_streams = 64
    assert [result[0] for _, result in streams(range(2))] == [0, 1]
    assert len(multiprocessing.active_children()) == 2
    assert [result[0] for _, result in streams(range(5))] == [n * n for n in range(5)]
    assert len(multiprocessing.active_children()) == 5, "more, when there is more to do"
    first = set(multiprocessing.active_children())
    assert len(list(streams(range(3)))) == 3
    assert set(multiprocessing.active_children()) == first


def die(n: int) -> tuple[int, int]:
    os.kill(os.getpid(), signal.SIGKILL)
    return n, n


def test_a_process_that_is_killed_is_one_clear_line_and_the_next_call_works() -> None:
    streams = two(die)
    with pytest.raises(EnvironmentFault, match=r"a process that translates was killed.* Lower decode.batch_tokens"):
        list(streams(range(3)))
    streams.work = with_pid
    assert [result[0] for _, result in streams(range(3))] == [0, 1, 4]


def test_translations_whole_machine_are_the_same() -> None:
    tokenizer, lines = toy_tokenizer(), sentences(40, seed=3)
    alone = translator_of(tokenizer, batch_tokens=200)
    beside = translator_of(tokenizer, batch_tokens=200, whole_machine=True)
    assert beside.streams is not None
    beside.streams.n_streams = 2
    opened.append(beside.streams)
    assert [r.text for r in beside.translate(lines)] == [r.text for r in alone.translate(lines)]
    assert beside.streams.pool is not None


def test_processes_that_are_killed_while_idle_are_replaced() -> None:
    streams = two(with_pid)
    first = {result[1] for _, result in streams(range(8))}
    for pid in first:
        os.kill(pid, signal.SIGKILL)
    second = {result[1] for _, result in streams(range(8))}
    assert not first & second


def test_what_is_left_unread_is_not_finished() -> None:
    streams = two(with_pid)
    results = streams(range(8))
    next(results)
    results.close()
    assert streams.pool is None
