"""Headers of reverse proxies, which are believed by the address that they come from."""

import asyncio
import json
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.support.each import each
from transformer_cli.addons.serving.proxies import behind_proxies

PROXIES = ["10.0.0.0/8", "::1"]


async def _seen(request: Request) -> JSONResponse:
    assert request.client is not None
    return JSONResponse({"url": str(request.url_for("file", token="x")), "client": request.client.host})


APP = Starlette(routes=[Route("/translate", _seen), Route("/files/{token}", _seen, name="file")])


def seen(peer: str, *headers: tuple[str, str], path: str = "/translate", proxies: list[str] = PROXIES) -> Any:
    """What an application sees of a request, which it answers."""
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "client": (peer, 5000),
        "server": ("127.0.0.1", 8080),
        "scheme": "http",
        "headers": [(name.lower().encode(), value.encode()) for name, value in (("Host", "mt.example"), *headers)],
    }
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(behind_proxies(APP, proxies)(scope, receive, send))
    start, body = sent
    assert start["status"] == 200
    return json.loads(body["body"])


FORWARDED = (("X-Forwarded-For", "192.0.2.7"), ("X-Forwarded-Proto", "https"), ("X-Forwarded-Prefix", "/mt/"))


@each(
    "peer, proxies, is_trusted",
    [("10.1.2.3", PROXIES, 1), ("::1", PROXIES, 1), ("11.1.2.3", PROXIES, 0), ("::2", PROXIES, 0), ("10.1.2.3", [], 0)],
)
def test_a_trusted_proxy_alone_says_the_client_the_scheme_and_the_prefix(
    peer: str, proxies: list[str], is_trusted: int
) -> None:
    expected = ("https://mt.example/mt/files/x", "192.0.2.7") if is_trusted else ("http://mt.example/files/x", peer)
    assert seen(peer, *FORWARDED, proxies=proxies) == dict(zip(("url", "client"), expected, strict=True))


def test_a_proxy_may_pass_the_whole_path_on() -> None:
    assert seen("10.1.2.3", ("X-Forwarded-Prefix", "/a/mt"), path="/a/mt/translate")["url"] == (
        "http://mt.example/a/mt/files/x"
    )


@each("prefix", ["", "/", "mt", "//evil.example", "/a//b", "/a?b", "/a b", "/mt, /x", "/<b>"])
def test_what_is_no_path_is_no_prefix(prefix: str) -> None:
    assert seen("10.1.2.3", ("X-Forwarded-Prefix", prefix))["url"] == "http://mt.example/files/x"
