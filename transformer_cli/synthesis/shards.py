"""Shards of a text file: byte ranges that hold whole lines, and together every line once."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from transformer_cli.data.lines import open_text
from transformer_cli.errors import ConfigError
from transformer_cli.files import wrap_os_errors

_READ = 1 << 20  # bytes at a time


@dataclass(frozen=True, order=True)
class Shard:
    """Part `number` of `n`, counted from 1."""

    number: int
    n: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Of `2/8`. Raises ConfigError."""
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise ConfigError(f"shard={text}: must be I/N with I from 1 to N, as 2/8. Correct it")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.n}"


@dataclass(frozen=True)
class Range:
    """Bytes of a file that hold whole lines."""

    start: int
    end: int


def range_of(path: Path, shard: Shard) -> Range:
    """The lines that begin in the shard's part of the bytes; there may be none. Raises DataError, EnvironmentFault."""
    size = path.stat().st_size
    bounds = [size * (shard.number - 1) // shard.n, size * shard.number // shard.n]
    with wrap_os_errors(path, "read"):
        return Range(*(_line_start(path, bound, size) for bound in bounds))


def _line_start(path: Path, place: int, size: int) -> int:
    """Where the first line begins that does not begin before `place`."""
    if place == 0:
        return 0
    with path.open("rb") as file:
        file.seek(place - 1)  # a line that begins at `place` has its end before it
        while block := file.read(_READ):
            at = block.find(b"\n")
            if at >= 0:
                return file.tell() - len(block) + at + 1
    return size


def lines_before(path: Path, place: int) -> int:
    """How many lines end before the byte `place`."""
    n, left = 0, place
    with wrap_os_errors(path, "read"), path.open("rb") as file:
        while left and (block := file.read(min(_READ, left))):
            n, left = n + block.count(b"\n"), left - len(block)
    return n


def n_lines(path: Path) -> int:
    """Lines of the file, the last of which may have no end."""
    with wrap_os_errors(path, "read"), open_text(path) as stream:
        n, last = 0, b"\n"
        while block := stream.read(_READ):
            n, last = n + block.count(b"\n"), block[-1:]
    return n + (last != b"\n")


def read_all(path: Path) -> Iterator[bytes]:
    """The lines of the file, unpacked if its name ends in .gz, without their ends."""
    with wrap_os_errors(path, "read"), open_text(path) as stream:
        rest = b""
        while block := stream.read(_READ):
            *whole, rest = (rest + block).split(b"\n")
            yield from whole
        if rest:
            yield rest


def read_range(path: Path, bounds: Range) -> Iterator[bytes]:
    """The lines of the range, without their ends."""
    with wrap_os_errors(path, "read"), path.open("rb") as file:
        file.seek(bounds.start)
        left = bounds.end - bounds.start
        rest = b""
        while left and (block := file.read(min(_READ, left))):
            left -= len(block)
            *whole, rest = (rest + block).split(b"\n")
            yield from whole
        if rest:
            yield rest
