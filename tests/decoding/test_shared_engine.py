"""The engine that threads and coroutines share: each gets the result of its own, whatever else is asked at once."""

import asyncio
import gc
import math
import multiprocessing
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import pytest

from tests.support.each import each
from tests.toy.translator import SAMPLE, engine_of, sentences, toy_tokenizer, translator_of
from transformer_cli import plugins
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.decoding.batch_queue import BatchKind, BatchQueue, BatchReport, Call, GoneError, Work
from transformer_cli.decoding.engine import Capabilities, DecodeRequest, SearchedBatch, check_supported
from transformer_cli.decoding.plan import Segment
from transformer_cli.decoding.results import TranslateOptions
from transformer_cli.decoding.search import Hypothesis
from transformer_cli.decoding.shared_engine import SharedEngine
from transformer_cli.decoding.shared_translator import SharedTranslator
from transformer_cli.decoding.training_text import UNKNOWN_TEXT, TrainingText
from transformer_cli.errors import ConfigError, EnvironmentFault
from transformer_cli.inference.force_decode import ForcedScores, IdPair

BEAM, GREEDY = DecodeConfig(beam_size=2), DecodeConfig(search="greedy", beam_size=1)
BAD = 13  # a sentence with this token cannot be searched
SOON = 10.0  # seconds within which what must happen has happened on any machine


class FakeEngine:
    """An engine whose translation of a sentence has the same tokens backwards, and the beam size before them.

    It searches only while `gate` is open, and notes every batch.
    """

    def __init__(self, *, n_searches: int = 1, most: int = 24) -> None:
        self.n_searches, self.most = n_searches, most
        self.capabilities, self.text = Capabilities("fake"), UNKNOWN_TEXT
        self.error: BaseException = EnvironmentFault("no memory for it")
        self.gate, self.began = threading.Event(), threading.Semaphore(0)
        self.gate.set()
        self.batches: list[list[tuple[int, ...]]] = []
        self.requests: list[DecodeRequest] = []

    @property
    def tokenizers(self) -> Tokenizers:
        return Tokenizers(toy_tokenizer(), toy_tokenizer())

    def tokens_per_batch(self, config: DecodeConfig) -> int:
        return self.most

    def search(self, segments: Sequence[Segment], request: DecodeRequest) -> Iterator[SearchedBatch]:
        self.batches.append([tuple(segment.ids) for segment in segments])
        self.requests.append(request)
        self.began.release()
        assert self.gate.wait(SOON)
        if any(BAD in segment.ids for segment in segments):
            raise self.error
        for segment in segments:
            yield [segment], [result_of(segment.ids, request.config)]

    def score(self, pairs: Sequence[IdPair], *, batch_tokens: Any, with_attention: bool = False) -> list[ForcedScores]:
        self.batches.append([tuple(source) for source, _ in pairs])
        return [ForcedScores([-float(sum(source) + sum(target))]) for source, target in pairs]

    def wait(self, n_batches: int) -> None:
        """Waits until as many more batches have begun."""
        for _ in range(n_batches):
            assert self.began.acquire(timeout=SOON)


def held_back(**settings: int) -> tuple[FakeEngine, SharedEngine]:
    """An engine that begins batches but ends none until its gate is opened."""
    engine = FakeEngine(**settings)
    engine.gate.clear()
    return engine, SharedEngine(engine)


def result_of(ids: Sequence[int], config: DecodeConfig) -> list[Hypothesis]:
    return [Hypothesis([config.beam_size, *reversed(ids)], -1.0, -1.0, True)]


def segments_of(*sources: Sequence[int]) -> list[Segment]:
    return [Segment(n, 0, list(ids)) for n, ids in enumerate(sources)]


def found(shared: SharedEngine, *sources: Sequence[int], config: DecodeConfig = BEAM, call: Call | None = None) -> Any:
    """The hypotheses of each source, in order."""
    results = {
        segment.line: of_it
        for batch, hypotheses in shared.search(segments_of(*sources), DecodeRequest(config), call)
        for segment, of_it in zip(batch, hypotheses, strict=True)
    }
    return [results[n] for n in range(len(sources))]


