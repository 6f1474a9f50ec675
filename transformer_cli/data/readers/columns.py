"""Tab-separated tables: source<TAB>target, label<TAB>text, or the columns that `data.columns` selects.

Of three columns, a label and two texts, the source is first<TAB>second. It is blank where one of the two is.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice

from transformer_cli.config.data import DataConfig
from transformer_cli.config.tasks import Task
from transformer_cli.data import archive
from transformer_cli.data.compression import ByteSource
from transformer_cli.data.corpus_files import CorpusFile, candidates, exists
from transformer_cli.data.lines import Lines, open_text
from transformer_cli.data.pairs import joined
from transformer_cli.data.readers.base import Pair, Reader
from transformer_cli.data.readers.quoting import is_exchanged, is_header, is_quoted, unquoted
from transformer_cli.data.registry import READERS
from transformer_cli.errors import DataError, quoted

FIRST_LINES = 100  # which decide whether a file is a table
_HEAD_BYTES = 1 << 16
_SHOWN = 40  # characters of a column in an error
_CORRECT = "Correct the line, or drop such lines with data.on_bad=skip"

_Row = Callable[[str], Pair | str]  # the pair of a line, source first, or what is wrong with the line and what to do


@READERS.register("columns")
class Columns(Reader):
    """Each file is a table; classification reads the label first, and gives pairs of text and label."""

    def __init__(self, config: DataConfig) -> None:
        super().__init__(config)
        self._quoted: dict[str, bool] = {}  # by the name of a file, all of which decides

    def suits(self, task: Task) -> bool:
        return task.translates or task.labels_lines

    def check(self) -> None:
        """Columns may be selected."""

    def warnings(self, files: Sequence[Lines]) -> Iterator[str]:
        """What was read otherwise than as plain rows, and labels and text with further columns, which are one text."""
        [lines] = files
        if self._is_quoted(lines):
            how = "" if self.config.quoted else "; data.quoted=false keeps the quotes"
            yield f"{lines.name}: fields in quotes, which were read as csv writes them{how}"
        if (header := self._header(lines)) is not None:
            how = "" if self.config.header else "; data.header=false keeps it"
            yield f"{lines.name}: the first row is a header and was left out: {_shown(header)}{how}"
        if self.config.trained.labels_lines and not self.config.columns:
            yield from _third_column(self._first_rows(lines), lines.name)

    def pairs(self, files: Sequence[Lines]) -> Iterator[Pair]:
        [lines] = files
        _check_columns(self._first_rows(lines), lines.name, self.config)
        parse = _row_parser(self.config)
        rows = self._rows(lines)
        if (header := self._header(lines)) is not None:
            self._refuse_exchanged(header, lines.name)
            next(rows, None)
        for index, line in rows:
            row = parse(line)
            if isinstance(row, str):
                fault, _, remedy = row.rpartition(". ")
                lines.reject(index, fault, remedy)
            else:
                yield row

    def _refuse_exchanged(self, header: Sequence[str], name: str) -> None:
        """Raise DataError where the header names the languages the other way around."""
        config = self.config
        columns = config.columns[:2] or [0, 1]
        fields = [header[column] for column in columns if column < len(header)]
        source, target = config.source_lang, config.target_lang
        is_pair = config.trained.translates and len(fields) == 2
        if is_pair and is_exchanged(fields[0], fields[1], source, target):
            raise DataError(
                f"{name}:1: the columns are {_shown(fields)}, but the first is read as data.source_lang={source}."
                f" Set data.columns=[{columns[1]},{columns[0]}]"
            )

    def _rows(self, lines: Lines) -> Iterator[tuple[int, str]]:
        return unquoted(lines) if self._is_quoted(lines) else lines.numbered()

    def _first_rows(self, lines: Lines) -> list[list[str]]:
        """The fields of the first rows that are not blank; one that cannot be read is reported with its pair."""
        rows = self._rows(replace(lines, skip_bad=True, bad=dict(lines.bad)))
        return [row.split("\t") for row in islice((row for _, row in rows if row.strip()), FIRST_LINES)]

    def _is_quoted(self, lines: Lines) -> bool:
        if self.config.quoted is not None:
            return self.config.quoted
        if lines.name not in self._quoted:
            self._quoted[lines.name] = is_quoted(lines, self.config.columns or [0, 1])
        return self._quoted[lines.name]

    def _header(self, lines: Lines) -> list[str] | None:
        """The fields of the first row, if that names the columns."""
        config = self.config
        row = next(self._rows(replace(lines, skip_bad=True, bad=dict(lines.bad))), (0, ""))[1].split("\t")
        if config.header is None:
            columns = config.columns[:2] or [0, 1]
            named = [row[column] for column in columns if column < len(row)]
            found = len(named) == 2 and is_header(named[0], named[1], config.source_lang, config.target_lang)
            return row if found else None
        return row if config.header else None


# ---- Whether a file is a table


def is_tsv(name: str) -> bool:
    return name.lower().removesuffix(".gz").endswith(".tsv")


def is_table(name: str, config: DataConfig) -> bool:
    """Whether a file that is named alone is a table: by its name, or by its tabs. A prefix is none."""
    if is_tsv(name):
        return True
    file = next((file for file in candidates(name, config) if file.path.is_file()), None)
    if file is None or (file.member is None and exists(f"{name}.{config.source_lang}", config)):
        return False
    status = file.path.stat()
    return _file_has_tabs(file, (status.st_size, status.st_mtime_ns))


@cache
def _file_has_tabs(file: CorpusFile, version: tuple[int, int]) -> bool:
    """Whether a file has tabs. To find a member, all of its archive is read, once for each `version` of it."""
    if file.member is None:
        with open_text(file.path) as stream:
            return _are_rows(_first_lines(stream))
    try:
        return any([_are_rows(_first_lines(stream)) for _, stream in archive.open_members(file.path, [file.member])])
    except DataError:  # a prefix of members is no member; other faults are reported when the archive is read
        return False


def has_tabs(lines: Lines) -> bool:
    """Whether at least half of the first lines that are not blank have a tab."""
    return _are_rows([line.encode() for line in islice(lines.each(), FIRST_LINES)])


def _first_lines(stream: ByteSource) -> list[bytes]:
    head = b""
    while len(head) < _HEAD_BYTES and (block := stream.read(_HEAD_BYTES - len(head))):
        head += block
    return head.split(b"\n")[:FIRST_LINES]


def _are_rows(lines: Sequence[bytes]) -> bool:
    written = [line for line in lines if line.strip()]
    return 0 < len(written) <= 2 * sum(b"\t" in line for line in written)


# ---- Rows


def _row_parser(config: DataConfig) -> _Row:
    if config.trained.labels_lines:
        return _labelled_columns(config.columns) if config.columns else _labelled
    columns = config.columns[::-1] if config.is_swapped else config.columns
    if columns:
        return lambda line: _selected(line, columns, config.columns)
    return lambda line: _two_columns(line, swapped=config.is_swapped)


def _check_columns(rows: Sequence[Sequence[str]], name: str, config: DataConfig) -> None:
    """Raise DataError if most rows, not only a few, have other columns than the config selects."""
    is_label_and_text = config.trained.labels_lines and not config.columns
    if not rows or is_label_and_text:  # there, all after a tab is text
        return
    [(n_columns, _)] = Counter(map(len, rows)).most_common(1)
    example = next(row for row in rows if len(row) == n_columns)
    has = f"{name}: has {n_columns} column{'s' if n_columns > 1 else ''} ({_shown(example)})"
    if config.columns and n_columns <= max(config.columns):
        n_chosen = "three" if config.n_texts == 2 else "two"
        raise DataError(
            f"{has}, and data.columns={config.columns} counts from 0. Choose {n_chosen} of 0 to {n_columns - 1}"
        )
    if not config.columns and n_columns > 2:
        raise DataError(
            f"{has}. Say which hold source and target, counted from 0, as in data.columns=[0,1] for the first two"
        )


def _third_column(rows: Sequence[Sequence[str]], name: str) -> Iterator[str]:
    if len(rows) > 1 and len(sizes := set(map(len, rows))) == 1 and (n_columns := sizes.pop()) > 2:
        yield (
            f"{name}: has {n_columns} columns ({_shown(rows[0])}), and all behind the first is one text. Set"
            " data.columns=[0,1] for the second alone, or [0,1,2] for pairs of texts (data=pairs)"
        )


def _shown(row: Sequence[str]) -> str:
    fields = [quoted(field, _SHOWN) for field in row[:4]]
    return " | ".join([*fields, *(["…"] if len(row) > 4 else [])])


def _two_columns(line: str, *, swapped: bool) -> Pair | str:
    line = line or "\t"  # an empty line is an empty pair, as it is in two files
    first, _, second = line.partition("\t")
    if line.count("\t") != 1:
        return f"{line.count(chr(9))} tabs, must be one, between source and target: {quoted(line)}. {_CORRECT}"
    return (second, first) if swapped else (first, second)


def _selected(line: str, columns: Sequence[int], configured: Sequence[int]) -> Pair | str:
    if not line:
        return "", ""
    fields = line.split("\t")
    if len(fields) <= max(columns):
        return f"too few columns for data.columns={list(configured)}, counted from 0: {quoted(line)}. {_CORRECT}"
    source, *targets = (fields[column] for column in columns)
    return source, joined(targets)


def _labelled(line: str) -> Pair | str:
    """Text and label; a tab after the first one is white space of the text."""
    label, tab, text = line.partition("\t")
    if line and not (tab and label.strip()):
        what = "no label before the tab" if tab else "no tab between label and text"
        return f"{what}: {quoted(line)}. Write label<TAB>text"
    return text, label.strip()


def _labelled_columns(columns: Sequence[int]) -> _Row:
    def parse(line: str) -> Pair | str:
        row = _selected(line, columns, columns)
        if isinstance(row, str):
            return row
        label, text = row
        if line and not label.strip():
            return f"no label in column {columns[0]}, counted from 0: {quoted(line)}. {_CORRECT}"
        return text, label.strip()

    return parse
