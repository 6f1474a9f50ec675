"""The ASGI application: every route, and the answers to what goes wrong."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from transformer_cli.addons.serving.access_log import AccessLog
from transformer_cli.addons.serving.apis import (
    deepl,
    deepl_documents,
    deepl_glossaries,
    libretranslate,
    opennmt,
    own,
    own_documents,
    page,
)
from transformer_cli.addons.serving.errors import RequestError, error_answer, headers_of, log_fault
from transformer_cli.addons.serving.gate import Gate
from transformer_cli.addons.serving.metrics import CONTENT_TYPE
from transformer_cli.addons.serving.server import Server
from transformer_cli.errors import quoted

CLIENT_GONE = 499  # as nginx logs it: no one reads the answer


def create_app(server: Server, log: AccessLog | None = None) -> Gate:
    """The routes behind the gate; without `log`, requests are not logged."""
    app = Starlette(
        routes=[
            *_routes(server),
            *own.routes(server),
            *own_documents.routes(server),
            *page.routes(server),
            *libretranslate.routes(server),
            *deepl.routes(server),
            *deepl_documents.routes(server),
            *deepl_glossaries.routes(server),
            *opennmt.routes(server),
        ],
        exception_handlers={
            RequestError: refused,
            HTTPException: not_found,
            ClientDisconnect: gone,
            Exception: failed,
        },
    )
    endpoints: dict[object, str] = {}
    for route in app.routes:
        if isinstance(route, Route):
            endpoints.setdefault(route.endpoint, route.path)
    config = server.config
    inner: ASGIApp = app
    if config.cors:
        inner = CORSMiddleware(
            app,
            allow_origins=config.cors,
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "X-API-Key"],
            expose_headers=["Retry-After"],
        )
    return Gate(inner, config, server.metrics, log, server.service.retry_after, endpoints)


def _routes(server: Server) -> list[Route]:
    """The routes for those who run the server."""

    async def live(request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    async def ready(request: Request) -> JSONResponse:
        if server.is_draining or not server.is_ready:
            return JSONResponse({"status": "draining" if server.is_draining else "starting"}, 503)
        return JSONResponse({"status": "ready"})

    async def metrics(request: Request) -> Response:
        server.authorise(request, counts=False)
        return Response(server.metrics.page(), headers={"Content-Type": CONTENT_TYPE})

    return [Route("/health", live), Route("/ready", ready), Route("/metrics", metrics)]


async def refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return answered(request, error)


async def not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    answer = answered(
        request, RequestError(error.status_code, f"{request.method} {quoted(request.url.path)}: {error.detail}")
    )
    answer.headers.update(error.headers or {})
    return answer


async def gone(request: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_GONE)


async def failed(request: Request, error: Exception) -> Response:
    log_fault(request.method, request.url.path, error)
    return answered(request, RequestError(500, "a fault of the server, which its log names"))


def answered(request: Request, error: RequestError) -> Response:
    """The response to an error, in the shape of the API that the path belongs to."""
    path = request.url.path
    if path in libretranslate.PATHS:
        status, body = libretranslate.error(error.status, error.message)
    elif path.startswith(deepl.PREFIXES):
        status, body = deepl.error(error.status, error.message, error.detail)
    elif path.startswith(opennmt.PREFIX):
        status, body = opennmt.error(error.status, error.message)
    else:
        return error_answer(error)
    return JSONResponse(body, status, headers=headers_of(error))
