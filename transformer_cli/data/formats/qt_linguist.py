"""TS of Qt Linguist: finished translations of the messages of a program."""

from collections.abc import Iterator

from transformer_cli.config.data import DataConfig
from transformer_cli.data.formats.base import Contents, FileFormat, SourceFile, Table
from transformer_cli.data.formats.bilingual import Unit, contents_of, pairs_of
from transformer_cli.data.formats.inline_codes import plain
from transformer_cli.data.formats.xml_events import Attributes, XmlReader, root_of
from transformer_cli.data.registry import FORMATS

_TEXTS = {"source", "translation", "numerusform", "lengthvariant"}


class _Messages(XmlReader[Unit]):
    """The units of a file. Of plural forms the last is read, which is that of many, and of variants the longest."""

    root, what = "TS", "TS of Qt"

    def __init__(self, file: SourceFile) -> None:
        super().__init__(file)
        self.languages = "", ""
        self.source = self.state = ""
        self.texts: list[str] = []  # of the translation: its plural forms
        self.has_variants = False

    def begin(self, attributes: Attributes) -> None:
        self.languages = attributes.get("sourcelanguage", ""), attributes.get("language", "")

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "message":
            self.source, self.state, self.texts = "", "", []
        elif name in _TEXTS:
            if name == "translation":
                self.state = attributes.get("type", "")
                self.texts = []
            self.has_variants = self.has_variants and name == "lengthvariant"
            self.collect()
        elif name == "byte":  # a character that XML forbids
            self.parts.append(" ")

    def end(self, name: str) -> None:
        if name == "source":
            self.source = plain(self.collected())
        elif name in ("numerusform", "translation", "lengthvariant"):
            self._end_form(name)
        elif name == "message":
            target = self.texts[-1] if self.texts else ""
            left_out = self.state or ("" if target else "untranslated")
            if self.source:
                self.rows.append(Unit(self.source, target, self.languages, left_out))

    def _end_form(self, name: str) -> None:
        text = plain(self.collected())
        if name == "lengthvariant":
            if not self.has_variants:  # they are in the order of their lengths
                self.texts.append(text)
            self.has_variants = True
        elif text:
            self.texts.append(text)


class QtLinguist(FileFormat):
    what, endings = "a file of messages of Qt (TS)", (".ts",)
    is_certain_by_name = False  # text in Tsonga is called so, too

    def recognises(self, head: bytes) -> bool:
        return root_of(head) == "TS"

    def table(self, file: SourceFile, config: DataConfig) -> Table:
        return Table((config.source_lang, config.target_lang), pairs_of(self._units(file), file.name, config))

    def contents(self, file: SourceFile) -> Contents:
        return contents_of(self._units(file))

    def _units(self, file: SourceFile) -> Iterator[Unit]:
        return _Messages(file).each()


FORMATS.register("qt")(QtLinguist())