class LateCall(Call):
    """A call of a thread whose deadline is 50 ms after `begun`, however slow the machine is until then."""

    def __init__(self) -> None:
        super().__init__(deadline=math.inf)
        self.begun = threading.Event()

    @property
    def remaining(self) -> float | None:
        assert self.begun.wait(SOON)
        if self.deadline == math.inf:
            self.deadline = time.monotonic() + 0.05
        return super().remaining


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def drawn_sources(chooser: random.Random) -> list[list[int]]:
    return [
        [chooser.randint(1, 12) for _ in range(chooser.randint(0, 15))] for _ in range(chooser.choice((0, 1, 1, 2, 9)))
    ]


# ---- Each caller gets its own


@pytest.mark.parametrize("n_searches", [1, 3])
def test_threads_and_coroutines_get_the_results_of_their_own(n_searches: int) -> None:
    shared = SharedEngine(FakeEngine(n_searches=n_searches), n_cached=20)

    def ask(seed: int) -> None:
        chooser = random.Random(seed)
        for _ in range(20):
            sources, config = drawn_sources(chooser), chooser.choice((BEAM, GREEDY))
            assert found(shared, *sources, config=config) == [result_of(ids, config) for ids in sources]

    async def ask_async(seed: int) -> None:
        chooser = random.Random(seed)
        for _ in range(20):
            sources, config = drawn_sources(chooser), chooser.choice((BEAM, GREEDY))
            results = await shared.search_async(segments_of(*sources), DecodeRequest(config))
            assert results == [result_of(ids, config) for ids in sources]

    async def ask_all() -> None:
        await asyncio.gather(*map(ask_async, range(100, 108)))

    with ThreadPoolExecutor(9) as pool:
        for done in [*(pool.submit(ask, seed) for seed in range(8)), pool.submit(asyncio.run, ask_all())]:
            done.result(6 * SOON)


def test_force_decoding_of_several_threads_gives_each_its_own() -> None:
    shared = SharedEngine(FakeEngine())
    pairs = [([n, n + 1], [2 * n]) for n in range(1, 11)]
    with ThreadPoolExecutor(5) as pool:
        parts = [pool.submit(shared.score, pairs[n : n + 2], batch_tokens=0) for n in range(0, 10, 2)]
        scores = [one.log_probs for part in parts for one in part.result(SOON)]
    assert scores == [[-float(sum(source) + sum(target))] for source, target in pairs]


def test_translations_are_those_of_the_engine_alone() -> None:
    lines = [*sentences(30, seed=5), ""]
    plain = translator_of(toy_tokenizer(), beam_size=3)
    shared = SharedTranslator(SharedEngine(engine_of(plain)), plain.config)
    expected = plain.translate(lines)

    async def one_by_one() -> list[Any]:
        return await asyncio.gather(*(shared.translate_async([line]) for line in lines))

    with ThreadPoolExecutor(8) as pool:
        in_threads = list(pool.map(lambda line: shared.translate([line]), lines))
    for results in (in_threads, asyncio.run(one_by_one()), [[one] for one in shared.translate(lines)]):
        assert [one.text for (one,) in results] == [one.text for one in expected]
        for (one,), other in zip(results, expected, strict=True):
            assert [c.score for c in one.candidates] == pytest.approx([c.score for c in other.candidates], abs=1e-4)


def test_samples_are_those_of_the_engine_alone() -> None:
    lines = [*sentences(8, seed=6), *sentences(8, seed=6)]  # equal sentences, but other draws
    plain = translator_of(toy_tokenizer(), seed=7, **SAMPLE)
    shared = SharedTranslator(SharedEngine(engine_of(plain)), plain.config, seed=7)
    expected = plain.translate(lines)
    with ThreadPoolExecutor(4) as pool:
        for results in pool.map(lambda _: shared.translate(lines), range(4)):
            assert [one.hypotheses[0][0] for one in results] == [one.hypotheses[0][0] for one in expected]
            assert [len(one.candidates) for one in results] == [2] * len(lines)


# ---- What is searched


