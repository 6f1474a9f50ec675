"""What every request passes: who may call the server by which name, how many at once, the log, metrics, headers.

One ASGI middleware instead of several, because each costs time in every request.
"""

import asyncio
import ipaddress
import re
import time
from collections.abc import Callable, Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transformer_cli.addons.serving.access_log import AccessLog, AccessRecord
from transformer_cli.addons.serving.errors import RequestError, error_answer, log_fault
from transformer_cli.addons.serving.keys import ServeConfig
from transformer_cli.addons.serving.metrics import Metrics
from transformer_cli.addons.serving.protocol import REFUSED
from transformer_cli.errors import quoted
from transformer_cli.plugins import RAISED

RECORD = "tfm.record"  # in a request's scope
OTHER = "other"  # the endpoint of addresses that lead nowhere
ALWAYS_ANSWERED = ("/health", "/ready", "/metrics")
_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
}
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


class Gate:
    """`endpoints` gives the route of a handler, for the metrics."""

    def __init__(
        self,
        app: ASGIApp,
        config: ServeConfig,
        metrics: Metrics,
        log: AccessLog | None,
        retry_after: Callable[[], float],
        endpoints: Mapping[object, str],
    ) -> None:
        self.app, self.metrics, self.log = app, metrics, log
        self.retry_after, self.endpoints = retry_after, endpoints
        self.hosts = hosts_of(config)
        self.most, self.n_active = config.limits.requests, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        client = scope.get("client")
        record = AccessRecord(client[0] if client else "-", scope["method"], scope["path"])
        scope[RECORD] = record

        async def send_answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                headers = list(message.get("headers", ()))
                names = {name for name, _ in headers}
                message["headers"] = headers + [item for item in _HEADERS.items() if item[0] not in names]
            await send(message)

        counts = scope["path"] not in ALWAYS_ANSWERED
        self.n_active += counts
        self.metrics.requests_active.set(self.n_active)
        try:
            if refusal := self._refusal(scope, counts=counts):
                await error_answer(refusal)(scope, receive, send_answer)
            else:
                await self.app(scope, receive, send_answer)
        except asyncio.CancelledError:
            record.status = record.status or 503  # the process ends
        except RAISED as error:
            # Starlette answers what a handler raises, and raises it again, for which it has been logged already.
            if not record.status:
                log_fault(record.method, record.path, error)
                await error_answer(RequestError(500, "a fault of the server, which its log names"))(
                    scope, receive, send_answer
                )
        finally:
            self.n_active -= counts
            self.metrics.requests_active.set(self.n_active)
            record.status = scope.get(REFUSED, record.status)
            record.seconds = time.perf_counter() - began
            self.count(record, self.endpoints.get(scope.get("endpoint"), OTHER))

    def count(self, record: AccessRecord, endpoint: str = OTHER) -> None:
        self.metrics.requests.labels(endpoint, record.status).inc()
        self.metrics.request_seconds.labels(endpoint).observe(record.seconds)
        if record.call is not None:
            self.metrics.characters.inc(record.call.n_characters)
            self.metrics.cache_hits.inc(record.call.n_cached)
        if self.log is not None:
            self.log.add(record)

    def _refusal(self, scope: Scope, *, counts: bool) -> RequestError | None:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) > 1 or (not hosts and scope["http_version"] == "1.1"):
            return RequestError(400, "a request needs one Host header")
        if not hosts:
            return self._overload(counts=counts)
        if (name := host_name(hosts[0])) is None:
            return RequestError(400, f"Host {quoted(hosts[0].decode('latin-1'))}: is no name with or without a port")
        if self.hosts is not None and name not in self.hosts:
            return RequestError(
                421, f"Host {quoted(name)}: not a name of this server. `allowed_hosts` of `tfm serve` lists more"
            )
        return self._overload(counts=counts)

    def _overload(self, *, counts: bool) -> RequestError | None:
        if counts and self.n_active > self.most:
            return RequestError(503, "too many requests at once. Try again later", retry_after=self.retry_after())
        return None


def hosts_of(config: ServeConfig) -> set[str] | None:
    """The names in Host headers that are answered; None: all.

    A server of this machine alone must not answer pages of the network whose names lead to 127.0.0.1 (DNS rebinding).
    """
    if "*" in config.allowed_hosts:
        return None
    names = {name.lower().strip("[]") for name in config.allowed_hosts}
    if not names and not is_loopback(config.host):
        return None
    if is_loopback(config.host):
        names |= {*LOOPBACK_NAMES, config.host.lower()}
    return names


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_HOST = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]*))(?::[0-9]{0,5})?")


def host_name(value: bytes) -> str | None:
    """The name or address in a Host header, without the port; None where it is neither (RFC 9110, section 7.2)."""
    match = _HOST.fullmatch(value.decode("latin-1").strip(" \t").lower())
    if match is None:
        return None
    if match["address"] is None:
        return match["name"]
    try:
        return str(ipaddress.IPv6Address(match["address"]))
    except ValueError:
        return None
