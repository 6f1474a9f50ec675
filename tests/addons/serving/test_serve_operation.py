"""`tfm serve` as those who run it see it: start, limits, keys, log, metrics, reload, and the end."""

import ast
import gc
import json
import os
import re
import signal
import socket
import time
import tomllib
import weakref
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from tests.addons.serving.served import BROKEN, SLOW, TESTED_ENGINE, Served, read_answer, serving, until
from tests.conftest import ROOT, slow
from tests.support.each import each
from tests.support.forked import run
from tests.toy import run as toy_run
from tests.toy.run import written_model
from transformer_cli.addons.serving import access, protocol
from transformer_cli.addons.serving import run as serving_run
from transformer_cli.addons.serving.access import Access, KeyFile, Rate, address_of
from transformer_cli.addons.serving.errors import RequestError
from transformer_cli.addons.serving.gate import host_name, hosts_of
from transformer_cli.addons.serving.keys import LimitsConfig, ServeConfig
from transformer_cli.addons.serving.models import ModelTable
from transformer_cli.addons.serving.run import warn_if_open
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.errors import ConfigError, EnvironmentFault
from transformer_cli.models.file import write_model

SECRET = "k-5f2c9a7e1d"
TIGHT = (
    *("limits.receive_seconds=0.3", "limits.seconds=3", "limits.body_bytes=2000", "limits.requests=4"),
    *("limits.connections=20", "limits.queue=30", "limits.characters=500", "limits.texts=40"),
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served"), *TIGHT, program=TESTED_ENGINE) as one:
        yield one
    assert one.process.returncode == 0
    assert not [line for line in one.log if "Traceback" in line]


# ---- Start


def test_the_address_is_printed_when_the_model_is_warm(served: Served) -> None:
    assert served.ask("/ready").json == {"status": "ready"}
    assert served.ask("/health").json == {"status": "ok"}
    assert served.metric("tfm_batch_sentences_count") >= 1  # before anyone asked


def test_a_port_that_is_taken_is_named_before_a_model_is_read(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run(["serve", "--checkpoint", "nowhere", "--port", str(port)], tmp_path)
    assert result.code == 5
    assert result.err.decode() == (
        f"tfm: error: cannot listen at http://127.0.0.1:{port}: another program listens there."
        " Choose another with --port, or 0 for any that is free\n"
    )


@each("host", ["no.such.host.invalid", "192.0.2.1", "a b", "." * 70])
def test_a_host_that_is_no_address_of_this_machine_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"host={host}: ")):
        serving_run.bind(host, 0)


def test_a_port_may_be_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", forbidden)
    with pytest.raises(EnvironmentFault, match=re.escape("http://[::1]:80: this user may not listen there")):
        serving_run.bind("::1", 80)


def test_every_address_of_a_name_gets_the_same_port() -> None:
    sockets = serving_run.bind("localhost", 0)
    assert len({one.getsockname()[1] for one in sockets}) == 1
    assert serving_run.url_of("::1", 80) == "http://[::1]:80"
    for one in sockets:
        one.close()


def test_check_prints_what_would_be_served(tmp_path: Path) -> None:
    model = written_model(tmp_path)
    result = run(["serve", "--checkpoint", str(model), "--check", "engine=torch"], tmp_path)
    assert result.code == 0
    head, row = result.out.decode().strip().split("\n")
    assert re.split("  +", head) == ["pair", "model", "engine", "sha256", "loaded in", "memory", "first sentence"]
    assert re.split("  +", row)[:4] == ["en → fr", str(model), "torch", toy_run.sha256(model)[:12]]
    model.write_bytes(model.read_bytes()[:-100])
    result = run(["serve", "--checkpoint", str(model), "--check"], tmp_path)
    assert (result.code, result.out, result.err.count(b"\n")) == (4, b"", 1)


# ---- Limits


