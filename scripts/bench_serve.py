"""Measures `tfm serve` with clients on the same machine: see scripts/bench_serve."""

import argparse
import asyncio
import json
import os
import platform
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import ctranslate2
import torch

from transformer_cli import api
from transformer_cli.addons.interop.ctranslate2_engine import CTranslate2Engine
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.data.lines import read_lines
from transformer_cli.decoding.opening import open_models
from transformer_cli.decoding.shared_engine import SharedEngine

TFM = [sys.executable, "-c", "from transformer_cli.cli import entry_point; entry_point()"]
ENDPOINTS = {"our API": "/api/translate", "LibreTranslate's API": "/translate"}
TICKS = os.sysconf("SC_CLK_TCK")
CONNECTIONS = 512  # of soak, at most
PATIENCE_S = 30  # beyond the server's deadline, after which a request counts as lost
# A line is a sentence here, and no model that splits texts into sentences is downloaded.
ARGOS = r"""
import sys, time, types
from pathlib import Path

class Sentences:
    def __init__(self, *_, **__): ...
    def sentences(self, text): return [text]

sys.modules["stanza"], sys.modules["minisbd"] = types.ModuleType("stanza"), types.ModuleType("minisbd")
sys.modules["minisbd"].SBDetect = Sentences
sys.modules["minisbd"].models = types.SimpleNamespace(cache_dir="", list_models=lambda: [sys.argv[2]])
from argostranslate import package, translate
package.install_from_path(Path(sys.argv[1]))
lines = sys.stdin.read().rstrip("\n").split("\n")
translate.translate(lines[0], *sys.argv[2:])
began = time.perf_counter()
for line in lines:
    translate.translate(line, *sys.argv[2:])
print(len(lines) / (time.perf_counter() - began))
"""


# ---- The server


