"""Files in our own API: sent to `/api/document`, translated meanwhile, and fetched once."""

from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from transformer_cli.addons.serving.apis.own import terms_of
from transformer_cli.addons.serving.documents import UploadedDocument
from transformer_cli.addons.serving.errors import RequestError
from transformer_cli.addons.serving.forms import given, language_code, parse_json, string_of
from transformer_cli.addons.serving.server import Server
from transformer_cli.addons.serving.service import RequestOptions
from transformer_cli.addons.serving.uploads import document_upload

_FIELDS = ("source", "target", "terms")


def routes(server: Server) -> list[Route]:
    async def found(request: Request) -> UploadedDocument:
        """The document that a request names; asking how far it is has no rate."""
        owner = server.authorise(request, counts=False)
        key = string_of((await server.json(request)).get("key"), "key")
        return server.documents.get(owner, str(request.path_params["document_id"]), key)

    async def upload(request: Request) -> JSONResponse:
        owner = server.authorise(request)
        fields = await server.fields(request)
        if unknown := [name for name in fields.values if name not in _FIELDS]:
            raise RequestError(400, f"{unknown[0]!r}: no field of this request. There are file, {', '.join(_FIELDS)}")
        source, target = (language_code(fields.values.get(name), name) for name in ("source", "target"))
        if target is None:
            raise RequestError(400, "target: is missing. Give the code of a language, as de")
        table = server.service.table
        if source is not None:
            table.route(table.source_code(source), table.target_code(target))
        terms = given(fields.values.get("terms"))
        asked = None if terms is None else parse_json(string_of(terms, "terms").encode())
        sent = document_upload(fields)
        new = server.documents.add(owner, sent, source, target, RequestOptions(terms=terms_of(asked)))
        return JSONResponse({"id": new.id, "key": new.key})

    async def status(request: Request) -> JSONResponse:
        one = await found(request)
        answer: dict[str, Any] = {"status": one.state.value, "progress": one.progress}
        if one.error:
            answer["error"] = one.error
        elif one.has_ended:
            answer["flags"] = list(one.flags)
        return JSONResponse(answer)

    async def result(request: Request) -> Response:
        name, content = server.documents.take(await found(request))
        headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
        return Response(content, media_type="application/octet-stream", headers=headers)

    async def cancel(request: Request) -> JSONResponse:
        one = await found(request)
        server.documents.cancel(one)
        return JSONResponse({"status": "cancelled"})

    return [
        Route("/api/document", upload, methods=["POST"]),
        Route("/api/document/{document_id}", status, methods=["POST"]),
        Route("/api/document/{document_id}/result", result, methods=["POST"]),
        Route("/api/document/{document_id}/cancel", cancel, methods=["POST"]),
    ]
