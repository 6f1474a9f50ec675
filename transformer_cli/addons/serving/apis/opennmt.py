"""The API of OpenNMT-py's server: `onmt/bin/server.py` of its version 3. Models are numbered by language pair."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from transformer_cli.addons.serving.errors import RequestError
from transformer_cli.addons.serving.forms import given, number_of, string_of
from transformer_cli.addons.serving.server import Server
from transformer_cli.addons.serving.service import RequestOptions, TextResult
from transformer_cli.decoding.results import json_score

PREFIX = "/translator/"


def error(status: int, message: str) -> tuple[int, dict[str, Any]]:
    return status, {"error": message, "status": "error"}


def routes(server: Server) -> list[Route]:
    async def translate(request: Request) -> JSONResponse:
        server.authorise(request)
        texts, model = _texts(await server.json_value(request))
        pairs = server.service.table.pairs()
        if model >= len(pairs):
            raise RequestError(400, f"id: {model} is no model. Choose one of /translator/models, 0 to {len(pairs) - 1}")
        source, target, _ = pairs[model]
        results = (await server.translate(request, texts, source, target, RequestOptions())).results
        n_best = max(1 + len(one.alternatives) for one in results)
        return JSONResponse(
            [
                [_record(text, result, rank, n_best) for text, result in zip(texts, results, strict=True)]
                for rank in range(n_best)
            ]
        )

    async def models(request: Request) -> JSONResponse:
        server.authorise(request)
        table, decode = server.service.table, server.config.decode
        return JSONResponse(
            [
                {
                    "model_id": n,
                    "models": [step.model.name for step in table.route(source, target)],
                    "opt": {"beam_size": decode.beam_size, "n_best": decode.n_best},
                    "loaded": True,
                    "timeout": -1,
                    "source": source,
                    "target": target,
                }
                for n, (source, target, _) in enumerate(table.pairs())
            ]
        )

    async def health(request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    return [
        Route("/translator/translate", translate, methods=["POST"]),
        Route("/translator/models", models),
        Route("/translator/health", health),
    ]


def _texts(value: Any) -> tuple[list[str], int]:
    """The sources, and the number of their model."""
    if not isinstance(value, list) or not value or not all(isinstance(one, dict) for one in value):
        raise RequestError(400, 'the body is no list of objects. Send one, as [{"src": "…", "id": 0}]')
    texts, models = [], set()
    for n, one in enumerate(value):
        if "src" not in one:
            raise RequestError(400, f"[{n}].src: is missing. Give a text")
        texts.append(string_of(one["src"], f"[{n}].src"))
        model = given(one.get("id"))
        models.add(0 if model is None else number_of(model, f"[{n}].id"))
    if len(models) > 1:
        raise RequestError(400, "id: several models in one request. Send one for each")
    return texts, models.pop()


def _record(text: str, result: TextResult, rank: int, n_best: int) -> dict[str, Any]:
    candidates = [(result.text, result.score), *((one.text, one.score) for one in result.alternatives)]
    target, score = candidates[min(rank, len(candidates) - 1)]  # fewer: of a blank text
    return {"src": text, "tgt": target, "n_best": n_best, "pred_score": json_score(score)}
