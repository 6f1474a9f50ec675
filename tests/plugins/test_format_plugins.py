"""A format of documents, an importer, an exporter and an engine that a plugin registers, each with one module."""

from pathlib import Path
from typing import Any

import pytest

from tests.addons.serving.test_serve_apis import multipart
from tests.addons.serving.toy_server import running, stand_in_server
from tests.golden.make import FOLDER
from tests.support.contract import refused, run
from tests.support.each import each
from transformer_cli.addons.documents.formats import format_of_file
from transformer_cli.addons.interop.registries import EXPORTERS, IMPORTERS
from transformer_cli.commands.translate.formats import DOCUMENT_FORMATS
from transformer_cli.config.shared import ENGINES
from transformer_cli.errors import ConfigError
from transformer_cli.models.file import read_model
from transformer_cli.plugins import load_plugins
from transformer_cli.registry import Registry

INI = '''
"""Lines of `key = text`, of which the texts are translated."""

import re

from transformer_cli.addons.documents.inline_tags import add_lines
from transformer_cli.addons.documents.register import document_format
from transformer_cli.addons.documents.units import Builder


@document_format("ini", endings=(".ini",))
def parse(text):
    builder = Builder(text)
    for match in re.finditer(r"^[\\w.]+ *= *(.+)$", text, re.MULTILINE):
        add_lines(builder, [match.span(1)], str)
    return builder.document()
'''
PROGRAM = '''
"""A program whose models are ours behind four bytes, and before some more."""

from dataclasses import dataclass

from transformer_cli.addons.interop.foreign import Imported
from transformer_cli.addons.interop.registries import EXPORTERS, IMPORTERS, Exporter
from transformer_cli.addons.interop.verify import CPU, log_probs, search
from transformer_cli.config.fields import key
from transformer_cli.models.file import read_model, write_model

MAGIC = b"MINE"


class Program:
    def __init__(self, model):
        self.model, self.tokenizers = model.build(CPU).float(), model.tokenizers

    def translate(self, sources, *, beam_size, max_tokens):
        found = search(self.model, sources, tokenizers=self.tokenizers, beam_size=beam_size)
        return [hypothesis.ids for hypothesis in found]

    def log_probs(self, sources, targets):
        return log_probs(self.model, sources, targets, self.tokenizers)


@dataclass
class Padding:
    padding: int = key(0, "Bytes behind the model.", low=0, high=8)
    byte: str = key(" ", "What they are.", choices=(" ", "-"))


@EXPORTERS.register("mine", options=Padding)
class Mine(Exporter):
    program = "Mine, a program"
    packages = ("numpy",)

    def write(self, model, folder, config):
        write_model(folder / "plain", model)
        padding = config.options["padding"] * config.options["byte"].encode()
        (folder / "mine.bin").write_bytes(MAGIC + (folder / "plain").read_bytes() + padding)
        (folder / "plain").unlink()
        return Program(model)

    def usage(self, facts, is_packed):
        return "`mine TEXT`"


def file_of(path):
    return path / "mine.bin" if path.is_dir() else path


@IMPORTERS.register("mine")
class Importer:
    options = ()

    def recognises(self, path):
        return file_of(path).is_file() and file_of(path).read_bytes().startswith(MAGIC)

    def read(self, path, options):
        plain = file_of(path).with_suffix(".plain")
        plain.write_bytes(file_of(path).read_bytes().removeprefix(MAGIC))
        model = read_model(plain)
        plain.unlink()
        return Imported(
            model.config,
            model.tokenizers,
            model.source_lang,
            model.target_lang,
            {name: lambda weight=weight: weight for name, weight in model.weights.items()},
            program=lambda: Program(model),
            program_name="Mine 1",
            files=[file_of(path)],
        )
'''
ENGINE = '''
"""An engine that computes with torch, and says so."""

import sys

from transformer_cli.config.shared import ENGINES
from transformer_cli.decoding.engines import EngineKind
from transformer_cli.decoding.torch_engine import torch_engine


@ENGINES.register("mine")
class Mine(EngineKind):
    def open(self, paths, models, decode, device, *, options, parallel):
        print("opened by a plugin", file=sys.stderr)
        return torch_engine(models, decode, device)
'''
TEXT = "# menu\nfile.open = the cat\nfile.close=sat <b>down</b>\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model and plugins; what they register is forgotten afterwards."""
    DOCUMENT_FORMATS.names()
    registries: list[Registry[Any]] = [DOCUMENT_FORMATS, IMPORTERS, EXPORTERS, ENGINES]
    for registry in registries:
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
        monkeypatch.setattr(registry, "_options", dict(registry._options))
    monkeypatch.setattr("transformer_cli.plugins._loaded", [])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.safetensors").write_bytes((FOLDER / "joint-pre.safetensors").read_bytes())
    return tmp_path


# ---- Documents


@each(
    "endings, says",
    [
        ("('.ini', '.md')", ["files that end in .md are of the format `markdown`", "--format"]),
        ("('ini',)", ["endings=('ini',): give a tuple in small letters"]),
        ("('.Ini',)", ["endings=('.Ini',): give a tuple in small letters"]),
        ("'.ini'", ["endings='.ini': give a tuple"]),
    ],
)
def test_a_format_has_endings_that_find_it_and_no_other(endings: str, says: list[str]) -> None:
    program = INI.replace("('.ini',)", endings).replace('(".ini",)', endings)
    with pytest.raises(ConfigError) as raised:
        exec(program, {"__name__": "format_of_ini"})
    assert all(text in str(raised.value) for text in says), raised.value


