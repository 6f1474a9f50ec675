"""`tfm serve` as a process of its own, with a toy model that copies nothing but answers quickly, and raw sockets."""

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.forked import PROGRAM, Forked
from tests.toy.run import written_model

READY = re.compile(r"ready at http://(.+):(\d+)")
SLOW, BROKEN = "a a a a a a", "b b b b b b"  # sentences that take SECONDS, and that end in an exception
SECONDS = 0.3
# With an engine that does so.
TESTED_ENGINE = f"""
import time
from transformer_cli.decoding.torch_engine import TorchEngine
search = TorchEngine.search
def slow_or_broken(self, segments, request):
    slow, broken = self.tokenizers.source.encode([{SLOW!r}, {BROKEN!r}])
    segments = list(segments)
    time.sleep({SECONDS} * any(list(one.ids)[:len(slow)] == slow for one in segments))
    assert not any(list(one.ids) == broken for one in segments), "broken"
    return search(self, segments, request)
TorchEngine.search = slow_or_broken
{PROGRAM}
"""
SETTINGS = ("engine=torch", "decode=greedy", "decode.max_extra_length=5")


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Served:
    """A server that is ready, and the lines of its log so far."""

    process: Forked
    host: str = ""
    port: int = 0
    log: list[str] = field(default_factory=list)
    reader: threading.Thread | None = None

    def connect(self, timeout: float = 5.0) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout)

    def ask(
        self, path: str, body: Any = None, *, method: str = "", headers: Sequence[str] = (), timeout: float = 10.0
    ) -> Answer:
        """One request on a connection of its own; a body that is not bytes is sent as JSON."""
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        has_host = any(line.lower().startswith("host:") for line in headers)
        lines = [
            f"{method or ('GET' if body is None else 'POST')} {path} HTTP/1.1",
            *([] if has_host else [f"Host: localhost:{self.port}"]),
            "Connection: close",
            *([] if body is None else [f"Content-Length: {len(content)}"]),
            *headers,
        ]
        with self.connect(timeout) as connection:
            connection.sendall("\r\n".join([*lines, "", ""]).encode() + content)
            return read_answer(connection)

    def translate(self, text: str, **keys: Any) -> Answer:
        return self.ask("/api/translate", {"text": text, **keys})

    def lines(self, pattern: str, *, timeout: float = 5.0) -> list[str]:
        """The lines of the log that match, as soon as there is one."""
        end = time.monotonic() + timeout
        while not (found := [line for line in self.log if re.search(pattern, line)]) and time.monotonic() < end:
            time.sleep(0.01)
        return found

    def metric(self, name: str, *, key: str = "") -> float:
        """The sum over its labels."""
        page = self.ask("/metrics", headers=[f"X-API-Key: {key}"] if key else []).body.decode()
        rows = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", page, re.MULTILINE)
        assert rows, name
        return sum(map(float, rows))

    def memory(self) -> int:
        """Resident bytes."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * 4096


def until(condition: Callable[[], bool], *, timeout: float = 60.0) -> None:
    """Wait for what must come to be on any machine."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def read_answer(connection: socket.socket) -> Answer:
    """Reads the answer to one request; the status is 0 where the server hung up without one."""
    try:
        with connection.makefile("rb") as stream:
            answer = _read(stream)
            return _read(stream) if answer.status == 100 else answer
    except (ConnectionError, ValueError):
        return Answer(0, {}, b"")


def _read(stream: Any) -> Answer:
    head = stream.readline().split(b" ", 2)
    if len(head) < 2:
        return Answer(0, {}, b"")
    headers = {}
    while (line := stream.readline().strip()) != b"":
        name, _, value = line.partition(b":")
        headers[name.decode().lower()] = value.strip().decode()
    return Answer(int(head[1]), headers, stream.read(int(headers.get("content-length", 0))))


@contextmanager
def serving(folder: Path, *arguments: str, models: Sequence[Path] = (), program: str = PROGRAM) -> Iterator[Served]:
    """Ended by SIGTERM, unless it has ended; its exit status is that of `process`."""
    named = [word for model in models or [written_model(folder)] for word in ("--checkpoint", str(model))]
    port = () if any(word.startswith(("port=", "--port")) for word in arguments) else ("--port", "0")
    with Forked(["serve", *named, *port, *SETTINGS, *arguments], folder, program=program) as process:
        served = Served(process)
        served.reader = threading.Thread(target=_collect, args=(served,), daemon=True)
        served.reader.start()
        try:
            while not (found := [match for line in list(served.log) if (match := READY.search(line))]):
                assert process.poll() is None, served.log
                time.sleep(0.005)
            served.host, served.port = found[0][1].strip("[]"), int(found[0][2])
            yield served
        finally:
            process.send_signal(15)
            try:
                process.wait(timeout=20)
            except Exception:
                process.kill()
                raise
            served.reader.join(5)


def _collect(served: Served) -> None:
    assert served.process.stderr is not None
    for line in served.process.stderr:
        served.log.append(line.decode("utf-8", "replace").rstrip("\n"))
