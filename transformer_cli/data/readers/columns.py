"""Tables: source and target, label and text, text alone, or the columns that `data.columns` selects, of any format.

Of three columns, a label and two texts, the source is first<TAB>second. It is blank where one of the two is.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from transformer_cli.config.data import DataConfig
from transformer_cli.config.tasks import Task
from transformer_cli.data.column_names import (
    chosen_columns,
    columns_setting,
    is_exchanged,
    is_header,
    language_columns,
    looks_like_header,
    named_columns,
    selected_columns,
    shown_names,
    shown_row,
)
from transformer_cli.data.corpus_files import find_file
from transformer_cli.data.lines import FIRST_LINES, Lines
from transformer_cli.data.pairs import joined
from transformer_cli.data.readers.base import Corpus, Pair, Reader, file_names
from transformer_cli.data.readers.containers import members_of, shards_of
from transformer_cli.data.readers.quoting import is_quoted, unquoted
from transformer_cli.data.readers.table_files import table_files
from transformer_cli.data.registry import READERS
from transformer_cli.errors import DataError, quoted

_MOST = 0.9  # of the first rows that have numbers in a column of numbers
_CORRECT = "Correct the line, or drop such lines with data.on_bad=skip"

_Row = Callable[[str], Pair | str]  # the pair of a line, source first, or what is wrong with the line and what to do


@dataclass(frozen=True)
class _Layout:
    """The columns of a table that hold its pairs, source first or label first; none: all, as they stand."""

    columns: list[int]
    header: list[str] | None = None  # the first row, where it is left out
    n_columns: int | None = None  # that each row must have: where the columns were found by their names
    picked: str = ""  # what was found so


@READERS.register("columns")
class Columns(Reader):
    """Each file is a table; classification reads the label first, and gives pairs of text and label."""

    def __init__(self, config: DataConfig) -> None:
        super().__init__(config)
        self._quoted: dict[str, bool] = {}  # by the name of a file, all of which decides

    def suits(self, task: Task) -> bool:
        return not (task.has_words or task.has_spans)

    def check(self) -> None:
        """Columns may be selected."""

    def group(self, names: object, *, key: str) -> list[Corpus]:
        """Each name is a table: one of a known format, or else with tabs."""
        listed, config = file_names(names, key=key, task=self.config.trained), self.config
        found = [file for name in listed for file in members_of(name, config, key=key) or [name]]
        files = [table_files(name, config, key=key) or shards_of(name, config, key=key) for name in found]
        return [
            Corpus(one or (find_file(name, config, key=key),), self.pairs, self.warnings)
            for name, one in zip(found, files, strict=True)
        ]

    def warnings(self, files: Sequence[Lines]) -> Iterator[str]:
        """What was read otherwise than as plain rows, and labels and text with further columns, which are one text."""
        picked: set[str] = set()  # of the files of a dataset, the first
        for lines in files:
            layout = self._layout(lines)
            if self._is_quoted(lines):
                how = "" if self.config.quoted else "; data.quoted=false keeps the quotes"
                yield f"{lines.name}: fields in quotes, which were read as csv writes them{how}"
            if layout.header is not None:
                how = "" if self.config.header else "; data.header=false keeps it"
                yield f"{lines.name}: the first row is a header and was left out: {shown_row(layout.header)}{how}"
            if layout.picked and layout.picked not in picked:
                yield f"{lines.name}: {layout.picked}"
            picked.add(layout.picked)
            is_pair = self.config.trained.has_source
            if (
                is_pair
                and lines.is_decoded
                and lines.columns is None
                and layout.header is None
                and self.config.header is None
            ):
                yield from _unknown_header(self._first_rows(lines), lines.name)
            if self.config.trained.labels_lines and not layout.columns:
                yield from _third_column(self._first_rows(lines), lines.name)

    def pairs(self, files: Sequence[Lines]) -> Iterator[Pair]:
        return chain.from_iterable(map(self._pairs_of, files))

    def _pairs_of(self, lines: Lines) -> Iterator[Pair]:
        layout = self._layout(lines)
        self._check_layout(layout, lines)
        parse = self._row_parser(layout)
        rows = self._rows(lines)
        if layout.header is not None:
            next(rows, None)
        for index, line in rows:
            row = parse(line)
            if isinstance(row, str):
                fault, _, remedy = row.rpartition(". ")
                lines.reject(index, fault, remedy)
            else:
                yield row

    # ---- Which columns

    def _layout(self, lines: Lines) -> _Layout:
        """Raises DataError for names that no column has."""
        if lines.columns is not None:
            return _layout_of(list(lines.columns), None, self.config, lines.name)
        row = next(self._rows(replace(lines, skip_bad=True, bad=dict(lines.bad))), (0, ""))[1].split("\t")
        _refuse_other_languages(row, self.config, lines.name)
        return _layout_of(row if self._is_header(row) else None, row, self.config, lines.name)

    def _is_header(self, row: Sequence[str]) -> bool:
        """Whether the first row names the columns."""
        config = self.config
        if config.header is not None:
            return config.header
        if config.has_column_names or (not config.columns and _names_columns(row, config)):
            return True
        if not config.trained.has_source:
            return looks_like_header(row)
        columns = chosen_columns(config.columns[:2], row, "") or [0, 1]
        named = [row[column] for column in columns if column < len(row)]
        return len(named) == 2 and is_header(named[0], named[1], config.source_lang, config.target_lang)

    def _check_layout(self, layout: _Layout, lines: Lines) -> None:
        """Raise DataError if most rows, not only a few, have other columns than the config selects."""
        config = self.config
        if config.columns:
            self._refuse_exchanged(layout, lines)
        if config.columns or not (layout.columns or (config.trained.labels_lines and not lines.is_decoded)):
            rows = self._first_rows(lines)
            _check_columns(rows, lines, layout, config)
            if lines.is_decoded and not config.columns and config.trained.translates:
                _refuse_numbers(rows, lines.name)

    def _refuse_exchanged(self, layout: _Layout, lines: Lines) -> None:
        """Raise DataError where numbers of columns select the languages the other way around."""
        config, header = self.config, lines.columns or layout.header or []
        fields = [header[column] for column in layout.columns if column < len(header)]
        source, target = config.source_lang, config.target_lang
        is_pair = config.trained.translates and len(fields) == 2
        if is_pair and is_exchanged(fields[0], fields[1], source, target):
            place = lines.name if lines.columns is not None else f"{lines.name}:1"
            raise DataError(
                f"{place}: the columns are {shown_row(fields)}, but the first is read as data.source_lang={source}."
                f" Set {columns_setting(config.columns[::-1])}"
            )

    # ---- Rows

    def rows(self, lines: Lines) -> Iterator[list[str]]:
        """The fields of each row, without their quotes. Rows that cannot be read are rejected."""
        return (row.split("\t") for _, row in self._rows(lines))

    def _rows(self, lines: Lines) -> Iterator[tuple[int, str]]:
        return unquoted(lines) if self._is_quoted(lines) else lines.numbered()

    def _first_rows(self, lines: Lines) -> list[list[str]]:
        """The fields of the first rows that are not blank; one that cannot be read is reported with its pair."""
        rows = self._rows(replace(lines, skip_bad=True, bad=dict(lines.bad)))
        return [row.split("\t") for row in islice((row for _, row in rows if row.strip()), FIRST_LINES)]

    def _is_quoted(self, lines: Lines) -> bool:
        if lines.is_decoded:
            return False
        if self.config.quoted is not None:
            return self.config.quoted
        if lines.name not in self._quoted:
            self._quoted[lines.name] = is_quoted(lines, self._text_columns(lines))
        return self._quoted[lines.name]

    def _text_columns(self, lines: Lines) -> list[int]:
        """The columns whose quotes decide whether a table is quoted."""
        names = [field.strip('"') for field in next(lines.each(), "").split("\t")]
        columns = chosen_columns(self.config.columns, names, lines.name)
        return columns or named_columns(names, self.config, in_so_many_words=True) or [0, 1]

    def _row_parser(self, layout: _Layout) -> _Row:
        config, columns, n_columns = self.config, layout.columns, layout.n_columns
        if n_columns is not None:
            parse = self._row_parser(replace(layout, n_columns=None))
            return lambda line: _other_length(line, n_columns) or parse(line)
        if config.trained.labels_lines:
            return _labelled_columns(columns, config.columns or columns) if columns else _labelled
        if not config.trained.has_source:
            return lambda line: _text_twice(line, columns, config.columns or columns)
        if columns:
            return lambda line: _selected(line, columns, config.columns or columns)
        return lambda line: _two_columns(line, swapped=config.is_swapped)


def _names_columns(row: Sequence[str], config: DataConfig) -> bool:
    """Whether the fields of a first row are names of which two are called as the sides of the corpus."""
    if named_columns(row, config, in_so_many_words=True):
        return True
    return looks_like_header(row) and named_columns(row, config) is not None


def _refuse_other_languages(row: Sequence[str], config: DataConfig, name: str) -> None:
    """Raise DataError for a header of languages that lacks one of the corpus, where nothing says what to read."""
    if config.columns or config.header is False or not config.trained.translates:
        return
    languages = language_columns(row)
    if len(languages) > 1 and looks_like_header(row) and named_columns(row, config) is None:
        raise DataError(
            f"{name}:1: the columns are called {shown_names(row)}, and not as data.source_lang={config.source_lang}"
            f" data.target_lang={config.target_lang}. Set these, or data.columns, or data.header=false if it is a pair"
        )


def _layout_of(names: list[str] | None, row: list[str] | None, config: DataConfig, file: str) -> _Layout:
    """The columns to read, by their names if they have any; `row` is the first, of a table without names of its own."""
    header = names if row is not None else None
    found = selected_columns(names or [], config, file)
    if config.columns or names is None or found is None:
        return _Layout(found or [], header)
    is_labelled = found == [0, 1] and row is not None and config.trained.labels_lines
    if found == [*range(len(names))] or is_labelled:
        return _Layout([] if row is not None else found, header)
    first, *others = [quoted(names[column]) for column in found]
    if not config.trained.has_source:
        return _Layout(found, header, len(names), f"the text is {first}")
    roles = ("the label", "the text") if config.trained.labels_lines else ("source", "target")
    picked = f"{roles[0]} is {first}, {roles[1]} {others[0]}"
    return _Layout(found, header, len(names), picked)


# ---- Pairs of rows


def _check_columns(rows: Sequence[Sequence[str]], lines: Lines, layout: _Layout, config: DataConfig) -> None:
    """Raise DataError if most rows, not only a few, have other columns than the config selects."""
    names = lines.columns or layout.header
    if lines.columns is not None:
        n_columns, example = len(lines.columns), lines.columns
    elif rows:
        [(n_columns, _)] = Counter(map(len, rows)).most_common(1)
        example = next(tuple(row) for row in rows if len(row) == n_columns)
    else:
        return
    has = f"{lines.name}: has {n_columns} column{'s' if n_columns > 1 else ''} ({shown_row(example)})"
    if config.columns and n_columns <= max(layout.columns):
        n_chosen = "three" if config.n_texts == 2 else ("one", "two")[config.trained.has_source]
        raise DataError(
            f"{has}, and data.columns={config.columns} counts from 0. Choose {n_chosen} of 0 to {n_columns - 1}"
        )
    if config.columns or layout.columns:
        return
    if not config.trained.has_source:
        if n_columns > 1 or lines.columns is not None:
            setting = columns_setting([names[0] if names else 0])
            raise DataError(
                f"{lines.name}: not one of its columns alone is called text: {shown_names(names or example)}. Say which"
                f" holds the text, by name or counted from 0, as in {setting} for the first"
            )
        return
    if n_columns < 2 and lines.is_decoded:
        raise DataError(f"{has}, and a pair needs two. Name another file, or two text files")
    if names is not None and (n_columns > 2 or lines.columns is not None):
        first_two: Sequence[int | str] = [0, 1] if any(name.isdecimal() for name in names[:2]) else names[:2]
        what = "label and text" if config.trained.labels_lines else "source and target"
        raise DataError(
            f"{lines.name}: none of its columns are called as {_wanted_names(config)}: {shown_names(names)}. Say which"
            f" hold {what}, by name or counted from 0, as in {columns_setting(first_two)} for the first two"
        )
    if n_columns > 2:
        raise DataError(
            f"{has}. Say which hold source and target, counted from 0, as in data.columns=[0,1] for the first two"
        )


def _refuse_numbers(rows: Sequence[Sequence[str]], name: str) -> None:
    """Raise DataError where one of the two columns of a table that names none has numbers, as of its rows."""
    for column in (0, 1):
        numbers = [row[column] for row in rows if len(row) == 2 and row[column].strip().isdecimal()]
        if len(numbers) >= _MOST * len(rows) and len(rows) > 1:
            raise DataError(
                f"{name}: column {column} of its two holds numbers ({shown_row(numbers)}), not texts. Name a table of"
                " pairs, or set data.columns=[0,1] if these are the texts"
            )


def _wanted_names(config: DataConfig) -> str:
    if config.trained.labels_lines:
        return "label and text"
    return f"{config.source_lang} and {config.target_lang}"


def _unknown_header(rows: Sequence[Sequence[str]], name: str) -> Iterator[str]:
    """A warning of a first row of single words in a table of sentences, which may be a header in other words."""
    if len(rows) < 2 or any(" " in field.strip() or not field.strip() for field in rows[0]):
        return
    n_sentences = sum(any(" " in field.strip() for field in row) for row in rows[1:])
    if n_sentences >= _MOST * (len(rows) - 1):
        yield (
            f"{name}: the first row is read as a pair: {shown_row(rows[0])}. If it is a header, set data.header=true"
        )


def _third_column(rows: Sequence[Sequence[str]], name: str) -> Iterator[str]:
    if len(rows) > 1 and len(sizes := set(map(len, rows))) == 1 and (n_columns := sizes.pop()) > 2:
        yield (
            f"{name}: has {n_columns} columns ({shown_row(rows[0])}), and all behind the first is one text. Set"
            " data.columns=[0,1] for the second alone, or [0,1,2] for pairs of texts (data=pairs)"
        )


def _other_length(line: str, n_columns: int) -> str | None:
    n_found = line.count("\t") + 1
    if not line or n_found == n_columns:
        return None
    return f"{n_found} columns, but the header has {n_columns}: {quoted(line)}. {_CORRECT}"


def _two_columns(line: str, *, swapped: bool) -> Pair | str:
    line = line or "\t"  # an empty line is an empty pair, as it is in two files
    first, _, second = line.partition("\t")
    if line.count("\t") != 1:
        return f"{line.count(chr(9))} tabs, must be one, between source and target: {quoted(line)}. {_CORRECT}"
    return (second, first) if swapped else (first, second)


def _text_twice(line: str, columns: Sequence[int], configured: Sequence[int | str]) -> Pair | str:
    """The text in the column, as source and target of a language model; without a column, the line."""
    row = _selected(line, columns, configured) if columns else (line, "")
    return row if isinstance(row, str) else (row[0], row[0])


def _selected(line: str, columns: Sequence[int], configured: Sequence[int | str]) -> Pair | str:
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


def _labelled_columns(columns: Sequence[int], configured: Sequence[int | str]) -> _Row:
    def parse(line: str) -> Pair | str:
        row = _selected(line, columns, configured)
        if isinstance(row, str):
            return row
        label, text = row
        if line and not label.strip():
            return f"no label in column {columns[0]}, counted from 0: {quoted(line)}. {_CORRECT}"
        return text, label.strip()

    return parse
