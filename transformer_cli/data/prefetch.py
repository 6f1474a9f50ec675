"""Prefetching: a thread prepares the next steps while the current one is computed."""

import queue
import threading
from collections.abc import Callable
from typing import Generic, Self, TypeVar

_T = TypeVar("_T")


class Prefetcher(Generic[_T]):
    """Results of `make(step)` for consecutive steps from `first_step`, computed by a thread, up to `depth` ahead.

    NumPy releases the interpreter lock, so the current update is hardly slowed. `make` is called by one thread at a
    time, until `close` never the caller's. It may pin memory; copies to a GPU belong to the caller's stream.
    """

    def __init__(self, make: Callable[[int], _T], first_step: int, *, depth: int = 2) -> None:
        assert depth > 0
        self._make, self._depth = make, depth
        self._start(first_step)

    def take(self, step: int) -> _T:
        """The result of `make(step)`, or its exception. A step out of order restarts the thread there."""
        if step != self._next or self._over.is_set():
            self.close()
            self._start(step)
        made = self._ready.get()
        self._next += 1
        return made()

    def close(self) -> None:
        """End the thread after its current step."""
        self._over.set()
        while self._thread.is_alive():
            try:
                self._ready.get(timeout=0.01)  # it may be waiting for room
            except queue.Empty:
                continue

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _start(self, step: int) -> None:
        self._next = step
        self._over = threading.Event()
        self._ready: queue.Queue[Callable[[], _T]] = queue.Queue(self._depth)
        self._thread = threading.Thread(target=self._work, args=(step,), name="prefetch", daemon=True)
        self._thread.start()

    def _work(self, step: int) -> None:
        while not self._over.is_set():
            self._ready.put(_done(self._make, step))
            step += 1


def _done(make: Callable[[int], _T], step: int) -> Callable[[], _T]:
    """Call `make`; what comes back returns or raises what it did."""
    try:
        made = make(step)
    except BaseException as error:  # whatever it is, the caller waits for it
        caught = error

        def fail() -> _T:
            raise caught

        return fail
    return lambda: made
