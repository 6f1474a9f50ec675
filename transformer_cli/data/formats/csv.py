"""CSV: fields between commas, semicolons or tabs, in quotes where they hold one of these, a quote or an end of line."""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from transformer_cli.config.data import DataConfig, OnBad
from transformer_cli.data.column_names import looks_like_header
from transformer_cli.data.formats.base import (
    HEAD_BYTES,
    Contents,
    Fault,
    FileFormat,
    SourceFile,
    Table,
    contents_of_rows,
)
from transformer_cli.data.lines import SKIP_HINT, each_line
from transformer_cli.data.registry import FORMATS
from transformer_cli.errors import DataError, quoted

_MOST = 0.9  # of the first rows that must have as many fields as each other
_FIRST_LINES = 100
_DELIMITERS = {"\t": "tabs", ";": "semicolons", ",": "commas", "|": "bars"}  # the first of equally good ones
_SKIP = "or drop such rows with data.on_bad=skip"
_SEP = "sep="  # the first line of files that Excel writes, or is to read


def delimiter_of(lines: Sequence[str]) -> str | None:
    """The comma or semicolon that divides the first lines of a file into columns; None if none does.

    Nearly all rows then have equally many. Behind a comma of a sentence stands a blank, behind a delimiter none.
    """
    for delimiter in (",", ";"):
        try:
            rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
        except csv.Error:  # a field beyond all measure: a quote that is none
            continue
        if len(rows) < 2:
            continue
        [(n_columns, n_rows)] = Counter(map(len, rows)).most_common(1)
        n_blank = sum(field.startswith(" ") for row in rows for field in row[1:])
        if n_columns > 1 and n_rows >= _MOST * len(rows) and n_blank <= (1 - _MOST) * len(rows):
            return delimiter
    return None


class Csv(FileFormat):
    """Tables of spreadsheets and databases; a table with tabs is one only if its name ends in .csv and has quotes."""

    what = "a table (CSV)"
    endings = (".csv",)
    is_certain_by_name = False  # a text of one sentence a line may be called so

    def recognises(self, head: bytes) -> bool:
        lines = _first_lines(head)
        return bool(lines) and (_named_delimiter(lines[0]) is not None or delimiter_of(lines) is not None)

    def table(self, file: SourceFile, config: DataConfig) -> Table:
        return Table(None, self._rows(file, skip_bad=config.on_bad is OnBad.skip, is_quoted=config.quoted is not False))

    def names(self, file: SourceFile) -> Sequence[str]:
        row = next((row for row in self._rows(file, skip_bad=True) if not isinstance(row, Fault)), ())
        return row if looks_like_header(row) else [str(index) for index in range(len(row))]

    def contents(self, file: SourceFile) -> Contents:
        return contents_of_rows(self._rows(file, skip_bad=True))

    def _rows(self, file: SourceFile, *, skip_bad: bool, is_quoted: bool = True) -> Iterator[Sequence[str] | Fault]:
        with file.open() as stream:
            head = b""
            while len(head) < HEAD_BYTES and (block := stream.read(HEAD_BYTES - len(head))):
                head += block
        delimiter = _best_delimiter(_first_lines(head), is_quoted=is_quoted)
        with file.open() as stream:
            lines = _NumberedLines(each_line(stream, file.name, skip_bad=skip_bad, skip_hint=SKIP_HINT))
            yield from _parsed(lines, delimiter, file.name, is_quoted=is_quoted)


FORMATS.register("csv")(Csv())


class _NumberedLines:
    """The lines of a file as csv reads them: with their ends, and without the line that names the delimiter.

    `n` is the number of the newest, and `bad` what is wrong with it where it is not UTF-8.
    """

    def __init__(self, lines: Iterator[tuple[str, str | None]]) -> None:
        self._lines, self.n, self.bad = lines, 0, ""

    def __iter__(self) -> "_NumberedLines":
        return self

    def __next__(self) -> str:
        text, fault = next(self._lines)
        self.n += 1
        if self.n == 1 and _named_delimiter(text) is not None:
            return next(self)
        self.bad = self.bad or fault or ""
        return f"{text}\n"


