"""Office files that are broken, encrypted, of another format, or made to do harm: one line each, and nothing else."""

import warnings
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import pytest

from tests.addons.documents.office_files import W, archive, docx, epub, members, odt, pptx, translate, xlsx
from tests.golden.make import FOLDER
from tests.support.contract import refused, run
from tests.support.each import each
from transformer_cli.errors import DataError

TEXT = "<w:p><w:r><w:t>the cat sat</w:t></w:r></w:p>"
GOOD = docx(TEXT)


def changed(**parts: str | bytes) -> bytes:
    """The good file with other members; their names have __ for a slash."""
    return archive({**members(GOOD), **{name.replace("__", "/"): text for name, text in parts.items()}})


def document(text: str) -> bytes:
    return archive({**members(GOOD), "word/document.xml": text})


def with_member(name: str, *, mode: int = 0o100644) -> bytes:
    target = BytesIO(GOOD)
    with ZipFile(target, "a") as file:
        info = ZipInfo(name)
        info.external_attr = mode << 16
        with warnings.catch_warnings(action="ignore"):
            file.writestr(info, "x")
    return target.getvalue()


def bomb(n_bytes: int) -> bytes:
    target = BytesIO(GOOD)
    with ZipFile(target, "a", ZIP_DEFLATED) as file:
        file.writestr("word/media/zeros.bin", bytes(n_bytes))
    return target.getvalue()


def encrypted_member() -> bytes:
    data = bytearray(GOOD)
    at = data.index(b"PK\x01\x02")
    data[at + 8] |= 1
    return bytes(data)


def damaged() -> bytes:
    data = bytearray(GOOD)
    at = data.index(b"word/document.xml") + len("word/document.xml") + 10
    data[at : at + 20] = bytes(20)
    return bytes(data)


ENTITIES = '<!DOCTYPE w:document [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
OUTSIDE = '<!DOCTYPE w:document [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
ROOT = f"<w:document {W}><w:body>{TEXT}</w:body></w:document>"
HOSTILE: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "no archive": ("docx", lambda: b"the cat sat", "cannot be unpacked: it is no office file"),
    "nothing": ("docx", lambda: b"", "cannot be unpacked"),
    "half an archive": ("docx", lambda: GOOD[: len(GOOD) // 2], "cannot be unpacked"),
    "an older format": (
        "docx",
        lambda: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600),
        "is encrypted, or in an older binary",
    ),
    "a zip of something else": ("docx", lambda: archive({"a.txt": "x"}), "does not say what its members are"),
    "a presentation": ("docx", lambda: pptx("<a:p/>"), "is of the format pptx. Use format=pptx"),
    "a workbook": ("pptx", lambda: xlsx("<si><t>a</t></si>"), "is of the format xlsx. Use format=xlsx"),
    "a document of LibreOffice": ("docx", lambda: odt("<text:p>a</text:p>"), "does not say what its members are"),
    "a document of Word": ("odt", lambda: GOOD, "is no file of the format odt"),
    "a presentation of LibreOffice": (
        "odt",
        lambda: odt("<text:p/>", kind="presentation"),
        "Use format=odp",
    ),
    "a document as a book": ("epub", lambda: GOOD, "is no EPUB book"),
    "a protected book": (
        "epub",
        lambda: epub("<p>a</p>", encrypted="OPS/text/chapter%201.xhtml"),
        "is protected against copying",
    ),
    "an encrypted document": (
        "odt",
        lambda: archive(
            {**members(odt("<text:p>a</text:p>")), "META-INF/manifest.xml": "<m:encryption-data xmlns:m='m'/>"}
        ),
        "is encrypted. Open it",
    ),
    "an encrypted member": ("docx", lambda: encrypted_member(), "is encrypted. Open it"),
    "a damaged member": ("docx", lambda: damaged(), "'word/document.xml' is damaged"),
    "no main part": ("docx", lambda: changed(**{"[Content_Types].xml": "<Types/>"}), "is no file of the format docx"),
    "broken types": ("docx", lambda: changed(**{"[Content_Types].xml": "<Types>"}), "is no XML at line 1"),
    "broken text": ("docx", lambda: document(ROOT.replace("</w:t>", "")), "'word/document.xml' is no XML at line 1"),
    "cut text": ("docx", lambda: document(ROOT[:60]), "is no XML"),
    "two roots": ("docx", lambda: document(ROOT + ROOT), "is no XML"),
    "an undefined entity": ("docx", lambda: document(ROOT.replace("cat", "&cat;")), "is no XML"),
    "entities within entities": (
        "docx",
        lambda: document(ENTITIES + ROOT.replace("cat", "&b;")),
        "has a document type",
    ),
    "a file of the machine": ("docx", lambda: document(OUTSIDE + ROOT.replace("cat", "&a;")), "has a document type"),
    "another encoding": (
        "docx",
        lambda: document("<?xml version='1.0' encoding='latin-1'?>" + ROOT),
        "is not in UTF-8",
    ),
    "bytes that are no UTF-8": (
        "docx",
        lambda: archive({**members(GOOD), "word/document.xml": ROOT.encode().replace(b"cat", b"\xff")}),
        "is not in UTF-8",
    ),
    "zeros": ("docx", lambda: bomb(80_000_000), "would become more than a hundred times as large"),
    "a way out": ("docx", lambda: with_member("../../evil.xml"), "leads out of it"),
    "an absolute name": ("docx", lambda: with_member("/etc/evil.xml"), "leads out of it"),
    "a way out of Windows": ("docx", lambda: with_member("..\\evil.xml"), "leads out of it"),
    "a link": ("docx", lambda: with_member("word/link", mode=0o120777), "leads out of it"),
    "the same member twice": ("docx", lambda: with_member("word/document.xml"), "has two members called"),
    "too many members": ("docx", lambda: archive({f"a{i}": "" for i in range(20_001)}), "has 20,001 members"),
}


