"""What the handlers of all APIs share: the service, the threads that requests wait in, and how much they may send."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from transformer_cli.addons.serving.access import Access
from transformer_cli.addons.serving.documents import Documents
from transformer_cli.addons.serving.downloads import KEPT_BODIES, Downloads
from transformer_cli.addons.serving.errors import RequestError
from transformer_cli.addons.serving.forms import Fields, form_fields, parse_json
from transformer_cli.addons.serving.gate import RECORD
from transformer_cli.addons.serving.glossaries import GlossaryStore
from transformer_cli.addons.serving.keys import ServeConfig
from transformer_cli.addons.serving.metrics import Metrics
from transformer_cli.addons.serving.service import RequestCall, RequestOptions, Service, TranslationResponse
from transformer_cli.decoding.batch_queue import GoneError
from transformer_cli.decoding.shared_translator import SHORT

_T = TypeVar("_T")
LARGE = 100_000  # bytes of a body, which others need not wait for while it is parsed
_PATIENCE = 0.25  # seconds before a request is watched for its client's going: most are answered by then


class Server:
    """A service behind HTTP. `draining` says that no new request is to be sent here."""

    def __init__(self, config: ServeConfig, service: Service, metrics: Metrics | None = None) -> None:
        self.config, self.service = config, service
        self.metrics = metrics or Metrics()
        self.access = Access(config)
        self.glossaries = GlossaryStore(config.limits, None if config.glossaries is None else Path(config.glossaries))
        self.threads = ThreadPoolExecutor(config.limits.requests, thread_name_prefix="request")
        self.downloads = Downloads(KEPT_BODIES * config.limits.body_bytes)
        self.documents = Documents(service, self.downloads, self.metrics)
        self.is_ready = False
        self.is_draining = False

    def close(self) -> None:
        """End the threads, give up documents, and let another process use the folder of the glossaries."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.documents.close()
        self.glossaries.close()

    async def run(self, request: Request, work: Callable[[RequestCall], _T]) -> _T:
        """`work` in a thread of its own, with a claim that ends when the client goes. Its body has been read."""
        call = self.service.call()
        if (record := request.scope.get(RECORD)) is not None:
            record.call = call
        future = asyncio.get_running_loop().run_in_executor(self.threads, work, call)
        done, _ = await asyncio.wait([future], timeout=_PATIENCE)
        if not done:
            watch = asyncio.ensure_future(_disconnected(request))
            both: list[asyncio.Future[Any]] = [future, watch]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                watch.cancel()
            if not future.done():
                call.is_cancelled = True
        try:
            return await future
        except GoneError:
            raise ClientDisconnect from None

    async def translate(
        self, request: Request, texts: Sequence[str], source: str | None, target: str | None, options: RequestOptions
    ) -> TranslationResponse:
        """Translates as `run` does; a short request gets no thread, which would cost as much again."""
        if not options.is_simple or self.service.must_detect(source) or sum(map(len, texts)) > SHORT:
            return await self.run(request, partial(self.service.translate, texts, source, target, options))
        call = self.service.call(is_awaited=True)
        if (record := request.scope.get(RECORD)) is not None:
            record.call = call
        watches: list[asyncio.Task[None]] = []
        loop = asyncio.get_running_loop()
        timer = loop.call_later(_PATIENCE, lambda: watches.append(loop.create_task(_cancel_when_gone(request, call))))
        try:
            return await self.service.translate_async(texts, source, target, options, call)
        except GoneError:
            raise ClientDisconnect from None
        finally:
            timer.cancel()
            for watch in watches:
                watch.cancel()

    def authorise(self, request: Request, key: str | None = None, *, counts: bool = True) -> str:
        """Returns the name of the API key, empty where none is needed. Raises RequestError 401 or 429.

        `key` is what the body has, where an API has keys there; headers go first. `counts`: whether the request is one
        of those that have a rate.
        """
        return self.access.check(_key_in(request) or key, request.client.host if request.client else "", counts=counts)

    async def body(self, request: Request) -> bytes:
        """Raises RequestError 413 for a body that is too large, without reading all of it, and 408 for a slow one."""
        seconds = self.config.limits.receive_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._body(request)
        except TimeoutError:
            raise RequestError(408, f"no complete body within limits.receive_seconds={seconds:g}") from None

    async def _body(self, request: Request) -> bytes:
        limit = self.config.limits.body_bytes
        too_large = RequestError(413, f"a body of more than {limit:,} bytes. Send it in parts")
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > limit:
            raise too_large
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise too_large
            parts.append(part)
        return b"".join(parts)

    async def json(self, request: Request) -> dict[str, Any]:
        """The JSON object of the body. Raises RequestError 400 for anything else."""
        value = await self.json_value(request)
        if not isinstance(value, dict):
            raise RequestError(400, 'the body is no JSON object. Send one, as {"text": "…"}')
        return value

    async def json_value(self, request: Request) -> Any:
        return await self._parsed(parse_json, await self.body(request))

    async def fields(self, request: Request) -> Fields:
        """What the body and the address say, as JSON or as a form. Raises RequestError 400 or 413."""
        return await self._parsed(partial(form_fields, request), await self.body(request))

    async def _parsed(self, parse: Callable[[bytes], _T], body: bytes) -> _T:
        if len(body) < LARGE:
            return parse(body)
        return await asyncio.get_running_loop().run_in_executor(self.threads, parse, body)


def _key_in(request: Request) -> str | None:
    """The key of a request's headers, as our clients, DeepL's, and others send it."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() in ("bearer", "deepl-auth-key"):
        return key.strip() or None
    return request.headers.get("x-api-key")


async def _cancel_when_gone(request: Request, call: RequestCall) -> None:
    await _disconnected(request)
    call.is_cancelled = True


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
