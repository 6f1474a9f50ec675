"""A server that speaks the page's part of the API with made-up translations, so that its tests need no model.

A translation is its text in upper case. What goes wrong, and when, is the test's to say.
"""

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.addons.attention_maps.toy_attention_maps import toy_maps, words
from transformer_cli.addons.attention_maps.page import render as render_attention
from transformer_cli.addons.serving.page.page import HEADERS, render
from transformer_cli.data.sentences import split_sentences

NAMES = {"en": "English", "de": "German", "fr": "French", "ar": "Arabic"}
OTHERS = ["one other word", "two other words", "three words more", "one more"]  # that follow a prefix


@dataclass
class Answer:
    """What the server says instead of a translation."""

    status: int
    error: str = ""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class StandIn:
    """The server's state, which a test may change at any time."""

    pairs: list[str] = field(default_factory=lambda: ["en-de", "de-en", "en-ar"])
    can_detect: bool = False
    detected: list[str] = field(default_factory=lambda: ["en"])  # in any text, likeliest first
    pivot: str | None = None  # of every pair without it
    key: str | None = None  # that requests must carry
    max_characters: int = 5000
    max_texts: int = 50
    delay: float = 0.0  # seconds before each translation
    delays: list[float] = field(default_factory=list)  # of the next ones, before `delay` counts
    failures: list[Answer] = field(default_factory=list)  # the next answers
    flags: list[str] = field(default_factory=list)  # of every translation
    translations: dict[str, str] = field(default_factory=dict)  # other than in upper case
    requests: list[tuple[str, Any]] = field(default_factory=list)  # path and body
    documents: dict[str, bytes] = field(default_factory=dict)  # translations by their ids, until they are fetched
    progress: list[float] = field(default_factory=list)  # of a document, in the next answers, before it is done
    document_error: str = ""  # of every document
    sha256: str = "0" * 64
    url: str = ""

    def posted(self, path: str = "/api/translate") -> list[Any]:
        return [body for where, body in self.requests if where == path]

    def models(self) -> dict[str, Any]:
        pairs = [pair.split("-") for pair in self.pairs]
        return {
            "models": [
                {
                    "name": f"toy-{source}-{target}",
                    "sha256": self.sha256,
                    "source": source,
                    "target": target,
                    "source_name": NAMES[source],
                    "target_name": NAMES[target],
                    "engine": "stand-in",
                    "pivot": None if self.pivot in (source, target) else self.pivot,
                }
                for source, target in pairs
            ],
            "limits": {
                "max_characters": self.max_characters,
                "max_texts": self.max_texts,
                "max_bytes": 1_000_000,
                "beam_size": 16,
            },
            "needs_key": self.key is not None,
            "can_detect": self.can_detect,
        }

    def translation(self, text: str, body: dict[str, Any]) -> dict[str, Any]:
        best = self.translations.get(text, text.upper())
        if "prefix" in body:
            texts = [f"{body['prefix']} {other}" for other in OTHERS]
        else:
            texts = [best, *(f"{best} {i}" for i in range(1, body.get("n_best", 1)))]
        return {
            "text": texts[0],
            "score": -0.5,
            "alternatives": [{"text": text, "score": -1.0} for text in texts[1:]],
            "flags": self.flags,
            "unmet_terms": [["dog", "Hund"]] if "unmet_terms" in self.flags else [],
            "sentences": len(split_sentences(text, body["source"])),
        }

    def document(self, path: str, body: dict[str, Any]) -> bytes | dict[str, Any]:
        """The answer about a document that was sent before."""
        identity, _, what = path.removeprefix("/api/document/").partition("/")
        assert body == {"key": "key"}
        if what:
            content = self.documents.pop(identity)
            return content if what == "result" else {"status": "cancelled"}
        if self.document_error:
            return {"status": "error", "progress": 0.0, "error": self.document_error}
        if self.progress:
            return {"status": "translating", "progress": self.progress.pop(0)}
        return {"status": "done", "progress": 1.0, "flags": self.flags}

    def translate(self, body: dict[str, Any]) -> dict[str, Any]:
        texts = body["text"] if isinstance(body["text"], list) else [body["text"]]
        source, target = body["source"], body["target"]
        return {
            "translations": [self.translation(text, body) for text in texts],
            "model": {"name": f"toy-{source}-{target}", "sha256": self.sha256, "source": source, "target": target},
        }


def handler_of(server: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

        def answer(self, status: int, text: str, kind: str, headers: dict[str, str] | None = None) -> None:
            body = text.encode()
            self.send_response(status)
            for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def json(self, value: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
            self.answer(status, json.dumps(value), "application/json", headers)

        def do_GET(self) -> None:
            if self.path == "/":
                self.answer(200, render(), "text/html; charset=utf-8", HEADERS)
            elif self.path == "/api/models":
                self.json(server.models())
            else:
                self.json({"error": f"{self.path}: no such page"}, 404)

        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers["Content-Length"]))
            body = form_of(sent) if self.path == "/api/document" else json.loads(sent)
            server.requests.append((self.path, body))
            if server.key is not None and self.headers["Authorization"] != f"Bearer {server.key}":
                self.json({"error": "API key: missing or not known. Send `Authorization: Bearer KEY`"}, 401)
            elif server.failures:
                failure = server.failures.pop(0)
                self.json({"error": failure.error}, failure.status, failure.headers)
            elif self.path == "/api/attention":
                self.answer(
                    200, render_attention(toy_maps(words(8), words(9), text=body["text"])), "text/html; charset=utf-8"
                )
            elif self.path == "/api/document":
                server.documents["id"] = body["file"].upper().encode()
                self.json({"id": "id", "key": "key"})
            elif self.path.startswith("/api/document/"):
                found = server.document(self.path, body)
                if isinstance(found, bytes):
                    self.answer(200, found.decode(), "application/octet-stream")
                else:
                    self.json(found)
            elif self.path == "/detect":
                self.json([{"confidence": 90.0, "language": one} for one in server.detected])
            else:
                time.sleep(server.delays.pop(0) if server.delays else server.delay)
                self.json(server.translate(body))

    return Handler


def form_of(body: bytes) -> dict[str, str]:
    """The fields of a form as a browser sends it, and its file by the name `file`, whose name is `name`."""
    boundary = body.partition(b"\r\n")[0]
    found: dict[str, str] = {}
    for part in body.split(boundary)[1:-1]:
        head, _, content = part.decode().removesuffix("\r\n").partition("\r\n\r\n")
        names = dict(re.findall(r'(\w*name)="([^"]*)"', head))
        found[names["name"]] = content
        if "filename" in names:
            found["name"] = names["filename"]
    return found


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, *_: object) -> None:
        """A browser that goes away in the middle of an answer."""


@contextmanager
def serving(server: StandIn, port: int = 0) -> Iterator[StandIn]:
    """`server` at `server.url` until the end of the block."""
    with _Server(("127.0.0.1", port), handler_of(server)) as http:
        server.url = f"http://127.0.0.1:{http.server_port}/"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()
