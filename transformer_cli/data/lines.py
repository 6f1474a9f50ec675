"""Bytes → lines, exactly as `wc -l` counts them.

A line ends at b"\\n" and nowhere else. Python's own line readers also stop at U+2028, U+0085, \\v or \\f, and one
such split shifts every pair of a corpus after it.
"""

import re
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from transformer_cli.environment import concealed
from transformer_cli.errors import DataError, EnvironmentFault, quoted

BLOCK_BYTES = 1 << 22
MAX_LINE_BYTES = 1 << 26  # longer "lines" are not text, and would be held in memory whole
# Text packs about 3:1, deflate cannot do better than 1030:1. A file over both limits unpacks to fill the disk.
MAX_UNPACKED_RATIO = 100
MAX_UNPACKED_FREE_BYTES = 1 << 26

_BOM = b"\xef\xbb\xbf"
_HEAD_BYTES = 4096
_PACKED = {
    b"\x1f\x8b": ("gzip data", "Add .gz to its name"),
    b"PK\x03\x04": ("a zip archive", "Name its members as archive.zip::member"),
    b"BZh": ("bzip2 data", "Unpack it first"),
    b"\xfd7zXZ\x00": ("xz data", "Unpack it first"),
    b"\x28\xb5\x2f\xfd": ("zstandard data", "Unpack it first"),
}
_WIDE = {  # UTF-32 first: its little-endian mark begins with that of UTF-16
    b"\xff\xfe\x00\x00": "UTF-32LE",
    b"\x00\x00\xfe\xff": "UTF-32BE",
    b"\xff\xfe": "UTF-16LE",
    b"\xfe\xff": "UTF-16BE",
}
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


class ByteSource(Protocol):
    """Anything that hands out at most `size` bytes at a time, and b"" at its end."""

    def read(self, size: int, /) -> bytes: ...


@dataclass
class Lines:
    """The lines of one file. A line that is not UTF-8 is an empty text and has its fault in `bad`, by index from 0.

    Where there are many, `keep_in` puts those read so far in a file, and `texts` starts again.
    """

    name: str
    texts: list[str] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)
    n_crlf: int = 0  # lines whose end was \r\n
    n_read: int = 0  # lines of the file, although not all may be texts
    n_kept: int = 0
    kept: Path | None = None

    def __len__(self) -> int:
        return self.n_kept + len(self.texts)

    def keep_in(self, path: Path) -> None:
        with path.open("ab") as file:
            file.writelines(f"{text}\n".encode() for text in self.texts)
        self.kept, self.n_kept, self.texts = path, len(self), []

    def each(self) -> Iterator[str]:
        """The texts in their order, those in the file first."""
        if self.kept is not None:
            with self.kept.open("rb") as file:  # which ends a line at b"\n" only
                yield from (line[:-1].decode() for line in file)
        yield from self.texts


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


def read_lines(path: Path, *, skip_bad: bool = False, skip_hint: str = "") -> Lines:
    """All lines of a text file, unpacked if its name ends in .gz; nothing is returned unless all of it is sound.

    A line that is not UTF-8 is an error, or with `skip_bad` is left for the caller to drop. `skip_hint` ends the error
    with how to ask for that, where one can. Raises DataError.
    """
    with open_text(path) as stream:
        return read_stream(stream, shown(path), skip_bad=skip_bad, skip_hint=skip_hint)


