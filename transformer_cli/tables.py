"""Tables of results: aligned for a terminal, and as LaTeX, Markdown or CSV to be pasted into a paper or a spreadsheet.

All four are written from the same rows: a cell holds its values in full precision, and the text that people read.
"""

import csv
import io
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

from transformer_cli.standard_streams import require_stdout

CellValue = str | float | bool | None


class TableFormat(Enum):
    latex = "latex"  # a tabular of booktabs
    markdown = "markdown"  # pipes, as GitHub reads them
    csv = "csv"  # RFC 4180


@dataclass(frozen=True)
class Column:
    """A column of cells that have one value each, or one for each of `keys`."""

    head: str  # in the terminal
    title: str | None = None  # in LaTeX and Markdown; None: the head
    keys: tuple[str, ...] | None = None  # in CSV, which names each value; None: the head
    group: str = ""  # of columns side by side that belong together, as those of one metric
    is_text: bool = False  # begins at the left; figures end at the right
    is_shown: bool = True  # False: in CSV alone


@dataclass(frozen=True)
class Cell:
    text: str
    values: tuple[CellValue, ...]
    is_bold: bool = False  # in LaTeX


@dataclass(frozen=True)
class ResultTable:
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]

    def shown(self) -> tuple[list[Column], list[list[Cell]]]:
        """The columns for people, with their cells."""
        kept = [i for i, column in enumerate(self.columns) if column.is_shown]
        return [self.columns[i] for i in kept], [[row[i] for i in kept] for row in self.rows]


def cell(value: CellValue, text: str | None = None) -> Cell:
    """A cell of one value, which is shown as `text`, or as it is."""
    return Cell(("" if value is None else str(value)) if text is None else text, (value,))


def print_tables(
    tables: Sequence[ResultTable], form: TableFormat, *, notes: Sequence[str], more: Sequence[str] = ()
) -> None:
    """The tables alone on standard output; what a reader must know beside them, `notes` and `more`, on standard error.

    The `notes`, as signatures, are also a comment below the tables where the format has comments. CSV has neither
    comments nor second tables: of several it has the first.
    """
    require_stdout("the table")
    written = {TableFormat.latex: _latex, TableFormat.markdown: _markdown, TableFormat.csv: _csv}[form](tables, notes)
    if sys.stderr is not None:
        sys.stderr.write("".join(f"{line}\n" for line in (*notes, *more)))
        sys.stderr.flush()
    sys.stdout.flush()
    if form is TableFormat.csv and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(newline="")  # its lines end in \r\n on every system
    sys.stdout.write(written)
    sys.stdout.flush()


def aligned_lines(table: ResultTable) -> list[str]:
    """Lines of aligned columns."""
    columns, rows = table.shown()
    texts = [[column.head for column in columns], *([one.text for one in row] for row in rows)]
    widths = [max(map(len, those)) for those in zip(*texts, strict=True)]
    return ["  ".join(_padded(columns, line, widths)).rstrip() for line in texts]


def _padded(columns: Sequence[Column], texts: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [
        text.ljust(width) if column.is_text else text.rjust(width)
        for column, text, width in zip(columns, texts, widths, strict=True)
    ]


# ---- CSV


def _csv(tables: Sequence[ResultTable], notes: Sequence[str]) -> str:
    """The first table. Numbers have all digits; what there is none of is empty."""
    first, written = tables[0], io.StringIO()
    writer = csv.writer(written)  # RFC 4180: lines end in \r\n, and quotes are doubled
    writer.writerow([f"{one.group} {key}".strip() for one in first.columns for key in one.keys or (one.head,)])
    writer.writerows([_csv_value(value) for one in row for value in one.values] for row in first.rows)
    return written.getvalue()


def _csv_value(value: CellValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else value if isinstance(value, str) else repr(value)


# ---- Markdown


def _markdown(tables: Sequence[ResultTable], notes: Sequence[str]) -> str:
    parts = ["".join(f"{line}\n" for line in _markdown_lines(table)) for table in tables]
    # Two hyphens would end the comment.
    comment = [f"<!-- {re.sub('-(?=-)', '- ', _one_line(note))} -->\n" for note in notes]
    return "\n".join([*parts, *(["".join(comment)] if comment else [])])


def _markdown_lines(table: ResultTable) -> list[str]:
    columns, rows = table.shown()
    heads = [f"{column.group} {_title(column)}".strip() for column in columns]
    lines = [[_markdown_text(text) for text in line] for line in (heads, *([one.text for one in row] for row in rows))]
    widths = [max(3, *map(len, those)) for those in zip(*lines, strict=True)]
    rule = [
        "-" * width if column.is_text else "-" * (width - 1) + ":"
        for column, width in zip(columns, widths, strict=True)
    ]
    head, *others = (_padded(columns, line, widths) for line in lines)
    return [f"| {' | '.join(line)} |" for line in (head, rule, *others)]


def _markdown_text(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>|~&])", r"\\\1", _one_line(text))


# ---- LaTeX

_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    '"': r"\symbol{34}",  # which babel gives another meaning in German
    "±": r"$\pm$",
    # Behind \\ and \midrule a star and a bracket would be read as their options.
    "*": "{*}",
    "[": "{[}",
}


def _latex(tables: Sequence[ResultTable], notes: Sequence[str]) -> str:
    parts = ["\n".join(_latex_lines(table)) + "\n" for table in tables]
    comment = "".join(f"% {_one_line(note)}\n" for note in notes)
    return "% needs \\usepackage{booktabs}\n" + "\n".join(parts) + comment


def _latex_lines(table: ResultTable) -> list[str]:
    columns, rows = table.shown()
    lines = [rf"\begin{{tabular}}{{{''.join('l' if column.is_text else 'r' for column in columns)}}}", r"\toprule"]
    lines += _latex_groups(columns)
    lines += [_latex_row(_latex_text(_title(column)) for column in columns), r"\midrule"]
    lines += [_latex_row(map(_latex_cell, row)) for row in rows]
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def _latex_groups(columns: Sequence[Column]) -> list[str]:
    """A row with the name of each group above its columns, and a rule below each name."""
    cells, rules, first = [], [], 1
    for group, members in groupby(columns, key=lambda column: column.group):
        n = len(list(members))
        cells += [rf"\multicolumn{{{n}}}{{c}}{{{_latex_text(group)}}}"] if group else [""] * n
        rules += [rf"\cmidrule(lr){{{first}-{first + n - 1}}}"] if group else []
        first += n
    return [_latex_row(cells), " ".join(rules)] if rules else []


def _latex_row(cells: Iterable[str]) -> str:
    return f"{' & '.join(cells)} \\\\"


def _latex_cell(one: Cell) -> str:
    number = re.fullmatch(r"[+-]?\d[\d,]*(\.\d+)?", one.text)
    if number and one.text[0] in "+-":  # in mathematics a hyphen is a minus
        return rf"$\mathbf{{{one.text}}}$" if one.is_bold else f"${one.text}$"
    text = _latex_text(one.text)
    return rf"\textbf{{{text}}}" if one.is_bold else text


def _latex_text(text: str) -> str:
    written = "".join(_LATEX.get(sign, sign) for sign in _one_line(text))
    return re.sub(r"([-,'])(?=\1)", r"\1{}", written)  # of two, a font makes a dash or a quotation mark


def _title(column: Column) -> str:
    return column.head if column.title is None else column.title


def _one_line(text: str) -> str:
    """The text without line breaks and other control characters, so that neither a row nor a comment ends within it."""
    return "".join(sign if sign.isprintable() else " " for sign in text)
