"""Bytes → lines, exactly as `wc -l` counts them.

A line ends at b"\\n" and nowhere else. Python's own line readers also stop at U+2028, U+0085, \\v or \\f, and one
such split shifts every pair of a corpus after it.
"""

import re
import select
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from transformer_cli.data.compression import ByteSource, Gunzip
from transformer_cli.environment import concealed
from transformer_cli.errors import DataError, EnvironmentFault, quoted
from transformer_cli.files import naming
from transformer_cli.logs import LOGGER

BLOCK_BYTES = 1 << 22
READ_BYTES = 1 << 20  # answered together: enough to sort by length, small enough to see progress
MAX_LINE_BYTES = 1 << 22  # longer "lines" are not text; the tokens of one take a hundred times its memory
assert max(BLOCK_BYTES, READ_BYTES) <= MAX_LINE_BYTES  # so that only lines that go on from one to the next are longer
FIRST_LINES = 100  # which decide whether a file is a table
SKIP_HINT = ", or drop such pairs with data.on_bad=skip"
NO_SURROGATES = "has half of a surrogate pair (U+D800 to U+DFFF), which no text holds"

_BOM = b"\xef\xbb\xbf"
_HEAD_BYTES = 4096
_SAVE_AS_TEXT = "Save its text as a plain text file in UTF-8"
_TRANSLATE = f"{_SAVE_AS_TEXT}; tfm translate --format {{}} takes it as it is"
_SAVE_AS_CSV = "Save the sheet as CSV in UTF-8"
_EXPORT = "Export the table as CSV or TSV"
_FORMATS = {  # by their first bytes
    b"\x1f\x8b": ("gzip data", "Add .gz to its name, or unpack it first"),
    b"BZh": ("bzip2 data", "Unpack it first"),
    b"\xfd7zXZ\x00": ("xz data", "Unpack it first"),
    b"\x28\xb5\x2f\xfd": ("zstandard data", "Unpack it first"),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", "Unpack it first"),
    b"%PDF-": ("a PDF document", _SAVE_AS_TEXT),
    b"{\\rtf": ("an RTF document", _SAVE_AS_TEXT),
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": ("a document of Microsoft Office", f"{_SAVE_AS_TEXT}, a workbook as CSV"),
    b"Rar!": ("a RAR archive", "Unpack it first"),
    b"PAR1": ("a file of Parquet", "Name it alone, or with the ending .parquet"),
    b"ARROW1": ("a file of Arrow", "Name it alone, or with the ending .arrow"),
    b"SQLite format 3": ("a database of SQLite", _EXPORT),
}
_ZIPPED = {  # by a name among the first members of a zip archive
    b"word/": ("a Word document (.docx)", _TRANSLATE.format("docx")),
    b"xl/": ("an Excel workbook (.xlsx)", f"{_SAVE_AS_CSV}; tfm translate --format xlsx takes it as it is"),
    b"ppt/": ("a PowerPoint presentation (.pptx)", _TRANSLATE.format("pptx")),
    b"mimetypeapplication/vnd.oasis.opendocument.spreadsheet": ("an OpenDocument spreadsheet (.ods)", _SAVE_AS_CSV),
    b"mimetypeapplication/vnd.oasis": ("an OpenDocument file", _TRANSLATE.format("odt")),
    b"mimetypeapplication/epub": ("an e-book (.epub)", _TRANSLATE.format("epub")),
}
_STATEMENT = re.compile(
    rb"\s*(--[^\n]*\n\s*|/\*.*?\*/;?\s*)*(CREATE TABLE|DROP TABLE|INSERT INTO|SET \w|BEGIN)", re.DOTALL
)
_MARKED_UP = {  # by the root of a document of XML
    b"martif": ("a terminology (TBX)", "Export it as TMX or CSV"),
    b"tbx": ("a terminology (TBX)", "Export it as TMX or CSV"),
    b"html": ("a web page (HTML)", "Name text, or a table"),
}
_ROOT = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?.*?\?>\s*|<!--.*?-->\s*|<![^>]*>\s*)*<([A-Za-z]+)", re.DOTALL)
# Not each text that begins with a tag: lists of strings have lines such as <html>Click here</html>.
_PAGE = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<!--.*?-->\s*)*(?:<!doctype\s+html\b|<html\b[^>]*>\s*<(?:head|body|meta|title)\b)",
    re.DOTALL | re.IGNORECASE,
)
_WIDE = {  # UTF-32 first: its little-endian mark begins with that of UTF-16
    b"\xff\xfe\x00\x00": "UTF-32LE",
    b"\x00\x00\xfe\xff": "UTF-32BE",
    b"\xff\xfe": "UTF-16LE",
    b"\xfe\xff": "UTF-16BE",
}
_HIGH, _LETTERS = re.compile(rb"[\x80-\xff]"), re.compile(rb"[A-Za-z]")
_MANY_LINES = 20  # that are no UTF-8, or bytes of them: enough to tell accents from another script
_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
TextT = TypeVar("TextT")