def memory_mb(process: int) -> float:
    """The resident memory, in MB."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


@dataclass(frozen=True)
class Server:
    port: int
    process: "subprocess.Popen[bytes]"

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory(self) -> float:
        return memory_mb(self.process.pid)

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            values = re.findall(rf"^{name}(?:{{.*}})? (.*)$", answer.read().decode(), re.MULTILINE)
        return sum(map(float, values))


@contextmanager
def serving(options: argparse.Namespace, *settings: str) -> Iterator[Server]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["serve", "--checkpoint", options.model, "--port", str(port), "cache=0", "access_log=false"]
    words += [f"engine={options.engine}", f"device={options.device}", *settings]
    process = subprocess.Popen([*TFM, *words], stderr=subprocess.PIPE)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if b"ready at" in line:
                break
        else:
            sys.exit(f"tfm serve ended with {process.wait()}")
        yield Server(port, process)
    finally:
        process.terminate()
        process.wait()


# ---- The clients: as little work as possible, as they use the same cores


class Connection(asyncio.Protocol):
    """One request at a time over a connection that stays open."""

    def __init__(self) -> None:
        self.received = b""
        self.transport: asyncio.Transport | None = None
        self.answer: asyncio.Future[tuple[int, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(ConnectionError(f"closed by the server ({exc})"))

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, end, body = self.received.partition(b"\r\n\r\n")
        if end and len(body) >= (length := int(re.findall(rb"(?i)content-length: *(\d+)", head)[0])):
            self.received = b""
            if self.answer is not None and not self.answer.done():
                self.answer.set_result((int(head[9:12]), body[:length]))

    def post(self, path: str, text: str) -> "asyncio.Future[tuple[int, bytes]]":
        assert self.transport is not None
        body = json.dumps(request_of(path, text), ensure_ascii=False).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self.answer = asyncio.get_running_loop().create_future()
        self.transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return self.answer


def request_of(path: str, text: str) -> dict[str, str]:
    return {"q": text, "source": SOURCE, "target": TARGET} if path == "/translate" else {"text": text}


def translation_in(path: str, body: bytes) -> str:
    answer = json.loads(body)
    text: str = answer["translatedText"] if path == "/translate" else answer["translations"][0]["text"]
    return text


SOURCE = TARGET = ""  # languages of the model


async def connect(port: int) -> Connection:
    _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
    return connection


async def closed_loop(
    port: int, path: str, lines: Sequence[str], n_clients: int, *, seed: int | None = None
) -> tuple[list[str], list[float]]:
    """Translations, and the seconds of each request: a client asks as soon as it has its answer."""
    work = list(enumerate(lines))
    if seed is not None:
        random.Random(seed).shuffle(work)
    waiting, found, seconds = deque(work), [""] * len(lines), []

    async def client() -> None:
        connection = await connect(port)
        while waiting:
            n, line = waiting.popleft()
            began = time.perf_counter()
            status, body = await connection.post(path, line)
            seconds.append(time.perf_counter() - began)
            if status != 200:
                sys.exit(f"{path}: {status} {body.decode()}")
            found[n] = translation_in(path, body)
        if connection.transport is not None:
            connection.transport.close()

    await asyncio.gather(*(client() for _ in range(n_clients)))
    return found, seconds


# ---- Throughput


def throughput(options: argparse.Namespace, lines: Sequence[str]) -> None:
    """Rates of one round after the other; ratios to the file are taken round by round."""
    rates: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}  # ms a sentence
    waits: dict[str, list[float]] = {}
    with serving(options) as server:
        for path in ENDPOINTS.values():
            asyncio.run(closed_loop(server.port, path, lines[:100], options.clients))
        before = server.metric("tfm_batch_sentences_sum"), server.metric("tfm_batch_sentences_count")
        clients = 0.0
        for _ in range(options.rounds):
            seconds, cpu_seconds = file_seconds(options, lines)
            rates.setdefault("file", []).append(len(lines) / seconds)
            cpu.setdefault("file", []).append(1000 * cpu_seconds / len(lines))
            for name, path in ENDPOINTS.items():
                began, cpu_began, own = time.perf_counter(), server.cpu_seconds(), time.process_time()
                _, of_requests = asyncio.run(closed_loop(server.port, path, lines, options.clients))
                rates.setdefault(name, []).append(len(lines) / (time.perf_counter() - began))
                cpu.setdefault(name, []).append(1000 * (server.cpu_seconds() - cpu_began) / len(lines))
                clients += time.process_time() - own
                waits.setdefault(name, []).extend(of_requests)
        n_sentences = server.metric("tfm_batch_sentences_sum") - before[0]
        n_batches = server.metric("tfm_batch_sentences_count") - before[1]
    print("| | sentences/s | to the file | CPU ms a sentence | CPU to the file | p50 ms | p99 ms |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    print(f"| `tfm translate` of the file | {spread(rates['file'], 0)} | | {spread(cpu['file'])} | | | |")
    for name in ENDPOINTS:
        ratios = [a / b for a, b in zip(rates[name], rates["file"], strict=True)]
        cpu_ratios = [a / b for a, b in zip(cpu[name], cpu["file"], strict=True)]
        p50, p99 = (f"{1000 * quantile(waits[name], share):.0f}" for share in (0.5, 0.99))
        print(
            f"| {options.clients} clients, {name} | {spread(rates[name], 0)} | {spread(ratios)} | {spread(cpu[name])} |"
            f" {spread(cpu_ratios)} | {p50} | {p99} |"
        )
    if options.argos is not None:
        rate = argos_rate(options, lines[:300])
        ratio = rate / statistics.median(rates["file"])
        print(f"| argostranslate, one after the other | {rate:.0f} | {ratio:.2f} | | | | |")
    n_requests = len(lines) * len(ENDPOINTS) * options.rounds
    print(
        f"\n{n_sentences / n_batches:.1f} sentences a batch. The clients took {1000 * clients / n_requests:.2f} ms of"
        " CPU a sentence, which the server could not use."
    )


def file_seconds(options: argparse.Namespace, lines: Sequence[str]) -> tuple[float, float]:
    """Wall and CPU seconds of `tfm translate`, less those of a file of one line."""
    (small, small_cpu), (large, large_cpu) = (_file_seconds(options, part) for part in (lines[:1], lines))
    return large - small, large_cpu - small_cpu


def _file_seconds(options: argparse.Namespace, lines: Sequence[str]) -> tuple[float, float]:
    began, before = time.perf_counter(), os.times()
    file_translations(options, lines)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - began, cpu


def file_translations(options: argparse.Namespace, lines: Sequence[str], *settings: str) -> list[str]:
    words = ["translate", "--checkpoint", options.model, f"engine={options.engine}", f"device={options.device}"]
    given = "".join(f"{line}\n" for line in lines).encode()
    done = subprocess.run([*TFM, *words, *settings], input=given, capture_output=True, check=False)
    if done.returncode:
        sys.exit(done.stderr.decode())
    return done.stdout.decode().split("\n")[:-1]


def argos_rate(options: argparse.Namespace, lines: Sequence[str]) -> float:
    """Sentences/s of argostranslate with the model exported for it, one text at a time."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / f"translate-{SOURCE}_{TARGET}-1_0.argosmodel"
        words = ["export", "argos", "--checkpoint", options.model, "--output", str(package)]
        subprocess.run([*TFM, *words], check=True, capture_output=True)
        environment = {**os.environ, "XDG_DATA_HOME": folder, "ARGOS_PACKAGES_DIR": f"{folder}/packages"}
        done = subprocess.run(
            [options.argos, "-c", ARGOS, str(package), SOURCE, TARGET],
            input="\n".join(lines).encode(),
            capture_output=True,
            env=environment,
            check=False,
        )
    if done.returncode:
        sys.exit(done.stderr.decode())
    return float(done.stdout.split()[-1])


