"""Tables with tabs as spreadsheets and Python's csv write them, with fields in quotes.

A field in quotes may hold quotes, which are doubled, tabs and ends of lines. Text that merely has quotes in it stays as
it is: which of the two a table is, all of it decides.
"""

import re
from collections import deque
from collections.abc import Iterator, Sequence

from transformer_cli.data.lines import Lines
from transformer_cli.errors import quoted

_FIELD = r'"[^"]*(?:""[^"]*)*"|[^"\t\n]*'
_ROW = re.compile(rf"(?:{_FIELD})(?:\t(?:{_FIELD}))*")
_FIELDS = re.compile(rf"(?:^|\t)({_FIELD})")
_SPECIAL = re.compile(r'["\t\n]')  # for the sake of which csv writes a field in quotes
_MOST = 0.9  # of what has quotes that must be as csv writes it: the rest is refused by its line, and not by silence
_MOST_LINES = 100  # of one row
_MANY = 10  # fields in quotes, from which commas say that a spreadsheet has written them
_ENOUGH = 100  # rows, after which a text with other quotes is given up


def unquoted(lines: Lines) -> Iterator[tuple[int, str]]:
    """Index and row of each row of a table in quotes, without them; a tab or an end of line in a field is a space.

    A row whose quotes do not fit is rejected.
    """
    for index, row in _rows(lines):
        fields = _fields(row)
        if fields is None:
            remedy = "Correct the line, or set data.quoted=false if the quotes are text"
            lines.reject(index, f"quotes that do not fit, in a table with fields in quotes: {quoted(row)}", remedy)
        else:
            yield index, "\t".join(" ".join(re.split(r"[\t\n]", _content(field))) for field in fields)


def is_quoted(lines: Lines, columns: Sequence[int]) -> bool:
    """Whether a table has its fields in quotes: all of these `columns`, or just those that have to be.

    A field of any column that has a tab decides it, too, where all rows are equally long by their quotes alone.
    """
    if not any('"' in line for line in lines.each()):
        return False
    n_marked = n_sound = 0  # rows with quotes, and those of them whose quotes fit
    n_bare = n_bare_commas = n_in_quotes = n_special = n_commas = 0  # fields, by what is in them
    widths, has_tabs = set[int](), False  # of the rows, and whether a field has one
    for index, row in _rows(lines):
        fields = _fields(row)
        if row.strip():
            widths.add(len(fields or ()))
        has_tabs |= fields is not None and row.count("\t") >= len(fields)
        if '"' in row:
            n_marked, n_sound = n_marked + 1, n_sound + (fields is not None)
        elif index == 0:
            continue  # perhaps a header, which has none
        if n_marked > _ENOUGH and n_sound < _MOST * n_marked:
            return False
        for field in (field for column, field in enumerate(fields or ()) if column in columns):
            if field.startswith('"'):
                is_special = bool(_SPECIAL.search(_content(field)))
                n_in_quotes, n_special = n_in_quotes + 1, n_special + is_special
                n_commas += is_special or "," in field
            elif field:
                n_bare, n_bare_commas = n_bare + 1, n_bare_commas + ("," in field)
    if has_tabs and len(widths) == 1 and max(widths) > 1:
        return True
    as_csv = n_in_quotes >= _MOST * (n_in_quotes + n_bare) or n_special >= _MOST * n_in_quotes
    as_spreadsheet = n_commas >= max(_MANY, _MOST * n_in_quotes) and not n_bare_commas
    return bool(n_in_quotes and n_sound >= _MOST * n_marked and (as_csv or as_spreadsheet))


def _rows(lines: Lines) -> Iterator[tuple[int, str]]:
    """Index of the first line, and text, of each row: several lines where a field in quotes has ends of lines."""
    numbered = lines.numbered()
    ahead: deque[tuple[int, str]] = deque()
    while (first := ahead.popleft() if ahead else next(numbered, None)) is not None:
        index, row = first
        if row.count('"') % 2:
            row = _continued(row, ahead, numbered)
        yield index, row


def _continued(row: str, ahead: deque[tuple[int, str]], numbered: Iterator[tuple[int, str]]) -> str:
    """A row with the lines that end its open quote, which leave `ahead`; as it is where none do."""
    parts = [row]
    for n in range(_MOST_LINES):
        if n == len(ahead):
            if (following := next(numbered, None)) is None:
                break
            ahead.append(following)
        parts.append(ahead[n][1])
        if parts[-1].count('"') % 2:
            whole = "\n".join(parts)
            if _ROW.fullmatch(whole) is None:
                break
            for _ in range(n + 1):
                ahead.popleft()
            return whole
    return row


def _fields(row: str) -> list[str] | None:
    """The fields of a row, with their quotes; None where the quotes do not fit."""
    if '"' not in row:
        return row.split("\t")
    return _FIELDS.findall(row) if _ROW.fullmatch(row) else None


def _content(field: str) -> str:
    return field[1:-1].replace('""', '"') if field.startswith('"') else field
