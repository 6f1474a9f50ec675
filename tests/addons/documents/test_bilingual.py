"""XLIFF, TMX, TS of Qt and the like are refused by content and by name, and XML that only looks alike is read."""

from pathlib import Path

import pytest

from tests.addons.serving.test_serve_apis import multipart
from tests.addons.serving.toy_server import running, stand_in_server
from tests.golden.make import FOLDER
from tests.support.contract import refused
from tests.support.each import each
from tests.support.marked import in_order
from transformer_cli.addons.documents.document import translate_document
from transformer_cli.errors import DataError

XLIFF = """<?xml version="1.0"?>
<!-- of the kitchen timer -->
<xliff version="1.2"><file><body><trans-unit id="a"><source>The soup is hot.</source>
<target state="final">La soupe est chaude.</target></trans-unit></body></file></xliff>
"""
REFUSED = {
    "XLIFF": XLIFF,
    "XLIFF 2 with a prefix": "<x:xliff xmlns:x='urn:oasis:names:tc:xliff:document:2.0'><x:file/></x:xliff>",
    "TMX": "\ufeff<!DOCTYPE tmx SYSTEM 'tmx14.dtd'>\n<tmx version='1.4'><body><tu/></body></tmx>",
    "TS of Qt": "<!DOCTYPE TS><TS version='2.1'><context><message><source>Soup</source></message></context></TS>",
    "TBX": "<martif type='TBX'><text><body/></text></martif>",
    "Trados": "<TRADOStag Version='2.0'><Body/></TRADOStag>",
    "Wordfast": "<txml locale='en'/>",
}
READ = {
    "strings of Android": "<resources xmlns:xliff='urn:oasis:names:tc:xliff:document:1.2'>"
    "<string name='a'>Hello <xliff:g id='n'>%s</xliff:g></string></resources>",
    "XLIFF within another root": "<book><p>Hello</p><xliff/></book>",
    "a root with a name that begins alike": "<tmxfile><p>Hello</p></tmxfile>",
    "text before": "Hello <tmx/>",
    "lower case": "<ts>Hello</ts>",
}


@each("format_name", ["xml", "html", "markdown"])
@each("name, text", list(REFUSED.items()))
def test_a_format_with_sources_and_translations_is_refused_by_its_root(name: str, text: str, format_name: str) -> None:
    with pytest.raises(DataError) as caught:
        translate_document(text, format_name, in_order)
    message = str(caught.value)
    assert message.startswith("the document: is ")
    assert name.split()[0] in message
    assert "\n" not in message


@each("text", list(READ.values()))
def test_other_xml_is_read(text: str) -> None:
    assert "Helloж" in translate_document(text, "xml", in_order).text


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        (
            "messages.xml",
            XLIFF,
            "messages.xml: is XLIFF, which holds texts beside their translations. Use --format xliff",
        ),
        ("messages.XLF", "<a>Hello</a>", "messages.XLF: is XLIFF, which holds texts beside their translations"),
        (
            "app_fr.ts",
            "<a>Hello</a>",
            "is TS of Qt, which holds texts beside their translations. Use --format ts",
        ),
        (
            "memory.tmx",
            "",
            "memory.tmx: is TMX, a translation memory, which holds texts beside their translations. Use --format tmx",
        ),
        (
            "Localizable.xcstrings",
            "",
            "is a string catalogue of Xcode, which holds texts beside their translations. Use --format xcstrings",
        ),
    ],
)
def test_the_command_names_the_file_and_the_way_out(tmp_path: Path, name: str, text: str, says: str) -> None:
    (tmp_path / "model.safetensors").write_bytes((FOLDER / "joint-pre.safetensors").read_bytes())
    (tmp_path / name).write_text(text)
    command = ["translate", "--checkpoint", "model.safetensors", "--device", "cpu", "--format", "xml", "--input", name]
    refused([*command, "--output", "out.xml"], tmp_path, code=3, says=[says])
    assert not (tmp_path / "out.xml").exists()
    assert (tmp_path / name).read_text() == text


def test_every_api_of_the_server_refuses_it() -> None:
    xml = "<xliff><file><source>ein Hund</source></file></xliff>"
    form, headers = multipart(("source", b"de"), ("target", b"en"), file=("a.xml", xml.encode()))
    with running(stand_in_server()) as server:
        answers = [
            server.ask("/translate", {"q": xml, "source": "de", "target": "en", "format": "html"}),
            server.ask("/translate_file", form, headers=headers),
            server.ask("/v2/translate", {"text": [xml], "target_lang": "EN", "tag_handling": "xml"}),
            server.ask("/api/translate", {"text": xml, "source": "de", "target": "en", "format": "xml"}),
        ]
    for status, answer in answers:
        assert status == 400
        assert ": is XLIFF, which holds texts" in str(answer)
