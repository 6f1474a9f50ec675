"""Uploaded documents: sent, translated meanwhile and fetched once; by DeepL's own client, and by nobody's."""

import gc
import io
import re
import threading
import time
import weakref
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.addons.serving.served import until
from tests.addons.serving.test_serve_apis import multipart
from tests.addons.serving.toy_server import BREAK, SLOW, Running, StandIn, running, stand_in_server
from tests.support.each import each
from transformer_cli.addons.serving.documents import AT_ONCE, NOT_FOUND
from transformer_cli.addons.serving.glossaries import Dictionary

deepl = pytest.importorskip("deepl")

LANGUAGES = (("source_lang", b"DE"), ("target_lang", b"EN"))
FIRST, SECOND = "first-key", "second-key"
PAGE = "<p>ein <b>Hund</b></p>"


@pytest.fixture(scope="module")
def served() -> Iterator[Running]:
    """de → en and back, and fr → en, in capitals."""
    models = StandIn(), StandIn("en", "de"), StandIn("fr", "en")
    with running(stand_in_server(*models, limits={"body_bytes": 20_000})) as server:
        yield server


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepL's client asks every five seconds."""
    clock = SimpleNamespace(time=time.time, sleep=lambda seconds: time.sleep(0.01))
    monkeypatch.setattr(deepl.translator, "time", clock)


def sent(
    server: Running,
    content: bytes,
    name: str = "a.txt",
    *,
    fields: tuple[tuple[str, bytes], ...] = LANGUAGES,
    headers: dict[str, str] | None = None,
) -> tuple[int, Any]:
    body, kind = multipart(*fields, file=(name, content))
    return server.ask("/v2/document", body, headers={**kind, **(headers or {})})


def upload(server: Running, content: bytes, name: str = "a.txt", **more: Any) -> tuple[str, dict[str, str]]:
    """The path of a document, and what requests about it need."""
    status, answer = sent(server, content, name, **more)
    assert status == 200, answer
    return f"/v2/document/{answer['document_id']}", {"document_key": answer["document_key"]}


