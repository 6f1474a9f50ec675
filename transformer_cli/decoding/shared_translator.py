"""A Translator that any number of threads and coroutines may call at once."""

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from types import TracebackType

from transformer_cli.config.decode import DecodeConfig
from transformer_cli.data.context import Context
from transformer_cli.data.lines import list_of_texts
from transformer_cli.decoding.batch_queue import Call
from transformer_cli.decoding.engine import DecodeRequest
from transformer_cli.decoding.results import DEFAULT_OPTIONS, Translated, TranslateOptions
from transformer_cli.decoding.shared_engine import SharedEngine
from transformer_cli.decoding.translator import Translator

CALLS_AT_ONCE = 256  # of coroutines that need a thread, because there is more to do than one search
SHORT = 2000  # characters that are split into sentences and pieces without a thread: some 0.2 ms


class SharedTranslator(Translator):
    """Calls of several threads are batched together, and one with many lines lets others in between.

    A translation is the one that a call of its own would give. Closing it, or leaving its `with` block, ends the
    engine's threads.
    """

    def __init__(
        self, engine: SharedEngine, config: DecodeConfig, *, seed: int = 1, options: TranslateOptions = DEFAULT_OPTIONS
    ) -> None:
        super().__init__(engine, config, seed=seed, options=options)
        self.shared = engine

    async def translate_async(
        self, lines: Iterable[str], call: Call | None = None, contexts: Sequence[Context] | None = None
    ) -> list[Translated]:
        """Translates as `translate` does, for a coroutine; if it is cancelled, what still waits is not searched."""
        call, lines = call or Call(), list_of_texts(lines, "lines")
        if self.searches_once and sum(map(len, lines)) <= SHORT:
            work = self.planned(lines, contexts=contexts)
            segments = [segment for line in work for segment in line.segments]
            found = await self.shared.search_async(segments, DecodeRequest(self.config, self.seed), call)
            of = {segment.key: hypotheses for segment, hypotheses in zip(segments, found, strict=True)}
            return [self.planner.join(line, of) for line in work]
        loop = asyncio.get_running_loop()
        try:
            translate = partial(self.for_call(call).translate, lines, contexts=contexts)
            return await loop.run_in_executor(_waiting_threads(), translate)
        except asyncio.CancelledError:
            call.is_cancelled = True
            raise

    def for_call(self, call: Call) -> Translator:
        """This translator for one call, which its deadline or another thread may end (GoneError)."""
        return self.using(self.shared.for_call(call), call.check)

    def close(self) -> None:
        self.shared.close()

    def __enter__(self) -> "SharedTranslator":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@cache
def _waiting_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="translate")
