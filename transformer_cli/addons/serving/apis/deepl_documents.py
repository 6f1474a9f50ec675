"""Documents of DeepL's API: sent, translated meanwhile, and fetched once.

https://developers.deepl.com/api-reference/document
"""

from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from transformer_cli.addons.documents.formats import format_of_file
from transformer_cli.addons.serving.apis.deepl import (
    asked_dictionaries,
    asked_languages,
    authorised_fields,
    checked_choices,
    with_glossaries,
)
from transformer_cli.addons.serving.documents import EQUAL, DocumentState
from transformer_cli.addons.serving.errors import RequestError
from transformer_cli.addons.serving.forms import Fields, given, string_of
from transformer_cli.addons.serving.server import Server
from transformer_cli.addons.serving.service import RequestOptions
from transformer_cli.addons.serving.uploads import document_upload
from transformer_cli.errors import quoted


def routes(server: Server) -> list[Route]:
    async def upload(request: Request) -> JSONResponse:
        fields, owner = await authorised_fields(server, request)
        values = fields.values
        source, target = asked_languages(server, values)
        _check_route(server, source, target)
        checked_choices(values)
        name = given(values.get("filename"))
        sent = document_upload(
            fields, name="" if name is None else string_of(name, "filename"), unknown="Invalid file data"
        )
        output = given(values.get("output_format"))
        if output is not None and format_of_file(f"x.{string_of(output, 'output_format')}") != sent.form.name:
            raise RequestError(400, f"output_format: {quoted(output, 40)} is not that of the file. Leave it out")
        options = RequestOptions()
        if dictionaries := asked_dictionaries(server, owner, values):
            options = with_glossaries(server, options, dictionaries)
        new = server.documents.add(owner, sent, source, target, options)
        return JSONResponse({"document_id": new.id, "document_key": new.key})

    async def status(request: Request) -> JSONResponse:
        fields, owner = await authorised_fields(server, request)
        found = server.documents.get(owner, _id(request), _key(fields))
        answer: dict[str, Any] = {"document_id": found.id, "status": found.state.value}
        if found.state is DocumentState.translating:
            answer["seconds_remaining"] = found.seconds_remaining
        elif found.state is DocumentState.done:
            answer |= {"seconds_remaining": 0, "billed_characters": found.call.n_characters}
        elif found.state is DocumentState.error:
            answer |= {"error_message": found.error, "message": found.error}
        return JSONResponse(answer)

    async def result(request: Request) -> Response:
        fields, owner = await authorised_fields(server, request)
        name, content = server.documents.take(server.documents.get(owner, _id(request), _key(fields)))
        headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
        return Response(content, media_type="application/octet-stream", headers=headers)

    return [
        Route("/v2/document", upload, methods=["POST"]),
        Route("/v2/document/{document_id}", status, methods=["GET", "POST"]),
        Route("/v2/document/{document_id}/result", result, methods=["POST"]),
    ]


def _check_route(server: Server, source: str | None, target: str) -> None:
    """Raises RequestError 400 where no model translates so: at once, not when the document has its turn."""
    table = server.service.table
    known = table.source_code(source), table.target_code(target)
    if known[0] == known[1]:
        raise RequestError(400, EQUAL)
    if source is not None:
        table.route(*known)


def _id(request: Request) -> str:
    return str(request.path_params["document_id"])


def _key(fields: Fields) -> str:
    value = given(fields.values.get("document_key"))
    if value is None:
        raise RequestError(400, "document_key: is missing. Give the one that the upload was answered with")
    return string_of(value, "document_key")
