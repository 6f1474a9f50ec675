"""The web page, and what only it asks for: the attention weights of a sentence."""

from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from transformer_cli.addons.serving.attention import AttentionPages
from transformer_cli.addons.serving.errors import RequestError
from transformer_cli.addons.serving.forms import language_code, string_of
from transformer_cli.addons.serving.page.page import HEADERS, render
from transformer_cli.addons.serving.server import Server
from transformer_cli.addons.serving.service import RequestCall, RequestOptions


def routes(server: Server) -> list[Route]:
    html = render()
    pages = AttentionPages()

    async def page(request: Request) -> HTMLResponse:
        return HTMLResponse(html, headers=HEADERS)

    async def attention(request: Request) -> HTMLResponse:
        server.authorise(request)
        body = await server.json(request)
        text = string_of(body.pop("text", None), "text").strip()
        source, target = (language_code(body.pop(key, None), key) for key in ("source", "target"))
        translation = string_of(body.pop("translation", ""), "translation").strip()
        if body:
            raise RequestError(
                400, f"{next(iter(body))!r}: no key of this request. There are source, target, text, translation"
            )

        def work(call: RequestCall) -> str:
            server.service.check_size([text, translation])
            if "\n" in text + translation:
                raise RequestError(400, "text: several lines, and attention is shown of one. Give one sentence")
            step, *others = server.service.table.route(source, target)
            if others:
                raise RequestError(400, "attention: two models translate one after the other. Ask for that of one")
            found = (
                translation or server.service.translate([text], source, target, RequestOptions(), call).results[0].text
            )
            return pages.page(step, text, found, call)

        # Opened as a page of its own, it has the rights of no site.
        headers = {**HEADERS, "Content-Security-Policy": "sandbox allow-scripts"}
        return HTMLResponse(await server.run(request, work), headers=headers)

    shown = [Route("/", page)] if server.config.page else []
    return [*shown, Route("/api/attention", attention, methods=["POST"])]