def test_what_is_too_large_is_refused_with_what_would_be_allowed(served: Served) -> None:
    assert served.translate("a" * 501).status == 413
    assert served.translate(["a"] * 41).status == 413  # type: ignore[arg-type]
    answer = served.ask("/api/translate", b"x" * 2001)
    assert (answer.status, answer.json) == (413, {"error": "a body of more than 2,000 bytes. Send it in parts"})
    with served.connect() as connection:
        connection.sendall(b"POST /api/translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(3):
            connection.sendall(b"400\r\n" + b"x" * 1024 + b"\r\n")
        assert read_answer(connection).status == 413


def test_requests_beyond_the_limit_are_told_to_come_back(served: Served) -> None:
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda n: served.translate(f"{SLOW} " + "c " * n), range(12)))
        assert served.ask("/health").status == 200
    statuses = sorted(answer.status for answer in answers)
    assert statuses[:4] == [200] * 4
    assert statuses[-1] == 503
    for answer in answers:
        if answer.status == 503:
            assert 1 <= int(answer.headers["retry-after"]) <= 60
            assert "too many requests at once" in answer.json["error"]


def test_a_queue_that_is_full_takes_no_more_lines(served: Served) -> None:
    def is_refused() -> bool:
        answer = served.translate(["d"] * 20)  # type: ignore[arg-type]
        return (answer.status, answer.json.get("error")) == (503, "too much is waiting. Try again later")

    with ThreadPoolExecutor(3) as pool:
        # Of one search each, and so in three batches one after the other.
        lines = [f"{SLOW} c" + " c" * n for n in range(9)]
        first = [pool.submit(served.translate, lines, search="beam", beam_size=n) for n in (2, 3, 4)]  # type: ignore[arg-type]
        until(lambda: served.metric("tfm_queue_depth") >= 9)  # one batch is searched, and another waits
        until(is_refused)
        assert [one.result().status for one in first] == [200] * 3
    assert not is_refused()


def test_an_exception_of_the_engine_fails_one_request_alone(served: Served) -> None:
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(served.translate, [BROKEN, "c d"]))
    assert [answer.status for answer in together] == [500, 200]
    assert together[0].json == {"error": "a fault of the server, which its log names"}
    (line,) = served.lines("fault of tfm")
    assert "AssertionError('broken')" in line
    assert served.translate("c d").json == together[1].json


def test_what_a_client_no_longer_waits_for_is_not_translated(served: Served) -> None:
    before = served.metric("tfm_sentences_total")
    body = json.dumps({"text": [f"{SLOW}{' a' * n}" for n in range(20, 27)], "search": "greedy"}).encode()
    head = b"POST /api/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    with ThreadPoolExecutor(3) as pool:
        # Each with options of its own, and so in a batch of its own: the client is gone long before its turn has come.
        busy = [pool.submit(served.translate, SLOW + " e", search="beam", beam_size=n) for n in (2, 3, 4)]
        until(lambda: served.metric("tfm_requests_active") >= 2)
        with served.connect() as connection:
            connection.sendall(head + body)
            time.sleep(0.3)
        assert [one.result().status for one in busy] == [200] * 3
    assert served.lines("POST /api/translate 499")
    until(lambda: served.metric("tfm_queue_depth") == 0)
    assert served.metric("tfm_sentences_total") == before + 3


@pytest.mark.slow
def test_a_deadline_ends_a_request(tmp_path: Path) -> None:
    with serving(tmp_path, "limits.seconds=0.1", program=TESTED_ENGINE) as served:  # a third of what the search takes
        answer = served.translate(SLOW)
        assert answer.status == 503
        assert answer.json["error"].startswith("not done within limits.seconds=0.1")
        assert int(answer.headers["retry-after"]) >= 1


def test_a_slow_client_is_not_waited_for(served: Served) -> None:
    head = b"POST /api/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n"
    with served.connect() as drops, served.connect() as slow_body, served.connect() as silent:
        drops.sendall(b"GET /health HTTP/1.1\r\nX: y")
        slow_body.sendall(head + b'{"text')
        answer = read_answer(slow_body)
        assert (answer.status, answer.json) == (408, {"error": "no complete body within limits.receive_seconds=0.3"})
        for _ in range(30):  # a byte at a time does not help
            time.sleep(0.04)
            try:
                drops.sendall(b"y")
            except OSError:
                break
        assert read_answer(drops).status == 408
        assert read_answer(silent).status == 0


