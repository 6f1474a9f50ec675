"""Version 2 of DeepL's API, for texts: https://developers.deepl.com/api-reference/translate."""

import re
import reprlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from transformer_cli.addons.serving.errors import RequestError
from transformer_cli.addons.serving.forms import Fields, given, language_code, string_of, strings_of, switch_of
from transformer_cli.addons.serving.glossaries import Dictionary, pair_of
from transformer_cli.addons.serving.server import Server
from transformer_cli.addons.serving.service import RequestOptions
from transformer_cli.data.placeholders import spans_to_keep
from transformer_cli.errors import quoted
from transformer_cli.languages import bcp47, names_of

PREFIXES = ("/v2/", "/v3/")
MOST_GLOSSARIES = 5  # of a request
UNLIMITED = 1_000_000_000_000  # characters, as DeepL says it
# DeepL has no plain English or Portuguese to translate into, and its client refuses these codes.
VARIANTS = {"EN": ("EN-GB", "EN-US"), "PT": ("PT-BR", "PT-PT")}
# Options that are taken, with the values that they may have; what they change here is in docs/apis.md.
CHOICES = {
    "split_sentences": ("0", "1", "nonewlines"),
    "formality": ("default", "prefer_more", "prefer_less"),
    "model_type": ("quality_optimized", "prefer_quality_optimized", "latency_optimized"),
    "tag_handling": ("html", "xml"),
    "tag_handling_version": ("v1", "v2"),
}
_SWITCHES = ("preserve_formatting", "outline_detection", "show_billed_characters", "enable_beta_languages")
# A line end between two lines that are not blank, with the white space around it.
_WITHIN_PARAGRAPH = re.compile(r"(?<=\S)[^\S\r\n]*(?:\r\n|\r|\n)[^\S\r\n]*(?=\S)")
_FILLED = re.compile(r"<(?P<name>[^\s<>/!?][^\s<>/]*)(?:\s[^<>]*)?(?<!/)>(?!</(?i:(?P=name))\s*>)")  # tags with content
# A model cannot do these, and the translation would not be what was asked for.
_REFUSED = ("style_id", "translation_memory_id", "custom_instructions")


def error(status: int, message: str, detail: str = "") -> tuple[int, dict[str, Any]]:
    """A wrong API key is 403 there."""
    return 403 if status == 401 else status, {"message": message, **({"detail": detail} if detail else {})}


def routes(server: Server) -> list[Route]:
    async def translate(request: Request) -> JSONResponse:
        fields, owner = await authorised_fields(server, request)
        values = fields.values
        texts, _ = strings_of(values.get("text"), "text")
        if not texts:
            raise RequestError(400, "text: is empty. Give a text, or several")
        source, target = asked_languages(server, values)
        chosen, is_on = checked_choices(values)
        _check_ignored(values.get("ignore_tags"), texts, is_html=chosen["tag_handling"] == "html")
        options, joined = _request_options(chosen, texts)
        if dictionaries := asked_dictionaries(server, owner, values):
            options = with_glossaries(server, options, dictionaries)
        translation = await server.translate(request, joined, source, target, options)
        # There is one model for each pair of languages, whichever is asked for.
        model_type = (chosen["model_type"] or "").removeprefix("prefer_")
        return JSONResponse(
            {
                "translations": [
                    {
                        "detected_source_language": _code(origin.language),
                        "text": result.text,
                        **({"billed_characters": len(text)} if is_on["show_billed_characters"] else {}),
                        **({"model_type_used": model_type} if model_type else {}),
                    }
                    for text, origin, result in zip(texts, translation.origins, translation.results, strict=True)
                ]
            }
        )

    async def languages(request: Request) -> JSONResponse:
        fields, _ = await authorised_fields(server, request)
        kind = given(fields.values.get("type"))
        kind = "source" if kind is None else kind
        if kind not in ("source", "target"):
            raise RequestError(400, f"type: {reprlib.repr(kind)} is neither source nor target")
        pairs = server.service.table.pairs()
        if kind == "source":
            names = names_of(dict.fromkeys(source for source, _, _ in pairs))
            return JSONResponse([{"language": _code(one), "name": names[one]} for one in sorted(names)])
        names = names_of(dict.fromkeys(target for _, target, _ in pairs))
        return JSONResponse(
            [
                {
                    "language": code,
                    "name": names[one] if code == _code(one) else f"{names[one]} ({code})",
                    "supports_formality": False,
                }
                for one in sorted(names)
                for code in VARIANTS.get(_code(one), (_code(one),))
            ]
        )

    async def usage(request: Request) -> JSONResponse:
        await authorised_fields(server, request)
        return JSONResponse({"character_count": 0, "character_limit": UNLIMITED})

    return [
        Route("/v2/translate", translate, methods=["POST"]),
        Route("/v2/languages", languages, methods=["GET", "POST"]),
        Route("/v2/usage", usage, methods=["GET", "POST"]),
    ]


