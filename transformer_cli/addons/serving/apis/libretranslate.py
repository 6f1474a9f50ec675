"""The API of LibreTranslate: https://docs.libretranslate.com, and `libretranslate/app.py` of its source."""

import reprlib
import secrets
import time
from collections.abc import Sequence
from functools import partial
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from transformer_cli.addons.documents.formats import format_of_file, names_by_ending, text_formats
from transformer_cli.addons.serving.detection import Detected
from transformer_cli.addons.serving.errors import RequestError
from transformer_cli.addons.serving.forms import Fields, given, language_code, number_of, string_of, strings_of
from transformer_cli.addons.serving.models import Step
from transformer_cli.addons.serving.server import Server
from transformer_cli.addons.serving.service import RequestOptions, TextResult
from transformer_cli.data.placeholders import spans_to_keep
from transformer_cli.languages import bcp47, names_of

PATHS = ("/translate", "/translate_file", "/detect", "/languages", "/frontend/settings", "/suggest", "/spec")
_FORMATS = ("text", "html")
KEPT_SECONDS = 600  # of a translated file
KEPT_BODIES = 20  # times the largest body that a request may have: what all translated files may take
BOM_TEXT = "\ufeff"
MOST_OF_NAME = 100  # characters
LEAST_SHARE = 0.01  # of a language that /detect names beside the first


class Downloads:
    """Translated files in memory, by a token that cannot be guessed. The oldest make room for new ones."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes, self.kept = most_bytes, dict[str, tuple[float, str, bytes]]()

    def add(self, name: str, content: bytes) -> str:
        token = secrets.token_urlsafe(24)
        self.kept[token] = (time.monotonic() + KEPT_SECONDS, name, content)
        self._drop()
        return token

    def get(self, token: str) -> tuple[str, bytes] | None:
        self._drop()
        found = self.kept.get(token)
        return None if found is None else found[1:]

    def _drop(self) -> None:
        size, now = sum(len(content) for _, _, content in self.kept.values()), time.monotonic()
        for token, (until, _, content) in list(self.kept.items()):
            if until > now and size <= self.most_bytes:
                return
            del self.kept[token]
            size -= len(content)


def error(status: int, message: str) -> tuple[int, dict[str, Any]]:
    """A wrong API key is 403 there."""
    return 403 if status == 401 else status, {"error": message}


def routes(server: Server) -> list[Route]:
    downloads = Downloads(KEPT_BODIES * server.config.limits.body_bytes)

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
        source, target = _language(fields, "source"), _language(fields, "target")
        name, text, kind = _file(fields)
        bom = BOM_TEXT if text.startswith(BOM_TEXT) else ""
        options = RequestOptions(format=kind, placeholders=True)
        work = partial(server.service.translate_any_size, [text.removeprefix(bom)], source, target, options)
        translation = await server.run(request, work)
        ((result,), (route,)) = translation.results, translation.routes
        token = downloads.add(_translated_name(name, route), (bom + result.text).encode())
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


def _format(fields: Fields) -> str:
    value = given(fields.values.get("format"))
    value = "text" if value is None else value
    if value not in _FORMATS:
        raise RequestError(400, f"format: {reprlib.repr(value)} is neither text nor html")
    return str(value)


def _file(fields: Fields) -> tuple[str, str, str]:
    """Name, text and format of the file of a form."""
    upload = fields.uploads.get("file")
    if upload is None:
        raise RequestError(400, "file: is missing. Send a form of the type multipart/form-data, with a file")
    if (kind := format_of_file(upload.name)) not in text_formats():
        ending, known = PurePath(upload.name).suffix.lower()[:20], ", ".join(names_by_ending())
        raise RequestError(400, f"file: no format has the ending {ending!r}. Choose one of {known}")
    try:
        text = upload.content.decode()
    except UnicodeDecodeError as error:
        raise RequestError(400, f"file: is not UTF-8, at byte {error.start + 1}. Send UTF-8") from None
    if encoding := text_formats()[kind].other_encoding(text):
        raise RequestError(400, f"file: says that its encoding is {encoding[:20]}. Send UTF-8, and say so in the file")
    return upload.name, text, kind


def _translated_name(name: str, route: Sequence[Step]) -> str:
    path = PurePath(PurePath(name.replace("\\", "/")).name[-MOST_OF_NAME:])
    return f"{path.stem}_{bcp47(route[-1].target)}{path.suffix}" if route else path.name


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
