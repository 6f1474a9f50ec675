"""The base class of file formats that hold rows of text, such as CSV, JSON Lines, TMX and Parquet.

A format decodes a file into rows of fields, one pass and bounded memory. Which fields are source and target, or label
and text, follows from the names of the columns and from data.columns, the same for all formats.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from transformer_cli.config.data import DataConfig
from transformer_cli.data.column_names import looks_like_header
from transformer_cli.data.compression import ByteSource

HEAD_BYTES = 1 << 16  # by which a format is recognised
N_SAMPLES = 5  # rows that `tfm prepare --list` shows


@dataclass(frozen=True)
class SourceFile:
    """A file of a corpus as a format reads it."""

    name: str  # for messages
    path: Path
    member: str | None  # of an archive
    open: Callable[[], AbstractContextManager[ByteSource]]  # its bytes from the start, decompressed
    keeps_tags: bool = False  # whether its texts keep their inline tags, where the format has any


@dataclass(frozen=True)
class Fault:
    """A row that cannot be read: an error, or left out and counted where data.on_bad=skip."""

    place: str  # within the file, as "line 7" or "unit greeting"
    what: str
    remedy: str


@dataclass(frozen=True)
class Table:
    """Rows of fields. `columns` are their names; None: the format has none, so that the first row may be a header.

    Fields may hold tabs and ends of lines, which become spaces.
    """

    columns: tuple[str, ...] | None
    rows: Iterator[Sequence[str] | Fault]


@dataclass
class Contents:
    """What a file holds, for `tfm prepare --list`."""

    columns: dict[str, int] = field(default_factory=dict)  # names or languages, with the number of texts in each
    n_rows: int = 0
    samples: list[Sequence[str]] = field(default_factory=list)  # the first rows that are not blank, by column
    notes: list[str] = field(default_factory=list)  # sentences on what else is in it
    n_faults: int = 0  # rows that cannot be read
    is_bilingual: bool = False  # columns are languages, as the file names them, and a corpus takes two of them

    def add_sample(self, row: Sequence[str]) -> None:
        """Keep a row if it is among the first that are not blank."""
        if len(self.samples) < N_SAMPLES and any(text.strip() for text in row):
            self.samples.append(list(row))

    def add_fault(self, fault: Fault) -> None:
        """Note a row that cannot be read, if it is among the first."""
        self.n_faults += 1
        if self.n_faults <= N_SAMPLES:
            self.notes.append(f"{fault.place}: {fault.what}")


def contents_of_rows(rows: Iterable[Sequence[str] | Fault]) -> Contents:
    """The contents of a table whose first row may be a header; columns without one are called by their numbers."""
    found, names, counts = Contents(), list[str](), list[int]()
    for row in rows:
        if isinstance(row, Fault):
            found.add_fault(row)
            continue
        if not names and row:
            is_header = looks_like_header(row)
            names, counts = [*row] if is_header else [str(index) for index in range(len(row))], [0] * len(row)
            if is_header:
                continue
        found.n_rows += 1
        for index, field_ in enumerate(row[: len(names)]):
            counts[index] += bool(field_.strip())
        found.add_sample(row)
    found.columns = dict(zip(names, counts, strict=True))
    return found


class FileFormat:
    """A file format, registered in FORMATS under its name."""

    what: ClassVar[str]  # for messages, as "a translation memory (TMX)"
    endings: ClassVar[tuple[str, ...]]  # in small letters, as (".tmx",)
    is_certain_by_name: ClassVar[bool] = True  # whether no text of one side is called so
    has_inline_tags: ClassVar[bool] = False  # whether it follows data.inline_tags
    data: ClassVar[str] = ""  # the `data=` that trains on its files, where that follows from the format

    def recognises(self, head: bytes) -> bool:
        """Whether the first bytes of a file, HEAD_BYTES of them, are those of the format, whatever it is called."""
        return False

    def names(self, file: SourceFile) -> Sequence[str]:
        """The names of the columns, or the languages. Raises DataError."""
        return list(self.contents(file).columns)

    def table(self, file: SourceFile, config: DataConfig) -> Table:
        """The rows of a file; a format of several languages gives those of the corpus, named by data.source_lang and
        data.target_lang. Raises DataError for what makes all of the file unreadable."""
        raise NotImplementedError

    def contents(self, file: SourceFile) -> Contents:
        """What the file holds, in one pass. Raises DataError."""
        raise NotImplementedError