class ChunkSource(Protocol):
    """Hands out what is there, at most `size` bytes, and b"" at its end; waits while nothing is there."""

    def read1(self, size: int, /) -> bytes: ...
    def isatty(self) -> bool: ...


@dataclass
class Lines:
    """The lines of one file. A line that is not UTF-8 is an empty text and has its fault in `bad`, by index from 0.

    `spool_to` moves the lines read so far to a file, and `texts` starts again: memory is bounded.
    """

    name: str
    texts: list[str] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)
    skip_bad: bool = False  # whether bad lines are dropped; otherwise they are errors
    n_crlf: int = 0  # lines whose end was \r\n
    n_read: int = 0  # lines of the file, although not all may be texts
    n_spooled: int = 0
    spooled: Path | None = None
    is_decoded: bool = False  # whether a line is a row of a table that a file format has read, with tabs in between
    columns: tuple[str, ...] | None = None  # names of the columns of such a table, where the format has them

    def __len__(self) -> int:
        return self.n_spooled + len(self.texts)

    def spool_to(self, path: Path) -> None:
        with path.open("ab") as file:
            file.writelines(f"{text}\n".encode() for text in self.texts)
        self.spooled, self.n_spooled, self.texts = path, len(self), []

    def each(self) -> Iterator[str]:
        """The texts in their order, those in the file first."""
        if self.spooled is not None:
            with self.spooled.open("rb") as file:
                rest = b""
                while block := file.read(BLOCK_BYTES):
                    whole, end, rest = (rest + block).rpartition(b"\n")
                    if end:
                        yield from whole.decode().split("\n")
        yield from self.texts

    def numbered(self) -> Iterator[tuple[int, str]]:
        """Index and text of each line that is not bad."""
        return ((index, text) for index, text in enumerate(self.each()) if index not in self.bad)

    def reject(self, index: int, fault: str, remedy: str = "Correct the line") -> None:
        """Drop a line that cannot be used if bad lines are skipped, else raise DataError."""
        self.reject_at(index, f":{index + 1}" if not self.is_decoded else f": row {index + 1:,}", fault, remedy)

    def reject_at(self, index: int, place: str, fault: str, remedy: str) -> None:
        """The same for a row that has a place of its own within the file, which follows its name."""
        where = f"{self.name}{place}: {fault}"
        if not self.skip_bad:
            raise DataError(f"{where}. {remedy}")
        self.bad[index] = where


def is_encodable(text: str) -> bool:
    """Whether a text can be written as UTF-8: it has no half of a surrogate pair."""
    return text.isascii() or _SURROGATE.search(text) is None


def list_of_texts(texts: Iterable[TextT], name: str) -> list[TextT]:
    """Raises TypeError, which names the argument, for a single text, which would be read letter by letter.

    So it does for what is no text in a list of them, as the NaN of an empty cell.
    """
    if isinstance(texts, str):
        raise TypeError(f"{name}: {quoted(texts, 40)} is one text. Give a list of texts, as [text]")
    if not isinstance(texts, Iterable):
        raise TypeError(f"{name}: {texts!r:.40} is no list of texts. Give one, as [text]")
    found = list(texts)
    for number, one in enumerate(found):
        if one is None or isinstance(one, bytes | int | float):
            raise TypeError(f"{name}: {one!r:.40}, number {number} from 0, is no text. Give a str for each")
    return found


def split_lines(data: bytes) -> list[bytes]:
    """Lines of `data`: cut at b"\\n" only, one trailing b"\\r" removed from each; an unfinished last line counts."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix(b"\r") for line in lines]


def shown(path: Path | str) -> str:
    """A file name as an error may show it: on one line, without terminal escapes."""
    text = concealed(str(path))  # before it is cut
    return text if text.isprintable() else quoted(text, 200)


def read_lines(path: Path) -> Lines:
    """All lines of a text file, unpacked if its name ends in .gz. Raises DataError unless all of it is sound UTF-8."""
    with open_text(path) as stream:
        return read_stream(stream, shown(path))


@contextmanager
def open_text(path: Path) -> Iterator[ByteSource]:
    """The bytes of a regular file, unpacked if its name ends in .gz. Raises DataError with the path."""
    with _faults_of(path):
        refuse_unreadable(path)
        with path.open("rb") as file:
            yield Gunzip(file, shown(path)) if path.name.endswith(".gz") else file


def refuse_unreadable(path: Path, *, pipes: bool = False) -> None:
    """Raise DataError for what is neither a regular file nor, with `pipes`, a pipe. Raises OSError.

    A device may never end, and opening a pipe waits until somebody writes.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not (pipes and stat.S_ISFIFO(mode)):
        kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
        raise DataError(f"{shown(path)}: is {kind}. Name a text file")


