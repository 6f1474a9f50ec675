"""Prefetching changes when something is made, and nothing else."""

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_cli.data.prefetch import Prefetcher


def eventually(true: object, seconds: float = 5.0) -> bool:
    """Whether the call `true` comes to be true."""
    assert callable(true)
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.001)
    return bool(true())


def test_steps_come_in_order_from_the_first() -> None:
    with Prefetcher(lambda step: step * step, 7) as ahead:
        assert [ahead.take(step) for step in range(7, 100)] == [step * step for step in range(7, 100)]


@pytest.mark.parametrize("depth", [1, 3])
def test_only_so_many_steps_are_made_ahead(depth: int) -> None:
    made: list[int] = []
    with Prefetcher(made.append, 0, depth=depth) as ahead:
        for step in range(4):
            ahead.take(step)
            # So many lie ready, and the thread holds one more that has no room yet.
            assert eventually(lambda expected=step + depth + 2: len(made) == expected)
        time.sleep(0.02)
        assert made == list(range(3 + depth + 2))


def test_another_thread_makes_the_next_step_while_this_one_is_used() -> None:
    threads: set[str] = set()
    next_is_made = threading.Event()

    def make(step: int) -> int:
        threads.add(threading.current_thread().name)
        if step == 1:
            next_is_made.set()
        return step

    with Prefetcher(make, 0) as ahead:
        ahead.take(0)
        assert next_is_made.wait(5)
    assert threads == {"prefetch"}


def test_what_goes_wrong_is_raised_at_its_step_and_the_next_step_is_made() -> None:
    def make(step: int) -> int:
        if step == 2:
            raise OSError(5, f"step {step}")
        return step

    with Prefetcher(make, 0) as ahead:
        assert [ahead.take(0), ahead.take(1)] == [0, 1]
        with pytest.raises(OSError, match="step 2"):
            ahead.take(2)
        assert ahead.take(3) == 3
        with pytest.raises(OSError, match="step 2"):
            ahead.take(2)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 50), max_size=12))
def test_any_step_may_be_asked_for(steps: list[int]) -> None:
    with Prefetcher(lambda step: -step, 0) as ahead:
        assert [ahead.take(step) for step in steps] == [-step for step in steps]


def test_closing_ends_the_thread_and_drops_what_lies_ready() -> None:
    before = set(threading.enumerate())  # of which some may end meanwhile
    ahead = Prefetcher(lambda step: step, 0)
    assert ahead.take(0) == 0
    ahead.close()
    ahead.close()
    assert set(threading.enumerate()) <= before
    assert ahead.take(1) == 1  # from a new thread
    ahead.close()
    assert set(threading.enumerate()) <= before


def test_an_error_in_the_block_ends_the_thread() -> None:
    before = set(threading.enumerate())
    with pytest.raises(ZeroDivisionError), Prefetcher(lambda step: step, 0) as ahead:
        print(1 / ahead.take(0))
    assert set(threading.enumerate()) <= before
