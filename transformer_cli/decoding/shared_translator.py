"""A Translator that any number of threads and coroutines may call at once."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import TracebackType

from transformer_cli.config.decode import DecodeConfig
from transformer_cli.decoding.results import DEFAULT_OPTIONS, Translated, TranslateOptions
from transformer_cli.decoding.shared_engine import Call, SharedEngine
from transformer_cli.decoding.translator import Translator

CALLS_AT_ONCE = 256  # of coroutines; each waits in a thread, as the engine does not know them


class SharedTranslator(Translator):
    """Calls of several threads are batched together, and none waits for another that began later.

    A translation is the one that a call of its own would give. Closing it, or leaving its `with` block, ends the
    engine's threads.
    """

    def __init__(
        self, engine: SharedEngine, config: DecodeConfig, *, seed: int = 1, options: TranslateOptions = DEFAULT_OPTIONS
    ) -> None:
        super().__init__(engine, config, seed=seed, options=options)
        self.shared = engine

    async def translate_async(self, lines: Sequence[str]) -> list[Translated]:
        """As `translate`, for a coroutine; if it is cancelled, what is still waiting is not searched."""
        call = Call()
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(_waiting_threads(), self.for_call(call).translate, list(lines))
        except asyncio.CancelledError:
            call.is_cancelled = True
            raise

    def for_call(self, call: Call) -> Translator:
        """This translator for one call, which its deadline or another thread may end (GoneError)."""
        return self.using(self.shared.for_call(call))

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
