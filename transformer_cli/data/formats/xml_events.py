"""Streaming XML parser of untrusted files, on expat: bounded memory, no entity is expanded and nothing is fetched.

A format subclasses XmlReader, which gets the elements as they begin and end and collects text only where asked to.
"""

import codecs
import re
from collections.abc import Callable, Iterator
from itertools import chain
from typing import ClassVar, Generic, NoReturn, TypeVar
from xml.parsers import expat

from transformer_cli.data.compression import ByteSource
from transformer_cli.data.formats.base import SourceFile
from transformer_cli.data.lines import MAX_LINE_BYTES
from transformer_cli.errors import DataError, quoted

_CHUNK_BYTES = 1 << 20
_MAX_TOKEN_BYTES = 1 << 24  # of a tag or comment, which expat holds and reads again with each chunk
_FORBIDDEN = bytes(byte for byte in range(32) if byte not in b"\t\n\r")  # section 2.2 of XML 1.0; tools write them
_TO_SPACES = bytes.maketrans(_FORBIDDEN, b" " * len(_FORBIDDEN))
_REFERENCE = re.compile(
    rb"&#(?:0{0,5}(?:[0-8]|1[124-9]|2[0-9]|3[01])|[xX]0{0,5}(?:[0-8bBcCeEfF]|1[0-9a-fA-F]));"  # to one of these
)
_LONGEST_REFERENCE = 16  # bytes
_MARKS = {  # longer ones first
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_DECLARED = re.compile(rb"\s*<\?xml\b[^>]{0,200}?\bencoding\s*=\s*[\"']([\w.:-]{1,40})[\"']")
_ROOT = re.compile(
    r"(?:\s++|<\?(?:[^?]|\?(?!>))*+\?>|<!--(?:[^-]|-(?!->))*+-->|<!DOCTYPE[^>\[]*+(?:\[[^\]]*+\]\s*+)?>)*+"
    r"<(?:[\w.-]+:)?([\w.-]+)"
)
_CUT_SHORT = {
    expat.errors.codes[name]
    for name in (
        expat.errors.XML_ERROR_NO_ELEMENTS,
        expat.errors.XML_ERROR_UNCLOSED_TOKEN,
        expat.errors.XML_ERROR_PARTIAL_CHAR,
        expat.errors.XML_ERROR_UNCLOSED_CDATA_SECTION,
    )
}
_INVALID = expat.errors.codes[expat.errors.XML_ERROR_INVALID_TOKEN]
_UNKNOWN_ENTITY = expat.errors.codes[expat.errors.XML_ERROR_UNDEFINED_ENTITY]

Attributes = dict[str, str]
RowT = TypeVar("RowT")


def root_of(head: bytes) -> str:
    """The name of the root element without a prefix, by the first bytes of a file; empty where it is no XML."""
    mark, encoding = _encoding_of(head)
    text = head[len(mark) :].decode(encoding, "replace") if encoding else ""
    match = _ROOT.match(text)
    return match[1] if match else ""


class XmlReader(Generic[RowT]):
    """Base class of the readers of one file: `start` and `end` get the elements, and append to `rows`.

    Text goes to `parts` between `collect()` and `collected()`.
    """

    root: ClassVar[str]
    what: ClassVar[str]  # for messages

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self.rows: list[RowT] = []
        self.parts: list[str] = []
        self.n_forbidden = 0  # control characters that became spaces
        self.parser = expat.ParserCreate("utf-8")
        self.parser.buffer_text = True
        self.parser.buffer_size = 1 << 16
        self.parser.StartElementHandler = self._start_root
        self.parser.EntityDeclHandler = self._refuse_declaration
        self.parser.SkippedEntityHandler = self._refuse_entity

    def begin(self, attributes: Attributes) -> None:
        """The attributes of the root element."""

    def start(self, name: str, attributes: Attributes) -> None:
        raise NotImplementedError

    def end(self, name: str) -> None:
        raise NotImplementedError

    def collect(self) -> None:
        """Text from here on goes to `parts`, which is empty again."""
        self.parts.clear()
        self.parser.CharacterDataHandler = self.parts.append

    def collected(self) -> str:
        self.parser.CharacterDataHandler = None  # which empties the parser's buffer
        text = "".join(self.parts)
        self.parts.clear()
        return text

    def each(self) -> Iterator[RowT]:
        """The rows of the file, in one pass. Raises DataError."""
        n_fed = 0
        with self.file.open() as stream:
            for data in chain(self._utf8(stream), [b""]):
                self._feed(data, n_fed)
                n_fed += len(data)
                if n_fed - self.parser.CurrentByteIndex > _MAX_TOKEN_BYTES:
                    self.refuse(f"a tag or comment of more than {_MAX_TOKEN_BYTES:,} bytes. Is it the right file?")
                if sum(map(len, self.parts)) > MAX_LINE_BYTES:
                    self.refuse(f"a text of more than {MAX_LINE_BYTES:,} characters. Is it the right file?")
                yield from self.rows
                self.rows.clear()

    def refuse(self, fault: str) -> NoReturn:
        raise DataError(f"{self.file.name}:{self.parser.CurrentLineNumber}: {fault}")

    def _feed(self, data: bytes, n_fed: int) -> None:
        """Parse data, of which none is the end."""
        try:
            self.parser.Parse(data, not data)
        except expat.ExpatError as error:
            place = f"{self.file.name}:{error.lineno}"
            if error.code in _CUT_SHORT:
                raise DataError(f"{place}: the file ends here, within an element. Fetch or export it again") from None
            if error.code == _UNKNOWN_ENTITY:
                what = "an entity that the file does not define. Write the character"
                raise DataError(f"{place}: has {what}") from None
            at = self.parser.ErrorByteIndex - n_fed
            if error.code == _INVALID and 0 <= at < len(data) and data[at] >= 0x80:
                what = f"byte 0x{data[at]:02x} is not UTF-8, as the file is said to be"
                raise DataError(f"{place}: {what}. Correct the encoding of its first line") from None
            what = expat.ErrorString(error.code)
            raise DataError(f"{place}: is not well-formed XML: {what}. Correct it, or export it again") from None

    def _start_root(self, name: str, attributes: Attributes) -> None:
        prefix, _, local = name.rpartition(":")
        if local != self.root:
            self.refuse(f"is not {self.what}: its root element is <{quoted(name, 40)[1:-1]}>. Name the right file")
        start, end = self.start, self.end
        if prefix:
            start, end = _without_prefix(f"{prefix}:", start), _without_prefix(f"{prefix}:", end)
        self.parser.StartElementHandler, self.parser.EndElementHandler = start, end
        self.begin(attributes)

    def _refuse_declaration(self, name: str, *_: object) -> None:
        self.refuse(f"declares the entity {quoted(name, 40)}, and entities are not expanded. Write its text instead")

    def _refuse_entity(self, name: str, is_parameter: bool) -> None:
        if not is_parameter:
            self.refuse(f"has {quoted(f'&{name};', 40)}, which the file does not define. Write the character")

    # ---- Bytes

    def _utf8(self, stream: ByteSource) -> Iterator[bytes]:
        """The bytes of the file in UTF-8, without a byte order mark and without characters that XML forbids."""
        data = stream.read(_CHUNK_BYTES)
        if not data:
            raise DataError(f"{self.file.name}: is empty. Name the right file")
        mark, encoding = _encoding_of(data)
        if encoding is None:
            raise DataError(f"{self.file.name}: declares an encoding that is not known. Convert it to UTF-8")
        data = data[len(mark) :]
        decoder = None if encoding == "utf-8" else codecs.getincrementaldecoder(encoding)()
        rest = b""
        while data or rest:
            is_last = not data
            if decoder is not None:
                data = self._decoded(decoder, data, encoding)
            data, rest = rest + data, b""
            cut = data.rfind(b"&", -_LONGEST_REFERENCE)
            if not is_last and cut >= 0 and b";" not in data[cut:]:
                data, rest = data[:cut], data[cut:]
            yield self._allowed(data)
            if is_last:
                return
            data = stream.read(_CHUNK_BYTES)
        if decoder is not None:
            self._decoded(decoder, b"", encoding)

    def _decoded(self, decoder: codecs.IncrementalDecoder, data: bytes, encoding: str) -> bytes:
        try:
            return decoder.decode(data, final=not data).encode()
        except UnicodeError:
            self.refuse(f"bytes that are not {encoding} follow, as the file is said to be. Correct the encoding")

    def _allowed(self, data: bytes) -> bytes:
        if n := len(data) - len(data.translate(None, _FORBIDDEN)):
            data = data.translate(_TO_SPACES)
        data, n_references = _REFERENCE.subn(b" ", data)
        self.n_forbidden += n + n_references
        return data


def _encoding_of(head: bytes) -> tuple[bytes, str | None]:
    """The byte order mark of a file, and its encoding; None for a name that is not known."""
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            return mark, encoding
    for beginning, encoding in ((b"<\0", "utf-16-le"), (b"\0<", "utf-16-be")):
        if head.startswith(beginning):
            return b"", encoding
    match = _DECLARED.match(head)
    declared = match[1].decode().lower() if match else "utf-8"
    try:
        "<".encode(declared)  # not all codecs are of text
        name = codecs.lookup(declared).name
    except (LookupError, UnicodeError):
        return b"", None
    if name == "iso8859-1":
        return b"", "cp1252"  # as browsers do: its other characters, such as “, stand where Latin-1 has control codes
    # What can be read as bytes is not in wide characters, whatever it declares.
    return b"", "utf-8" if name.startswith(("utf-16", "utf-32")) else name


def _without_prefix(prefix: str, handler: Callable[..., None]) -> Callable[..., None]:
    return lambda name, *rest: handler(name.removeprefix(prefix), *rest)
