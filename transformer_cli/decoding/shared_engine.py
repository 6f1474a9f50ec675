"""One engine for any number of threads and coroutines: what is waiting is searched together when the engine is free."""

import asyncio
import contextlib
import queue
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from transformer_cli.config.decode import DecodeConfig
from transformer_cli.decoding.batch_queue import BatchKind, BatchQueue, BatchReport, Call, Failed, GoneError, QueueItem
from transformer_cli.decoding.engine import DecodeRequest, Engine, SearchedBatch
from transformer_cli.decoding.plan import Segment
from transformer_cli.decoding.search import SEARCHES, Hypothesis
from transformer_cli.inference.batch_size import BatchTokens
from transformer_cli.inference.force_decode import ForcedScores, IdPair

NO_TRACES = "is not for a translator that threads share. Use `tfm translate --explain`, or leave it out"
_WINDOW = 512  # sentences, the next ones, among which a batch is put together
CACHED = 20_000  # sentences whose hypotheses are kept: some 20 MB


class SharedEngine:
    """`engine`, which up to `n_searches` threads of its own call, for any number of callers.

    Hypotheses are those of the engine alone: an engine's translation does not depend on its batch. `observe` gets each
    batch that is finished. The threads end with this object, or with `close`.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        n_cached: int = CACHED,
        batches_at_once: int = 1,
        observe: Callable[[BatchReport], object] | None = None,
    ) -> None:
        self.engine, self.batches_at_once = engine, batches_at_once
        # Hypotheses are kept for other calls, and traces are a hundred times as large.
        own = engine.capabilities
        self.capabilities = replace(own, traces=False, remedies={**own.remedies, "--explain": NO_TRACES})
        self.tokenizers, self.text = engine.tokenizers, engine.text
        self.n_searches, self.tokens_per_batch = engine.n_searches, engine.tokens_per_batch
        self._queue = BatchQueue(engine, n_cached, observe, window=_WINDOW * batches_at_once)
        self._end = weakref.finalize(self, self._queue.close)

    @property
    def n_waiting(self) -> int:
        """Sentences that are waiting for the engine."""
        return len(self._queue.waiting)

    def close(self) -> None:
        """End the threads when they have done what is waiting."""
        self._end()

    def search(
        self, segments: Sequence[Segment], request: DecodeRequest, call: Call | None = None
    ) -> Iterator[SearchedBatch]:
        """Searches as the engine does; raises GoneError when `call` is over before all is found."""
        kind, items = self._searches(segments, request)
        for n, found in self._results(kind, items, call or Call()):
            yield [segments[n]], [found]

    async def search_async(
        self, segments: Sequence[Segment], request: DecodeRequest, call: Call | None = None
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each segment. No thread waits for them. Raises GoneError as `search` does."""
        kind, items = self._searches(segments, request)
        return await self._results_async(kind, items, call or Call())

    def _searches(self, segments: Sequence[Segment], request: DecodeRequest) -> tuple[BatchKind, list[QueueItem]]:
        """What `segments` are to the queue."""
        is_random = SEARCHES[request.config.search].draws
        key = ("search", repr(request.config), request.seed if is_random else None)
        alike = replace(request, first_line=0)
        kind = BatchKind(
            alike, key, self.engine.tokens_per_batch(request.config) * self.batches_at_once, keeps=not is_random
        )
        items: list[QueueItem] = []
        for segment in segments:
            # The line decides random choices; without these, equal sentences are one.
            line = (request.first_line + segment.line, segment.part) if is_random else None
            # An engine that reads text may tell apart what has the same ids, as two unknown characters.
            own = (key, tuple(segment.ids), segment.text, segment.prefix, segment.required, segment.whole, line)
            what = replace(segment, line=request.first_line + segment.line if is_random else 0)
            items.append((own, what, len(segment.ids) + 1))
        return kind, items

    def score(
        self,
        pairs: Sequence[IdPair],
        *,
        batch_tokens: BatchTokens,
        with_attention: bool = False,
        call: Call | None = None,
    ) -> list[ForcedScores]:
        key = ("score", with_attention, batch_tokens)
        most = self.engine.tokens_per_batch(DecodeConfig(search="greedy", beam_size=1)) * self.batches_at_once
        kind = BatchKind(None, key, most, with_attention, batch_tokens)
        items = [((key, tuple(pair[0]), tuple(pair[1])), pair, max(map(len, pair)) + 1) for pair in pairs]
        found = dict(self._results(kind, items, call or Call()))
        return [found[n] for n in range(len(pairs))]

    def _results(self, kind: BatchKind, items: Sequence[QueueItem], call: Call) -> Iterator[tuple[int, Any]]:
        """The index and the result of each item, as they are found."""
        arrived: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._queue.add(kind, items, call, lambda n, found: arrived.put((n, found)))
        try:
            for _ in items:
                try:
                    n, found = arrived.get(timeout=call.remaining)
                except queue.Empty:
                    raise GoneError from None
                if call.is_over:  # also where all is known, and nothing is waited for
                    raise GoneError
                if isinstance(found, Failed):
                    raise found.error
                yield n, found
        except BaseException:
            call.is_cancelled = True  # what is still waiting need not be searched
            raise

    async def _results_async(self, kind: BatchKind, items: Sequence[QueueItem], call: Call) -> list[Any]:
        """The result of each item."""
        loop = asyncio.get_running_loop()
        arrived: dict[int, Any] = {}
        done: asyncio.Future[None] = loop.create_future()

        def end() -> None:
            if not done.done():
                done.set_result(None)

        def answer(n: int, found: Any) -> None:
            arrived[n] = found
            if len(arrived) == len(items) or isinstance(found, Failed):
                with contextlib.suppress(RuntimeError):  # the loop has been closed
                    loop.call_soon_threadsafe(end)

        timer: asyncio.TimerHandle | None = None

        def end_when_late() -> None:
            nonlocal timer
            if call.remaining:  # the timers of uvloop come up to a millisecond early
                timer = loop.call_later(call.remaining, end_when_late)
            else:
                end()

        self._queue.add(kind, items, call, answer)
        if call.deadline is not None:
            end_when_late()
        try:
            if len(arrived) < len(items):
                await done
            for found in list(arrived.values()):
                if isinstance(found, Failed):
                    raise found.error
            if call.is_cancelled or len(arrived) < len(items):
                raise GoneError
        except BaseException:
            call.is_cancelled = True
            raise
        finally:
            if timer is not None:
                timer.cancel()
        return [arrived[n] for n in range(len(items))]

    def for_call(self, call: Call) -> "CallEngine":
        return CallEngine(self, call)


class CallEngine:
    """A shared engine as one call sees it."""

    def __init__(self, shared: SharedEngine, call: Call) -> None:
        self.shared, self.call = shared, call
        self.capabilities, self.tokenizers, self.text = shared.capabilities, shared.tokenizers, shared.text
        self.n_searches, self.tokens_per_batch = shared.n_searches, shared.tokens_per_batch

    def search(self, segments: Sequence[Segment], request: DecodeRequest) -> Iterator[SearchedBatch]:
        return self.shared.search(segments, request, self.call)

    def score(
        self, pairs: Sequence[IdPair], *, batch_tokens: BatchTokens, with_attention: bool = False
    ) -> list[ForcedScores]:
        return self.shared.score(pairs, batch_tokens=batch_tokens, with_attention=with_attention, call=self.call)
