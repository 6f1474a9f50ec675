"""Our own API: `/api/translate` with all that `tfm translate` can do, and `/api/models`."""

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from transformer_cli.addons.serving.detection import Detected
from transformer_cli.addons.serving.errors import RequestError
from transformer_cli.addons.serving.forms import language_code, string_of, strings_of
from transformer_cli.addons.serving.models import ModelTable, ServedModel, Step, decode_keys
from transformer_cli.addons.serving.server import Server
from transformer_cli.addons.serving.service import RequestOptions, TextResult, TranslationResponse
from transformer_cli.config.tags import tags_in
from transformer_cli.decoding.results import Candidate, json_score
from transformer_cli.errors import quoted
from transformer_cli.languages import language_name, names_of

_SWITCHES = ("alignments", "token_scores", "retry", "placeholders")


def routes(server: Server) -> list[Route]:
    async def translate(request: Request) -> JSONResponse:
        server.authorise(request)
        body = await server.json(request)
        texts, _ = strings_of(body.pop("text", None), "text")
        source, target = (language_code(body.pop(key, None), key) for key in ("source", "target"))
        options = request_options(body)
        return JSONResponse(response_json(await server.translate(request, texts, source, target, options)))

    async def models(request: Request) -> JSONResponse:
        table, limits = server.service.table, server.config.limits
        return JSONResponse(
            {
                "models": [*_of_many(table), *_pairs(table)],
                "limits": {
                    "max_characters": limits.characters,
                    "max_texts": limits.texts,
                    "max_bytes": limits.body_bytes,
                    "beam_size": limits.beam_size,
                },
                "needs_key": server.config.api_keys is not None,
                "can_detect": server.service.must_detect(None),
            }
        )

    return [
        Route("/api/translate", translate, methods=["POST"]),
        Route("/api/models", models),
    ]


def request_options(body: dict[str, Any]) -> RequestOptions:
    """The options of a request, which are its keys other than texts and languages. Raises RequestError 400."""
    switches = {}
    for name in _SWITCHES:
        value = body.pop(name, False)
        if not isinstance(value, bool):
            raise RequestError(400, f"{name}: {quoted(str(value))} is neither true nor false")
        switches[name] = value
    terms, prefix, tag, form = (body.pop(name, None) for name in ("terms", "prefix", "tag", "format"))
    known = set(decode_keys())
    if unknown := [name for name in body if name not in known]:
        names = ", ".join(sorted({"text", "source", "target", "format", "terms", "prefix", "tag", *_SWITCHES, *known}))
        raise RequestError(400, f"{quoted(unknown[0])}: no key of this request. There are {names}")
    return RequestOptions(
        decode=body,
        terms=terms_of(terms),
        glossaries=(),
        format="text" if form is None else string_of(form, "format"),
        prefix="" if prefix is None else string_of(prefix, "prefix"),
        tags=tuple(tags_in("" if tag is None else string_of(tag, "tag"))),
        **switches,
    )


def terms_of(value: Any) -> tuple[tuple[str, ...], ...]:
    """`{"Hund": "dog"}`, or `[["Hund", "dog", "hound"]]`."""
    if value is None:
        return ()
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list) or not all(isinstance(pair, list | tuple) and len(pair) >= 2 for pair in pairs):
        raise RequestError(400, 'terms: neither {"source phrase": "target phrase"} nor a list of such pairs')
    return tuple(tuple(string_of(phrase, "terms") for phrase in pair) for pair in pairs)


def response_json(translation: TranslationResponse) -> dict[str, Any]:
    """`model` is that of all texts, or names all; null where there was nothing to translate."""
    used_routes = {tuple((leg.model.name, leg.model.sha256) for leg in one): one for one in translation.routes if one}
    used = [_model(route) for route in used_routes.values()]
    several = {"name": ", ".join(model["name"] for model in used), "models": used}
    return {
        "translations": [
            _record(result, origin) for result, origin in zip(translation.results, translation.origins, strict=True)
        ],
        "model": several if len(used) > 1 else used[0] if used else None,
    }


def _model(route: Sequence[Step]) -> dict[str, Any]:
    models = [described(step.model) for step in route]
    return models[0] if len(models) == 1 else {"name": " + ".join(one["name"] for one in models), "steps": models}


def _record(result: TextResult, origin: Detected) -> dict[str, Any]:
    record = {
        "text": result.text,
        "source": origin.language,
        "detection_confidence": round(origin.confidence, 4),
        "score": json_score(result.score),
        "alternatives": [_alternative(one) for one in result.alternatives],
        "flags": result.flags,
        "sentences": result.n_sentences,
        "unmet_terms": [[t.source, *t.targets] for line in result.lines for t in line.unsatisfied],
        "unknown_characters": list(dict.fromkeys(sign for line in result.lines for sign in line.unknown)),
    }
    if result.alignment is not None:
        record["alignment"] = result.alignment
    if result.tokens is not None:
        record["tokens"] = [[piece, round(log_prob, 4)] for piece, log_prob in result.tokens]
    return record


def _alternative(candidate: Candidate) -> dict[str, Any]:
    return {"text": candidate.text, "score": json_score(candidate.score)}


def _of_many(table: ModelTable) -> list[dict[str, Any]]:
    """The models between many languages, with lists of these in place of their pairs."""
    return [
        {
            **described(model),
            "pivot": None,
            "sources": names_of(model.source_langs),
            "targets": names_of(model.target_langs),
        }
        for model in table.models
        if model.is_of_many
    ]


def _pairs(table: ModelTable) -> list[dict[str, Any]]:
    """The other pairs, each with the (first) model that translates it."""
    found = []
    for source, target, pivot in table.pairs():
        first = table.model_of(source, target if pivot is None else pivot)
        if first.is_of_many and pivot is None:
            continue
        names = {"source_name": language_name(source) or source, "target_name": language_name(target) or target}
        found.append({**described(first), "source": source, "target": target, **names, "pivot": pivot})
    return found


def described(model: ServedModel) -> dict[str, Any]:
    return {
        "name": model.name,
        "sha256": model.sha256,
        "source": model.source_lang,
        "target": model.target_lang,
        "engine": model.engine,
        "tags": [] if model.is_of_many else list(model.tags),
    }