class TextInput:
    """A file, or with `pipes` a pipe, that is read as its lines arrive, unpacked if its name ends in .gz.

    Errors name it.
    """

    def __init__(self, path: Path, *, pipes: bool = False) -> None:
        self._stack = ExitStack()
        with _faults_of(path):
            refuse_unreadable(path, pipes=pipes)
            file = self._stack.enter_context(path.open("rb"))
        self._path, self.fileno = path, file.fileno
        self._read = Gunzip(file, shown(path)).read1 if path.name.endswith(".gz") else file.read1

    def __enter__(self) -> "TextInput":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def read1(self, size: int, /) -> bytes:
        with naming(self._path):
            return self._read(size)

    def isatty(self) -> bool:
        return False


@contextmanager
def _faults_of(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        what = "is a link to nothing" if path.is_symlink() else "no such file"
        raise DataError(f"{shown(path)}: {what}. Check the name") from None
    except PermissionError:
        raise DataError(f"{shown(path)}: permission denied. Make it readable") from None
    except OSError as error:
        raise EnvironmentFault(f"{shown(path)}: cannot be read: {error.strerror or error}. Check the disk") from error


def read_stream(
    stream: ByteSource,
    name: str,
    *,
    skip_bad: bool = False,
    skip_hint: str = "",
    after_block: Callable[[Lines], None] | None = None,
) -> Lines:
    """All lines of a stream, which errors call `name`; nothing is returned unless all of it is sound.

    A line that is not UTF-8 is an error, or with `skip_bad` is left for the caller to drop. `skip_hint` ends the error
    with how to ask for that, where one can. `after_block` is called with the lines after each block, and may spool the
    texts read so far.
    """
    lines = Lines(name, skip_bad=skip_bad)
    for _ in _decoded_blocks(stream, lines, skip_hint):
        if after_block is not None:
            after_block(lines)
    return lines


def each_line(
    stream: ByteSource, name: str, *, skip_bad: bool = False, skip_hint: str = ""
) -> Iterator[tuple[str, str | None]]:
    """The lines of a stream one by one, each with its fault where it is not UTF-8 and such lines are skipped.

    Raises DataError as `read_lines` does.
    """
    lines = Lines(name, skip_bad=skip_bad)
    for _ in _decoded_blocks(stream, lines, skip_hint):
        first = lines.n_read - len(lines.texts)
        for index, text in enumerate(lines.texts, first):
            yield text, lines.bad.get(index)
        lines.texts, lines.bad = [], {}


def _decoded_blocks(stream: ByteSource, lines: Lines, skip_hint: str) -> Iterator[None]:
    """Add the lines of a stream to `lines`, and stop after each block of them."""
    is_first = True
    for block in _blocks(stream, lines):
        if is_first:
            if (fault := no_lines_of_text(block)) is not None:
                raise DataError(f"{lines.name}: {fault}")
            block = block.removeprefix(_BOM)
        is_first = is_first and not block
        if block:
            _decode_block(block, lines, skip_hint=skip_hint)
        yield
    if is_first:
        raise DataError(f"{lines.name}: is empty. Put one sentence on each line")


def read_chunks(source: ChunkSource, name: str) -> Iterator[bytes]:
    """Whole lines, as many as are there and at most about READ_BYTES; the last one may lack its newline.

    Waits only while there is not one whole line, so that a person or a program at the other end gets each answer
    before sending more. Raises DataError for what is not UTF-8 text by its first bytes, and for an endless line.
    """
    head, pending = b"", bytearray()
    n_lines, end = 0, 0  # lines handed out; bytes of `pending` that are whole lines
    while piece := source.read1(READ_BYTES):
        if len(head) < _HEAD_BYTES:
            head += piece[: _HEAD_BYTES - len(head)]
            _refuse_other_formats(head, name)
        if not end:
            first = piece.find(b"\n")
            _refuse_endless(len(pending) + (len(piece) if first < 0 else first), f"{name}:{n_lines + 1}")
        if newline := piece.rfind(b"\n") + 1:
            end = len(pending) + newline
        pending += piece
        if end and (len(pending) >= READ_BYTES or not _more_is_waiting(source)):
            yield (chunk := bytes(pending[:end]))
            n_lines += chunk.count(b"\n")
            del pending[:end]
            end = 0
    if pending:
        yield bytes(pending)


def _more_is_waiting(source: ChunkSource) -> bool:
    try:
        return bool(select.select([cast(Any, source)], [], [], 0)[0])
    except (OSError, ValueError, TypeError):
        return False  # no descriptor to ask


def _refuse_endless(n_bytes: int, where: str) -> None:
    if n_bytes > MAX_LINE_BYTES:
        raise DataError(f"{where}: a line of more than {MAX_LINE_BYTES:,} bytes. Put one sentence on each line")


def _blocks(stream: ByteSource, lines: Lines) -> Iterator[bytes]:
    """Pieces of the stream that end where a line ends (the last one: where the stream ends)."""
    rest = b""
    while chunk := stream.read(BLOCK_BYTES):
        end = chunk.rfind(b"\n") + 1
        first = chunk.find(b"\n") if end else len(chunk)
        _refuse_endless(len(rest) + first, f"{lines.name}:{lines.n_read + 1}")
        if end:
            yield rest + chunk[:end]
            rest = chunk[end:]
        else:
            rest += chunk
    if rest:
        yield rest


def _decode_block(block: bytes, lines: Lines, *, skip_hint: str) -> None:
    block = block.removesuffix(b"\n")  # the end of the last line is not the start of another
    try:
        texts = block.decode("utf-8").split("\n")  # str.split at one character is exact, and fast
    except UnicodeDecodeError:
        texts = list(_decode_one_by_one(block, lines, skip_hint=skip_hint))
    if b"\r" in block:
        lines.n_crlf += sum(text.endswith("\r") for text in texts)
        texts = [text.removesuffix("\r") for text in texts]
    lines.texts += texts
    lines.n_read += len(texts)


def _decode_one_by_one(block: bytes, lines: Lines, *, skip_hint: str) -> Iterator[str]:
    for index, line in enumerate(block.split(b"\n"), start=lines.n_read):
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            column = len(line[: error.start].decode("utf-8")) + 1
            fault = f"{lines.name}:{index + 1}: byte 0x{line[error.start]:02x} at column {column} is not UTF-8"
            if not lines.skip_bad:
                raise DataError(f"{fault}; {_likely(block, skip_hint)}") from None
            lines.bad[index] = fault
            yield ""


def _likely(block: bytes, skip_hint: str) -> str:
    """The probable encoding of undecodable bytes, and the remedy."""
    head = block[:_HEAD_BYTES]
    if len(_CONTROL.findall(head)) * 20 > len(head):
        return "it looks like binary data. Name a text file"
    bad = b"".join(islice((line for line in block.split(b"\n") if not _is_utf8(line)), _MANY_LINES))
    if len(bad) >= _MANY_LINES and len(_HIGH.findall(bad)) > len(_LETTERS.findall(bad)):  # no accents, but all letters
        return (
            "it looks like another script's encoding, such as WINDOWS-1251, GB18030 or SHIFT_JIS. Convert the file with"
            f" `iconv -f ENCODING -t UTF-8`{skip_hint}"
        )
    return f"it looks like Latin-1 or Windows-1252. Convert the file with `iconv -f WINDOWS-1252 -t UTF-8`{skip_hint}"


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _refuse_other_formats(head: bytes, name: str) -> None:
    if (fault := other_format(head)) is not None:
        raise DataError(f"{name}: {fault}")


def no_lines_of_text(block: bytes) -> str | None:
    """What the first bytes of a corpus or of translations are, all of them if they are few, if not lines of text.

    A server that has no such file answers with a web page, which is saved in its place.
    """
    if (fault := other_format(block[:_HEAD_BYTES])) is not None:
        return fault
    if _PAGE.match(block[:_HEAD_BYTES]):
        return "is a web page (HTML), not text. Fetch the file again, or save the text of the page"
    return old_line_ends(block)


def old_line_ends(block: bytes) -> str | None:
    """What the text of a file is, and what to do, if it is one line with others in it that end in a \\r alone."""
    line, _, rest = block.partition(b"\n")
    n_returns = line.count(b"\r")
    if rest or n_returns < 2 or sum(bool(part.strip()) for part in line.split(b"\r")) < 2:
        return None
    return (
        f"is one line with {n_returns:,} carriage returns (\\r) in it, which end the lines of old Macs."
        " Convert it with `tr '\\r' '\\n'`"
    )


def other_format_of(path: Path) -> str | None:
    """The same of a file, if it is not packed."""
    if path.name.endswith(".gz") or not path.is_file():
        return None
    with _faults_of(path), path.open("rb") as file:
        return other_format(file.read(_HEAD_BYTES))


def other_format(head: bytes) -> str | None:
    """What the first bytes are, if not those of UTF-8 text, and what to do."""
    for magic, (what, todo) in _FORMATS.items():
        if head.startswith(magic):
            return f"is {what}, not text. {todo}"
    if head.startswith(b"PK\x03\x04"):
        for member, (what, todo) in _ZIPPED.items():
            if member in head:
                return f"is {what}, not text. {todo}"
        return f"is a zip archive, not text. {_name_members('zip')}"
    if head[257:262] == b"ustar":
        return f"is a tar archive, not text. {_name_members('tar')}"
    if len(head) < 4 and b"\xff\xfe\0\0".startswith(head):
        return None  # which of the two begins so is not there yet
    encoding = next((encoding for mark, encoding in _WIDE.items() if head.startswith(mark)), None)
    encoding = encoding or _wide_without_mark(head)
    return encoding and f"is {encoding}, not UTF-8. Convert it with `iconv -f {encoding} -t UTF-8`"


def warn_of_columns(name: str, first_lines: Sequence[bytes], done: str) -> None:
    """Warn of a table where text is read line by line; `done` is what becomes of all columns of a line."""
    if are_rows(first_lines[:FIRST_LINES]):
        LOGGER.warning(
            "%s: has tabs in its lines, as a table has; all columns of a line are %s as one text. Give one column"
            " alone, as `cut -f1` does",
            name,
            done,
        )


def are_rows(lines: Sequence[bytes]) -> bool:
    """Whether at least half of `lines`, the first of a file, that are not blank have a tab."""
    written = [line for line in lines if line.strip()]
    return 0 < len(written) <= 2 * sum(b"\t" in line for line in written)


def no_corpus(head: bytes) -> str | None:
    """What the first bytes of a file that is named alone are, if no text of pairs, and what to do."""
    if (fault := other_format(head)) is not None:
        return fault
    if _STATEMENT.match(head):
        return f"is a dump of a database (SQL), not a table. {_EXPORT}"
    root = _ROOT.match(head)
    what, todo = _MARKED_UP.get(root[1].lower(), ("", "")) if root else ("", "")
    return f"is {what}, which is not read. {todo}" if what else None


def _name_members(ending: str) -> str:
    return f"Unpack it first; a corpus may name its members as archive.{ending}::member"


def _wide_without_mark(head: bytes) -> str | None:
    """UTF-32 or UTF-16 that the places of zero bytes give away, or those around the ends of lines."""
    if len(head) < 8 or not any(head):
        return None
    quarters = [head[i : len(head) // 4 * 4 : 4] for i in range(4)]
    for name, (top, plane) in {"UTF-32LE": (3, 2), "UTF-32BE": (0, 1)}.items():  # no character is above 0x10ffff
        if not any(quarters[top]) and max(quarters[plane]) <= 0x10 and head.count(0) * 2 >= len(head):
            return name
    even, odd = head[::2].count(0) / len(head[::2]), head[1::2].count(0) / len(head[1::2])
    enough = 0.4 if len(head) >= 32 else 0.99
    if max(even, odd) > enough and min(even, odd) < (0.4 if len(head) >= 32 else 0.01):
        return "UTF-16LE" if odd > even else "UTF-16BE"  # every second byte of Latin text
    return _wide_by_line_ends(head)


def _wide_by_line_ends(head: bytes) -> str | None:
    """UTF-16 of other scripts: no text as bytes, and nearly each newline is one of two bytes, in step with the rest."""
    try:
        head.decode("utf-8")
        is_text = len(_CONTROL.findall(head)) * 5 < len(head)  # Cyrillic in UTF-16 is full of them
    except UnicodeDecodeError as error:
        is_text = error.start >= len(head) - 4  # a character that is cut
    if is_text or len(head) < 64:
        return None
    newlines = head.count(b"\n")
    for name, newline in {"UTF-16LE": b"\n\0", "UTF-16BE": b"\0\n"}.items():
        in_step = sum(head[i : i + 2] == newline for i in range(0, len(head), 2))
        if newlines >= 2 and in_step >= 0.8 * newlines:
            return name
    return None