@each("name", list(HOSTILE))
def test_what_is_no_document_is_refused_with_one_line(name: str) -> None:
    kind, make, says = HOSTILE[name]
    with pytest.raises(DataError) as caught:
        translate(make(), kind)
    message = str(caught.value)
    assert message.startswith(f"file.{kind}: ")
    assert says in message
    assert "\n" not in message


@each(
    "make",
    [
        lambda: document(ROOT.replace(TEXT, "<w:p>" * 3_000 + TEXT + "</w:p>" * 3_000)),
        lambda: document(
            ROOT.replace(TEXT, f"<w:p>{'<w:ins>' * 3_000}<w:r><w:t>a cat</w:t></w:r>{'</w:ins>' * 3_000}</w:p>")
        ),
        lambda: docx(
            "<w:p>" + "<w:r><w:rPr><w:b/></w:rPr><w:t>a </w:t></w:r><w:r><w:t>b </w:t></w:r>" * 20_000 + "</w:p>"
        ),
        lambda: docx('<w:p><w:r><w:fldChar w:fldCharType="begin"/></w:r>' * 2_000 + "</w:p>" * 2_000),
    ],
)
def test_what_no_one_writes_is_kept_or_translated_and_takes_no_time(make: Callable[[], bytes]) -> None:
    found, _ = translate(make(), "docx")
    assert members(found).keys() == members(GOOD).keys()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.safetensors").write_bytes((FOLDER / "joint-pre.safetensors").read_bytes())
    (tmp_path / "a.docx").write_bytes(GOOD)
    return tmp_path


OPTIONS = ["translate", "--checkpoint", "model.safetensors", "--device", "cpu", "decode=greedy"]


def test_a_document_is_translated_by_the_command_or_refused_with_nothing_written(folder: Path) -> None:
    ran = run([*OPTIONS, "--format", "docx", "--input", "a.docx", "--output", "b.docx"], folder)
    assert (ran.code, ran.out) == (0, b"")
    found = members((folder / "b.docx").read_bytes())
    assert "the cat sat" not in found.pop("word/document.xml").decode()
    assert found == {name: text for name, text in members(GOOD).items() if name != "word/document.xml"}
    assert run([*OPTIONS, "--format", "docx"], folder, stdin=GOOD).out == (folder / "b.docx").read_bytes()
    says = ["a.docx: is of the format docx. Use format=docx"]
    refused([*OPTIONS, "--format", "xlsx", "--input", "a.docx", "--output", "c.xlsx"], folder, code=3, says=says)
    says = ["a.docx: is a Word document (.docx), not text.", "tfm translate --format docx takes it as it is"]
    refused([*OPTIONS, "--input", "a.docx", "--output", "c.txt"], folder, code=3, says=says)
    assert {path.name for path in folder.iterdir()} >= {"a.docx", "b.docx"}
    assert not list(folder.glob("c.*"))


def test_a_report_says_which_texts_to_check_and_where_they_are(folder: Path) -> None:
    page = "<p>the cat</p>\n<p>the {name} cat {name} drank 17</p>\n"
    given = [*OPTIONS, "--format", "html", "--report", "report.tsv", "--output", "out.html"]
    ran = run([*given, "--fail-on-flags"], folder, stdin=page.encode())
    assert ran.code == 8
    assert "out.html: " in ran.err.decode().splitlines()[-1]
    assert "texts have flags. Check them: see report.tsv" in ran.err.decode().splitlines()[-1]
    assert (folder / "out.html").read_text(encoding="utf-8").count("{name}") == 2
    head, *rows = (folder / "report.tsv").read_text(encoding="utf-8").splitlines()
    assert head.split("\t") == ["place", "flags", "source", "translation"]
    cells = [row.split("\t") for row in rows]
    assert [row for row in cells if row[0] == "line 2" and row[2] == "the {name} cat {name} drank 17"]
    assert run([*given, "--overwrite"], folder, stdin=page.encode()).code == 0
    data = docx("<w:p><w:r><w:t>the {name} cat {name} drank 17</w:t></w:r></w:p>")
    given = [*OPTIONS, "--format", "docx", "--report", "docx.tsv", "--output", "out.docx"]
    assert run(given, folder, stdin=data).code == 0
    place = (folder / "docx.tsv").read_text(encoding="utf-8").splitlines()[1].split("\t")[0]
    assert place == "word/document.xml, text 1"
    says = ["--report report.tsv: is for documents. Add --format"]
    refused([*OPTIONS, "--report", "report.tsv"], folder, code=2, says=says, stdin=b"the cat\n")