def _parsed(lines: _NumberedLines, delimiter: str, name: str, *, is_quoted: bool) -> Iterator[Sequence[str] | Fault]:
    """The rows of a table. Raises DataError for a quote that never ends."""
    reader, n_columns = _reader(lines, delimiter, is_quoted=is_quoted), 0
    while True:
        first, lines.bad = lines.n + 1, ""
        try:
            row = next(reader, None)
        except csv.Error as error:
            if _is_endless(error):
                raise _endless(name, first, lines.n) from None
            what, remedy = f"quotes that do not fit ({error})", f"Double the quotes in a field, {_SKIP}"
            if "new-line character" in str(error):
                what, remedy = r"a \r that ends no line", r"Convert the ends of lines, as `tr '\r' '\n'` does"
            yield Fault(_place(first, lines.n), what, remedy)
            continue
        if row is None:
            return
        if lines.bad:
            yield Fault(_place(first, lines.n), lines.bad.rpartition(": ")[2], "Convert the file to UTF-8")
        elif not row:
            yield ()
        elif n_columns and len(row) != n_columns:
            yield Fault(
                _place(first, lines.n),
                f"{len(row)} columns, but the first row has {n_columns}: {quoted(delimiter.join(row))}",
                f"Put fields with {_DELIMITERS[delimiter]} in quotes, {_SKIP}"
                if n_columns > 1
                else "Remove what stands before the table",
            )
        else:
            n_columns = len(row)
            yield row


def _reader(lines: Iterable[str], delimiter: str, *, is_quoted: bool) -> Iterator[list[str]]:
    if is_quoted:
        return csv.reader(lines, delimiter=delimiter, strict=True)
    return csv.reader(lines, delimiter=delimiter, strict=True, quoting=csv.QUOTE_NONE)


def _is_endless(error: csv.Error) -> bool:
    return any(what in str(error) for what in ("unexpected end of data", "field larger than field limit"))


def _endless(name: str, first: int, last: int) -> DataError:
    return DataError(
        f"{name}:{first}: a quote that opens in this row does not end, up to line {last:,}. Close it, double the quotes"
        " in a field, or set data.quoted=false if the quotes are text"
    )


def _place(first: int, last: int) -> str:
    return f"line {first:,}" if first >= last else f"lines {first:,} to {last:,}"


def _first_lines(head: bytes) -> list[str]:
    """The first lines of a file; the last of these may be cut, and is left out."""
    lines = head.decode("utf-8-sig", errors="replace").split("\n")
    whole = lines[:-1] if len(head) >= HEAD_BYTES or not lines[-1] else lines
    return [line.removesuffix("\r") for line in whole[:_FIRST_LINES]]


def _named_delimiter(line: str) -> str | None:
    """The delimiter that the first line of a file names, as `sep=;`."""
    delimiter = line.lower().removeprefix(_SEP)
    return delimiter if line.lower().startswith(_SEP) and delimiter in _DELIMITERS else None


def _best_delimiter(lines: Sequence[str], *, is_quoted: bool) -> str:
    """The delimiter with which most rows have as many fields as each other, and few fields begin with a blank."""
    if lines and (named := _named_delimiter(lines[0])):
        return named
    return max(_DELIMITERS, key=lambda delimiter: _fit(lines, delimiter, is_quoted=is_quoted))


def _fit(lines: Sequence[str], delimiter: str, *, is_quoted: bool) -> tuple[bool, float]:
    reader = _reader((f"{line}\n" for line in lines), delimiter, is_quoted=is_quoted)
    sizes: Counter[int] = Counter()
    n_rows = n_blank = 0
    while True:
        try:
            row = next(reader, None)
        except csv.Error:
            n_rows += 1
            continue
        if row is None:
            break
        if row:
            n_rows += 1
            sizes[len(row)] += 1
            n_blank += any(field.startswith(" ") for field in row[1:])
    best = max(((n, size) for size, n in sizes.items() if size > 1), default=(0, 0))
    return best[0] > 0, (best[0] - n_blank) / max(1, n_rows)
