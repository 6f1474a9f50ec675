"""Texts of formats without mark-up of their own, in which tags such as <i> are kept: messages and subtitles."""

import re
from collections.abc import Callable

from transformer_cli.addons.documents.units import Builder, Item, add_run

INLINE_TAG = re.compile(
    r"<(?:\d{1,4}:)?\d\d:\d\d\.\d{3}>|</?[a-zA-Z][^<>\n]{0,200}>|\{\\[^{}\n]{0,200}\}|&(?:#?\w{1,32});"
    r"|(?<=[\[(])[♪♫♩♬]+\s*|(?<!\s)\s*+[♪♫♩♬]+(?=[\])])|[♪♫♩♬]+"  # notes of music, which are no words
)
InlineItems = Callable[[str, int, int], list[Item]]  # of a stretch of a text
_NAME = re.compile(r"</?([a-zA-Z][\w:.-]*)")


def add_lines(
    builder: Builder,
    lines: list[tuple[int, int]],
    escape: Callable[[str], str],
    inline: InlineItems | None = None,
) -> None:
    """Add the text of some lines of the builder's source, as one unit that is written on as many lines as have text.

    `inline` finds the items of a line; unset, these are its tags and text.
    """
    items: list[Item] = []
    n_lines = 0
    for n, (start, end) in enumerate(builder.watched(lines)):
        if n:
            items.append(Item(lines[n - 1][1], start, " "))
        of_line = (inline or _items)(builder.source, start, end)
        n_lines += any(item.has_text for item in of_line)
        items += of_line
    add_run(builder, items, escape, n_lines=n_lines)


def _items(source: str, start: int, end: int) -> list[Item]:
    found: list[Item] = []
    position = start
    for match in INLINE_TAG.finditer(source, start, end):
        found += _text(source, position, match.start())
        found.append(tag_item(match))
        position = match.end()
    return found + _text(source, position, end)


def _text(source: str, start: int, end: int) -> list[Item]:
    return [Item(start, end, source[start:end])] if start < end else []


def tag_item(match: re.Match[str]) -> Item:
    """A tag, or an entity, which is kept."""
    start, end = match.span()
    if match[0][0] == "&":
        return Item(start, end, match[0], is_protected=True)
    name = _NAME.match(match[0])
    if name is None or match[0].endswith("/>"):
        return Item(start, end, is_tag=True)
    closes = match[0].startswith("</")
    return Item(start, end, name=name[1].lower(), is_tag=True, opens=not closes, closes=closes)