def test_idle_connections_make_room_for_new_ones(served: Served) -> None:
    idle = [served.connect() for _ in range(60)]
    try:
        assert served.translate("c").status == 200
        assert served.metric("tfm_connections") <= 20
    finally:
        for one in idle:
            one.close()


@pytest.mark.slow
def test_a_thousand_idle_connections_do_not_disturb_a_client(tmp_path: Path) -> None:
    with serving(tmp_path, "limits.connections=1200") as served:
        before = served.memory()
        idle = [served.connect() for _ in range(1000)]
        began = time.monotonic()
        assert all(served.translate("c").status == 200 for _ in range(20))
        assert time.monotonic() - began < 5
        assert served.metric("tfm_connections") == 1001
        assert served.memory() - before < 30e6
        for one in idle:
            one.close()


@pytest.mark.slow
def test_a_client_that_does_not_read_its_answer_is_dropped(tmp_path: Path) -> None:
    with serving(tmp_path, "limits.seconds=10", "limits.body_bytes=2000000", "limits.texts=40000") as served:
        body = json.dumps({"text": ["c d e f g"] * 40_000}).encode()  # an answer of 8 MB, and the system takes up to 4
        with served.connect() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(
                b"POST /api/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
            until(lambda: served.metric("tfm_requests_active") == 1)
            until(lambda: served.metric("tfm_connections") == 1, timeout=120)
            assert served.metric("tfm_requests_active") == 0


# ---- Who may


def test_keys_are_read_from_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# Ann's\n{SECRET}\n\n  second-key \r\n", encoding="utf-8")
    file.chmod(0o600)
    keys = KeyFile(file)
    assert keys.find(SECRET) != keys.find("second-key")
    assert None not in (keys.find(SECRET), keys.find("second-key"))
    assert [keys.find(key) for key in ("", "# Ann's", SECRET[:-1], SECRET + "x", "ä\ud800")] == [None] * 5
    assert not caplog.records
    file.write_text("third\n", encoding="utf-8")
    file.chmod(0o644)
    assert keys.reload_if_changed()
    assert [keys.find("third") is None, keys.find(SECRET)] == [False, None]
    assert "other users of this machine can read the API keys" in caplog.text
    file.write_text("", encoding="utf-8")
    assert not keys.reload_if_changed()
    assert keys.find("third")
    assert "holds no key" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("content", "message"), [("# none\n", "holds no key"), ("good\nbäd\n", "line 2"), (None, "cannot be read")]
)
def test_a_file_of_keys_that_cannot_be_used_is_named(tmp_path: Path, content: str | None, message: str) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        Access(ServeConfig(api_keys=str(file)))


def test_a_rate_is_that_of_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(access.time, "monotonic", lambda: now)
    rate = Rate(6)
    assert [rate.take("a") for _ in range(6)] == [0.0] * 6
    assert rate.take("a") == pytest.approx(10)
    assert rate.take("b") == 0
    now += 9
    assert rate.take("a") == pytest.approx(1)
    now += 1
    assert (rate.take("a"), rate.take("a")) == (0, pytest.approx(10))
    for n in range(20_000):
        rate.take(str(n))
    assert len(rate.buckets) == 10_000


def test_an_address_of_ipv6_counts_with_its_network() -> None:
    assert address_of("2001:db8:1:2:3::4") == address_of("2001:db8:1:2::9") == "2001:db8:1:2::/64"
    assert address_of("::ffff:192.0.2.1") == address_of("192.0.2.1") == "192.0.2.1"
    assert address_of("no address") == "'no address'"