# ---- Latency


def latency(options: argparse.Namespace, lines: Sequence[str]) -> None:
    """One sentence after the other, each in all ways in turn."""
    translator = api.load(options.model, engine=options.engine, device=options.device)
    encoded = translator.tokenizers.source.encode(list(lines))
    chosen = [(line, ids) for line, ids in zip(lines, encoded, strict=True) if 18 <= len(ids) <= 22][: options.requests]
    seconds: dict[str, list[float]] = {}

    async def measure(port: int) -> None:
        connection = await connect(port)
        bare = bare_call(translator.engine)
        for n, (line, ids) in enumerate([*chosen[:20], *chosen]):
            for name, path in ENDPOINTS.items():
                began = time.perf_counter()
                status, _ = await connection.post(path, line)
                assert status == 200
                record(n, name, began)
            began = time.perf_counter()
            translator.translate([line])
            record(n, "`translator.translate` in a process", began)
            if bare is not None:
                began = time.perf_counter()
                bare(ids)
                record(n, "`ctranslate2.Translator.translate_batch`", began)

    def record(n: int, name: str, began: float) -> None:
        if n >= 20:  # those before warm up
            seconds.setdefault(name, []).append(time.perf_counter() - began)

    with serving(options) as server:
        asyncio.run(measure(server.port))
    base = seconds[list(seconds)[-1]]
    print(f"{len(chosen)} sentences of 18 to 22 tokens, one at a time; each in all ways, one after the other.\n")
    print("| | p50 ms | p99 ms | more than the engine, p50 ms |\n|---|---:|---:|---:|")
    for name, values in seconds.items():
        extra = statistics.median(a - b for a, b in zip(values, base, strict=True))
        print(
            f"| {name} | {1000 * quantile(values, 0.5):.1f} | {1000 * quantile(values, 0.99):.1f} |"
            f" {'' if values is base else f'{1000 * extra:.1f}'} |"
        )
    firsts, later = [], []
    for _ in range(options.rounds):
        with serving(options) as server:
            first, *rest = asyncio.run(closed_loop(server.port, "/api/translate", [chosen[0][0]] * 11, 1))[1]
            firsts.append(1000 * first)
            later.append(1000 * statistics.median(rest))
    print(f"| first request of an idle server | {spread(firsts, 1)} | | |")
    print(f"| the ten after it | {spread(later, 1)} | | |")


def bare_call(engine: object) -> Callable[[Sequence[int]], object] | None:
    """The library's own call for the ids of one sentence, beam 4; None for another engine."""
    inner = engine.engine if isinstance(engine, SharedEngine) else engine
    if not isinstance(inner, CTranslate2Engine):
        return None
    return lambda ids: inner.library.translate_batch(
        [inner.tokenizers.source.pieces(ids)], beam_size=4, max_decoding_length=len(ids) + 51
    )


def engine(options: argparse.Namespace, lines: Sequence[str]) -> None:
    """CTranslate2 alone: sentences/s by the size of its batches, in the order of the file, and its memory."""
    inner = api.load(options.model, engine="ctranslate2", device=options.device).shared.engine
    assert isinstance(inner, CTranslate2Engine)
    pieces = [inner.tokenizers.source.pieces(ids) for ids in inner.tokenizers.source.encode(list(lines))]
    print("| sentences of a batch | sentences/s | MB after it |\n|---:|---:|---:|")
    for size in (1, 8, 16, 24, 32, 64):
        rates = []
        for _ in range(options.rounds):
            began = time.perf_counter()
            batches = [pieces[start : start + size] for start in range(0, len(pieces), size)]
            pending = [
                one
                for batch in batches
                for one in inner.library.translate_batch(
                    batch, beam_size=4, num_hypotheses=4, max_input_length=0, return_scores=True, asynchronous=True
                )
            ]
            for one in pending:
                one.result()
            rates.append(len(pieces) / (time.perf_counter() - began))
        print(f"| {size} | {spread(rates, 0)} | {memory_mb(os.getpid()):.0f} |", flush=True)