async def authorised_fields(server: Server, request: Request) -> tuple[Fields, str]:
    """The fields of a request, and the name of its API key. Raises RequestError 401, which is 403 here."""
    fields = await server.fields(request)
    key = fields.values.get("auth_key")
    return fields, server.authorise(request, string_of(key, "auth_key") if key else None)


def asked_dictionaries(server: Server, owner: str, values: Mapping[str, Any]) -> tuple[Dictionary, ...]:
    """The dictionaries of `glossary_id` or `glossary_ids` for the languages of the request; the first counts first.

    Raises RequestError 404 for a glossary that the API key does not have, 400 for one of other languages.
    """
    one, several = given(values.get("glossary_id")), given(values.get("glossary_ids"))
    if one is None and several is None:
        return ()
    if one is not None and several is not None:
        raise RequestError(400, "glossary_id: not together with glossary_ids. Leave one of them out")
    ids = [string_of(one, "glossary_id")] if several is None else strings_of(several, "glossary_ids")[0]
    ids = [part.strip() for written in ids for part in written.split(",")]  # as forms write a list
    if len(ids) > MOST_GLOSSARIES:
        raise RequestError(400, f"glossary_ids: {len(ids)}, and a request may have {MOST_GLOSSARIES}")
    source, target = (language_code(values.get(name), name) for name in ("source_lang", "target_lang"))
    if source is None or target is None:
        raise RequestError(400, "Use of a glossary requires the source_lang parameter to be specified")
    pair = pair_of(source, target)
    found = [server.glossaries.get(owner, glossary_id).dictionaries.get(pair) for glossary_id in ids]
    if None in found:
        raise RequestError(400, f"No dictionary found for language pair {'-'.join(pair)} in glossary")
    return tuple(one for one in found if one is not None)


def with_glossaries(server: Server, options: RequestOptions, dictionaries: tuple[Dictionary, ...]) -> RequestOptions:
    """Terms need beam search, whatever the server is set to."""
    search = {} if server.config.decode.search == "beam" else {"search": "beam"}
    return replace(options, glossaries=dictionaries, decode={**options.decode, **search})


def asked_languages(server: Server, values: Mapping[str, Any]) -> tuple[str | None, str]:
    """`source_lang`, None where it is to be detected, and `target_lang`. Raises RequestError 400 with their name."""
    source, target = (language_code(values.get(name), name) for name in ("source_lang", "target_lang"))
    if target is None:
        raise RequestError(400, "target_lang: is missing. Give the code of a language, as DE")
    table = server.service.table
    pairs = table.pairs()
    for name, code, known in (
        ("target_lang", table.target_code(target), dict.fromkeys(one for _, one, _ in pairs)),
        ("source_lang", table.source_code(source), dict.fromkeys(one for one, _, _ in pairs)),
    ):
        if code is not None and code not in known:
            raise RequestError(
                400, f"{name}: {quoted(code)} is not supported. Choose one of {', '.join(map(_code, known))}"
            )
    return source, target


def checked_choices(values: Mapping[str, Any]) -> tuple[dict[str, str | None], dict[str, bool]]:
    """The choices that are made, None where none is, and the switches. Raises RequestError 400 for others."""
    for name in _REFUSED:
        if values.get(name):
            raise RequestError(400, f"{name}: not on this server. Leave it out")
    chosen: dict[str, str | None] = {}
    for name, known in CHOICES.items():
        value = given(values.get(name))
        value = str(int(value)) if isinstance(value, int) else value
        if value is not None and value not in known:
            raise RequestError(400, f"{name}: {reprlib.repr(value)} is not taken. Choose one of {', '.join(known)}")
        chosen[name] = value
    return chosen, {name: switch_of(values.get(name), name) for name in _SWITCHES}


def _request_options(chosen: dict[str, str | None], texts: list[str]) -> tuple[RequestOptions, list[str]]:
    """How to translate, and the texts as they are split: where line ends do not count, a paragraph is one line."""
    form = chosen["tag_handling"] or "text"
    split = chosen["split_sentences"] or ("1" if form == "text" else "nonewlines")
    joined = [_WITHIN_PARAGRAPH.sub(" ", text) for text in texts] if form == "text" and split != "1" else texts
    decode = {"split_sentences": False} if split == "0" else {}
    return RequestOptions(decode=decode, format=form, placeholders=any(map(spans_to_keep, texts))), joined


def _check_ignored(tags: Any, texts: list[str], *, is_html: bool) -> None:
    """`ignore_tags`: elements whose content is not translated; those of placeholders have none."""
    values = [] if given(tags) is None else strings_of(tags, "ignore_tags")[0]
    names = {name.strip() for value in values for name in value.split(",")}
    if is_html:  # whose names are the same in any case
        names = {name.lower() for name in names}
    for name in (match["name"] for text in texts for match in _FILLED.finditer(text) if names):
        if (name.lower() if is_html else name) in names:
            raise RequestError(400, f"ignore_tags: <{name[:40]}> has content, and what is in tags is translated")


def _code(language: str) -> str:
    return bcp47(language).upper()