def test_a_plugin_adds_a_format_of_documents(folder: Path) -> None:
    (folder / "format_of_ini.py").write_text(INI, encoding="utf-8")
    (folder / "menu.ini").write_text(TEXT, encoding="utf-8")
    options = ["translate", "--checkpoint", "model.safetensors", "--device", "cpu", "decode=greedy"]
    options += ["--input", "menu.ini"]
    refused([*options, "--format", "ini"], folder, code=2, says=["format=ini: unknown. Choose "])
    ran = run([*options, "--format", "ini", "--plugin", "format_of_ini"], folder)
    assert ran.code == 0, ran.err
    comment, first, second, end = ran.out.decode().split("\n")
    assert (comment, end) == ("# menu", "")
    assert first.startswith("file.open = ")
    assert first != "file.open = the cat"
    assert second.startswith("file.close=")
    assert "<b>" in second
    assert b" ini" in run(["translate", "--keys", "format"], folder).out


def test_a_format_of_a_plugin_is_served(folder: Path) -> None:
    (folder / "served_ini.py").write_text(INI, encoding="utf-8")
    load_plugins(["served_ini"])
    assert format_of_file("MENU.Ini") == "ini"
    expected = "# menu\nfile.open = THE CAT\nfile.close=SAT <b>DOWN</b>\n"
    with running(stand_in_server()) as server:
        asked = {"text": TEXT, "source": "de", "target": "en", "format": "ini"}
        assert server.ask("/api/translate", asked)[1]["translations"][0]["text"] == expected
        body, headers = multipart(("source", b"de"), ("target", b"en"), file=("menu.ini", TEXT.encode()))
        answer = server.ask("/translate_file", body, headers=headers)[1]
        assert server.ask(answer["translatedFileUrl"].removeprefix(server.url)) == (200, expected.encode())
        assert ".ini" in server.ask("/frontend/settings")[1]["supportedFilesFormat"]
        assert b"&quot;.ini&quot;: &quot;ini&quot;" in server.ask("/")[1]


# ---- Models of other programs


def test_a_plugin_adds_an_exporter_and_an_importer(folder: Path) -> None:
    (folder / "other_program.py").write_text(PROGRAM, encoding="utf-8")
    export = ["export", "mine", "--checkpoint", "model.safetensors", "--output", "out"]
    refused(export, folder, code=2, says=["format=mine: unknown; did you mean `marian`?"])
    plugin = ["--plugin", "other_program"]
    refused([*export, *plugin, "--quantization", "int8"], folder, code=2, says=["--quantization int8: mine keeps"])
    ran = run([*export, *plugin], folder)
    assert ran.code == 0, ran.err
    card = (folder / "out" / "README.md").read_text(encoding="utf-8")
    assert "exported for Mine, a program" in card
    assert "`mine TEXT`" in card

    (folder / "m.mine").write_bytes((folder / "out" / "mine.bin").read_bytes())
    ran = run(["import", "m.mine", "--output", "back.safetensors", *plugin], folder)
    assert ran.code == 0, ran.err
    assert b"compared with Mine 1" in ran.out
    back, model = read_model(folder / "back.safetensors"), read_model(folder / "model.safetensors")
    assert all(back.weights[name].equal(weight) for name, weight in model.weights.items())

    lines = b"the cat\nmilk\n"
    ours, theirs = (
        run(["translate", "--checkpoint", name, "--device", "cpu", *plugin], folder, stdin=lines)
        for name in ("model.safetensors", "m.mine")
    )
    assert (theirs.code, theirs.out) == (0, ours.out), theirs.err
    assert b"m.mine: imported once" in theirs.err


def test_the_settings_of_an_exporter_are_listed_checked_and_given_to_it(folder: Path) -> None:
    (folder / "padded_program.py").write_text(PROGRAM, encoding="utf-8")
    export = ["export", "mine", "--checkpoint", "model.safetensors", "--output", "out", "--plugin", "padded_program"]
    listed = run(["export", "--keys", "options.", "--plugin", "padded_program"], folder)
    assert b"options.padding: int, 0 to 8, default 0\n    Bytes behind the model.\n" in listed.out
    for wrong, says in (
        ("options.paddin=2", "options.paddin: unknown key; did you mean `options.padding`?"),
        ("options.padding=9", "options.padding=9: out of range"),
        ("options.padding=many", "options.padding=many: no whole number"),
    ):
        refused([*export, wrong], folder, code=2, says=[says])
    refused([*export[:1], "onnx", *export[2:], "options.padding=2"], folder, code=2, says=["options.padding: exporter"])
    ran = run([*export, "options.padding=3", "options.byte=-"], folder)
    assert ran.code == 0, ran.err
    assert (folder / "out" / "mine.bin").read_bytes().endswith(b"---")


def test_a_plugin_adds_an_engine(folder: Path) -> None:
    (folder / "my_engine.py").write_text(ENGINE, encoding="utf-8")
    translate = ["translate", "--checkpoint", "model.safetensors", "--device", "cpu", "the cat"]
    refused(
        [*translate, "--engine", "mine"],
        folder,
        code=2,
        says=["engine=mine: unknown. Choose ctranslate2, firefox, torch"],
    )
    by_torch = run(translate, folder)
    by_plugin = run([*translate, "--engine", "mine", "--plugin", "my_engine"], folder)
    assert (by_plugin.code, by_plugin.out) == (0, by_torch.out), by_plugin.err
    assert b"opened by a plugin" in by_plugin.err