def test_equal_sentences_are_searched_once_while_they_wait_and_while_they_are_searched() -> None:
    engine, shared = held_back()
    with ThreadPoolExecutor(8) as pool:
        first = [pool.submit(found, shared, [1, 2])]
        engine.wait(1)
        rest = [pool.submit(found, shared, [1, 2], [3], [3]) for _ in range(6)]
        until(lambda: shared.n_waiting == 1)
        time.sleep(0.02)
        engine.gate.set()
        assert [one.result(SOON) for one in first] == [[result_of([1, 2], BEAM)]]
        assert all(one.result(SOON)[1] == result_of([3], BEAM) for one in rest)
    assert engine.batches == [[(1, 2)], [(3,)]]


def test_known_sentences_are_not_searched_again_until_others_have_taken_their_place() -> None:
    engine, call = FakeEngine(), Call()
    shared = SharedEngine(engine, n_cached=2)
    for source in ([1], [2], [1], [3], [1], [2]):
        assert found(shared, source, call=call) == [result_of(source, BEAM)]
    assert engine.batches == [[(1,)], [(2,)], [(3,)], [(2,)]]  # [1] was used last each time
    assert call.n_cached == 2
    found(shared, [1], config=GREEDY)
    assert engine.batches[4:] == [[(1,)]]  # other options, another translation


def test_without_a_cache_every_call_is_searched() -> None:
    engine = FakeEngine()
    shared = SharedEngine(engine, n_cached=0)
    found(shared, [1])
    found(shared, [1])
    assert engine.batches == [[(1,)], [(1,)]]


def test_a_batch_has_one_request_and_no_more_tokens_than_it_may_have() -> None:
    engine = FakeEngine()
    reports: list[BatchReport] = []
    shared = SharedEngine(engine, observe=reports.append)
    engine.gate.clear()
    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(found, shared, [9])]
        engine.wait(1)
        sources = [[n] * (1 + n % 7) for n in range(12) if n != BAD]
        calls += [pool.submit(found, shared, *sources, config=config) for config in (BEAM, GREEDY)]
        until(lambda: shared.n_waiting == 24)
        engine.gate.set()
        for one in calls:
            one.result(SOON)
    until(lambda: len(reports) == len(engine.batches))
    for batch, report in zip(engine.batches, reports, strict=True):
        assert len(batch) * (max(map(len, batch)) + 1) <= 24
        assert report.n_sentences == len(batch)
        assert report.n_tokens == sum(len(ids) + 1 for ids in batch)
        assert report.n_padded == len(batch) * (max(map(len, batch)) + 1)
    assert sorted(ids for batch in engine.batches for ids in batch) == sorted([(9,), *map(tuple, [*sources, *sources])])


def queue_of(lengths: Sequence[int], *, most: int, others: Sequence[int] = ()) -> BatchQueue:
    """A queue in which so many sentences wait, those at `others` with another request."""
    waiting = BatchQueue(FakeEngine(), 0, None, window=100)
    for n, length in enumerate(lengths):
        kind = BatchKind(DecodeRequest(BEAM), "other" if n in others else "one", most)
        wanted: list[Any] = [(Call(), lambda n, found: None, 0)]
        waiting.waiting[n] = Work(kind, n, None, length, since=float(n), turn=float(n), wanted=wanted)
        waiting._queue(waiting.waiting[n])
    return waiting


@each("seed", range(40))
def test_a_batch_is_the_oldest_and_as_many_as_fit_of_the_nearest_lengths(seed: int) -> None:
    chooser = random.Random(seed)
    lengths = [chooser.randint(1, 9) for _ in range(chooser.randint(1, 8))]
    others = [n for n in range(1, len(lengths)) if chooser.random() < 0.3]
    most = chooser.randint(5, 40)
    chosen = {work.key for work in queue_of(lengths, most=most, others=others)._batch()}
    alike = [n for n in range(len(lengths)) if n not in others]

    def fits(sentences: Sequence[Any]) -> bool:
        return len(sentences) == 1 or len(sentences) * max(lengths[n] for n in sentences) <= most

    def distances(sentences: Sequence[Any]) -> list[int]:
        return sorted(abs(lengths[n] - lengths[0]) for n in sentences)

    assert 0 in chosen
    assert chosen <= set(alike)
    assert fits(sorted(chosen))
    # Of all batches of that size with the oldest, none has nearer lengths; and with the nearest of the rest it is full.
    same_size = [{0, *rest} for rest in combinations(alike[1:], len(chosen) - 1)]
    assert distances(list(chosen)) == min(distances(list(one)) for one in same_size)
    if rest := sorted((n for n in alike if n not in chosen), key=lambda n: abs(lengths[n] - lengths[0])):
        assert not fits([*chosen, rest[0]])


