"""Tables are told from text: no text of one side is taken for one, and tables of all kinds stand in one list."""

import gzip
import io
import re
import zipfile
from typing import cast

import pytest

from tests.data.formats.toy_tables import Folder
from transformer_cli.cli import main
from transformer_cli.config.data import DataConfig
from transformer_cli.data.formats.base import FileFormat, SourceFile, Table
from transformer_cli.data.registry import FORMATS
from transformer_cli.errors import ConfigError, DataError

ODD = {
    "JSON": '{"en": "a", "fr": "b"}',
    "an array of JSON": '[{"en": "a"},',
    "commas": "one,two,three",
    "one comma": "one,two",
    "semicolons": "one;two",
    "mark-up": "<tmx version='1.4'>",
    "XML": '<?xml version="1.0"?>',
    "a title": "<title>News</title>",
    "PO": 'msgid "word"',
    "quotes": '"open',
    "header": "en,fr",
    "sep": "sep=;",
}


@pytest.mark.parametrize(
    "endings", [(".en", ".fr"), (".txt", "2.txt"), (".en", ".ts"), (".en.gz", ".fr.gz"), ("", "2")]
)
@pytest.mark.parametrize("line", ODD.values(), ids=ODD)
def test_two_files_of_odd_text_are_a_pair_line_by_line(folder: Folder, line: str, endings: tuple[str, str]) -> None:
    names = [f"odd{ending}" for ending in endings]
    for number, name in enumerate(names):
        text = "".join(f"{line} {n} {number}\n" if n else f"{line}\n" for n in range(50))
        folder.write(name, gzip.compress(text.encode()) if name.endswith(".gz") else text)
    pairs = folder.pairs(names)
    assert pairs == [(f"{line} {n} 0", f"{line} {n} 1") if n else (line, line) for n in range(50)]
    if names == ["odd.en", "odd.fr"]:
        assert folder.pairs("odd") == pairs


def test_tables_and_pairs_of_files_stand_in_one_list(folder: Folder) -> None:
    folder.write("a.csv", "en,fr\none,un\n")
    folder.write("b.en", "two\n")
    folder.write("b.fr", "deux\n")
    folder.write("c.tsv", "three\ttrois\n")
    expected = {"a.csv": ("one", "un"), "b": ("two", "deux"), "c.tsv": ("three", "trois")}
    for order in (("a.csv", "b", "c.tsv"), ("b", "c.tsv", "a.csv"), ("c.tsv", "a.csv", "b")):
        names = [part for name in order for part in (["b.en", "b.fr"] if name == "b" else [name])]
        assert folder.pairs(names) == [expected[name] for name in order]
    with pytest.raises(ConfigError, match=r"data\.train: b\.fr has no file of translations after it"):
        folder.pairs(["b.fr", "a.csv", "b.en"])


def test_a_table_that_is_named_alone_is_known_by_its_content(folder: Folder) -> None:
    for text in ("en;fr\nyes, it is;oui\n", "fr,en\noui,yes\n"):
        folder.write("export.txt", text)
        assert folder.pairs("export.txt")[0][1] == "oui"


def zipped(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:  # of a time whose bytes hold a tab, as a table has them
            member = zipfile.ZipInfo(name, date_time=(2026, 11, 27, 1, 8, 40))
            archive.writestr(member, "application/vnd.oasis.opendocument.spreadsheet" if name == "mimetype" else "x")
    assert b"\t" in file.getvalue()
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            zipped("[Content_Types].xml", "xl/workbook.xml"),
            r"an Excel workbook \(\.xlsx\), .* Save the sheet as CSV in",
        ),
        (zipped("mimetype", "content.xml"), r"an OpenDocument spreadsheet \(\.ods\), not text\. Save the sheet as CSV"),
        (zipped("word/document.xml"), r"a Word document \(\.docx\), not text\. Save its text"),
        (b"Rar!\x1a\x07\x01\x00", r"a RAR archive, not text\. Unpack it first"),
        (
            b"-- a dump\n/*!40101 SET NAMES utf8 */;\nDROP TABLE IF EXISTS `a`;\n",
            r"a dump of a database \(SQL\).*as CSV",
        ),
        (b"SQLite format 3\x00", r"a database of SQLite, not text\. Export the table"),
        (
            b'<?xml version="1.0"?>\n<!DOCTYPE martif SYSTEM "x">\n<martif>',
            r"a terminology \(TBX\), .* as TMX",
        ),
        (b"%PDF-1.7", r"a PDF document, not text\. Save its text"),
        ("en,fr\n".encode("utf-16"), r"UTF-16LE, not UTF-8\. Convert it"),
    ],
)
def test_a_file_of_a_format_that_is_not_read_is_named_with_the_way_out(
    folder: Folder, capsys: pytest.CaptureFixture[str], content: bytes, message: str
) -> None:
    folder.write("x.file", content)
    with pytest.raises(DataError, match=rf"^data\.train=x\.file: is {message}"):
        folder.pairs("x.file")
    assert main(["prepare", "--list", str(folder.path / "x.file")]) == 3
    assert re.search(message, capsys.readouterr().err)


def test_each_format_says_what_it_is() -> None:
    for name, one in FORMATS.items():
        assert one.what.startswith(("a ", "an ")), name
        assert all(ending == ending.lower() and ending.startswith(".") for ending in one.endings), name
        for head in (b"", b"Plain text.\nOf two lines.\n", bytes(range(256))):
            assert not one.recognises(head), name


def test_what_a_plugins_format_gives_is_checked(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    class Numbers(FileFormat):
        what, endings = "a file of numbers", (".numbers",)

        def table(self, file: SourceFile, config: DataConfig) -> Table:
            return Table(("en", "fr"), iter([cast(list[str], [1, 2])]))

    monkeypatch.setattr(FORMATS, "_entries", dict(FORMATS._entries))
    FORMATS.register("numbers")(Numbers())
    folder.write("a.numbers", "x")
    with pytest.raises(DataError, match=r"a\.numbers: plugin .*: gives \[1, 2\], not a list of texts\. Correct it"):
        folder.pairs("a.numbers")
