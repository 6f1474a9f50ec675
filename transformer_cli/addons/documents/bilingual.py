"""Formats that hold texts beside their translations: XLIFF, TMX, TS of Qt and others, as other formats refuse them.

As any XML, their sources would be overwritten, and finished translations would be translated again.
"""

from dataclasses import dataclass
from pathlib import PurePath

from transformer_cli.addons.documents.tags import Kind, tokens
from transformer_cli.errors import DataError

_AS_TEXT = "It is not read yet: make a file of the texts of one language, one on a line, and use --format text"


@dataclass(frozen=True)
class Bilingual:
    name: str
    roots: tuple[str, ...]  # the root elements, without a prefix
    endings: tuple[str, ...]
    advice: str


_FORMATS = (
    Bilingual(
        "XLIFF",
        ("xliff",),
        (".xlf", ".xliff", ".sdlxliff", ".mxliff", ".mqxliff", ".txlf"),
        "Use --format xliff",
    ),
    Bilingual("TMX, a translation memory", ("tmx",), (".tmx",), "Use --format tmx"),
    Bilingual("TS of Qt", ("TS",), (".ts",), "Use --format ts"),
    Bilingual("a string catalogue of Xcode", (), (".xcstrings",), "Use --format xcstrings"),
    Bilingual("TBX, a terminology", ("tbx", "martif"), (".tbx",), _AS_TEXT),
    Bilingual("a bilingual document of Trados", ("TRADOStag",), (".ttx",), _AS_TEXT),
    Bilingual("a bilingual document of Wordfast", ("txml",), (".txml",), _AS_TEXT),
)
_BY_ROOT = {root: one for one in _FORMATS for root in one.roots}
_BY_ENDING = {ending: one for one in _FORMATS for ending in one.endings}


def bilingual_of_text(text: str) -> Bilingual | None:
    """The format by the root element, before which there may be comments, declarations and white space."""
    for token in tokens(text, is_xml=True):
        if token.kind in (Kind.opening, Kind.empty):
            name = token.name.rpartition(":")[2]
            return _BY_ROOT.get(name) or _BY_ROOT.get(name.lower())
        if token.kind is Kind.text and text[token.start : token.end].strip("\ufeff \t\r\n"):
            return None
    return None


def bilingual_of_name(name: str) -> Bilingual | None:
    """The format by the ending of a file's name."""
    return _BY_ENDING.get(PurePath(name).suffix.lower())


def refuse_bilingual(found: Bilingual | None, name: str) -> None:
    """Raises DataError if it is one."""
    if found is not None:
        raise DataError(f"{name}: is {found.name}, which holds texts beside their translations. {found.advice}")