def test_idle_threads_get_a_share_each() -> None:
    engine = FakeEngine(n_searches=3, most=1000)
    shared = SharedEngine(engine)
    found(shared, [1])
    until(lambda: shared._queue.n_idle == 3)
    found(shared, *([n, n + 1] for n in range(20, 50)))
    assert len(engine.batches) >= 4  # one before, and one or more of each thread
    assert all(len(batch) < 30 for batch in engine.batches)


def test_the_oldest_is_not_passed_over_for_ever() -> None:
    engine = FakeEngine(most=16)
    shared = SharedEngine(engine, n_cached=0)
    engine.gate.clear()

    def short_ones(n: int) -> None:
        for _ in range(50):
            found(shared, [n])

    threads = [in_thread(lambda: found(shared, [11]))]
    engine.wait(1)  # with a batch of this one alone, so that all others wait
    threads.extend(in_thread(partial(short_ones, n)) for n in range(1, 9))
    until(lambda: shared.n_waiting == 8)
    threads.append(in_thread(lambda: found(shared, [1] * 15)))  # alone it fills a batch
    until(lambda: (1,) * 15 in [tuple(work.what.ids) for work in list(shared._queue.waiting.values())])
    n_before, n_ahead = len(engine.batches), shared.n_waiting
    engine.gate.set()
    for thread in threads:
        thread.join(SOON)
        assert not thread.is_alive()
    assert engine.batches.index([(1,) * 15]) <= n_before + n_ahead


# ---- What goes wrong


def test_a_caller_with_many_sentences_lets_a_later_one_in_between() -> None:
    engine, shared = held_back(most=12)
    shared._queue.pace = 60.0  # seconds that a sentence takes
    many = in_thread(lambda: found(shared, *([n, n, n, n, n] for n in range(20, 60))))
    engine.wait(1)
    one = in_thread(lambda: found(shared, [7, 7, 7, 7, 7]))
    until(lambda: shared.n_waiting == 39)  # the first batch has two of them
    engine.gate.set()
    many.join(SOON)
    one.join(SOON)
    (place,) = [n for n, batch in enumerate(engine.batches) if (7,) * 5 in batch]
    assert (place, len(engine.batches)) == (1, 21)


def test_a_sentence_that_a_later_call_wants_too_has_the_earlier_of_both_turns() -> None:
    engine, shared = held_back(most=6)
    shared._queue.pace = 60.0
    many = in_thread(lambda: found(shared, *([n, n, n, n, n] for n in range(20, 40))))
    engine.wait(1)
    one = in_thread(lambda: found(shared, [39] * 5))
    until(lambda: any(len(work.wanted) == 2 for work in shared._queue.waiting.values()))
    engine.gate.set()
    many.join(SOON)
    one.join(SOON)
    assert engine.batches.index([(39,) * 5]) == 1
    assert len(engine.batches) == 20


def test_an_error_reaches_only_its_own_sentence() -> None:
    engine, shared = held_back()
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(found, shared, [7])
        engine.wait(1)
        good, bad = pool.submit(found, shared, [1], [2]), pool.submit(found, shared, [3], [BAD])
        until(lambda: shared.n_waiting == 4)
        engine.gate.set()
        assert first.result(SOON) == [result_of([7], BEAM)]
        assert good.result(SOON) == [result_of([1], BEAM), result_of([2], BEAM)]
        with pytest.raises(EnvironmentFault, match="no memory for it"):
            bad.result(SOON)
    with pytest.raises(EnvironmentFault):  # it is not kept as if it were a result
        asyncio.run(shared.search_async(segments_of([BAD]), DecodeRequest(BEAM)))
    assert found(shared, [4]) == [result_of([4], BEAM)]