# ---- Answers


def answers(options: argparse.Namespace, lines: Sequence[str]) -> None:
    expected = file_translations(options, lines)
    print(f"{len(lines)} lines; lines whose translation is not that of `tfm translate`, engine={options.engine}:\n")
    print("| | differ |\n|---|---:|")
    for tokens in options.batch_tokens:
        found = file_translations(options, lines, f"decode.batch_tokens={tokens}")
        print(f"| `tfm translate decode.batch_tokens={tokens}` | {differing(found, expected)} |", flush=True)
    with serving(options) as server:
        for n in range(options.rounds):
            path = list(ENDPOINTS.values())[n % len(ENDPOINTS)]
            n_clients = (options.clients, 8, 200)[n % 3]
            found, _ = asyncio.run(closed_loop(server.port, path, lines, n_clients, seed=n))
            print(f"| {path}, {n_clients} clients, order {n} | {differing(found, expected)} |", flush=True)
            if options.show:
                for line, one, other in zip(lines, expected, found, strict=True):
                    if one != other:
                        print(f"  {line}\n    {one}\n    {other}", file=sys.stderr)


def differing(found: Sequence[str], expected: Sequence[str]) -> int:
    return sum(a != b for a, b in zip(found, expected, strict=True))


# ---- Soak


@dataclass
class Counts:
    statuses: Counter[int] = field(default_factory=Counter)
    accepted: list[float] = field(default_factory=list)  # seconds
    refused: list[float] = field(default_factory=list)
    n_sent: int = 0
    n_lost: int = 0
    n_failed: int = 0  # the connection ended
    n_mixed_up: int = 0  # the translation of another line
    n_other: int = 0  # neither: rounding has decided a near tie
    n_late: int = 0  # more than 0.1 s after their time, as the clients' process was not run


def soak(options: argparse.Namespace, lines: Sequence[str]) -> None:
    expected = file_translations(options, lines)
    known = set(expected)
    counts, rows = Counts(), []
    with serving(options) as server:
        sample = random.Random(0).sample(list(lines), min(1500, len(lines)))
        capacity = options.rate
        if capacity is None:
            began = time.perf_counter()
            asyncio.run(closed_loop(server.port, "/api/translate", sample, options.clients))
            capacity = len(sample) / (time.perf_counter() - began)
        rate, duration = 2 * capacity, 60 * options.minutes
        print(
            f"Poisson arrivals at {rate:.0f} requests/s, twice the capacity of {capacity:.0f}, for {options.minutes:g}"
            f" minutes; {len(lines)} lines in turn.\n",
            flush=True,
        )

        async def one(n: int, idle: list[Connection], places: asyncio.Semaphore) -> None:
            async with places:
                began = time.perf_counter()
                while idle and idle[-1].transport is None:  # the server has closed it
                    idle.pop()
                try:
                    connection = idle.pop() if idle else await connect(server.port)
                    status, body = await asyncio.wait_for(connection.post("/api/translate", lines[n]), 60 + PATIENCE_S)
                except TimeoutError:
                    counts.n_lost += 1
                    return
                except OSError:
                    counts.n_failed += 1
                    return
                took = time.perf_counter() - began
                idle.append(connection)
            counts.statuses[status] += 1
            (counts.accepted if status == 200 else counts.refused).append(took)
            if status == 200 and (text := translation_in("/api/translate", body)) != expected[n]:
                if text in known:
                    counts.n_mixed_up += 1
                else:
                    counts.n_other += 1

        async def watch(began: float) -> None:
            loop = asyncio.get_running_loop()
            while True:
                depth = await loop.run_in_executor(None, server.metric, "tfm_queue_depth")
                rows.append((time.perf_counter() - began, server.memory(), depth))
                await asyncio.sleep(min(5.0, duration / 20))

        async def run() -> None:
            random_ = random.Random(1)
            began = due = time.perf_counter()
            watcher = asyncio.ensure_future(watch(began))
            idle: list[Connection] = []
            places = asyncio.Semaphore(CONNECTIONS)
            tasks: set[asyncio.Task[None]] = set()
            while due < began + duration:
                due += random_.expovariate(rate)
                if (wait := due - time.perf_counter()) > 0:
                    await asyncio.sleep(wait)
                counts.n_late += wait < -0.1
                task = asyncio.ensure_future(one(counts.n_sent % len(lines), idle, places))
                counts.n_sent += 1
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            await asyncio.gather(*tasks)
            watcher.cancel()

        cpu = time.process_time()
        asyncio.run(run())
        cpu = (time.process_time() - cpu) / duration
        time.sleep(1)
        queue_after = server.metric("tfm_queue_depth")
    n_answered = sum(counts.statuses.values())
    quarter = [memory for at, memory, _ in rows if at > duration / 4]
    print("| | |\n|---|---:|")
    for name, value in (
        ("sent", f"{counts.n_sent:,}"),
        ("answered", f"{n_answered:,}"),
        *((f"status {status}", f"{n:,}") for status, n in sorted(counts.statuses.items())),
        ("accepted a second", f"{counts.statuses[200] / duration:.0f}"),
        ("lost: no answer", counts.n_lost),
        ("connections that broke", counts.n_failed),
        ("mixed up: the translation of another line", counts.n_mixed_up),
        ("another translation of the same line", counts.n_other),
        ("p50, p99, longest of the accepted", quantiles(counts.accepted)),
        ("p50, p99, longest of the refused", quantiles(counts.refused)),
        ("sentences in the queue: median, most, at the end", queue_of([depth for *_, depth in rows], queue_after)),
        (
            "MB after a quarter of the time, at the end, most",
            f"{quarter[0]:.0f}, {quarter[-1]:.0f}, {max(quarter):.0f}",
        ),
        ("CPU of the clients", f"{cpu:.2f} cores"),
        ("requests sent more than 0.1 s late", counts.n_late),
    ):
        print(f"| {name} | {value} |")
    if counts.n_lost or counts.n_failed or counts.n_mixed_up or n_answered != counts.n_sent:
        sys.exit(1)


