"""`tfm prepare --list`: what is in a file, and a command that trains on it as it is printed."""

import json
import re
import shlex
import zipfile
from pathlib import Path

import pytest

from transformer_cli.cli import main
from transformer_cli.config.compose import load_config
from transformer_cli.data.corpus import load_text

TMX = (
    '<?xml version="1.0"?><tmx version="1.4"><header/><body><tu><tuv xml:lang="en-US"><seg>Hello <b/>you</seg></tuv>'
    '<tuv xml:lang="fr"><seg>Salut</seg></tuv></tu></body></tmx>'
)
FILES = {
    "a.csv": 'id;en;fr;de\n1;"Good; morning";Bonjour;Guten Morgen\n2;Yes;Oui;Ja\n',
    "b.tsv": "\ufeffFrench\tEnglish\nBonjour\tGood; morning\nOui\tYes\n",
    "c.jsonl": '{"texts": {"fr": "Bonjour", "en": "Good; morning"}}\n{"texts": {"fr": "Oui", "en": "Yes"}}\n',
    "my file.csv": "en,fr\nGood; morning,Bonjour\nYes,Oui\n",
    "X.en-fr.en": "Good; morning\nYes\n",
    "X.en-fr.fr": "Bonjour\nOui\n",
    "m.tmx": TMX,
}
PAIRS = [("Good; morning", "Bonjour"), ("Yes", "Oui")]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text, encoding="utf-8")
    with zipfile.ZipFile("en-fr.txt.zip", "w") as archive:
        for name in ("X.en-fr.en", "X.en-fr.fr"):
            archive.write(name)
        archive.writestr("LICENSE", "As you like.")
    with zipfile.ZipFile("two.zip", "w") as archive:
        for name in ("a.csv", "b.tsv"):
            archive.write(name)


def listed(capsys: pytest.CaptureFixture[str], *names: str) -> str:
    assert main(["prepare", *(word for name in names for word in ("--list", name))]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "names",
    [*(([name]) for name in FILES), ["X.en-fr"], ["en-fr.txt.zip"], ["X.en-fr.en", "X.en-fr.fr"]],
    ids=" ".join,
)
def test_the_command_that_is_printed_reads_the_pairs(names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    out = listed(capsys, *names)
    command = shlex.split(out.rpartition("Train on it with: ")[2])
    assert command[:2] == ["tfm", "train"]
    text = load_text(load_config("train", command[2:]).data, "train")
    assert text is not None
    pairs = [("Hello you", "Salut")] if "m.tmx" in names else PAIRS
    assert list(text.each()) in (pairs, [pair[::-1] for pair in pairs])
    n = re.search(r", (\d+) (rows|units)$", out.partition("\n")[0])
    assert n is not None
    assert int(n[1]) == len(pairs)
    for text in pairs[0]:
        assert text in out


def test_columns_that_name_no_languages_are_put_into_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    records = [{"question": "One.", "my answer": f"Two {n}."} for n in range(9)]
    Path("q.jsonl").write_text("\n".join([*map(json.dumps, records), "oops"]), encoding="utf-8")
    out = listed(capsys, "q.jsonl")
    assert "q.jsonl: a file of JSON lines (JSONL), 9 rows\n" in out
    assert out.count("  sample ") == 5
    assert "rows that cannot be read: 1, such as\n  line 10: not JSON" in out
    command = out.rpartition("Train on it with: ")[2].replace("LANGUAGE", "en", 1).replace("LANGUAGE", "fr")
    text = load_text(load_config("train", [*shlex.split(command)[2:], "data.on_bad=skip"]).data, "train")
    assert text is not None
    assert text.sources == ["One."] * 9


def test_labels_and_text_are_for_a_classifier(capsys: pytest.CaptureFixture[str]) -> None:
    Path("l.csv").write_text("text,label\nNice.,good\nAwful.,bad\n", encoding="utf-8")
    command = shlex.split(listed(capsys, "l.csv").rpartition("Train on it with: ")[2])
    assert command == ["tfm", "train", "data=labels", "data.train=l.csv"]
    text = load_text(load_config("train", command[2:]).data, "train")
    assert text is not None
    assert list(text.each()) == [("Nice.", "good"), ("Awful.", "bad")]


def test_folders_and_archives_of_several_corpora_name_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert """two.zip: an archive of 2 corpora. Name one:\n  'data.train="two.zip::a.csv"'\n""" in listed(
        capsys, "two.zip"
    )
    out = listed(capsys, ".")
    for line in (
        "a.csv: a table (CSV)",
        "b.tsv: a table with tabs",
        "m.tmx: a translation memory (TMX)",
        "two.zip: an a",
    ):
        assert f"\n  {line}" in out


def test_one_side_of_a_corpus_asks_for_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    Path("notes").write_text("One.\n\nThree.\n", encoding="utf-8")
    out = listed(capsys, "notes")
    assert "notes: text, a sentence a line, 3 rows" in out
    assert "'data.train=[notes,TRANSLATIONS]'" in out
    Path("X.en-fr.fr").write_text("Bonjour\n", encoding="utf-8")
    assert "The files have 2 and 1 lines: they are no pair, line by line." in listed(capsys, "X.en-fr.en")


def test_a_file_that_is_not_there_or_no_text_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.docx").write_bytes(b"PK\x03\x04" + b"\0" * 26 + b"word/document.xml")
    for name, message in (
        ("none.csv", "none.csv: no such file"),
        ("x.docx", "x.docx: is a Word document (.docx), not"),
    ):
        assert main(["prepare", "--list", name]) == 3
        assert message in capsys.readouterr().err


def test_what_is_shown_holds_no_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    Path("e.csv").write_text("en,fr\nred \x1b[31m,rouge\n", encoding="utf-8")
    assert "\x1b" not in listed(capsys, "e.csv")