def test_a_search_of_a_plugin_that_exits_ends_neither_a_thread_nor_an_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plugins, "_loaded", [__name__])
    engine = FakeEngine()
    engine.error = SystemExit(0)
    shared = SharedEngine(engine)
    for call in (
        lambda: found(shared, [BAD], call=Call(deadline=time.monotonic() + SOON)),
        lambda: asyncio.run(shared.search_async(segments_of([BAD]), DecodeRequest(BEAM))),
    ):
        with pytest.raises(ConfigError, match=r"^plugin .*test_shared_engine\.py:\d+\): SystemExit: 0\. Correct it"):
            call()
    assert found(shared, [4]) == [result_of([4], BEAM)]


@pytest.mark.parametrize("is_late", [True, False])
def test_calls_that_are_over_leave_the_queue(is_late: bool) -> None:
    engine, shared = held_back()
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(found, shared, [1])
        engine.wait(1)
        call = LateCall() if is_late else Call()
        over, other = pool.submit(found, shared, [2], [3], call=call), pool.submit(found, shared, [3])
        until(lambda: shared.n_waiting == 2)
        if isinstance(call, LateCall):
            call.begun.set()
            with pytest.raises(GoneError):  # at its time, though the engine is busy
                over.result(SOON)
        call.is_cancelled = True
        engine.gate.set()
        with pytest.raises(GoneError):
            over.result(SOON)
        assert other.result(SOON) == [result_of([3], BEAM)]  # someone else wants it
        assert first.result(SOON) == [result_of([1], BEAM)]
    assert engine.batches == [[(1,)], [(3,)]]
    assert shared.n_waiting == 0


class LongSearch(FakeEngine):
    """A search that goes on until each of its sentences is cancelled."""

    def search(self, segments: Sequence[Segment], request: DecodeRequest) -> Iterator[SearchedBatch]:
        self.batches.append([tuple(segment.ids) for segment in segments])
        self.began.release()
        assert request.is_cancelled is not None
        waiting = {segment.line: segment for segment in segments if not self.gate.is_set()}
        end = time.monotonic() + SOON
        while waiting:
            assert time.monotonic() < end
            waiting = {line: segment for line, segment in waiting.items() if not request.is_cancelled(segment)}
        yield segments, [result_of(segment.ids, request.config) for segment in segments]


@pytest.mark.parametrize("is_late", [True, False])
def test_a_search_that_no_one_waits_for_any_more_ends_and_is_not_kept(is_late: bool) -> None:
    engine, call = LongSearch(), LateCall() if is_late else Call()
    engine.gate.clear()
    shared = SharedEngine(engine)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(found, shared, [1], call=call)
        engine.wait(1)
        if isinstance(call, LateCall):
            call.begun.set()
        else:
            call.is_cancelled = True
        with pytest.raises(GoneError):
            asked.result(SOON)
    until(lambda: not shared._queue.running)  # who asks before would get the result of this search
    engine.gate.set()
    assert found(shared, [1]) == [result_of([1], BEAM)]
    assert engine.batches == [[(1,)], [(1,)]]


def test_all_that_is_known_is_not_given_to_a_call_that_is_over() -> None:
    shared = SharedEngine(FakeEngine())
    found(shared, [1], [2])
    with pytest.raises(GoneError):
        found(shared, [1], [2], call=Call(deadline=time.monotonic()))


def test_a_coroutine_that_is_late_or_cancelled_leaves_the_queue() -> None:
    engine, shared = held_back()

    async def ask() -> None:
        first = asyncio.ensure_future(shared.search_async(segments_of([1]), DecodeRequest(BEAM)))
        await asyncio.to_thread(engine.wait, 1)
        late = shared.search_async(segments_of([2]), DecodeRequest(BEAM), Call(deadline=time.monotonic() + 0.03))
        with pytest.raises(GoneError):
            await late
        cancelled = asyncio.ensure_future(shared.search_async(segments_of([3]), DecodeRequest(BEAM)))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        engine.gate.set()
        assert await first == [result_of([1], BEAM)]

    asyncio.run(ask())
    until(lambda: shared.n_waiting == 0)
    assert engine.batches == [[(1,)]]


def test_a_timer_that_comes_early_does_not_end_a_call_before_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, shared = held_back()
    call = Call(deadline=time.monotonic() + 0.2)

    async def ask() -> None:
        loop = asyncio.get_running_loop()
        later = loop.call_later
        monkeypatch.setattr(loop, "call_later", lambda delay, *rest, **named: later(delay / 2, *rest, **named))
        with pytest.raises(GoneError):
            await shared.search_async(segments_of([1]), DecodeRequest(BEAM), call)
        assert call.remaining == 0.0

    asyncio.run(ask())
    engine.gate.set()