def queue_of(depths: Sequence[float], at_the_end: float) -> str:
    return f"{statistics.median(depths):.0f}, {max(depths):.0f}, {at_the_end:.0f}"


# ---- Figures


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def quantiles(values: Sequence[float]) -> str:
    if not values:
        return ""
    return (
        ", ".join(f"{1000 * one:.0f}" for one in (quantile(values, 0.5), quantile(values, 0.99), max(values))) + " ms"
    )


def spread(values: Sequence[float], digits: int = 2) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def machine() -> str:
    processor = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text()) or [platform.machine()]
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return (
        f"{processor[0]}, {len(os.sched_getaffinity(0))} cores{gpu}, torch {torch.__version__}, CTranslate2"
        f" {ctranslate2.__version__}, commit {commit.stdout.strip()}, {time.strftime('%Y-%m-%d')}, load"
        f" {os.getloadavg()[0]:.1f} before"
    )


WHAT = {"throughput": throughput, "latency": latency, "engine": engine, "answers": answers, "soak": soak}


def main() -> None:
    global SOURCE, TARGET
    parser = argparse.ArgumentParser(prog="scripts/bench_serve", description=__doc__)
    parser.add_argument("what", choices=WHAT)
    parser.add_argument("model", help="a model file or run directory")
    parser.add_argument("file", type=Path, help="lines to translate, .gz or not")
    parser.add_argument("--engine", default="ctranslate2", choices=("ctranslate2", "torch"))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--lines", type=int, help="only the first of FILE")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=300, help="of latency")
    parser.add_argument("--minutes", type=float, default=10.0, help="of soak")
    parser.add_argument("--rate", type=float, help="capacity in sentences/s; soak measures it otherwise")
    parser.add_argument("--batch-tokens", type=int, nargs="*", default=[512, 2048], help="of answers, for the file")
    parser.add_argument("--show", action="store_true", help="what differs")
    parser.add_argument("--argos", help="Python that has argostranslate")
    options = parser.parse_args()
    lines = [line.strip() for line in read_lines(options.file).texts]
    lines = list(dict.fromkeys(line for line in lines if line))[: options.lines]
    opened = open_models(options.model, decode=DecodeConfig())
    SOURCE, TARGET = opened.models[0].source_lang, opened.models[0].target_lang
    print(f"{machine()}\n\n`scripts/bench_serve {' '.join(sys.argv[1:])}`\n", flush=True)
    WHAT[options.what](options, lines)


if __name__ == "__main__":
    main()
