"""The API of LibreTranslate: https://docs.libretranslate.com, and `libretranslate/app.py` of its source."""

import reprlib
from functools import partial
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from transformer_cli.addons.documents.formats import names_by_ending
from transformer_cli.addons.serving.detection import Detected
from transformer_cli.addons.serving.downloads import KEPT_SECONDS
from transformer_cli.addons.serving.errors import RequestError
from transformer_cli.addons.serving.forms import Fields, given, language_code, number_of, string_of, strings_of
from transformer_cli.addons.serving.server import Server
from transformer_cli.addons.serving.service import RequestOptions, TextResult
from transformer_cli.addons.serving.uploads import document_upload
from transformer_cli.data.placeholders import spans_to_keep
from transformer_cli.languages import bcp47, names_of

PATHS = ("/translate", "/translate_file", "/detect", "/languages", "/frontend/settings", "/suggest", "/spec")
_FORMATS = ("text", "html")
LEAST_SHARE = 0.01  # of a language that /detect names beside the first


def error(status: int, message: str) -> tuple[int, dict[str, Any]]:
    """A wrong API key is 403 there."""
    return 403 if status == 401 else status, {"error": message}


def routes(server: Server) -> list[Route]:
    downloads = server.downloads

    async def translate(request: Request) -> JSONResponse:
        fields = await _fields(server, request)
        texts, is_list = _texts(fields)
        source, target = _language(fields, "source"), _language(fields, "target")
        kind = _format(fields)
        asked = given(fields.values.get("alternatives"))
        n_alternatives = 0 if asked is None else number_of(asked, "alternatives")
        decode = _candidates(server, n_alternatives + 1) if n_alternatives else {}
        options = RequestOptions(decode=decode, format=kind, placeholders=any(map(spans_to_keep, texts)))
        translation = await server.translate(request, texts, source, target, options)
        answer: dict[str, Any] = {"translatedText": [one.text for one in translation.results]}
        if source is None:
            answer["detectedLanguage"] = [_detected(one) for one in translation.origins]
        if n_alternatives:
            answer["alternatives"] = [_alternatives(one) for one in translation.results]
        return JSONResponse(answer if is_list else {name: value for name, (value,) in answer.items()})

    async def translate_file(request: Request) -> JSONResponse:
        fields = await _fields(server, request)
        source, target = _language(fields, "source"), _target(fields)
        upload = document_upload(fields)
        work = partial(server.service.translate_file, upload.form, upload.content, source, target)
        translated = await server.run(request, work)
        is_other = translated.source != translated.target
        name = upload.renamed(f"_{bcp47(translated.target)}") if is_other else upload.name
        token = downloads.add(name, translated.content)
        return JSONResponse({"translatedFileUrl": str(request.url_for("download_file", token=token))})

    async def download_file(request: Request) -> Response:
        found = downloads.get(request.path_params["token"])
        if found is None:
            raise RequestError(404, f"no such file; one is kept for {KEPT_SECONDS // 60} minutes. Translate it again")
        name, content = found
        headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
        return Response(content, media_type="application/octet-stream", headers=headers)

    async def languages(request: Request) -> JSONResponse:
        targets = _targets(server)
        names = names_of(targets)
        return JSONResponse(
            [
                {"code": bcp47(code), "name": names[code], "targets": [bcp47(one) for one in targets[code]]}
                for code in sorted(targets, key=names.__getitem__)
            ]
        )

    async def detect(request: Request) -> JSONResponse:
        fields = await _fields(server, request)
        texts, _ = _texts(fields)
        found = await server.run(request, lambda call: server.service.languages_in("\n".join(texts)))
        likely = [one for n, one in enumerate(found) if n == 0 or one.confidence >= LEAST_SHARE]
        return JSONResponse([_detected(one) for one in likely])

    async def settings(request: Request) -> JSONResponse:
        targets = _targets(server)
        target = next(target for of_it in targets.values() for target in of_it)
        needs_key = server.config.api_keys is not None
        return JSONResponse(
            {
                "apiKeys": needs_key,
                "charLimit": server.config.limits.characters,
                "filesTranslation": True,
                "frontendTimeout": 500,
                "keyRequired": needs_key,
                "language": {
                    "source": {"code": "auto", "name": "Auto Detect"},
                    "target": {"code": bcp47(target), "name": names_of(targets)[target]},
                },
                "suggestions": False,
                "supportedFilesFormat": list(names_by_ending()),
            }
        )

    async def suggest(request: Request) -> JSONResponse:
        raise RequestError(403, "this server takes no suggestions")

    async def spec(request: Request) -> JSONResponse:
        return JSONResponse(_spec())

    return [
        Route("/translate", translate, methods=["POST"]),
        Route("/translate_file", translate_file, methods=["POST"]),
        Route("/download_file/{token}", download_file),
        Route("/detect", detect, methods=["GET", "POST"]),
        Route("/languages", languages),
        Route("/frontend/settings", settings),
        Route("/suggest", suggest, methods=["POST"]),
        Route("/spec", spec),
    ]