def ended(server: Running, path: str, key: dict[str, str], headers: dict[str, str] | None = None) -> dict[str, Any]:
    """The status of a document that is done, or in error."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        status, answer = server.ask(path, key, headers=headers)
        assert status == 200, answer
        if answer["status"] in ("done", "error"):
            assert isinstance(answer, dict)
            return answer
        time.sleep(0.01)
    raise AssertionError("not done")


# ---- What DeepL's client does


@pytest.mark.parametrize(
    ("name", "content", "written"),
    [
        ("a.txt", "ein Hund\r\n\r\nzwei {x}\r\n", "EIN HUND\r\n\r\nZWEI {x}\r\n"),
        ("ü.HTML", PAGE, "<p>EIN <b>HUND</b></p>"),
        ("a.md", "\ufeff# ein *Hund*\n", "\ufeff# EIN *HUND*\n"),
    ],
)
def test_a_document_is_sent_waited_for_and_fetched(
    served: Running, tmp_path: Path, name: str, content: str, written: str
) -> None:
    source, target = tmp_path / name, tmp_path / "out" / name
    source.write_bytes(content.encode())
    target.parent.mkdir()
    client = deepl.DeepLClient("any key", server_url=served.url, send_platform_info=False)
    status = client.translate_document_from_filepath(source, target, source_lang="DE", target_lang="EN-US")
    assert (status.done, target.read_bytes()) == (True, written.encode())
    assert status.billed_characters > 0
    client.close()


def test_a_glossary_counts_for_documents(served: Running) -> None:
    glossary = served.server.glossaries.create("", "pets", {("de", "en"): Dictionary({"Hund": "hound"})})
    fields = (*LANGUAGES, ("glossary_id", glossary.id.encode()))
    path, key = upload(served, PAGE.encode(), "a.html", fields=fields)
    assert ended(served, path, key)["status"] == "done"
    assert served.ask(f"{path}/result", key) == (200, b"<p>EIN <b>hound</b></p>")
    for more, says in (
        (("target_lang", b"DE"), "No dictionary found for language pair en-de in glossary"),
        (("glossary_ids", b"x"), "glossary_id: not together with glossary_ids. Leave one of them out"),
    ):
        fields = (("source_lang", b"EN" if b"DE" in more else b"DE"), ("target_lang", b"EN"), *fields[2:])
        changed = tuple({**dict(fields), more[0]: more[1]}.items())
        assert sent(served, b"x", fields=changed) == (400, {"message": says})


def test_the_key_may_be_in_a_form_and_the_status_be_asked_by_get(served: Running) -> None:
    path, key = upload(served, b"Hund")
    ended(served, path, key)
    assert served.ask(f"{path}?document_key={key['document_key']}")[1]["status"] == "done"
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert served.ask(f"{path}/result", f"document_key={key['document_key']}".encode(), headers=form) == (200, b"HUND")


def test_a_document_is_fetched_once(served: Running) -> None:
    path, key = upload(served, b"Hund")
    ended(served, path, key)
    assert served.ask(f"{path}/result", key)[0] == 200
    for again in (path, f"{path}/result"):
        assert served.ask(again, key) == (404, {"message": NOT_FOUND})


def test_a_document_that_is_not_done_is_not_there_yet(served: Running) -> None:
    path, key = upload(served, SLOW.encode())
    status, answer = served.ask(path, key)
    assert answer["status"] in ("queued", "translating")
    assert served.ask(f"{path}/result", key) == (503, {"message": "Document translation is not done"})
    assert status == 200
    assert ended(served, path, key) == {
        "document_id": path.rpartition("/")[2],
        "status": "done",
        "seconds_remaining": 0,
        "billed_characters": len(SLOW),
    }


def test_a_text_in_the_target_language_is_an_error_of_the_document(served: Running) -> None:
    text = b"The dog lies on the sofa and sleeps."
    path, key = upload(served, text, fields=(("target_lang", b"EN-GB"),))
    answer = ended(served, path, key)
    assert (answer["status"], answer["error_message"]) == ("error", "Source and target language are equal.")
    assert served.ask(f"{path}/result", key) == (400, {"message": "Source and target language are equal."})
    assert sent(served, text, fields=(("source_lang", b"EN"), ("target_lang", b"EN-GB"))) == (
        400,
        {"message": "Source and target language are equal."},
    )


# ---- Files that are no text


def docx(*paragraphs: str) -> bytes:
    """A document of Word, as small as one can be."""
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    space = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    texts = "".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in paragraphs)
    members = {
        "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        f'<Override PartName="/word/document.xml" ContentType="{kind}"/></Types>',
        "word/document.xml": f'<w:document xmlns:w="{space}"><w:body>{texts}</w:body></w:document>',
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return packed.getvalue()


def texts_of(content: bytes) -> list[str]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return re.findall(r"<w:t[^>]*>(.*?)</w:t>", archive.read("word/document.xml").decode())


def test_a_file_of_word_is_translated_by_every_api(served: Running) -> None:
    content = docx("ein Hund", "zwei &amp; drei")
    expected = ["EIN HUND", "ZWEI &amp; DREI"]
    path, key = upload(served, content, "a.docx")
    assert ended(served, path, key)["status"] == "done"
    assert texts_of(served.ask(f"{path}/result", key)[1]) == expected
    made = own_upload(served, content, "a.docx")[1]
    path, key = f"/api/document/{made['id']}", {"key": made["key"]}
    assert ended(served, path, key)["status"] == "done"
    assert texts_of(served.ask(f"{path}/result", key)[1]) == expected
    body, headers = multipart(("source", b"de"), ("target", b"en"), file=("ä.docx", content))
    address = served.ask("/translate_file", body, headers=headers)[1]["translatedFileUrl"]
    assert texts_of(served.ask(address.removeprefix(served.url))[1]) == expected


def test_a_file_that_is_no_file_of_word_and_one_of_too_many_texts(served: Running) -> None:
    path, key = upload(served, b"PK\3\4", "a.docx")
    assert ended(served, path, key)["error_message"].startswith("file: ")
    with running(stand_in_server(limits={"units": 10})) as server:
        path, key = upload(server, docx(*["ein Hund"] * 11), "a.docx")
        answer = ended(server, path, key)
        assert answer["error_message"] == "more than 10 lines, or texts within mark-up. Send it in parts"
        body, headers = multipart(("source", b"de"), ("target", b"en"), file=("a.docx", docx(*["ein Hund"] * 11)))
        assert server.ask("/translate_file", body, headers=headers)[0] == 413


# ---- Our own API, which the page uses


def own_upload(server: Running, content: bytes, name: str = "a.html", **fields: str) -> tuple[int, Any]:
    values = {"source": "de", "target": "en", **fields}
    body, headers = multipart(*((key, value.encode()) for key, value in values.items()), file=(name, content))
    return server.ask("/api/document", body, headers=headers)


def test_our_own_api_tells_progress_and_flags_and_takes_terms(served: Running) -> None:
    made = own_upload(served, f"{PAGE}<p>{{x}} 3</p>".encode(), terms='{"Hund": "hound"}')[1]
    path, key = f"/api/document/{made['id']}", {"key": made["key"]}
    assert ended(served, path, key) == {"status": "done", "progress": 1.0, "flags": []}
    assert served.ask(f"{path}/result", key) == (200, b"<p>EIN <b>hound</b></p><p>{x} 3</p>")
    assert served.ask(path, key) == (404, {"error": NOT_FOUND})


def test_a_document_that_is_cancelled_is_forgotten_and_ends(served: Running) -> None:
    made = own_upload(served, f"<p>{SLOW}</p>".encode() * 50)[1]
    path, key = f"/api/document/{made['id']}", {"key": made["key"]}
    one = served.server.documents.known[made["id"]]
    assert served.ask(f"{path}/cancel", key) == (200, {"status": "cancelled"})
    assert served.ask(path, key) == (404, {"error": NOT_FOUND})
    until(lambda: one.has_ended)


def test_a_document_that_is_cancelled_while_it_waits_leaves_nothing_in_memory(served: Running) -> None:
    documents, opened = served.server.documents, threading.Event()
    for _ in range(AT_ONCE):
        documents.threads.submit(opened.wait)
    made = own_upload(served, b"<p>ein Hund</p>")[1]
    content = weakref.ref(documents.known[made["id"]].upload)
    served.ask(f"/api/document/{made['id']}/cancel", {"key": made["key"]})
    gc.collect()
    assert content() is None
    opened.set()


@each(
    "fields, says",
    [
        ({"target": ""}, "target: is missing. Give the code of a language, as de"),
        ({"source": "en"}, "en → en: no model"),
        ({"format": "html"}, "'format': no field of this request. There are file, source, target, terms"),
        ({"terms": "x"}, "the body is no JSON (Expecting value"),
        ({"terms": "[7]"}, "terms: "),
    ],
)
def test_fields_of_our_own_api_that_are_wrong(served: Running, fields: dict[str, str], says: str) -> None:
    status, answer = own_upload(served, b"x", **fields)
    assert (status, answer["error"].startswith(says)) == (400, True), answer
    assert own_upload(served, b"x", "a.zip")[1]["error"].startswith("file: no format has the ending '.zip'")
    assert served.ask(f"/api/document/{'0' * 32}", {})[1] == {"error": "key: None is no text"}


# ---- What nobody should send


@each(
    "name, more, says",
    [
        ("a.invalid", (), "Invalid file data: no format has the ending '.invalid'. Choose one of "),
        ("a", (), "Invalid file data: no format has the ending ''. Choose one of "),
        ("a.txt", (("filename", b"b.zip"),), "Invalid file data: no format has the ending '.zip'. Choose one of "),
        ("a.txt", (("output_format", b"html"),), "output_format: 'html' is not that of the file. Leave it out"),
        ("a.txt", (("formality", b"more"),), "formality: 'more' is not taken. Choose one of "),
        ("a.txt", (("style_id", b"x"),), "style_id: not on this server. Leave it out"),
        ("a.txt", (("target_lang", b"FR"),), "target_lang: ['EN', 'FR'] is no text"),
        ("a.txt", (("glossary_id", b"x"),), "Glossary not found"),
    ],
)
def test_documents_that_are_refused(served: Running, name: str, more: tuple[tuple[str, bytes], ...], says: str) -> None:
    status, answer = sent(served, b"x", name, fields=(*LANGUAGES, *more))
    assert (status, answer["message"].startswith(says)) == (404 if "Glossary" in says else 400, True), answer


def test_a_form_without_a_file_and_a_request_without_the_key(served: Running) -> None:
    body, headers = multipart(*LANGUAGES)
    status, answer = served.ask("/v2/document", body, headers=headers)
    assert (status, answer["message"].startswith("file: is missing")) == (400, True)
    path, key = upload(served, b"x")
    assert served.ask(path, {}) == (
        400,
        {"message": "document_key: is missing. Give the one that the upload was answered with"},
    )
    assert served.ask(path, {"document_key": 7}) == (400, {"message": "document_key: 7 is no text"})
    for wrong in ("x", "ü", "", key["document_key"].lower()):
        status, answer = served.ask(path, {"document_key": wrong or "0"})
        assert (status, answer) == (404, {"message": NOT_FOUND})
    assert served.ask(f"/v2/document/{'0' * 32}", key) == (404, {"message": NOT_FOUND})


@each(
    "name, content, says",
    [
        ("a.txt", b"a\n\xff", "file:2: byte 0xff at column 1 is not UTF-8. Convert the document to UTF-8 first"),
        ("a.po", b'msgid "a', "file:1: "),
        ("a.txt", BREAK.encode(), "a fault of the server, which its log names"),
    ],
)
def test_what_a_document_cannot_be_is_said_in_its_status(served: Running, name: str, content: bytes, says: str) -> None:
    path, key = upload(served, content, name)
    answer = ended(served, path, key)
    assert (answer["status"], answer["error_message"].startswith(says)) == ("error", True), answer
    assert answer["message"] == answer["error_message"]


def test_a_body_above_the_limit_is_refused(served: Running) -> None:
    assert sent(served, b"x" * 20_000) == (413, {"message": "a body of more than 20,000 bytes. Send it in parts"})


@each("name", ["../../etc/x.txt", "..\\..\\x.txt", "/x.txt", "a\r\nb.txt", "x" * 500 + ".txt", "\u202ex.txt"])
def test_a_file_name_is_no_path(served: Running, name: str) -> None:
    fields = (*LANGUAGES, ("filename", name.encode()))
    path, key = upload(served, b"Hund", fields=fields)
    ended(served, path, key)
    *_, kept = [kept for _, kept, _ in served.server.downloads.kept.values()]
    assert ("/" in kept, "\\" in kept, len(kept) <= 100) == (False, False, True)
    assert served.ask(f"{path}/result", key) == (200, b"HUND")


def test_a_document_of_another_key_is_not_found(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"{FIRST}\n{SECOND}\n", encoding="utf-8")
    keys.chmod(0o600)
    first, second = ({"Authorization": f"DeepL-Auth-Key {key}"} for key in (FIRST, SECOND))
    with running(stand_in_server(api_keys=str(keys))) as server:
        path, key = upload(server, b"Hund", headers=first)
        ended(server, path, key, first)
        for where in (path, f"{path}/result"):
            assert server.ask(where, key, headers=second) == (404, {"message": NOT_FOUND})
            assert server.ask(where, key)[0] == 403
        assert server.ask(f"{path}/result", key, headers=first) == (200, b"HUND")
        assert sent(server, b"x")[0] == 403


def test_of_a_hundred_documents_at_once_those_that_fit_are_translated() -> None:
    with running(stand_in_server(limits={"documents": 60})) as server:
        opened = threading.Event()
        for _ in range(AT_ONCE):
            server.server.documents.threads.submit(opened.wait)
        answers = [sent(server, f"Hund {n}\n".encode() * 50) for n in range(100)]
        refused = [answer for status, answer in answers if status != 200]
        opened.set()
        assert len(refused) == 100 - 60
        assert {answer["message"] for answer in refused} == {"too many documents are waiting. Try again later"}
        for n, (status, answer) in enumerate(answers):
            if status == 200:
                path, key = f"/v2/document/{answer['document_id']}", {"document_key": answer["document_key"]}
                assert ended(server, path, key)["status"] == "done"
                assert server.ask(f"{path}/result", key) == (200, f"HUND {n}\n".encode() * 50)


def test_uploads_that_wait_have_a_bound_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformer_cli.addons.serving.documents.KEPT_BODIES", 1)
    with running(stand_in_server(limits={"body_bytes": 1000})) as server:
        assert sent(server, SLOW.encode() + b" x" * 200)[0] == 200
        assert sent(server, b" x" * 350)[0] == 503


def test_a_document_that_takes_too_long_is_given_up() -> None:
    with running(stand_in_server(limits={"document_seconds": 0.1})) as server:
        path, key = upload(server, f"{SLOW}\n".encode() * 3)
        answer = ended(server, path, key)
        assert answer["error_message"] == (
            "not done within limits.document_seconds=0.1. Try again later, with less text"
        )


def test_a_server_that_ends_gives_its_documents_up() -> None:
    with running(stand_in_server(limits={"seconds": 1})) as server:
        for _ in range(9):
            upload(server, f"{SLOW}\n".encode() * 20)
        began = time.monotonic()
    assert time.monotonic() - began < 5


def test_what_is_translated_is_forgotten_after_a_while(served: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    path, key = upload(served, b"Hund")
    ended(served, path, key)
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 601)
    monkeypatch.setattr("transformer_cli.addons.serving.documents.time", clock)
    assert served.ask(path, key) == (404, {"message": NOT_FOUND})
