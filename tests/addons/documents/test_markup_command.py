"""`tfm translate --format`: a document in, a document out, whole or absent, and one line for what makes no sense."""

from pathlib import Path

import pytest

from tests.addons.documents.test_markup_properties import Tags
from tests.golden.make import FOLDER
from tests.support.contract import refused, run
from transformer_cli.models.file import read_model

OPTIONS = ["translate", "--checkpoint", "model.safetensors", "--device", "cpu", "decode=greedy"]
PAGE = """<!DOCTYPE html>\r
<p class="x">the <b>cat</b> drank <a href="y?a=1&amp;b">milk</a> and sat.</p>\r
<pre>the cat</pre><img alt="a woman">\r
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.safetensors").write_bytes((FOLDER / "joint-pre.safetensors").read_bytes())
    (tmp_path / "page.html").write_bytes(PAGE.encode())
    return tmp_path


def test_a_page_is_written_whole_with_all_its_tags(folder: Path) -> None:
    ran = run([*OPTIONS, "--format", "html", "--input", "page.html", "--output", "seite.html"], folder)
    assert (ran.code, ran.out) == (0, b"")
    found = Tags((folder / "seite.html").read_bytes().decode())
    assert found.is_nested
    names = sorted(tag.split()[0] for tag in found.tags if "img" not in tag)
    assert names == ["/a", "/b", "/p", "/pre", "a", "b", "p", "pre"]
    assert "<pre>the cat</pre>" in (folder / "seite.html").read_bytes().decode()
    refused(
        [*OPTIONS, "--format", "html", "--input", "page.html", "--output", "seite.html"],
        folder,
        code=2,
        says=["seite.html: exists already. Add --overwrite"],
    )


@pytest.mark.parametrize("data", [PAGE.encode(), b"\xef\xbb\xbf" + PAGE.encode()], ids=["plain", "with a mark"])
def test_a_pipe_gives_the_same_bytes_as_a_file(folder: Path, data: bytes) -> None:
    (folder / "page.html").write_bytes(data)
    by_pipe = run([*OPTIONS, "--format", "html"], folder, stdin=data).out
    by_file = run([*OPTIONS, "--format", "html", "--input", "page.html"], folder).out
    assert by_pipe == by_file
    assert by_pipe.startswith(data[:9])
    assert by_pipe.count(b"\r\n") == data.count(b"\r\n")


@pytest.mark.parametrize(("format_name", "data"), [("html", b""), ("xml", b"<a/>"), ("po", b"\n"), ("srt", b"1\n")])
def test_a_document_without_text_is_copied_with_a_warning(folder: Path, format_name: str, data: bytes) -> None:
    ran = run([*OPTIONS, "--format", format_name], folder, stdin=data)
    assert (ran.code, ran.out) == (0, data)
    assert f"standard input: has no text to translate as format={format_name}" in ran.err.decode()


@pytest.mark.parametrize(
    ("data", "n_lines"),
    [
        ("the cat\n\na dog\r\nthe milk\n", 3),
        ("\ufeffthe cat\na dog", 2),
        ("the cat\n", 0),
        ("<p>the cat\na dog</p>\n", 0),
        ("the cat<br>\na dog\n", 0),
    ],
)
def test_plain_text_whose_lines_are_one_text_has_a_warning(folder: Path, data: str, n_lines: int) -> None:
    ran = run([*OPTIONS, "--format", "html"], folder, stdin=data.encode())
    said = f"standard input: its {n_lines} lines were one text, as format=html has it. Leave --format out"
    assert ran.code == 0
    assert ("were one text" in ran.err.decode(), said in ran.err.decode()) == (n_lines > 0, n_lines > 0)


@pytest.mark.parametrize(("mark", "encoding"), [(b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")])
def test_a_document_in_utf_16_stays_so(folder: Path, mark: bytes, encoding: str) -> None:
    text = '<meta charset="UTF-16"><p>the cat</p>\r\n'
    (folder / "page.html").write_bytes(mark + text.encode(encoding))
    found = run([*OPTIONS, "--format", "html", "--input", "page.html"], folder).out
    plain = run([*OPTIONS, "--format", "html"], folder, stdin=text.replace("16", "8").encode()).out
    assert found.startswith(mark)
    assert found.removeprefix(mark).decode(encoding) == plain.decode().replace("8", "16")


def test_what_was_repaired_is_counted_and_what_is_to_be_checked_is_shown(folder: Path) -> None:
    ran = run([*OPTIONS, "--format", "markdown", "the cat {name} drank 17 milk"], folder)
    assert ran.out.count(b"{name}") == 1
    assert "of 1 texts: 1 placeholders_inserted" in ran.err.decode()
    assert "placeholders_inserted: 'the cat {name} drank 17 milk'" in ran.err.decode()


def test_the_languages_of_a_memory_are_those_of_the_command_or_the_model(folder: Path) -> None:
    memory = "<tmx><header srclang='fr'/><tu><tuv xml:lang='{}'><seg>the cat drank milk</seg></tuv></tu></tmx>"
    source, target = read_model(folder / "model.safetensors").source_lang, "x-other"
    ran = run([*OPTIONS, "--format", "tmx"], folder, stdin=memory.format(source).encode())
    assert ran.code == 0, ran.err
    assert ran.out.count(b'creationtool="tfm"') == 1
    refused(
        [*OPTIONS, "--format", "tmx", memory.format(target)],
        folder,
        code=3,
        says=[f"has texts in {target}, and none in {source}. Name the language to translate from, by --from"],
    )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--prefix", "page.html"], "--prefix page.html: is for lines, and format=html is one document. Leave one"),
        (["--alignments", "x"], "--alignments x: is for lines, and format=html is one document. Leave one of them out"),
        (["--output-format", "jsonl"], "output_format=jsonl: is for lines, and format=html is one document. Leave one"),
        (["--n-best", "2", "decode=beam"], "decode.n_best=2: is for lines, and format=html is one document. Leave one"),
        (["format=htm"], "format"),
    ],
)
def test_what_makes_no_sense_for_a_document_is_refused(folder: Path, given: list[str], says: str) -> None:
    refused([*OPTIONS, "--format", "html", "--input", "page.html", *given], folder, code=2, says=[says])


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"<p>a\n\n<p>b \xe9", "page.html:3: byte 0xe9 at column 6 is not UTF-8. Convert the document to UTF-8 first"),
        (b"<meta charset=latin1><p>a", "page.html: says that its encoding is latin1. Convert it to UTF-8, and change"),
        ("<p>a".encode("utf-16")[:-1], "page.html: has the byte order mark of UTF-16, and is none at byte 9. Save it"),
        ("<p>a".encode("utf-32"), "page.html"),
        (b"<meta charset=utf-16><p>a", "page.html: says that its encoding is utf-16. Convert it to UTF-8, and"),
    ],
)
def test_a_document_that_is_not_utf_8_is_refused(folder: Path, data: bytes, says: str) -> None:
    (folder / "page.html").write_bytes(data)
    refused([*OPTIONS, "--format", "html", "--input", "page.html"], folder, code=3, says=[says])