async def _fields(server: Server, request: Request) -> Fields:
    fields = await server.fields(request)
    key = fields.values.get("api_key")
    server.authorise(request, string_of(key, "api_key") if key else None)
    return fields


def _texts(fields: Fields) -> tuple[list[str], bool]:
    texts, is_list = strings_of(fields.values.get("q") or None, "q")
    if fields.is_form:  # as browsers send line ends there, whatever they were
        texts = [text.replace("\r\n", "\n") for text in texts]
    return texts, is_list


def _language(fields: Fields, name: str) -> str | None:
    value = fields.values.get(name)
    if not value:
        raise RequestError(400, f"{name}: is missing. Give the code of a language, as de")
    if value == "auto" and name == "target":
        raise RequestError(400, "target: auto is no language. Give a code, as de")
    return language_code(value, name)


def _target(fields: Fields) -> str:
    target = _language(fields, "target")
    assert target is not None  # `auto` is refused
    return target


def _format(fields: Fields) -> str:
    value = given(fields.values.get("format"))
    value = "text" if value is None else value
    if value not in _FORMATS:
        raise RequestError(400, f"format: {reprlib.repr(value)} is neither text nor html")
    return str(value)


def _candidates(server: Server, n_best: int) -> dict[str, Any]:
    """Keys of `decode` that find so many."""
    most = server.config.limits.beam_size
    if n_best > most:
        raise RequestError(400, f"alternatives={n_best - 1}: more than the {most - 1} that this server allows")
    search = {"search": "beam", "beam_size": n_best} if server.config.decode.search == "greedy" else {}
    return {"n_best": n_best, **search}


def _alternatives(result: TextResult) -> list[str]:
    texts = dict.fromkeys(one.text for one in result.alternatives)
    return [text for text in texts if text != result.text]


def _detected(found: Detected) -> dict[str, Any]:
    return {"confidence": round(100 * found.confidence, 1), "language": bcp47(found.language)}


def _targets(server: Server) -> dict[str, list[str]]:
    """The target languages of each language; none for one that is only a target."""
    targets: dict[str, list[str]] = {}
    for source, target, _ in server.service.table.pairs():
        targets.setdefault(source, []).append(target)
        targets.setdefault(target, [])
    return targets


def _spec() -> dict[str, Any]:
    """OpenAPI of what this server does of it."""
    text_or_list = {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
    ask = {
        "q": text_or_list,
        "source": {"type": "string", "description": "code of a language, or auto"},
        "target": {"type": "string", "description": "code of a language"},
        "format": {"type": "string", "enum": list(_FORMATS), "default": "text"},
        "alternatives": {"type": "integer", "minimum": 0, "default": 0},
        "api_key": {"type": "string"},
    }

    def body(names: list[str], required: list[str]) -> dict[str, Any]:
        schema = {"type": "object", "properties": {name: ask[name] for name in names}, "required": required}
        kinds = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")
        return {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}

    answers = {"200": {"description": "done"}, "default": {"description": 'what is wrong: {"error": "…"}'}}
    return {
        "openapi": "3.0.3",
        "info": {"title": "tfm serve, as LibreTranslate", "version": "1"},
        "paths": {
            "/translate": {"post": {"requestBody": body(list(ask), ["q", "source", "target"]), "responses": answers}},
            "/detect": {"post": {"requestBody": body(["q", "api_key"], ["q"]), "responses": answers}},
            "/languages": {"get": {"responses": answers}},
            "/frontend/settings": {"get": {"responses": answers}},
            "/health": {"get": {"responses": answers}},
        },
    }
