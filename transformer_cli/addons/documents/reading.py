"""Files to documents and back, whatever their format is: bytes in, bytes out."""

import codecs
from collections.abc import Sequence

from transformer_cli.addons.documents.bilingual import bilingual_of_text, refuse_bilingual
from transformer_cli.addons.documents.formats import Format, OpenFile, PackageFormat, TextFormat, text_formats
from transformer_cli.addons.documents.units import LANGUAGES, Document, UnreadableError
from transformer_cli.errors import DataError
from transformer_cli.text_io import BOM

_MARKS = ((BOM, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


def read_file(form: Format, data: bytes, name: str, languages: tuple[str, str] = ("", "")) -> OpenFile:
    """The documents of a file, in which texts may be found by their `languages`; see LANGUAGES.

    Raises DataError, with its name, for what is not of the format or would be damaged.
    """
    if isinstance(form, PackageFormat):
        try:
            return form.open(data)
        except UnreadableError as error:
            raise DataError(f"{name}: {error}") from error
    assert isinstance(form, TextFormat)
    mark, encoding = _encoding(data)

    def write(texts: Sequence[str]) -> bytes:
        (text,) = texts
        return mark + text.encode(encoding)

    text = _decoded(form, data.removeprefix(mark), name, encoding)
    return OpenFile((parse(text, form.name, name, languages),), write)


def is_utf_16(data: bytes) -> bool:
    """Whether the byte order mark says so, as that of subtitles and of Apple's strings may."""
    return _encoding(data)[1] != "utf-8"


def _encoding(data: bytes) -> tuple[bytes, str]:
    """The byte order mark, empty if there is none, and the encoding."""
    if data.startswith(codecs.BOM_UTF32_LE):
        return b"", "utf-8"
    return next(((mark, encoding) for mark, encoding in _MARKS if data.startswith(mark)), (b"", "utf-8"))


def parse(text: str, format_name: str, name: str = "the document", languages: tuple[str, str] = ("", "")) -> Document:
    """Raises DataError for what would be damaged as that format, with the name of the document; see LANGUAGES."""
    form = text_formats()[format_name]
    if not form.is_bilingual:
        refuse_bilingual(bilingual_of_text(text), name)
    was = LANGUAGES.set(languages)
    try:
        return form.parse(text)
    except UnreadableError as error:
        raise DataError(f"{name}:{error.line}: {error}") from error
    finally:
        LANGUAGES.reset(was)


def _decoded(form: TextFormat, data: bytes, name: str, encoding: str) -> str:
    """The text of a document. Raises DataError for what is not of the encoding, or says that it is not."""
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        if encoding != "utf-8":
            place = error.start + len(codecs.BOM_UTF16) + 1
            raise DataError(
                f"{name}: has the byte order mark of UTF-16, and is none at byte {place}. Save it again, as UTF-8"
            ) from error
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        raise DataError(
            f"{name}:{line}: byte 0x{data[error.start]:02x} at column {column} is not UTF-8."
            " Convert the document to UTF-8 first"
        ) from error
    said = form.other_encoding(text)
    if said and not (encoding != "utf-8" and said.lower().startswith(("utf-16", "utf16"))):
        raise DataError(
            f"{name}: says that its encoding is {said}. Convert it to UTF-8, and change what it says of itself"
        )
    return text
