"""Plain text whose paragraphs are wrapped: the lines of a paragraph are one text, which is wrapped again.

Indentation, the marks of quotations and of lists, and all else that is no text stay.
"""

import re
from dataclasses import dataclass, replace
from functools import partial

from transformer_cli.addons.documents.inline_tags import add_lines
from transformer_cli.addons.documents.plain import LINE_END
from transformer_cli.addons.documents.units import Builder, Document, Parts, Piece, Unit
from transformer_cli.data.placeholders import spans_to_keep

_PREFIX = re.compile(r"\ufeff?+[ \t]*+(?:[>|][ \t]*+)*+")  # of each line of a quotation
_MARK = re.compile(r"(?:[-*+•–—]|\(?(?:\d{1,3}|[a-zA-Z])[.)]|\[[ xX]?\])[ \t]++")
_RULE = re.compile(r"[^\w\s]*+\s*+")
_COLUMNS = re.compile(r"\S(?:\t| {3,})\S")  # a table
_NARROWEST = 40  # characters in which a paragraph of few lines is wrapped


@dataclass(frozen=True)
class _Line:
    start: int  # of its text
    end: int
    prefix: str
    mark: str  # of a list

    @property
    def indent(self) -> int:
        return len(self.prefix) + len(self.mark)


def parse_wrapped(text: str) -> Document:
    builder = Builder(text)
    paragraph: list[_Line] = []
    newline, start = "\n", 0
    for end in builder.watched([*LINE_END.finditer(text), None]):
        stop, following = end.span() if end is not None else (len(text), len(text))
        if end is not None and not builder.units:
            newline = end[0]
        line = _line(text, start, stop)
        if paragraph and not _goes_on(text, paragraph, line):
            _add(builder, paragraph, newline)
            paragraph = []
        if line is not None:
            paragraph.append(line)
        start = following
    if paragraph:
        _add(builder, paragraph, newline)
    return builder.document()


def _line(text: str, start: int, stop: int) -> _Line | None:
    """The parts of a line; None if it has no text, and so is between paragraphs."""
    stop = start + len(text[start:stop].rstrip())
    prefix = _PREFIX.match(text, start, stop)
    assert prefix is not None
    mark = _MARK.match(text, prefix.end(), stop)
    first = prefix.end() if mark is None else mark.end()
    if first == stop or _RULE.fullmatch(text, first, stop):
        return None
    return _Line(first, stop, prefix[0], "" if mark is None else mark[0])


def _goes_on(text: str, paragraph: list[_Line], line: _Line | None) -> bool:
    """Whether a line is one more of a paragraph: it has no mark, and is indented as the others or as their text."""
    if line is None or line.mark:
        return False
    first, last = paragraph[0], paragraph[-1]
    if line.prefix.count(">") != first.prefix.count(">") or _COLUMNS.search(text, last.start, last.end):
        return False
    if _COLUMNS.search(text, line.start, line.end):
        return False
    if len(paragraph) > 1:
        return line.prefix == last.prefix
    # The first line may be indented, or hang out; that of a list has its mark before the text.
    return line.indent == first.indent if first.mark else abs(line.indent - first.indent) <= 8


def _add(builder: Builder, paragraph: list[_Line], newline: str) -> None:
    """Add a paragraph; one of a single line stays on one."""
    first, following = paragraph[0], paragraph[1:]
    n = len(builder.units)
    width = max(line.indent + line.end - line.start for line in paragraph)
    add_lines(builder, [(line.start, line.end) for line in paragraph], str)
    if following:
        write = partial(
            _wrapped, width=max(width, _NARROWEST), first=first.indent, prefix=newline + following[0].prefix
        )
        builder.units[n:] = [replace(unit, write=write) for unit in builder.units[n:]]


def _wrapped(unit: Unit, pieces: list[Piece], *, width: int, first: int, prefix: str) -> Parts:
    """The translation in lines of at most so many characters, each of which begins as the others do."""
    text = " ".join("".join(str(piece.content) for piece in pieces).split())
    lines: list[str] = []
    column, line = first, ""
    for word in _words(text):
        if line and column + len(line) + 1 + len(word) > width:
            lines.append(line)
            column, line = len(prefix.lstrip("\r\n")), ""
        line = f"{line} {word}" if line else word
    return (prefix.join([*lines, line]),)


def _words(text: str) -> list[str]:
    """The words between which a line may end: not within a placeholder, and not before what would be a mark."""
    kept = {i for start, end in spans_to_keep(text) for i in range(start, end)}
    padded = f"{text} "
    found: list[str] = []
    start = 0
    for match in re.finditer(" ", text):
        end = match.end()
        if match.start() not in kept and _MARK.match(padded, end) is None and text[end] not in ">|":
            found.append(text[start : match.start()])
            start = end
    return [*found, text[start:]]
