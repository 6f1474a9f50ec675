"""Files of office programs and e-books: archives of zip whose members are XML, of which some hold text.

Nothing is unpacked to disk, nothing is fetched, no macro is run and no entity is expanded. Members without text are
written as they are; an archive that would take far more memory than it has bytes is refused.
"""

import copy
import re
import stat
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from typing import NoReturn
from xml.parsers import expat
from zipfile import BadZipFile, LargeZipFile, ZipFile, ZipInfo

from transformer_cli.addons.documents.formats import OpenFile
from transformer_cli.addons.documents.units import ON_UNIT, Document, UnreadableError
from transformer_cli.errors import quoted

_MOST_MEMBERS = 20_000
_MOST_RATIO = 100  # bytes that each byte of the archive may become; XML is packed to a tenth or a thirtieth
_SLACK = 64 << 20  # bytes that any archive may become
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # what Microsoft's older formats begin with, and encrypted files
_ENCRYPTED = 1  # bit of a member's flags
_DECLARED = re.compile(rb"\A\s*<\?xml\s[^>]{0,200}?\bencoding\s*=\s*[\"']([\w.-]{1,40})")
_BOMS = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"), (b"\xef\xbb\xbf", "utf-8"))


def refuse_package(what: str) -> NoReturn:
    """Raises UnreadableError."""
    raise UnreadableError(0, what)


