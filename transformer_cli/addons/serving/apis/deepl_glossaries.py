"""Glossaries of DeepL's API: version 2 has one pair of languages in each, version 3 several, and changes them.

https://developers.deepl.com/api-reference/glossaries and https://developers.deepl.com/api-reference/multilingual-glossaries
"""

import reprlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from transformer_cli.addons.serving.apis.deepl import authorised_fields
from transformer_cli.addons.serving.errors import RequestError
from transformer_cli.addons.serving.forms import given, string_of
from transformer_cli.addons.serving.glossaries import (
    Dictionary,
    Glossary,
    LanguagePair,
    as_tsv,
    dictionary_of,
    pair_of,
    read_entries,
)
from transformer_cli.addons.serving.server import Server

_T = TypeVar("_T")
_TSV = "text/tab-separated-values"
_CREATION_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


def routes(server: Server) -> list[Route]:
    store = server.glossaries

    async def run(request: Request, work: Callable[[], _T]) -> _T:
        """`work` in a thread: entries may be many, and a disk slow."""
        return await server.run(request, lambda call: work())

    async def pairs(request: Request) -> JSONResponse:
        await authorised_fields(server, request)
        known = [{"source_lang": source, "target_lang": target} for source, target in _pairs(server)]
        return JSONResponse({"supported_languages": known})

    # ---- Version 2

    async def create_single(request: Request) -> JSONResponse:
        fields, owner = await authorised_fields(server, request)
        name = _required(fields.values, "name")
        made = await run(request, lambda: store.create(owner, name, dict([_dictionary(server, fields.values)])))
        return JSONResponse(_single(made), 201)

    async def list_single(request: Request) -> JSONResponse:
        _, owner = await authorised_fields(server, request)
        return JSONResponse({"glossaries": [_single(one) for one in store.of(owner) if len(one.dictionaries) == 1]})

    async def get_single(request: Request) -> JSONResponse:
        _, owner = await authorised_fields(server, request)
        return JSONResponse(_single(store.get(owner, _id(request))))

    async def entries_of_single(request: Request) -> Response:
        _, owner = await authorised_fields(server, request)
        found = _only_dictionary(store.get(owner, _id(request)))
        accepted = request.headers.get("accept", "*/*").lower()
        if not any(kind in accepted for kind in (_TSV, "text/*", "*/*")):
            raise RequestError(415, f"Accept: only {_TSV}. Ask for that")
        return Response(as_tsv(found[1]), media_type=_TSV)

    # ---- Version 3

    async def create(request: Request) -> JSONResponse:
        fields, owner = await authorised_fields(server, request)
        name = _required(fields.values, "name")

        def work() -> Glossary:
            if not (found := _dictionaries(server, fields.values.get("dictionaries"))):
                raise RequestError(400, "dictionaries: is empty. Give one, or several")
            return store.create(owner, name, found)

        return JSONResponse(_multilingual(await run(request, work)), 201)

    async def list_all(request: Request) -> JSONResponse:
        _, owner = await authorised_fields(server, request)
        return JSONResponse({"glossaries": [_multilingual(one) for one in store.of(owner)]})

    async def get(request: Request) -> JSONResponse:
        _, owner = await authorised_fields(server, request)
        return JSONResponse(_multilingual(store.get(owner, _id(request))))

    async def change(request: Request) -> JSONResponse:
        fields, owner = await authorised_fields(server, request)
        name = None if fields.values.get("name") is None else string_of(fields.values["name"], "name")

        def work() -> Glossary:
            found = _dictionaries(server, fields.values.get("dictionaries"))
            return store.merge(owner, _id(request), found, name=name)

        return JSONResponse(_multilingual(await run(request, work)))

    async def entries(request: Request) -> JSONResponse:
        fields, owner = await authorised_fields(server, request)
        pair = _pair(fields.values)
        found = dictionary_of(store.get(owner, _id(request)), pair)
        source, target = pair
        answer = {"source_lang": source, "target_lang": target, "entries": as_tsv(found), "entries_format": "tsv"}
        return JSONResponse({"dictionaries": [answer]})

    async def put_dictionary(request: Request) -> JSONResponse:
        fields, owner = await authorised_fields(server, request)

        def work() -> dict[str, Any]:
            pair, new = _dictionary(server, fields.values)
            store.replace_dictionary(owner, _id(request), pair, new)
            return _dictionary_info(pair, new)

        return JSONResponse(await run(request, work))

    async def delete_dictionary(request: Request) -> Response:
        fields, owner = await authorised_fields(server, request)
        pair = _pair(fields.values)
        await run(request, lambda: store.remove_dictionary(owner, _id(request), pair))
        return Response(status_code=204)

    async def delete(request: Request) -> Response:
        _, owner = await authorised_fields(server, request)
        await run(request, lambda: store.delete(owner, _id(request)))
        return Response(status_code=204)

    return [
        Route("/v2/glossary-language-pairs", pairs),
        Route("/v2/glossaries", create_single, methods=["POST"]),
        Route("/v2/glossaries", list_single),
        Route("/v2/glossaries/{glossary_id}", get_single),
        Route("/v2/glossaries/{glossary_id}", delete, methods=["DELETE"]),
        Route("/v2/glossaries/{glossary_id}/entries", entries_of_single),
        Route("/v3/glossaries", create, methods=["POST"]),
        Route("/v3/glossaries", list_all),
        Route("/v3/glossaries/{glossary_id}", get),
        Route("/v3/glossaries/{glossary_id}", change, methods=["PATCH"]),
        Route("/v3/glossaries/{glossary_id}", delete, methods=["DELETE"]),
        Route("/v3/glossaries/{glossary_id}/entries", entries),
        Route("/v3/glossaries/{glossary_id}/dictionaries", put_dictionary, methods=["PUT"]),
        Route("/v3/glossaries/{glossary_id}/dictionaries", delete_dictionary, methods=["DELETE"]),
    ]


