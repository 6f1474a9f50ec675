"""The ASGI application: every route, and the answers to what goes wrong."""

import math

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from transformer_cli.logs import LOGGER
from transformer_cli.serving.apis import own, page
from transformer_cli.serving.errors import RequestError
from transformer_cli.serving.server import Server

CLIENT_GONE = 499  # as nginx logs it: no one reads the answer


def create_app(server: Server) -> Starlette:
    async def live(request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    async def ready(request: Request) -> JSONResponse:
        if server.is_draining or not server.is_ready:
            return JSONResponse({"status": "draining" if server.is_draining else "starting"}, 503)
        return JSONResponse({"status": "ready"})

    return Starlette(
        routes=[
            Route("/health", live),
            Route("/ready", ready),
            *own.routes(server),
            *page.routes(server),
        ],
        exception_handlers={
            RequestError: refused,
            HTTPException: not_found,
            ClientDisconnect: gone,
            Exception: failed,
        },
    )


def error_answer(status: int, message: str, retry_after: float | None = None) -> JSONResponse:
    headers = {} if retry_after is None else {"Retry-After": str(math.ceil(retry_after))}
    return JSONResponse({"error": message}, status, headers=headers)


async def refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return error_answer(error.status, error.message, error.retry_after)


async def not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    answer = error_answer(error.status_code, f"{request.method} {request.url.path}: {error.detail}")
    answer.headers.update(error.headers or {})
    return answer


async def gone(request: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_GONE)


async def failed(request: Request, error: Exception) -> Response:
    LOGGER.error("%s %s: %r, which is a fault of tfm", request.method, request.url.path, error)
    return error_answer(500, "a fault of the server, which its log names")