@contextmanager
def open_text(path: Path) -> Iterator[ByteSource]:
    """The bytes of a regular file, unpacked if its name ends in .gz. Raises DataError with the path."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):  # opening a FIFO would wait for ever
            kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
            raise DataError(f"{shown(path)}: is {kind}. Name a text file")
        with path.open("rb") as file:
            yield Gunzip(file, shown(path)) if path.name.endswith(".gz") else file
    except FileNotFoundError:
        what = "is a link to nothing" if path.is_symlink() else "no such file"
        raise DataError(f"{shown(path)}: {what}. Check the name") from None
    except PermissionError:
        raise DataError(f"{shown(path)}: permission denied. Make it readable") from None
    except OSError as error:
        raise EnvironmentFault(f"{shown(path)}: cannot be read: {error.strerror or error}. Check the disk") from error


class Gunzip:
    """Unpacks gzip data; reading it to the end checks lengths and CRC. Raises DataError on damage and on bombs."""

    def __init__(self, packed: ByteSource, name: str) -> None:
        self._packed, self._name = packed, name
        self._input, self._n_packed, self._n_unpacked = b"", 0, 0
        self._ended = False  # nothing is left to read from `packed`
        self._member: zlib._Decompress | None = None  # a gzip file is one or more of them, each checked by itself

    def read(self, size: int, /) -> bytes:
        while True:
            if not self._input:
                self._refill()
            if self._member is None:
                self._input = self._input.lstrip(b"\0")  # padding between members, or after the last
                if self._input:
                    self._member = zlib.decompressobj(wbits=31)
                elif self._ended:
                    return b""
                continue
            if unpacked := self._inflate(self._member, size):
                return unpacked

    def _refill(self) -> None:
        self._input = self._packed.read(BLOCK_BYTES)
        self._ended = not self._input
        if not self._n_packed and not b"\x1f\x8b".startswith(self._input[:2]):
            raise DataError(f"{self._name}: is not gzip data, but is called .gz. Remove .gz from its name")
        self._n_packed += len(self._input)

    def _inflate(self, member: "zlib._Decompress", size: int) -> bytes:
        try:
            unpacked = member.decompress(self._input, size)
        except zlib.error as error:
            raise DataError(f"{self._name}: the gzip data is damaged ({error}). Fetch the file again") from None
        self._input = member.unused_data if member.eof else member.unconsumed_tail
        if member.eof:
            self._member = None
        elif self._ended and not unpacked:
            raise DataError(f"{self._name}: the gzip data is cut short. Fetch the file again")
        self._n_unpacked += len(unpacked)
        if self._n_unpacked > max(MAX_UNPACKED_FREE_BYTES, MAX_UNPACKED_RATIO * self._n_packed):
            raise DataError(
                f"{self._name}: {self._n_packed:,} packed bytes hold more than {self._n_unpacked:,}, over"
                f" {MAX_UNPACKED_RATIO} to 1. Text never packs so well: unpack it yourself if you trust it"
            )
        return unpacked


def read_stream(
    stream: ByteSource,
    name: str,
    *,
    skip_bad: bool = False,
    skip_hint: str = "",
    after_block: Callable[[Lines], None] | None = None,
) -> Lines:
    """All lines of a stream, as `read_lines` gives them; `name` is what errors call it.

    `after_block` is given the lines again and again as they grow, and may put away the texts read so far.
    """
    lines, is_first = Lines(name), True
    for block in _blocks(stream, name):
        if is_first:
            _refuse_other_formats(block[:_HEAD_BYTES], name)
            block = block.removeprefix(_BOM)
        is_first = is_first and not block
        if block:
            _decode_block(block, lines, skip_bad=skip_bad, skip_hint=skip_hint)
        if after_block is not None:
            after_block(lines)
    if is_first:
        raise DataError(f"{name}: is empty. Put one sentence on each line")
    return lines


def _blocks(stream: ByteSource, name: str) -> Iterator[bytes]:
    """Pieces of the stream that end where a line ends (the last one: where the stream ends)."""
    rest = b""
    while chunk := stream.read(BLOCK_BYTES):
        end = chunk.rfind(b"\n") + 1
        if end:
            yield rest + chunk[:end]
            rest = chunk[end:]
        else:
            rest += chunk
        if len(rest) > MAX_LINE_BYTES:
            raise DataError(f"{name}: a line of more than {MAX_LINE_BYTES:,} bytes. Put one sentence on each line")
    if rest:
        yield rest


def _decode_block(block: bytes, lines: Lines, *, skip_bad: bool, skip_hint: str) -> None:
    block = block.removesuffix(b"\n")  # the end of the last line is not the start of another
    try:
        texts = block.decode("utf-8").split("\n")  # str.split at one character is exact, and fast
    except UnicodeDecodeError:
        texts = list(_decode_one_by_one(block, lines, skip_bad=skip_bad, skip_hint=skip_hint))
    if b"\r" in block:
        lines.n_crlf += sum(text.endswith("\r") for text in texts)
        texts = [text.removesuffix("\r") for text in texts]
    lines.texts += texts
    lines.n_read += len(texts)


def _decode_one_by_one(block: bytes, lines: Lines, *, skip_bad: bool, skip_hint: str) -> Iterator[str]:
    for index, line in enumerate(block.split(b"\n"), start=lines.n_read):
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            column = len(line[: error.start].decode("utf-8")) + 1
            fault = f"{lines.name}:{index + 1}: byte 0x{line[error.start]:02x} at column {column} is not UTF-8"
            if not skip_bad:
                raise DataError(f"{fault}; {_likely(block, skip_hint)}") from None
            lines.bad[index] = fault
            yield ""


def _likely(block: bytes, skip_hint: str) -> str:
    """What undecodable bytes look like, and what to do about them."""
    head = block[:_HEAD_BYTES]
    if len(_CONTROL.findall(head)) * 20 > len(head):
        return "it looks like binary data. Name a text file"
    return f"it looks like Latin-1 or Windows-1252. Convert the file with `iconv -f WINDOWS-1252 -t UTF-8`{skip_hint}"


def _refuse_other_formats(head: bytes, name: str) -> None:
    """Raise DataError if the first bytes are those of something that is not UTF-8 text."""
    for magic, (what, todo) in _PACKED.items():
        if head.startswith(magic):
            raise DataError(f"{name}: is {what}, not text. {todo}")
    if head[257:262] == b"ustar":
        raise DataError(f"{name}: is a tar archive, not text. Name its members as archive.tar::member")
    encoding = next((encoding for mark, encoding in _WIDE.items() if head.startswith(mark)), None)
    if encoding is None and len(head) >= 32:
        even, odd = head[::2].count(0) / len(head[::2]), head[1::2].count(0) / len(head[1::2])
        if max(even, odd) > 0.4 > min(even, odd):  # every second byte of Latin text in UTF-16
            encoding = "UTF-16LE" if odd > even else "UTF-16BE"
    if encoding is not None:
        raise DataError(f"{name}: is {encoding}, not UTF-8. Convert it with `iconv -f {encoding} -t UTF-8`")