@dataclass
class Package:
    """The members of an archive, by name; those that are read are decoded once."""

    data: bytes
    infos: list[ZipInfo] = field(init=False)
    _texts: dict[str, str] = field(init=False, default_factory=dict)
    _checked: set[str] = field(init=False, default_factory=set)
    _encodings: dict[str, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        try:
            with ZipFile(BytesIO(self.data)) as archive:
                self.infos = archive.infolist()
        except (BadZipFile, LargeZipFile, ValueError, NotImplementedError, OverflowError):
            if self.data.startswith(_OLE):
                refuse_package(
                    "is encrypted, or in an older binary format (.doc, .xls, .ppt). Open it in its program,"
                    " remove the password, and save it in the format of today"
                )
            refuse_package(
                "cannot be unpacked: it is no office file, or broken. Open it in its program, and save it again"
            )
        self._check()

    def __contains__(self, name: object) -> bool:
        return any(info.filename == name for info in self.infos)

    def names(self) -> list[str]:
        return [info.filename for info in self.infos]

    def _check(self) -> None:
        if len(self.infos) > _MOST_MEMBERS:
            refuse_package(f"has {len(self.infos):,} members, more than {_MOST_MEMBERS:,}. Divide it")
        if sum(info.file_size for info in self.infos) > _SLACK + _MOST_RATIO * len(self.data):
            refuse_package("would become more than a hundred times as large as it is. It is no document")
        seen: set[str] = set()
        for info in self.infos:
            name = info.filename
            if name in seen:
                refuse_package(f"has two members called {quoted(name)}. Open it in its program, and save it again")
            seen.add(name)
            if (
                ".." in name.split("/")
                or name.startswith("/")
                or "\\" in name
                or stat.S_ISLNK(info.external_attr >> 16)
            ):
                refuse_package(f"has a member that leads out of it, {quoted(name)}. It is no document")
            if info.flag_bits & _ENCRYPTED:
                refuse_package("is encrypted. Open it in its program, remove the password, and save it again")

    def read(self, name: str) -> bytes:
        """Raises UnreadableError for a member that is missing or damaged."""
        if name not in self:
            refuse_package(
                f"has no member {quoted(name)}, which its format needs. Open it in its program, and save it again"
            )
        try:
            with ZipFile(BytesIO(self.data)) as archive:
                return archive.read(name)
        except (BadZipFile, EOFError, NotImplementedError, OSError, RuntimeError, ValueError, zlib.error):
            refuse_package(f"its member {quoted(name)} is damaged. Open it in its program, and save it again")

    def xml(self, name: str) -> str:
        """The text of a member that is XML. Raises UnreadableError for what is no XML, or has a document type."""
        text = self.text(name)
        if name not in self._checked:
            _check_xml(text, name)
            self._checked.add(name)
        return text

    def text(self, name: str) -> str:
        """The text of a member. Raises UnreadableError."""
        if name not in self._texts:
            self._texts[name], self._encodings[name] = _decoded(self.read(name), name)
        return self._texts[name]

    def opened(
        self, parse: Callable[[str, str], Document], names: Sequence[str], finish: "Finish | None" = None
    ) -> OpenFile:
        """The documents of the members called so, each read by `parse` from its name and text.

        `finish` changes the translated members, by name, before they are written.
        """
        documents: list[Document] = []
        on_unit, n_units = ON_UNIT.get(), 0
        for name in names:
            was = ON_UNIT.set(lambda n, before=n_units: on_unit(before + n))  # type: ignore[misc]
            try:
                documents.append(parse(name, self.text(name)))
            finally:
                ON_UNIT.reset(was)
            n_units += len(documents[-1].units)
        return OpenFile(tuple(documents), partial(self._written, names, finish), tuple(names))

    def _written(self, names: Sequence[str], finish: "Finish | None", texts: Sequence[str]) -> bytes:
        changed = dict(zip(names, texts, strict=True))
        if finish is not None:
            finish(changed)
        target = BytesIO()
        with ZipFile(BytesIO(self.data)) as source, ZipFile(target, "w") as archive:
            archive.comment = source.comment
            for info in self.infos:
                name = info.filename
                text = changed.get(name)
                try:
                    content = source.read(info) if text is None else text.encode(self._encodings[name], "replace")
                except (BadZipFile, EOFError, NotImplementedError, OSError, RuntimeError, ValueError, zlib.error):
                    refuse_package(f"its member {quoted(name)} is damaged. Open it in its program, and save it again")
                archive.writestr(copy.copy(info), content, compress_type=info.compress_type)
        return target.getvalue()


Finish = Callable[[dict[str, str]], None]


def _decoded(data: bytes, name: str) -> tuple[str, str]:
    """The text of XML, and its encoding. Raises UnreadableError."""
    declared = _DECLARED.match(data)
    encoding = next((encoding for bom, encoding in _BOMS if data.startswith(bom)), None)
    if encoding is None:
        encoding = "utf-8" if declared is None else declared[1].decode("ascii").lower()
        encoding = "utf-8" if encoding in ("us-ascii", "ascii", "utf8") else encoding
    try:
        if encoding not in ("utf-8", "utf-16-le", "utf-16-be"):
            raise LookupError
        return data.decode(encoding), encoding
    except (LookupError, UnicodeDecodeError):
        refuse_package(f"its member {quoted(name)} is not in UTF-8. Open it in its program, and save it again")


def _check_xml(text: str, name: str) -> None:
    """Raises UnreadableError for what is not well-formed, or could hold entities."""

    def declared(*_: object) -> NoReturn:
        refuse_package(
            f"its member {quoted(name)} has a document type, which may hide entities. It is refused for safety"
        )

    parser = expat.ParserCreate("utf-8")
    parser.StartDoctypeDeclHandler = declared
    try:
        parser.Parse(_without_declaration(text).encode("utf-8", "surrogatepass"), True)
    except expat.ExpatError as error:
        refuse_package(
            f"its member {quoted(name)} is no XML at line {error.lineno}: {expat.ErrorString(error.code)}."
            " Open it in its program, and save it again"
        )


def _without_declaration(text: str) -> str:
    """The text from its first element on, with as many lines before it."""
    match = re.match(r"\ufeff?\s*<\?xml\s.*?\?>", text, re.DOTALL)
    return text.removeprefix("\ufeff") if match is None else "\n" * match[0].count("\n") + text[match.end() :]
