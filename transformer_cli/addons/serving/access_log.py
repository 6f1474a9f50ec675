"""The log: a line for each request, without its texts and keys, and JSON where that is asked for."""

import json
import logging
import queue
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from transformer_cli.addons.serving.keys import LogFormat
from transformer_cli.addons.serving.service import RequestCall
from transformer_cli.environment import concealed
from transformer_cli.errors import printable
from transformer_cli.logs import LOGGER

UNCHANGED = "/-_.~:@!$&'()*+,;="  # in a path; all else is shown as %XX
LONGEST_PATH = 200  # characters that are shown
HELD = 10_000  # lines that may wait where standard error is read slowly; further ones are lost


@dataclass(slots=True)
class AccessRecord:
    """The facts about an answered request."""

    client: str
    method: str
    path: str  # without the query
    status: int = 0
    seconds: float = 0.0
    call: RequestCall | None = None

    def fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "client": self.client,
            "method": self.method,
            "path": quote(self.path, safe=UNCHANGED)[:LONGEST_PATH],
            "status": self.status,
            "ms": round(self.seconds * 1000, 1),
        }
        if self.call is not None:
            fields |= {
                "characters": self.call.n_characters,
                "sentences": self.call.n_sentences,
                "cached": self.call.n_cached,
                "model": "+".join(self.call.models),
            }
        return fields


class AccessLog:
    """Writes lines to standard error in a thread of its own: a reader that stands still stops no request."""

    def __init__(self, log_format: LogFormat) -> None:
        self.is_json = log_format is LogFormat.json
        self.lines: queue.Queue[str | None] = queue.Queue(HELD)
        self.thread = threading.Thread(target=self._write, name="access-log", daemon=True)
        self.thread.start()

    def add(self, record: AccessRecord) -> None:
        fields = record.fields()
        if self.is_json:
            line = json.dumps({"time": timestamp(), "level": "access", **fields}, ensure_ascii=False)
        else:
            client, method, path, status, ms = (
                fields.pop(name) for name in ("client", "method", "path", "status", "ms")
            )
            line = f"{timestamp()} {client} {method} {path} {status} {ms}ms"
            line += "".join(f" {name}={value}" for name, value in fields.items())
        try:
            self.lines.put_nowait(line + "\n")
        except queue.Full:
            return

    def close(self) -> None:
        """Write what is waiting."""
        try:
            self.lines.put(None, timeout=1)
        except queue.Full:
            return
        self.thread.join(timeout=2)

    def _write(self) -> None:
        is_open = True
        while is_open:
            lines = [self.lines.get()]
            while not self.lines.empty():
                lines.append(self.lines.get())
            is_open = None not in lines
            try:
                sys.stderr.write("".join(line for line in lines if line is not None))
                sys.stderr.flush()
            except (OSError, ValueError):
                continue  # no one reads it


class JsonLines(logging.Handler):
    """Messages as JSON objects, one a line."""

    def emit(self, record: logging.LogRecord) -> None:
        message = printable(concealed(record.getMessage()))
        line = {"time": timestamp(), "level": record.levelname.lower(), "message": message}
        sys.stderr.write(json.dumps(line, ensure_ascii=False) + "\n")


def start_log(log_format: LogFormat) -> None:
    """All messages of this process go to one log, also those of uvicorn and asyncio."""
    if log_format is LogFormat.json:
        LOGGER.handlers = [JsonLines()]
    for name in ("uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = LOGGER.handlers, False
        logger.setLevel(logging.ERROR)


def timestamp() -> str:
    """UTC, to the millisecond."""
    now = time.time()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now * 1000) % 1000:03d}Z"
