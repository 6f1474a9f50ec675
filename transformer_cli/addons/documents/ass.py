"""Subtitles of SubStation Alpha (.ass, .ssa): what one speaker says in a Dialogue is one text."""

import re

from transformer_cli.addons.documents.subtitles import add_cue
from transformer_cli.addons.documents.units import Builder, Document, Item

_LINE = re.compile(r"[^\r\n]+")
_SECTION = re.compile(r"\ufeff?\s*\[[^\[\]]*\]\s*")
_FORMAT = re.compile(r"\s*Format\s*:(.*)", re.IGNORECASE)
_DIALOGUE = re.compile(r"\s*Dialogue\s*:", re.IGNORECASE)
_EVENTS = "[events]"
_N_FIELDS = 10  # where no line says it; the text is the last
_BREAK = re.compile(r"\\[Nn]")
# Overrides and comments. From \p1 on there is a drawing, up to \p0.
_PART = re.compile(r"\{(?=[^{}]*\\p[1-9])[^{}]*\}(?:(?!\{[^{}]*\\p0)[\s\S])*+(?:\{[^{}]*\})?|\{[^{}]*\}|\\h")


def parse_ass(text: str) -> Document:
    builder = Builder(text)
    in_events, n_fields = False, _N_FIELDS
    for match in builder.watched(list(_LINE.finditer(text))):
        line = match[0]
        if _SECTION.fullmatch(line):
            in_events = line.strip("\ufeff \t").lower() == _EVENTS
        elif in_events and (fields := _FORMAT.match(line)):
            n_fields = fields[1].count(",") + 1
        elif in_events and _DIALOGUE.match(line):
            before = line.split(",", n_fields - 1)[:-1]
            if len(before) == n_fields - 1:
                start = match.start() + sum(len(one) + 1 for one in before)
                _add_text(builder, start, match.end())
    return builder.document()


def _add_text(builder: Builder, start: int, end: int) -> None:
    """Add the texts of a Dialogue, whose lines are between `\\N`; within a drawing there is none."""
    lines: list[tuple[int, int]] = []
    position = start
    for match in _BREAK.finditer(builder.source, start, end):
        lines.append((position, match.start()))
        position = match.end()
    lines.append((position, end))
    cue = [(first, last) for first, last in lines if builder.source[first:last].strip()]
    add_cue(builder, cue, r"\N", _items)


def _items(source: str, start: int, end: int) -> list[Item]:
    found: list[Item] = []
    position = start
    for match in _PART.finditer(source, start, end):
        if position < match.start():
            found.append(Item(position, match.start(), source[position : match.start()]))
        # A name that says nothing of words, as syllables of karaoke have such tags between them.
        is_space = match[0] == r"\h"
        found.append(Item(*match.span(), " " if is_space else "", name="!--" * (not is_space), is_tag=not is_space))
        position = match.end()
    if position < end:
        found.append(Item(position, end, source[position:end]))
    return found
