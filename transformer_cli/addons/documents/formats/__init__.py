"""The formats of documents: what one is, and all that are registered; those of this add-on are a module each."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from transformer_cli.commands.translate.formats import DOCUMENT_FORMATS

if TYPE_CHECKING:
    from transformer_cli.addons.documents.units import Document

_HEAD = 2048  # characters in which a document says its encoding
_UTF_8 = ("utf-8", "utf8", "us-ascii", "ascii", "charset")  # CHARSET is what templates of gettext have
Parse = Callable[[str], "Document"]


@dataclass(frozen=True)
class OpenFile:
    """A file as the documents that it holds, and the file again with other texts of them, in the same order."""

    documents: "tuple[Document, ...]"
    write: Callable[[Sequence[str]], bytes]
    names: tuple[str, ...] = ()  # of the documents within the file, where it has several


@dataclass(frozen=True)
class Format:
    """How a file is read as units of translation and what is kept; with the translations it is the file again."""

    name: str
    function: Callable[..., object]  # that was registered
    endings: tuple[str, ...] = ()  # of files, in small letters, with the dot


@dataclass(frozen=True)
class TextFormat(Format):
    """A format of texts in UTF-8."""

    encoding: re.Pattern[str] | None = None  # finds the encoding that a document says it is in, as group 1
    # Whether it may hold texts beside their translations, as XLIFF does: other formats refuse what is known to.
    is_bilingual: bool = False

    @property
    def parse(self) -> Parse:
        """Raises UnreadableError, with the line, for what would be damaged."""
        return self.function  # type: ignore[return-value]

    def other_encoding(self, text: str) -> str | None:
        """The name of an encoding that is not UTF-8, in which readers of the document would misread a translation."""
        match = self.encoding.search(text[:_HEAD]) if self.encoding else None
        return match[1] if match and match[1].lower() not in _UTF_8 else None


@dataclass(frozen=True)
class PackageFormat(Format):
    """A format of files that are no text, as those of office programs."""

    @property
    def open(self) -> Callable[[bytes], OpenFile]:
        """Raises UnreadableError for a file that is not of the format, or would be damaged."""
        return self.function  # type: ignore[return-value]


def formats() -> dict[str, Format]:
    """All that were registered so, by name."""
    found = {name: DOCUMENT_FORMATS[name] for name in DOCUMENT_FORMATS.names()}
    return {name: one for name, one in found.items() if isinstance(one, Format)}


def text_formats() -> dict[str, TextFormat]:
    """Returns those whose documents are texts, which a request can hold."""
    return {name: one for name, one in formats().items() if isinstance(one, TextFormat)}


def names_by_ending() -> dict[str, str]:
    return {ending: name for name, one in sorted(formats().items()) for ending in one.endings}


def format_of_file(name: str) -> str | None:
    """The name of a file's format, by the ending."""
    return names_by_ending().get(PurePath(name).suffix.lower())