def test_an_event_loop_that_has_ended_does_not_end_the_engine() -> None:
    engine, shared = held_back()
    loop = asyncio.new_event_loop()
    task = loop.create_task(shared.search_async(segments_of([1]), DecodeRequest(BEAM)))
    loop.run_until_complete(asyncio.sleep(0))
    engine.wait(1)
    loop.close()
    engine.gate.set()
    assert found(shared, [2]) == [result_of([2], BEAM)]
    task._log_destroy_pending = False  # type: ignore[attr-defined]


# ---- Waiting for more


def test_a_thread_waits_for_those_that_it_has_answered_only_while_another_is_busy() -> None:
    waiting = queue_of([2, 2], most=100)
    waiting.threads = [threading.current_thread()] * 2  # its engine's
    assert not waiting._waits_for_more(10)  # nothing else is searched: a single caller never waits
    waiting.running = {("running", n): next(iter(waiting.waiting.values())) for n in range(4)}
    assert waiting._waits_for_more(10)  # a share is (2 + 4 + 10) / 2, and 2 are here
    assert waiting.enough == 8  # with which it is woken
    waiting.running = dict(list(waiting.running.items())[:2])
    assert not waiting._waits_for_more(1)  # a share is 2


# ---- Threads and processes


def test_the_threads_end_with_the_object() -> None:
    engine = FakeEngine(n_searches=2)
    shared = SharedEngine(engine)
    found(shared, [1])
    threads = shared._queue.threads
    assert [thread.is_alive() for thread in threads] == [True, True]
    del shared
    gc.collect()
    for thread in threads:
        thread.join(SOON)
        assert not thread.is_alive()


def test_close_lets_the_engine_finish_what_is_waiting() -> None:
    engine, shared = held_back()
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(found, shared, [1])]
        engine.wait(1)
        calls.append(pool.submit(found, shared, [2]))
        until(lambda: shared.n_waiting == 1)
        shared.close()
        engine.gate.set()
        assert [one.result(SOON) for one in calls] == [[result_of([1], BEAM)], [result_of([2], BEAM)]]
    with pytest.raises(ConfigError, match="the translator is closed"):
        found(shared, [3])


@pytest.mark.skipif(sys.platform == "win32", reason="no fork there")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_can_use_it() -> None:
    shared = SharedEngine(FakeEngine())
    found(shared, [1])
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=lambda: answers.put([h.ids for (h,) in found(shared, [5, 6], [1])]))
    child.start()
    child.join(SOON)
    assert child.exitcode == 0
    assert answers.get() == [[BEAM.beam_size, 6, 5], [BEAM.beam_size, 1]]
    assert found(shared, [2]) == [result_of([2], BEAM)]


@pytest.mark.skipif(sys.platform == "win32", reason="no fork there")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_that_is_forked_in_the_middle_of_a_search_can_use_it() -> None:
    engine, shared = held_back()
    busy = in_thread(lambda: found(shared, [1], [2]))
    engine.wait(1)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    def ask() -> None:
        engine.gate = threading.Event()  # a thread of the parent may have held the lock of its own
        engine.gate.set()
        answers.put([h.ids for (h,) in found(shared, [1], [2])])

    child = context.Process(target=ask)
    child.start()
    child.join(SOON)
    engine.gate.set()
    busy.join(SOON)
    assert child.exitcode == 0
    assert answers.get() == [[BEAM.beam_size, 1], [BEAM.beam_size, 2]]


def test_it_is_an_engine_of_the_same_model() -> None:
    engine = FakeEngine(n_searches=2)
    shared = SharedEngine(engine)
    text: TrainingText = shared.text
    assert (text, shared.n_searches) == (engine.text, 2)
    assert replace(shared.capabilities, traces=True, remedies={}) == engine.capabilities
    with pytest.raises(ConfigError, match=r"--explain: is not for a translator that threads share\. Use"):
        check_supported(shared.capabilities, DecodeConfig(), TranslateOptions(n_likeliest=5))
    assert shared.tokens_per_batch(BEAM) == 24