def test_guesses_at_a_key_have_a_rate(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(SECRET, encoding="utf-8")
    config = ServeConfig(api_keys=str(file))
    config.limits.per_minute = 3
    checked = Access(config)
    statuses = []
    for _ in range(5):
        with pytest.raises(RequestError) as raised:
            checked.check("guess", "192.0.2.1")
        statuses.append(raised.value.status)
    assert statuses == [401, 401, 401, 429, 429]
    checked.check(SECRET, "192.0.2.1")


def test_a_key_opens_the_server_and_is_in_no_log(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(SECRET, encoding="utf-8")
    settings = (
        "--api-keys",
        str(file),
        "--log-format",
        "json",
        "limits.per_minute=5",
        "reload=0.1",
        "proxies=[127.0.0.0/8]",
        "--cors",
        "https://a.example",
    )
    with serving(tmp_path, *settings) as served:
        body = {"text": "c hush"}
        answer = served.ask("/api/translate", body)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert served.ask("/api/translate", body, headers=["Authorization: Bearer no"]).status == 401
        for header in ("Authorization: Bearer ", "X-API-Key: ", "Authorization: DeepL-Auth-Key "):
            assert served.ask("/api/translate", body, headers=[header + SECRET]).status == 200
        assert served.ask("/health").status == served.ask("/ready").status == 200
        assert served.ask("/api/models").json["needs_key"] is True
        assert served.ask("/metrics", headers=["X-Forwarded-For: 192.0.2.7"]).status == 401
        assert served.metric("tfm_sentences_total", key=SECRET) == 3
        rest = [served.ask("/api/translate", body, headers=["X-API-Key: " + SECRET]) for _ in range(3)]
        assert [answer.status for answer in rest] == [200, 200, 429]
        assert 1 <= int(rest[2].headers["retry-after"]) <= 12

        file.write_text("another\n", encoding="utf-8")
        served.lines("changed, and read again")
        assert served.ask("/api/translate", body, headers=["X-API-Key: another"]).status == 200
        assert served.ask("/api/translate", body, headers=["X-API-Key: " + SECRET]).status in (401, 429)

        origin = served.ask("/api/models", headers=["Origin: https://a.example"])
        assert origin.headers["access-control-allow-origin"] == "https://a.example"
        other = served.ask("/api/models", headers=["Origin: https://b.example"])
        assert "access-control-allow-origin" not in other.headers
        time.sleep(0.1)
    entries = [json.loads(line) for line in served.log]  # every line is an object
    assert all({"time", "level"} <= set(entry) for entry in entries)
    (first, *_) = [entry for entry in entries if entry.get("path") == "/api/translate" and entry["status"] == 200]
    assert {key: first[key] for key in ("client", "method", "characters", "sentences", "cached", "model")} == {
        "client": "127.0.0.1",
        "method": "POST",
        "characters": 6,
        "sentences": 1,
        "cached": 0,
        "model": "toy",
    }
    assert next(entry["client"] for entry in entries if entry.get("path") == "/metrics") == "192.0.2.7"
    for secret in (SECRET, "another", "hush"):
        assert secret not in "\n".join(served.log)


def test_a_page_whose_name_leads_here_is_not_answered(served: Served) -> None:
    for host in ("localhost", "127.0.0.1:1", "[::1]:80", "LOCALHOST"):
        assert served.ask("/api/models", headers=[f"Host: {host}"]).status == 200
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil", ""):
        answer = served.ask("/api/models", headers=[f"Host: {host}"])
        assert answer.status == 421
        assert "allowed_hosts" in answer.json["error"]
    assert hosts_of(ServeConfig(host="0.0.0.0")) is None
    assert hosts_of(ServeConfig(allowed_hosts=["*"])) is None
    assert hosts_of(ServeConfig(host="0.0.0.0", allowed_hosts=["MT.example"])) == {"mt.example"}
    assert "mt.example" in (hosts_of(ServeConfig(allowed_hosts=["mt.example"])) or ())
    assert host_name(b"[2001:DB8:0::1]:80") == "2001:db8::1"
    for wrong in (b"a:b", b"[::1]x", b"a:1:2", b"x@a", b"a b", b"[::g]", b"[1.2.3.4]", b"a,b", b"\xff"):
        assert host_name(wrong) is None


@pytest.mark.parametrize(
    ("host", "keys", "warns"), [("0.0.0.0", 0, 1), ("0.0.0.0", 1, 0), ("127.0.0.1", 0, 0), ("::", 0, 1)]
)
def test_a_server_of_the_network_without_keys_is_warned_of(
    host: str, keys: bool, warns: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "keys").write_text(SECRET, encoding="utf-8")
    (tmp_path / "keys").chmod(0o600)
    warn_if_open(ServeConfig(host=host, api_keys=str(tmp_path / "keys") if keys else None))
    assert ("all that reach this address may send requests" in caplog.text) == warns


def test_the_installed_uvicorn_is_built_as_the_protocol_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    protocol.check_uvicorn()
    for names, name in (("OF_A_PROTOCOL", "pipe_line"), ("OF_A_CYCLE", "is_complete")):
        with monkeypatch.context() as patch, pytest.raises(EnvironmentFault, match=f"has no {name}, which tfm serve"):
            patch.setattr(protocol, names, (name,))
            protocol.check_uvicorn()


def test_every_name_that_the_protocol_uses_of_uvicorn_is_checked() -> None:
    tree = ast.parse(Path(protocol.__file__).read_text(encoding="utf-8"))
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    of_uvicorn = {*HttpToolsProtocol.__init__.__code__.co_names, *RequestResponseCycle.__init__.__code__.co_names}
    used -= {one.name for one in protocol.Reading}
    methods = {name for name in dir(HttpToolsProtocol) if callable(getattr(HttpToolsProtocol, name))}
    assert used & (of_uvicorn | methods) - {*dir(object)} <= {*protocol.OF_A_PROTOCOL, *protocol.OF_A_CYCLE}
    assert not [name for name in used & (of_uvicorn | methods) if name.startswith("_") and not name.startswith("__")]


def test_a_proxy_has_an_address_and_an_origin_no_path() -> None:
    with pytest.raises(ConfigError, match="proxies='nginx': is no address"):
        ServeConfig(proxies=["127.0.0.1", "nginx"])
    with pytest.raises(ConfigError, match="is no origin"):
        ServeConfig(cors=["https://a.example/"])


def test_answers_say_how_they_may_be_used(served: Served) -> None:
    headers = served.translate("c").headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "server" not in headers
    assert "access-control-allow-origin" not in headers


# ---- What is seen


def test_metrics_count_what_was_asked_and_name_nothing_of_it(served: Served) -> None:
    def count(endpoint: str, status: int) -> float:
        page = served.ask("/metrics").body.decode()
        found = re.search(rf'^tfm_requests_total{{endpoint="{endpoint}",status="{status}"}} (\S+)$', page, re.MULTILINE)
        return float(found[1]) if found else 0.0

    before, hits = count("/api/translate", 200), served.metric("tfm_cache_hits_total")
    others = count("other", 404)
    for _ in range(3):
        assert served.translate("f g h").status == 200
    served.ask("/secret-path?q=secret-query")
    assert count("/api/translate", 200) == before + 3
    assert count("other", 404) == others + 1
    assert served.metric("tfm_cache_hits_total") == hits + 2
    page = served.ask("/metrics").body.decode()
    assert "secret" not in page
    assert f'sha256="{served.ask("/api/models").json["models"][0]["sha256"]}"' in page


def test_every_metric_is_in_the_docs_and_the_other_way_round(served: Served) -> None:
    page = served.ask("/metrics").body.decode()
    shown = set(re.findall(r"^# TYPE (tfm_\w+)", page, re.MULTILINE))
    docs = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(tfm_\w+)`(?=[^|]* \|.*\|$)", docs, re.MULTILINE)) == shown


def test_the_log_has_a_line_for_a_request_and_no_control_characters(served: Served) -> None:
    served.ask("/a%0a%1b[2J%20200 b".replace(" ", "%20"))
    (line,) = served.lines(r"GET /a%0A")
    assert re.fullmatch(r"20\d\d-\S+Z 127\.0\.0\.1 GET /a%0A%1B%5B2J%20200%20b 404 \S+ms", line)


# ---- Another model


def test_a_replaced_file_is_served_and_a_damaged_one_is_not(tmp_path: Path) -> None:
    model = written_model(tmp_path)
    with serving(tmp_path, "reload=0.1", models=[model]) as served:
        first = served.translate("a b c").json
        good, damaged = model.read_bytes(), tmp_path / "damaged"
        damaged.write_bytes(good[: len(good) // 2])
        os.replace(damaged, model)
        (line,) = served.lines("served on")
        assert str(model) in line
        assert served.translate("a b c").json == first
        assert served.metric("tfm_reload_failures_total") == 1

        other = tmp_path / "other"
        write_model(other, toy_run.model_file(seed=4))
        os.replace(other, model)
        assert served.lines("replaced, and read again")
        second = served.translate("a b c").json
        assert second["model"]["sha256"] == toy_run.sha256(model) != first["model"]["sha256"]
        until(lambda: served.metric("tfm_reloads_total") == 1)  # which is counted when it has been logged
        assert served.metric("tfm_reload_failures_total") == 1
        assert f'sha256="{first["model"]["sha256"]}"' not in served.ask("/metrics").body.decode()


def test_a_replaced_model_leaves_the_memory(tmp_path: Path) -> None:
    model, reports = written_model(tmp_path), []
    config = ServeConfig(checkpoint=[str(model)], engine="torch", decode=DecodeConfig(max_extra_length=5))
    table = ModelTable(config, lambda _, report: reports.append(report))
    table.models[0].warm_up()
    before = weakref.ref(table.models[0])
    (thread,) = table.models[0].shared._queue.threads
    written_model(tmp_path, name="other", seed=4)
    os.replace(tmp_path / "other.safetensors", model)
    assert len(table.reload_replaced()) == 1
    gc.collect()
    assert before() is None
    thread.join(5)
    assert not thread.is_alive()
    until(lambda: len(reports) == 2)  # a batch is reported when it has been answered


# ---- The end


def test_a_batch_that_is_searched_when_the_process_ends_is_finished(tmp_path: Path) -> None:
    program = """
import threading, time
from transformer_cli.decoding.batch_queue import BatchKind, Call
from transformer_cli.decoding.engine import Capabilities
from transformer_cli.decoding.shared_engine import SharedEngine
searching = threading.Event()
class Engine:
    n_searches, capabilities, tokenizers, text, tokens_per_batch = 1, Capabilities("fake"), None, None, None
    def score(self, pairs, **_):
        searching.set()
        time.sleep(0.3)
        print("finished", flush=True)
        return [None]
shared = SharedEngine(Engine())
items = [("key", ([1], [1]), 2)]
kind = BatchKind(None, "score", 100)
threading.Thread(target=lambda: list(shared._results(kind, items, Call())), daemon=True).start()
assert searching.wait(60)
"""
    assert run([], tmp_path, program=program).out == b"finished\n"


def refuses(served: Served) -> bool:
    try:
        served.connect().close()
    except ConnectionRefusedError:
        return True
    return False


def test_sigterm_answers_what_is_waiting_and_takes_nothing_new(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "decode.batch_tokens=8", program=TESTED_ENGINE) as served,  # each line is a batch of its own
        served.connect() as kept,
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(served.translate, [f"{SLOW} c{' c' * n}" for n in range(3)])  # type: ignore[arg-type]
        body = json.dumps({"text": [f"{SLOW} d{' d' * n}" for n in range(3)]}).encode()
        kept.sendall(
            b"POST /api/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        kept.sendall(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: served.metric("tfm_requests_active") == 2)
        served.process.send_signal(signal.SIGTERM)
        until(lambda: refuses(served))
        assert waiting.result().status == 200
        stream = kept.makefile("rb").read()
        assert stream.startswith(b"HTTP/1.1 200 OK")
        assert b"HTTP/1.1 503" in stream
        assert b"draining" in stream
        assert served.process.wait(timeout=5) == 0
    assert [line for line in served.log if line.startswith("stopping when 2 requests are answered")]


def test_sigterm_answers_every_connection_that_has_arrived(tmp_path: Path) -> None:
    body = json.dumps({"text": "c d"}).encode()
    request = b"POST /api/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with serving(tmp_path) as served:
        connections = [served.connect(timeout=15) for _ in range(40)]
        for one in connections[:20]:
            one.sendall(request)
        served.process.send_signal(signal.SIGSTOP)
        connections += [served.connect(timeout=15) for _ in range(10)]  # that the system has accepted alone
        for one in connections[20:]:
            one.sendall(request)
        served.process.send_signal(signal.SIGTERM)
        served.process.send_signal(signal.SIGCONT)
        assert Counter(read_answer(one).status for one in connections) == {200: 50}
        for one in connections:
            one.close()
        assert served.process.wait(timeout=10) == 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), slow(signal.SIGTERM, 143)])
def test_a_second_signal_ends_at_once(tmp_path: Path, number: int, status: int) -> None:
    settings = ("decode.batch_tokens=8",)  # each line is a batch of its own: nine times SECONDS for the request
    with serving(tmp_path, *settings, program=TESTED_ENGINE) as served, served.connect() as client:
        body = json.dumps({"text": [f"{SLOW}{' c' * n}" for n in range(9)]}).encode()
        client.sendall(
            b"POST /api/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        until(lambda: served.metric("tfm_requests_active") == 1)
        served.process.send_signal(number)
        assert served.lines("^stopping")  # two signals at once may be one
        served.process.send_signal(number)
        assert served.process.wait(timeout=2) == status


@pytest.mark.slow
def test_a_killed_server_leaves_nothing_and_starts_again_at_its_port(tmp_path: Path) -> None:
    model = written_model(tmp_path)
    before = set(tmp_path.iterdir())
    with serving(tmp_path, models=[model]) as served:
        assert served.translate("a").status == 200
        served.process.kill()
        served.process.wait(timeout=5)
    assert set(tmp_path.iterdir()) == before
    with serving(tmp_path, f"port={served.port}", models=[model]) as again:
        assert again.translate("a").status == 200


# ---- Docker


def test_everything_that_the_dockerfile_copies_is_there_and_not_ignored() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").split("\n")
    copied = {
        path for line in lines if line.startswith("COPY ") and "--from" not in line for path in line.split()[1:-1]
    }
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split("\n")
    assert copied
    for path in copied:
        assert (ROOT / path).exists()
        assert f"!{path}" in ignored
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    readme = build["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    needed = {fragment["path"] for fragment in readme["fragments"]} | {*build["project"]["license-files"]}
    needed |= {
        *build["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"],
        "transformer_cli",
        "pyproject.toml",
    }
    assert needed <= copied


def test_the_image_begins_with_a_digest_and_each_command_asks_one_index() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert re.findall(r"^ARG (\S+)$", text, re.MULTILINE) == ["PYTHON_IMAGE"], "it is given, and has no default"
    assert {line.split()[1] for line in text.split("\n") if line.startswith("FROM ")} == {"${PYTHON_IMAGE}"}
    assert "extra-index" not in text
    assert len(re.findall(r"pip install", text)) == 2
    assert text.count("--index-url") == 1
    assert re.search(r"^torch==\S+$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)


def test_every_limit_is_in_the_docs() -> None:
    docs = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    assert [one.name for one in fields(LimitsConfig) if f"`limits.{one.name}`" not in docs] == []


def test_the_links_of_the_security_policy_lead_somewhere() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)(?:#([^)]+))?\)", text)
    assert links
    for path, heading in links:
        target = (ROOT / path).read_text(encoding="utf-8")
        assert not heading or f"\n## {heading.capitalize()}\n" in target