# ---- What is asked


def _id(request: Request) -> str:
    return str(request.path_params["glossary_id"])


def _required(values: Mapping[str, Any], name: str) -> str:
    value = given(values.get(name))
    if value is None:
        raise RequestError(400, f"{name}: is missing. Give it")
    return string_of(value, name)


def _pair(values: Mapping[str, Any]) -> LanguagePair:
    return pair_of(*(_required(values, name) for name in ("source_lang", "target_lang")))


def _pairs(server: Server) -> dict[LanguagePair, None]:
    """The pairs that a model translates itself: through a pivot, terms do not work."""
    return dict.fromkeys(pair_of(s, t) for s, t, pivot in server.service.table.pairs() if pivot is None)


def _dictionaries(server: Server, value: Any) -> dict[LanguagePair, Dictionary]:
    """The `dictionaries` of version 3. Raises RequestError 400 for anything else, and a pair that occurs twice."""
    if value is None:
        return {}
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise RequestError(400, "dictionaries: is no list of objects. Send JSON")
    found: dict[LanguagePair, Dictionary] = {}
    for one in value:
        pair, dictionary = _dictionary(server, one)
        if pair in found:
            raise RequestError(400, f"dictionaries: {'-'.join(pair)} occurs twice. Send one for each pair of languages")
        found[pair] = dictionary
    return found


def _dictionary(server: Server, values: Mapping[str, Any]) -> tuple[LanguagePair, Dictionary]:
    pair, form = _pair(values), _required(values, "entries_format")
    if form not in ("tsv", "csv"):
        raise RequestError(400, f"entries_format: {reprlib.repr(form)} is not supported. Choose tsv or csv")
    if pair not in _pairs(server):
        raise RequestError(400, "Unsupported glossary source and target language pair")
    longest = server.config.limits.term_characters
    return pair, read_entries(_required(values, "entries"), form, pair, longest=longest)


# ---- What is answered


def _single(glossary: Glossary) -> dict[str, Any]:
    """A glossary as version 2 describes it. Raises RequestError 400 for one that version 3 alone can."""
    pair, dictionary = _only_dictionary(glossary)
    return {
        "glossary_id": glossary.id,
        "name": glossary.name,
        "ready": True,
        **_dictionary_info(pair, dictionary),
        "creation_time": glossary.created.strftime(_CREATION_TIME),
    }


def _only_dictionary(glossary: Glossary) -> tuple[LanguagePair, Dictionary]:
    if len(glossary.dictionaries) != 1:
        n = len(glossary.dictionaries)
        raise RequestError(400, f"this glossary has {n} dictionaries, and one in version 2. Use /v3/glossaries")
    ((pair, dictionary),) = glossary.dictionaries.items()
    return pair, dictionary


def _multilingual(glossary: Glossary) -> dict[str, Any]:
    return {
        "glossary_id": glossary.id,
        "name": glossary.name,
        "dictionaries": [_dictionary_info(pair, one) for pair, one in glossary.dictionaries.items()],
        "creation_time": glossary.created.strftime(_CREATION_TIME),
    }


def _dictionary_info(pair: LanguagePair, dictionary: Dictionary) -> dict[str, Any]:
    source, target = pair
    return {"source_lang": source, "target_lang": target, "entry_count": len(dictionary.entries)}
