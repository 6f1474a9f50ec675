"""HTTP/1.1 as uvicorn speaks it, with bounds that it lacks: on heads, slow clients, and open connections.

A connection waits for a head, for a body, or for its answer; `sweep`, called every second, ends what takes too long.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from enum import Enum, auto
from http import HTTPStatus
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from transformer_cli.addons.serving.keys import LimitsConfig
from transformer_cli.errors import EnvironmentFault

REFUSED = "tfm.refused"  # in a request's scope: the status that it got when its body turned out to be none
MOST_HEADERS = 100
LONGEST_URL = 8192  # bytes
MOST_PIPELINED = 16  # requests that wait for the answer to one before them; what follows them is not yet parsed
SLICE = 1024  # bytes that are parsed at once
MOST_FRAMING = 8  # bytes of a chunked body for each of its content, beside as many as headers may have
DRAIN_SECONDS = 0.5  # after SIGTERM, in which a request may still arrive at an open connection
LINGER_SECONDS = 5.0  # in which a client that was refused may read why, and stop sending
LINGER_BODIES = 4  # times the largest body that a client may go on sending after its answer


class Reading(Enum):
    """What comes next from the client."""

    nothing = auto()  # idle, or busy with the requests that have arrived
    head = auto()
    body = auto()


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    limits: LimitsConfig
    on_refused: Callable[[str, int], object]  # client and status of what is no request

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.reading, self.since = Reading.nothing, time.monotonic()
        self.n_head = self.n_url = self.n_fields = self.n_ignored = self.n_raw = self.n_body = 0
        self.unparsed = bytearray()
        self.drains_since: float | None = None
        self.refusal = (400, "this is no HTTP/1.1 request")
        self.ending_since: float | None = None  # nothing more is answered
        self.writing_since: float | None = None  # the client has not yet taken all that was sent

    @property
    def is_busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    # ---- Of asyncio

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) <= self.limits.connections:
            return
        idle = [other for other in self.connections if isinstance(other, BoundedProtocol) and other.can_make_room]
        if idle and (oldest := min(idle, key=lambda other: other.since)) is not self:
            oldest.transport.abort()
        else:
            self.refuse(503, "too many connections. Try again later")

    @property
    def can_make_room(self) -> bool:
        return not self.is_busy and not self.transport.is_closing() and self.reading is not Reading.body

    def data_received(self, data: bytes) -> None:
        if self.ending_since is not None:
            self._ignore(len(data))
            return
        self.unparsed += data
        self._parse()

    def _parse(self) -> None:
        """Parse what has arrived, up to as many requests as may wait."""
        while self.unparsed and self.ending_since is None and not self.transport.is_closing():
            if len(self.pipeline) >= MOST_PIPELINED:
                self.flow.pause_reading()
                return
            part = bytes(self.unparsed[:SLICE])
            del self.unparsed[:SLICE]
            was = self.reading
            super().data_received(part)
            if was is self.reading and self.ending_since is None:
                self._bound(len(part))

    def _bound(self, n_bytes: int) -> None:
        """Refuse a head that does not end, and a body of more framing than content."""
        if self.reading is Reading.head:
            self.n_head += n_bytes
            if self.n_head > self.limits.head_bytes:
                self.refuse(431, f"more than {self.limits.head_bytes:,} bytes of headers. Send fewer")
        elif self.reading is Reading.body:
            self.n_raw += n_bytes
            if self.n_raw > self.limits.head_bytes + MOST_FRAMING * self.n_body:
                self.refuse(400, "a body of chunks with more extensions than content. Send it without")

    def send_400_response(self, msg: str) -> None:
        self.refuse(*self.refusal)

    def shutdown(self) -> None:
        """Answer what has arrived, or is arriving, and hang up."""
        self.drains_since = time.monotonic()
        if self.is_busy:
            self.cycle.keep_alive = False

    def refuse(self, status: int, message: str) -> None:
        """Answer what is no request, or comes too slowly, and hang up."""
        self.ending_since = time.monotonic()
        self.unparsed.clear()
        if self.is_busy and not self.pipeline and not self.cycle.response_started and self.reading is Reading.body:
            self.cycle.scope[REFUSED] = status  # type: ignore[literal-required]
            self.cycle.disconnected = True  # whoever reads this body learns that there is no more of it
            self.cycle.message_event.set()
        else:
            self.on_refused(self.client[0] if self.client else "-", status)
            if self.is_busy:  # with what came before this: when that is answered, the connection ends
                self.cycle.keep_alive = False
            if self.is_busy or self.transport.is_closing():
                return
        body = json.dumps({"error": message}).encode()
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()  # closing now would reset the connection before the client has read this
        else:
            self.transport.close()

    def _ignore(self, n_bytes: int) -> None:
        """Discards the rest of a body after the answer, which the client cannot read if the connection is reset."""
        self.n_ignored += n_bytes
        if self.n_ignored > LINGER_BODIES * self.limits.body_bytes:
            self.transport.abort()

    # ---- Of the parser

    def _stop(self, status: int, message: str) -> None:
        self.refusal = (status, message)
        raise httptools.HttpParserError(message)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.reading, self.since = Reading.head, time.monotonic()
        self.n_head = self.n_url = self.n_fields = self.n_ignored = self.n_raw = self.n_body = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self.n_url += len(url)
        if self.n_url > LONGEST_URL:
            self._stop(414, f"an address of more than {LONGEST_URL:,} bytes. Send texts in the body")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.n_fields += len(name) + len(value)
        if self.reading is Reading.head:  # what follows a body is not read
            is_encoding = name.lower() == b"transfer-encoding"
            if is_encoding and (value.strip().lower() != b"chunked" or name.lower() in dict(self.headers)):
                self._stop(400, "a Transfer-Encoding other than chunked. Send the body as it is, or in chunks")
            super().on_header(name, value)
        if len(self.headers) > MOST_HEADERS or self.n_fields > self.limits.head_bytes:
            self._stop(431, f"more than {MOST_HEADERS} headers or {self.limits.head_bytes:,} bytes of them. Send fewer")

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self.drains_since is not None:
            self.cycle.keep_alive = False
        self.reading, self.since = Reading.body, time.monotonic()

    def on_body(self, body: bytes) -> None:
        self.n_body += len(body)
        if self.cycle.response_complete:
            self._ignore(len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.reading, self.since = Reading.nothing, time.monotonic()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.reading is Reading.nothing:
            self.since = time.monotonic()
        if self.unparsed:
            self.loop.call_soon(self._parse)

    # ---- Of time

    def end_if_overdue(self, now: float) -> None:
        limits, waited = self.limits, now - self.since
        if self.transport.get_write_buffer_size() == 0:
            self.writing_since = None
        elif self.writing_since is None:
            self.writing_since = now
        elif now - self.writing_since > limits.seconds:
            self.transport.abort()
            return
        if self.ending_since is not None:
            if now - self.ending_since > LINGER_SECONDS + (limits.seconds if self.is_busy else 0):
                self.transport.abort()
        elif self.reading is Reading.head:
            if waited > limits.receive_seconds:
                self.refuse(408, f"no complete head within limits.receive_seconds={limits.receive_seconds:g}")
        elif self.reading is Reading.body:  # Server.body has answered 408 by then, if it was read
            if waited > limits.receive_seconds + LINGER_SECONDS and not self.pipeline:
                self.transport.abort()
        elif self.drains_since is not None:
            if not self.is_busy and now - self.drains_since > DRAIN_SECONDS:
                self.transport.close()
        elif not self.is_busy and waited > (limits.receive_seconds if self.cycle is None else limits.idle_seconds):
            self.transport.close()


def sweep(connections: Iterable[Any]) -> None:
    """End those of `connections` that are too slow."""
    now = time.monotonic()
    for connection in list(connections):
        if isinstance(connection, BoundedProtocol):
            connection.end_if_overdue(now)


# What is used of uvicorn's classes beside ASGI. It is not documented there, so that it is looked for at the start.
OF_A_PROTOCOL = (
    *("client", "connections", "cycle", "flow", "headers", "loop", "pipeline", "transport", "shutdown"),
    *("send_400_response", "on_body", "on_header", "on_headers_complete", "on_message_begin", "on_message_complete"),
    *("on_response_complete", "on_url", "connection_made", "data_received"),
)
OF_A_CYCLE = ("disconnected", "keep_alive", "message_event", "response_complete", "response_started", "scope")


def check_uvicorn() -> None:
    """Raises EnvironmentFault where the installed version is not built as those that this protocol extends."""
    for kind, names in ((HttpToolsProtocol, OF_A_PROTOCOL), (RequestResponseCycle, OF_A_CYCLE)):
        known = {*dir(kind), *kind.__init__.__code__.co_names}
        if missing := [name for name in names if name not in known]:
            raise EnvironmentFault(
                f"uvicorn {uvicorn.__version__}: its {kind.__name__} has no {missing[0]}, which tfm serve needs."
                " Install the version of constraints.txt"
            )
