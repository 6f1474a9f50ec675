"""Shards of a text file: byte ranges that hold whole lines, and together every line once."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from transformer_cli.config.shard import Shard
from transformer_cli.data.lines import MAX_LINE_BYTES, no_lines_of_text, open_text, shown, warn_of_columns
from transformer_cli.errors import DataError, quoted
from transformer_cli.files import wrap_os_errors

_READ = 1 << 20  # bytes at a time


@dataclass(frozen=True)
class Range:
    """Bytes of a file that hold whole lines; those of a compressed one are counted after it is unpacked."""

    start: int = 0
    end: int | None = None  # None: the end of the file


def range_of(path: Path, shard: Shard) -> Range:
    """The lines that begin in the shard's part of the bytes; there may be none. Raises DataError, EnvironmentFault."""
    if shard.n == 1:
        return Range()
    with wrap_os_errors(path, "read"):
        size = path.stat().st_size
        bounds = [size * (shard.number - 1) // shard.n, size * shard.number // shard.n]
        return Range(*(_line_start(path, bound, size) for bound in bounds))


def _line_start(path: Path, place: int, size: int) -> int:
    """The start of the first line that does not begin before `place`."""
    if place == 0:
        return 0
    with path.open("rb") as file:
        file.seek(place - 1)  # a line that begins at `place` has its end before it
        while block := file.read(_READ):
            at = block.find(b"\n")
            if at >= 0:
                return file.tell() - len(block) + at + 1
    return size


def n_lines(path: Path, bounds: Range = Range()) -> int:
    """Lines of the range, the last of which may have no end."""
    n, last = 0, b"\n"
    for block in _blocks(path, bounds):
        n, last = n + block.count(b"\n"), block[-1:]
    return n + (last != b"\n")


def read_range(path: Path, bounds: Range = Range()) -> Iterator[bytes]:
    """The lines of the range without their ends, \\n or \\r\\n. Raises DataError for one that does not end."""
    rest = b""
    for block in _blocks(path, bounds):
        *whole, rest = (rest + block).split(b"\n")
        yield from (line.removesuffix(b"\r") for line in whole)
        if len(rest) > MAX_LINE_BYTES:
            begin = quoted(rest[:40].decode(errors="replace"))
            raise DataError(
                f"{shown(path)}: {begin} begins a line of more than {MAX_LINE_BYTES:,} bytes. Put one sentence on each"
                " line"
            )
    if rest:
        yield rest.removesuffix(b"\r")


def _blocks(path: Path, bounds: Range) -> Iterator[bytes]:
    left = None if bounds.end is None else bounds.end - bounds.start
    with wrap_os_errors(path, "read"), open_text(path) as stream:
        if bounds.start:
            cast(BinaryIO, stream).seek(bounds.start)  # of a plain file, which alone is divided
        while block := stream.read(_READ if left is None else min(_READ, left)):
            left = None if left is None else left - len(block)
            yield block


def refuse_other_formats(path: Path) -> None:
    """Raise DataError for what is not lines of UTF-8 text by its first bytes, and warn of a table."""
    with wrap_os_errors(path, "read"), open_text(path) as stream:
        block = stream.read(_READ)
    if (fault := no_lines_of_text(block)) is not None:
        raise DataError(f"{shown(path)}: {fault}")
    warn_of_columns(shown(path), block.split(b"\n"), "translated")
