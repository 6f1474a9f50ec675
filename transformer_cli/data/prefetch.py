"""Makes what the next steps need while the current one is computed."""

import queue
import threading
from collections.abc import Callable
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class Prefetcher(Generic[T]):
    """`make(step)` of one step after another from `first_step` on, by a thread; up to `depth` of them lie ready.

    NumPy lets go of the interpreter while it works, so the update that runs meanwhile loses little. `make` is called
    by one thread at a time, which until `close` is not the caller's. It may pin memory; copies to a GPU are better
    left to the caller, in whose stream they belong.
    """

    def __init__(self, make: Callable[[int], T], first_step: int, *, depth: int = 2) -> None:
        assert depth > 0
        self._make, self._depth = make, depth
        self._start(first_step)

    def take(self, step: int) -> T:
        """What `make` has returned for `step`, or raises what it has raised. A step out of turn starts anew there."""
        if step != self._next or self._over.is_set():
            self.close()
            self._start(step)
        made = self._ready.get()
        self._next += 1
        return made()

    def close(self) -> None:
        """End the thread, after the step that it is at."""
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
        self._ready: queue.Queue[Callable[[], T]] = queue.Queue(self._depth)
        self._thread = threading.Thread(target=self._work, args=(step,), name="prefetch", daemon=True)
        self._thread.start()

    def _work(self, step: int) -> None:
        while not self._over.is_set():
            self._ready.put(_done(self._make, step))
            step += 1


def _done(make: Callable[[int], T], step: int) -> Callable[[], T]:
    """Call `make`; what comes back returns or raises what it did."""
    try:
        made = make(step)
    except BaseException as error:  # whatever it is, the caller waits for it
        caught = error

        def fail() -> T:
            raise caught

        return fail
    return lambda: made
