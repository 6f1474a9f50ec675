"""Catalogues of gettext (.po) as corpora: messages with their finished translations."""

import codecs
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from transformer_cli.config.data import DataConfig
from transformer_cli.data.compression import ByteSource
from transformer_cli.data.formats.base import Contents, FileFormat, SourceFile, Table
from transformer_cli.data.formats.bilingual import Unit, contents_of, pairs_of
from transformer_cli.data.registry import FORMATS
from transformer_cli.errors import DataError

if TYPE_CHECKING:
    from transformer_cli.addons.documents.po_syntax import Message

_BLOCK_BYTES = 1 << 20
_BLOCK_CHARACTERS = 1 << 20  # that are parsed together, up to where a message ends
_MAX_CHARACTERS = 1 << 24  # without such a place
_CHARSET = re.compile(rb"^\"Content-Type:[^\"\n]{0,100}?\bcharset=([\w.:-]{1,40})", re.MULTILINE | re.IGNORECASE)
_NEXT = re.compile(r"\n[ \t\r]*\n(?=#|msgctxt|msgid )")
_OBSOLETE = re.compile(r"^#~\s*msgid\s", re.MULTILINE)
_LANGUAGE = re.compile(r"^Language:[ \t]*([\w@-]+)", re.MULTILINE | re.IGNORECASE)
_SOURCE_LANGUAGE = re.compile(r"^X-Source-Language:[ \t]*([\w@-]+)", re.MULTILINE | re.IGNORECASE)
_LINES = re.compile(r"[ \t\r]*\n\s*")
_MANY = 5  # the number whose plural form stands beside the plural of the message


class Catalogue(FileFormat):
    what, endings = "a catalogue of gettext (PO)", (".po", ".pot")

    def recognises(self, head: bytes) -> bool:
        """Whether all lines are comments, keywords or strings, and there is a message."""
        lines = [line.strip() for line in head.removeprefix(codecs.BOM_UTF8).split(b"\n")[:-1] if line.strip()]
        has_message = any(line.startswith(b"msgid ") for line in lines)
        return has_message and all(line.startswith((b"#", b"msg", b'"', b"domain ")) for line in lines)

    def table(self, file: SourceFile, config: DataConfig) -> Table:
        return Table((config.source_lang, config.target_lang), pairs_of(_units(file), file.name, config))

    def contents(self, file: SourceFile) -> Contents:
        return contents_of(_units(file))


def _units(file: SourceFile) -> Iterator[Unit]:
    """The messages of a file as units, with the texts of plurals as two. Raises DataError."""
    from transformer_cli.addons.documents.po_syntax import messages
    from transformer_cli.addons.documents.units import UnreadableError

    header, line = "", 0
    with file.open() as stream:
        for text in _blocks(stream, file.name):
            try:
                found = messages(text)
            except UnreadableError as error:
                raise DataError(f"{file.name}:{line + error.line}: {error}") from None
            for message in found:
                if message.values["msgid"].text == "" and "msgctxt" not in message.values:
                    header = message.translations[0].text if 0 in message.translations else ""
                else:
                    yield from _units_of(message, header)
            obsolete = Unit("", "", _languages(header), "obsolete")
            yield from (obsolete for _ in _OBSOLETE.finditer(text))
            line += text.count("\n")


def _units_of(message: "Message", header: str) -> Iterator[Unit]:
    left_out = "fuzzy" if "fuzzy" in message.flags else ""
    for source, target in _texts(message, header):
        source, target = (_LINES.sub(" ", text).strip() for text in (source, target))
        if source:
            yield Unit(source, target, _languages(header), left_out if target else "untranslated")


def _texts(message: "Message", header: str) -> Iterator[tuple[str, str]]:
    """The message with its translation; singular and plural with the forms of 1 and of 5, as languages have them.

    A singular without the number that the form of 1 has, as in Russian also for 21, stands beside none.
    """
    from transformer_cli.addons.documents.plurals import form_of, is_often
    from transformer_cli.addons.documents.po_inline import kinds_of, origin_of, same_placeholders

    text, plural = message.values["msgid"].text, message.values.get("msgid_plural")
    forms = {number: value.text for number, value in message.translations.items()}
    if plural is None:
        yield text, forms.get(0, "")
        return
    rule = form_of(header)
    of_one, of_many = rule(1), rule(_MANY) if rule(_MANY) in forms else max(forms)
    kinds = kinds_of(message.flags, message.references, origin_of(header, [message.references]))
    needs_number = is_often(of_one, rule) and not same_placeholders(text, plural.text, kinds)
    if of_one != of_many and of_one in forms and not needs_number:
        yield text, forms[of_one]
    yield plural.text, forms[of_many]


def _languages(header: str) -> tuple[str, str]:
    """The languages that a header names: that of the messages hardly ever."""
    source, target = _SOURCE_LANGUAGE.search(header), _LANGUAGE.search(header)
    return source[1] if source else "", target[1] if target else ""


def _blocks(stream: ByteSource, name: str) -> Iterator[str]:
    """The text in blocks that end where a message does, as a rule."""
    data = stream.read(_BLOCK_BYTES)
    if not data:
        raise DataError(f"{name}: is empty. Name the right file")
    match = _CHARSET.search(data)
    charset = match[1].decode() if match and match[1] != b"CHARSET" else "utf-8"  # which templates leave open
    try:
        "#".encode(charset)  # not all codecs are of text
        decoder = codecs.getincrementaldecoder("utf-8-sig" if charset.lower() in ("utf-8", "utf8") else charset)()
    except (LookupError, UnicodeError):
        raise DataError(f"{name}: has charset={charset} in its header, which is not known. Correct it") from None
    text, n_lines = "", 0
    while True:
        try:
            text += decoder.decode(data, final=not data)
        except UnicodeError:
            fault = f"bytes that are not {charset} follow, as its header says. Correct the charset of the header"
            raise DataError(f"{name}:{n_lines + 1}: {fault}") from None
        if not data:
            break
        if len(text) >= _BLOCK_CHARACTERS and (cut := max((match.end() for match in _NEXT.finditer(text)), default=0)):
            yield text[:cut]
            n_lines += text.count("\n", 0, cut)
            text = text[cut:]
        if len(text) > _MAX_CHARACTERS:
            raise DataError(f"{name}:{n_lines + 1}: a message of more than {_MAX_CHARACTERS:,} characters. Is it PO?")
        data = stream.read(_BLOCK_BYTES)
    yield text


FORMATS.register("po")(Catalogue())
