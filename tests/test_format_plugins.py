"""A format of documents, of models and of exports that a plugin registers, each with one module."""

from pathlib import Path

import pytest

from tests.contract import refused, run
from tests.golden.make import FOLDER
from tests.test_serve_apis import multipart
from tests.toy_server import running, stand_in_server
from transformer_cli.addons.documents.formats import format_of_file
from transformer_cli.commands.translate.formats import DOCUMENT_FORMATS
from transformer_cli.plugins import load_plugins

PROPERTIES = '''
"""Lines of `key = text`, of which the texts are translated."""

import re

from transformer_cli.addons.documents.inline_tags import add_lines
from transformer_cli.addons.documents.register import document_format
from transformer_cli.addons.documents.units import Builder


@document_format("properties", endings=(".properties",))
def parse(text):
    builder = Builder(text)
    for match in re.finditer(r"^[\\w.]+ *= *(.+)$", text, re.MULTILINE):
        add_lines(builder, [match.span(1)], str)
    return builder.document()
'''
TEXT = "# menu\nfile.open = the cat\nfile.close=sat <b>down</b>\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model and plugins; what they register is forgotten afterwards."""
    DOCUMENT_FORMATS.names()
    monkeypatch.setattr(DOCUMENT_FORMATS, "_entries", dict(DOCUMENT_FORMATS._entries))
    monkeypatch.setattr("transformer_cli.plugins._loaded", [])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.safetensors").write_bytes((FOLDER / "joint-pre.safetensors").read_bytes())
    return tmp_path


# ---- Documents


def test_a_plugin_adds_a_format_of_documents(folder: Path) -> None:
    (folder / "format_of_properties.py").write_text(PROPERTIES, encoding="utf-8")
    (folder / "menu.properties").write_text(TEXT, encoding="utf-8")
    options = ["translate", "--checkpoint", "model.safetensors", "--device", "cpu", "decode=greedy"]
    options += ["--input", "menu.properties"]
    refused([*options, "--format", "properties"], folder, code=2, says=["format=properties: unknown. Choose html, "])
    ran = run([*options, "--format", "properties", "--plugin", "format_of_properties"], folder)
    assert ran.code == 0, ran.err
    comment, first, second, end = ran.out.decode().split("\n")
    assert (comment, end) == ("# menu", "")
    assert first.startswith("file.open = ")
    assert first != "file.open = the cat"
    assert second.startswith("file.close=")
    assert "<b>" in second
    assert b"properties" in run(["translate", "--keys", "format"], folder).out


def test_a_format_of_a_plugin_is_served(folder: Path) -> None:
    (folder / "served_properties.py").write_text(PROPERTIES, encoding="utf-8")
    load_plugins(["served_properties"])
    assert format_of_file("MENU.Properties") == "properties"
    expected = "# menu\nfile.open = THE CAT\nfile.close=SAT <b>DOWN</b>\n"
    with running(stand_in_server()) as server:
        asked = {"text": TEXT, "source": "de", "target": "en", "format": "properties"}
        assert server.ask("/api/translate", asked)[1]["translations"][0]["text"] == expected
        body, headers = multipart(("source", b"de"), ("target", b"en"), file=("menu.properties", TEXT.encode()))
        answer = server.ask("/translate_file", body, headers=headers)[1]
        assert server.ask(answer["translatedFileUrl"].removeprefix(server.url)) == (200, expected.encode())
        assert ".properties" in server.ask("/frontend/settings")[1]["supportedFilesFormat"]
        assert b"&quot;.properties&quot;: &quot;properties&quot;" in server.ask("/")[1]
