"""Tab-separated text: whether a file is a table, told by its content, and the pair that each of its lines holds."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice

from transformer_cli.config.data import DataConfig, Task
from transformer_cli.data.lines import ByteSource, Lines
from transformer_cli.errors import DataError, quoted

FIRST_LINES = 100  # by which a file is judged
_HEAD_BYTES = 1 << 16
_SHOWN = 40  # characters of a column in an error
_CORRECT = "Correct the line, or drop such lines with data.on_bad=skip"

Row = Callable[[str], tuple[str, str] | str]  # the pair that a line holds, source first, or what is wrong with the line


def has_tabs(stream: ByteSource) -> bool:
    """Whether at least half of the first lines that are not blank have a tab."""
    head = b""
    while len(head) < _HEAD_BYTES and (block := stream.read(_HEAD_BYTES - len(head))):
        head += block
    lines = [line for line in head.split(b"\n")[:FIRST_LINES] if line.strip()]
    return 0 < len(lines) <= 2 * sum(b"\t" in line for line in lines)


def is_table(lines: Lines) -> bool:
    """The same of lines that were read."""
    first = [line for line in islice(lines.each(), FIRST_LINES) if line.strip()]
    return 0 < len(first) <= 2 * sum("\t" in line for line in first)


def row_reader(config: DataConfig) -> Row:
    """How a line of the tables of `config` is read."""
    if config.task is Task.classification:
        return _labelled_columns(config.columns) if config.columns else _labelled
    columns = config.columns[::-1] if config.is_swapped else config.columns
    if columns:
        return lambda line: _chosen(line, columns, config.columns)
    return lambda line: _two_columns(line, swapped=config.is_swapped)


def check_columns(lines: Lines, config: DataConfig) -> None:
    """Raise DataError if it is not a line here and there but the table that has other columns than are read."""
    rows = [line.split("\t") for line in islice((line for line in lines.each() if line.strip()), FIRST_LINES)]
    if not rows or (config.task is Task.classification and not config.columns):  # there, all after a tab is text
        return
    [(n_columns, _)] = Counter(map(len, rows)).most_common(1)
    example = next(row for row in rows if len(row) == n_columns)
    has = f"{lines.name}: has {n_columns} column{'s' if n_columns > 1 else ''} ({_shown(example)})"
    if config.columns and n_columns <= max(config.columns):
        raise DataError(f"{has}, and data.columns={config.columns} counts from 0. Choose two of 0 to {n_columns - 1}")
    if not config.columns and n_columns > 2:
        raise DataError(
            f"{has}. Say which hold source and target, counted from 0, as in data.columns=[0,1] for the first two"
        )


def _shown(row: Sequence[str]) -> str:
    cells = [quoted(cell, _SHOWN) for cell in row[:4]]
    return " | ".join([*cells, *(["…"] if len(row) > 4 else [])])


def _two_columns(line: str, *, swapped: bool) -> tuple[str, str] | str:
    line = line or "\t"  # an empty line is an empty pair, as it is in two files
    first, _, second = line.partition("\t")
    if line.count("\t") != 1:
        return f"{line.count(chr(9))} tabs, must be one, between source and target: {quoted(line)}. {_CORRECT}"
    return (second, first) if swapped else (first, second)


def _chosen(line: str, columns: Sequence[int], asked: Sequence[int]) -> tuple[str, str] | str:
    if not line:
        return "", ""
    cells = line.split("\t")
    if len(cells) <= max(columns):
        return f"too few columns for data.columns={list(asked)}, counted from 0: {quoted(line)}. {_CORRECT}"
    source, target = columns
    return cells[source], cells[target]


def _labelled(line: str) -> tuple[str, str] | str:
    """Text and label; a tab after the first one is white space of the text."""
    label, tab, text = line.partition("\t")
    if line and not (tab and label.strip()):
        what = "no label before the tab" if tab else "no tab between label and text"
        return f"{what}: {quoted(line)}. Write label<TAB>text"
    return text, label.strip()


def _labelled_columns(columns: Sequence[int]) -> Row:
    def read(line: str) -> tuple[str, str] | str:
        row = _chosen(line, columns, columns)
        if isinstance(row, str):
            return row
        label, text = row
        if line and not label.strip():
            return f"no label in column {columns[0]}, counted from 0: {quoted(line)}. {_CORRECT}"
        return text, label.strip()

    return read
