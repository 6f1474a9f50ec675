"""Files to documents and back, whatever their format is: bytes in, bytes out."""

from collections.abc import Sequence

from transformer_cli.addons.documents.bilingual import bilingual_of_text, refuse_bilingual
from transformer_cli.addons.documents.formats import Format, OpenFile, PackageFormat, TextFormat, text_formats
from transformer_cli.addons.documents.units import LANGUAGES, Document, UnreadableError
from transformer_cli.errors import DataError
from transformer_cli.text_io import BOM


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
    bom = BOM if data.startswith(BOM) else b""

    def write(texts: Sequence[str]) -> bytes:
        (text,) = texts
        return bom + text.encode()

    return OpenFile((parse(decoded_text(form, data.removeprefix(bom), name), form.name, name, languages),), write)


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


def decoded_text(form: TextFormat, data: bytes, name: str) -> str:
    """Raises DataError for what is not UTF-8, or says that it is not."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        raise DataError(
            f"{name}:{line}: byte 0x{data[error.start]:02x} at column {column} is not UTF-8."
            " Convert the document to UTF-8 first"
        ) from error
    if encoding := form.other_encoding(text):
        raise DataError(
            f"{name}: says that its encoding is {encoding}. Convert it to UTF-8, and change what it says of itself"
        )
    return text
