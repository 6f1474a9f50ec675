"""What a trusted reverse proxy says of the requests that it passes on."""

import ipaddress
import re
from collections.abc import Sequence
from typing import Any, cast

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

_PREFIX = re.compile(rb"(/[A-Za-z0-9._~-]+)+")


def behind_proxies(app: ASGIApp, proxies: Sequence[str]) -> ASGIApp:
    """Believe requests from these addresses and networks about their client, scheme (uvicorn) and path prefix."""
    if not proxies:
        return app
    believing: Any = ProxyHeadersMiddleware(cast("Any", app), trusted_hosts=list(proxies))  # with types of its own
    return ForwardedPrefix(believing, proxies)


class ForwardedPrefix:
    """Take the path below which a proxy has put the server, as `/mt`, from X-Forwarded-Prefix.

    Addresses in answers then begin with it. Stands in front of what replaces the peer's address by the client's, since
    only the former says whether to believe the header.
    """

    def __init__(self, app: ASGIApp, proxies: Sequence[str]) -> None:
        self._app = app
        self._networks = [ipaddress.ip_network(proxy, strict=False) for proxy in proxies]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._is_trusted(scope["client"]):
            given = dict(scope["headers"]).get(b"x-forwarded-prefix", b"").rstrip(b"/")
            if _PREFIX.fullmatch(given):
                scope = {**scope, "root_path": given.decode("ascii")}
        await self._app(scope, receive, send)

    def _is_trusted(self, peer: tuple[str, int] | None) -> bool:
        if peer is None:
            return False
        address = ipaddress.ip_address(peer[0].partition("%")[0])
        return any(address in network for network in self._networks)
