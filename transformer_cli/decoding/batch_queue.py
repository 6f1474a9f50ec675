"""What waits for an engine, and the threads that search it together in batches.

While the engine is busy, what arrives collects by itself. A batch has the sentence whose turn it is, and those of
similar length; equal sentences are searched once, and kept. The n-th sentence of a call has its turn as if it had
come n sentences later: a caller with many lets others in between, and yet none waits for ever. The larger a batch,
the less time each of its sentences takes: a thread that has just answered several callers waits a little for them to
ask again, but only while another thread is busy, so that a single caller never waits.
"""

import atexit
import sys
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Any

from transformer_cli.decoding.engine import DecodeRequest, Engine
from transformer_cli.decoding.search import Hypothesis
from transformer_cli.errors import ConfigError
from transformer_cli.inference.batch_size import BatchTokens
from transformer_cli.plugins import RAISED, as_exception
from transformer_cli.system import in_forked_processes

_PATIENCE = 0.2  # how long a thread waits for a full share, as a part of the time that its last batch took


class GoneError(Exception):
    """No one waits for the result any more: the call's deadline has passed, or it was cancelled."""


@dataclass(eq=False)
class Call:
    """One caller's claim on the engine, which may end before its results are there."""

    deadline: float | None = None  # of time.monotonic
    is_cancelled: bool = False
    is_awaited: bool = False  # on an event loop, in which nothing may wait
    n_cached: int = 0  # sentences that were known

    @property
    def is_over(self) -> bool:
        return self.is_cancelled or (self.deadline is not None and time.monotonic() >= self.deadline)

    def check(self) -> None:
        """Raises GoneError when it is over: for loops that take long."""
        if self.is_over:
            raise GoneError

    @property
    def remaining(self) -> float | None:
        """Seconds; None: any number."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())


@dataclass(frozen=True)
class BatchReport:
    """A batch that the engine has finished, for those who measure."""

    n_sentences: int
    n_tokens: int  # of the sources, EOS counted
    n_padded: int
    most: int  # padded tokens that it could have had
    seconds: float
    waited: float  # seconds that its oldest sentence had waited


Answer = Callable[[int, Any], object]  # gets the index of an item and its result, in a thread of the engine


# A key, equal for equal results; a segment, or a pair to force-decode; its tokens.
QueueItem = tuple[Hashable, Any, int]


@dataclass(eq=False)
class Work:
    """A sentence to search, or a pair to force-decode, and who wants the result."""

    kind: "BatchKind"
    key: Hashable
    what: Any
    n_tokens: int  # of its longer side that is padded, EOS counted
    since: float
    turn: float  # who has the least is next
    wanted: list[tuple[Call, Answer, int]] = field(default_factory=list)
    is_abandoned: bool = False  # while it is searched, since no one waits for it any more: the result is of no use

    @property
    def is_wanted(self) -> bool:
        return not all(call.is_over for call, _, _ in self.wanted)

    def answer(self, result: Any) -> None:
        for _, answer, n in self.wanted:
            answer(n, result)


@dataclass(frozen=True)
class BatchKind:
    """What can be in one batch: searches of one request, or force-decoding alike."""

    request: DecodeRequest | None = field(compare=False)
    key: Hashable
    most: int = field(compare=False)  # padded tokens of a batch
    with_attention: bool = False
    batch_tokens: BatchTokens = field(default=0, compare=False)
    keeps: bool = field(default=False, compare=False)  # whether results are cached


class Failed:
    """What the engine raised for one sentence."""

    def __init__(self, error: Exception) -> None:
        self.error = error


_QUEUES: "weakref.WeakSet[BatchQueue]" = weakref.WeakSet()
_END_SECONDS = 10.0  # for the batches that are searched when the process ends


@atexit.register
def _end_threads() -> None:
    """A thread that the interpreter ends within CTranslate2 would abort the process, whatever its exit status was."""
    for one in list(_QUEUES):
        one.close()
    end = time.monotonic() + _END_SECONDS
    # Of those, too, whose queue is gone: the last of them is freeing its engine, without the interpreter's lock.
    for thread in threading.enumerate():
        if isinstance(thread, _EngineThread):
            thread.join(max(0.0, end - time.monotonic()))


class _EngineThread(threading.Thread):
    """One that calls an engine."""


@in_forked_processes
def _begin_in_child() -> None:
    for one in list(_QUEUES):
        one.begin()


class BatchQueue:
    """The waiting calls, in order, and the threads that search them. They know this, and not the SharedEngine."""

    def __init__(
        self, engine: Engine, n_cached: int, observe: Callable[[BatchReport], object] | None, *, window: int
    ) -> None:
        self.engine, self.n_cached, self.observe, self.window = engine, n_cached, observe, window
        self.pace = 0.01  # seconds that a sentence takes, of late
        self.cache: OrderedDict[Hashable, Any] = OrderedDict()
        self.is_closed = False
        self.begin()
        _QUEUES.add(self)

    def begin(self) -> None:
        """Starts empty and without threads: at first, and in a forked process, which has none of its parent's.

        A thread of the parent may have held the lock.
        """
        lock = threading.RLock()
        self.changed = threading.Condition(lock)  # what idle threads wait for
        self.is_enough = threading.Condition(lock)  # what those wait for that have just answered
        self.waiting: dict[Hashable, Work] = {}
        self.running: dict[Hashable, Work] = {}
        self.turns: list[tuple[float, int, Work]] = []  # a heap; also of what has another turn now, or has begun
        self.n_turns = 0
        self.threads: list[threading.Thread] = []
        self.n_idle = 0
        self.enough = sys.maxsize  # sentences that a thread waits for

    def close(self) -> None:
        with self.changed:
            self.is_closed = True
            self.changed.notify_all()

    def add(self, kind: BatchKind, items: Sequence[QueueItem], call: Call, answer: Answer) -> None:
        """Let `answer` get the result of each item: now, of those that are known."""
        known = []
        with self.changed:
            if self.is_closed:
                raise ConfigError("the translator is closed. Load the model again, or close it later")
            self._start_threads()
            now, n_new = time.monotonic(), 0
            for n, (key, what, n_tokens) in enumerate(items):
                if kind.keeps and key in self.cache:
                    self.cache.move_to_end(key)
                    call.n_cached += 1
                    known.append((n, self.cache[key]))
                    continue
                work = self.waiting.get(key) or self.running.get(key)
                turn = now + n_new * self.pace
                if work is None:
                    work = self.waiting[key] = Work(kind, key, what, n_tokens, now, turn)
                    self._queue(work)
                    n_new += 1
                elif turn < work.turn and key in self.waiting:
                    work.turn = turn
                    self._queue(work)
                work.wanted.append((call, answer, n))
            self.changed.notify(min(n_new, len(self.threads)))
            if len(self.waiting) >= self.enough:
                self.is_enough.notify_all()
        for n, found in known:
            answer(n, found)

    def _queue(self, work: Work) -> None:
        self.n_turns += 1
        heappush(self.turns, (work.turn, self.n_turns, work))

    def _start_threads(self) -> None:
        """Starts the threads when there is something to do for the first time."""
        if self.threads:
            return
        self.threads = [
            _EngineThread(target=self._work, name=f"engine-{n}", daemon=True) for n in range(self.engine.n_searches)
        ]
        for thread in self.threads:
            thread.start()

    def _work(self) -> None:
        n_answered, until = 0, 0.0
        while (batch := self._take(n_answered, until)) is not None:
            began = time.monotonic()
            self._finish(batch, self._run(batch), began)
            n_answered, now = len(batch), time.monotonic()
            until = now + _PATIENCE * (now - began)

    def _take(self, n_answered: int, until: float) -> list[Work] | None:
        """The next batch; None when there will be none. What no one wants any more is dropped on the way.

        `n_answered` are the sentences of this thread's last batch, and `until` when it stops waiting for as many.
        """
        with self.changed:
            while True:
                if self._waits_for_more(n_answered) and (rest := until - time.monotonic()) > 0:
                    self.is_enough.wait(rest)
                    continue
                self.enough = sys.maxsize
                batch = self._batch()
                if batch:
                    for work in batch:
                        self.running[work.key] = self.waiting.pop(work.key)
                    return batch
                if self.is_closed:
                    return None
                self.n_idle += 1
                try:
                    self.changed.wait()
                finally:
                    self.n_idle -= 1

    def _waits_for_more(self, n_answered: int) -> bool:
        """Whether another thread searches, and this one would have less than its share if those answered ask again."""
        self.enough = (len(self.waiting) + len(self.running) + n_answered) // len(self.threads)
        return bool(self.running) and len(self.waiting) < self.enough

    def _batch(self) -> list[Work]:
        """The next, and of the others that can be searched with it those of the nearest length."""
        window: list[Work] = []
        while self.turns and len(window) < self.window:
            turn, _, work = heappop(self.turns)
            if self.waiting.get(work.key) is not work or turn != work.turn:
                continue
            if work.is_wanted:
                window.append(work)
            else:
                del self.waiting[work.key]
                work.answer(Failed(GoneError()))
        if not window:
            return []
        first = window[0]
        alike = [work for work in window if work.kind == first.kind]
        share = -(-len(alike) // (1 + self.n_idle))  # those threads that are idle beside this one get theirs
        longest = first.n_tokens
        batch: dict[Work, None] = {}
        for work in [first, *sorted(alike[1:], key=lambda work: abs(work.n_tokens - first.n_tokens))]:
            longest = max(longest, work.n_tokens)
            if len(batch) == share or (batch and (len(batch) + 1) * longest > first.kind.most):
                break
            batch[work] = None
        for work in window:
            if work not in batch:
                self._queue(work)
        return list(batch)

    def _run(self, batch: Sequence[Work]) -> list[Any]:
        """The result of each, or why there is none: a sentence that fails does so alone."""
        try:
            return self._results(batch)
        except RAISED as error:
            if len(batch) == 1:
                return [Failed(as_exception(error))]
            return [self._run([work])[0] for work in batch]

    def _results(self, batch: Sequence[Work]) -> list[Any]:
        kind = batch[0].kind
        if kind.request is None:
            pairs = [work.what for work in batch]
            return list(self.engine.score(pairs, batch_tokens=kind.batch_tokens, with_attention=kind.with_attention))
        found: dict[int, list[Hypothesis]] = {}
        of = {id(work.what): work for work in batch}
        request = replace(kind.request, is_cancelled=lambda segment: self._abandons(of[id(segment)]))
        for segments, hypotheses in self.engine.search([work.what for work in batch], request):
            found.update((id(segment), of_it) for segment, of_it in zip(segments, hypotheses, strict=True))
        return [found[id(work.what)] for work in batch]

    def _abandons(self, work: Work) -> bool:
        """Whether no one waits for a sentence while it is searched; who asks from now on has it searched anew."""
        if work.is_wanted:
            return False
        with self.changed:
            if not work.is_wanted and not work.is_abandoned:
                work.is_abandoned = True
                del self.running[work.key]
        return work.is_abandoned

    def _finish(self, batch: Sequence[Work], results: Sequence[Any], began: float) -> None:
        seconds = time.monotonic() - began
        with self.changed:
            results = [
                Failed(GoneError()) if work.is_abandoned else result
                for work, result in zip(batch, results, strict=True)
            ]
            self.pace += (seconds / len(batch) / len(self.threads) - self.pace) / 8
            for work, result in zip(batch, results, strict=True):
                if self.running.get(work.key) is work:
                    del self.running[work.key]
                if work.kind.keeps and not isinstance(result, Failed):
                    self.cache[work.key] = result
            while len(self.cache) > self.n_cached:
                self.cache.popitem(last=False)
        for work, result in zip(batch, results, strict=True):
            work.answer(result)
        if self.observe is not None:
            longest = max(work.n_tokens for work in batch)
            self.observe(
                BatchReport(
                    n_sentences=len(batch),
                    n_tokens=sum(work.n_tokens for work in batch),
                    n_padded=len(batch) * longest,
                    most=batch[0].kind.most,
                    seconds=seconds,
                    waited=began - min(work.since for work in batch),
                )
            )
