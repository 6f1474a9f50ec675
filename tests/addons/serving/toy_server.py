"""The real server on a free port of this machine, with toy models or with stand-ins whose translations are known."""

import asyncio
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from tests.toy import run as toy_run
from transformer_cli.addons.serving.app import create_app
from transformer_cli.addons.serving.keys import LimitsConfig, ServeConfig
from transformer_cli.addons.serving.models import ModelTable, ServedModel
from transformer_cli.addons.serving.server import Server
from transformer_cli.addons.serving.service import Service
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.tags import languages_of
from transformer_cli.decoding.batch_queue import Call, GoneError
from transformer_cli.decoding.results import Candidate, Translated, TranslateOptions
from transformer_cli.decoding.training_text import UNKNOWN_TEXT
from transformer_cli.errors import ConfigError

BREAK = "break"  # a line with this word fails as a fault of tfm does
SLOW = "slow"  # a line with this word takes SLOWNESS seconds
SLOWNESS = 0.4
DECODE = DecodeConfig(search="greedy", beam_size=1, max_extra_length=5)
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # of this machine, whatever the environment says


class StandInTranslator:
    """Writes each word in capitals, or, if `reverses`, the words from the last to the first. Alignments are exact.

    Terms are written as they are.
    """

    written: Callable[[str], str] = staticmethod(str.upper)

    def __init__(self, decode: DecodeConfig, options: TranslateOptions, *, reverses: bool) -> None:
        self.decode, self.options, self.reverses = decode, options, reverses
        self.tokenizers, self.text = toy_run.tokenizers(), UNKNOWN_TEXT
        self.call = Call()

    def for_call(self, call: Call) -> "StandInTranslator":
        self.call = call
        return self

    def room(self, lines: Sequence[str]) -> list[int | None]:
        return [1000] * len(lines)

    def translate(self, lines: Sequence[str], prefixes: Any = None, contexts: Any = None) -> list[Translated]:
        if prefixes is not None:
            raise ConfigError("prefix: a stand-in has none. Leave it out")
        return [self._one(line) for line in lines]

    async def translate_async(self, lines: Sequence[str], call: Call, contexts: Any = None) -> list[Translated]:
        return await asyncio.to_thread(self.for_call(call).translate, lines)

    def _one(self, line: str) -> Translated:
        words = line.split()
        assert BREAK not in words
        if SLOW in words:
            time.sleep(SLOWNESS)
        if self.call.is_over:
            raise GoneError
        text = " ".join(reversed(words)) if self.reverses else self.written(line)
        for term in self.options.terminology.find(line) if self.options.terminology else ():
            text = text.replace(self.written(term.source), term.targets[0])
        n_words = len(words)
        links = [(i, n_words - 1 - i if self.reverses else i) for i in range(n_words)]
        candidates = [Candidate(text if n == 0 else f"{text} ({n})", -1.0 - n, -1.0 - n, n_words + 1) for n in range(9)]
        return Translated(
            candidates[: self.decode.n_best],
            alignment=links if self.options.alignments else None,
            tokens=[(word, -0.5) for word in text.split()] if self.options.token_scores else None,
        )


class StandIn:
    """What a ServedModel is to the service and to the APIs; de → en by default."""

    def __init__(self, source: str = "de", target: str = "en", *, reverses: bool = False) -> None:
        self.name, self.sha256, self.path = f"{source}-{target}", "0" * 64, Path(f"{source}-{target}.safetensors")
        self.source_lang, self.target_lang, self.engine = source, target, "torch"
        self.source_langs, self.target_langs = languages_of(source), languages_of(target)
        self.tags: tuple[str, ...] = ()
        self.symbols: tuple[str, ...] = ()
        self.n_waiting, self.reverses, self.is_export, self.can_align = 0, reverses, False, True

    pairs, is_of_many, translates = ServedModel.pairs, ServedModel.is_of_many, ServedModel.translates

    def tags_for(self, source: str, target: str) -> tuple[str, ...]:
        return () if len(self.target_langs) == 1 else (f"<2{target}>",)

    def translator(self, decode: DecodeConfig, options: TranslateOptions) -> StandInTranslator:
        return StandInTranslator(decode, options, reverses=self.reverses)

    def warm_up(self) -> str:
        return ""

    def is_replaced(self) -> bool:
        return False


class StandInTable(ModelTable):
    def __init__(self, config: ServeConfig, models: Sequence[Any]) -> None:
        self.config, self.models, self.failed = config, list(models), {}
        self._check_pairs()


def stand_in_server(*models: StandIn, limits: dict[str, Any] | None = None, **settings: Any) -> Server:
    """A server of stand-ins, by default one of de → en, that does not listen yet."""
    config = ServeConfig(limits=LimitsConfig(**limits or {}), **settings)
    return Server(config, Service(config, StandInTable(config, models or [StandIn()])))


def toy_server(*files: Path, limits: dict[str, Any] | None = None, **settings: Any) -> Server:
    """A server of real models, with torch, that does not listen yet."""
    config = ServeConfig(
        checkpoint=[str(file) for file in files],
        limits=LimitsConfig(**limits or {}),
        **{"engine": "torch", "decode": DECODE, **settings},
    )
    return Server(config, Service(config, ModelTable(config)))


@dataclass(frozen=True)
class Running:
    url: str  # without a slash at its end
    server: Server

    def ask(
        self, path: str, body: Any = None, *, method: str | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Status and answer, read as JSON where it is. A body other than bytes is sent as JSON."""
        headers = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        request = urllib.request.Request(self.url + path, data=body, headers=headers, method=method)
        try:
            with _OPENER.open(request, timeout=20) as answer:
                status, content, kind = answer.status, answer.read(), answer.headers.get("Content-Type", "")
        except urllib.error.HTTPError as error:
            with error:
                status, content, kind = error.code, error.read(), error.headers.get("Content-Type", "")
        return status, json.loads(content) if kind.startswith("application/json") else content


@contextmanager
def running(server: Server) -> Iterator[Running]:
    """`server` behind uvicorn, in a thread, at a port of its own."""
    config = uvicorn.Config(
        create_app(server), host="127.0.0.1", port=0, log_level="warning", access_log=False, lifespan="off"
    )
    uvicorn_server = uvicorn.Server(config)
    thread = threading.Thread(target=uvicorn_server.run, daemon=True)
    thread.start()
    try:
        while not uvicorn_server.started:
            assert thread.is_alive()
            time.sleep(0.005)
        server.is_ready = True
        port = uvicorn_server.servers[0].sockets[0].getsockname()[1]
        yield Running(f"http://127.0.0.1:{port}", server)
    finally:
        uvicorn_server.should_exit = True
        thread.join(20)
        server.close()
        for model in server.service.table.models:
            if hasattr(model, "shared"):
                model.shared.close()
