"""Markdown: CommonMark with tables, footnotes, task lists, admonitions, containers, formulas and front matter.

Code, link targets, HTML tags and the marks of blocks are kept. A translated paragraph is on one line.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from transformer_cli.addons.documents.html import add_attributes, add_html
from transformer_cli.addons.documents.markdown_blocks import ON_PLACE, Block, BlockKind, line_spans, markdown_blocks
from transformer_cli.addons.documents.markdown_inlines import BREAK, markdown_inlines
from transformer_cli.addons.documents.markdown_templates import (
    mask_tags,
    without_final_attributes,
    without_first_attributes,
)
from transformer_cli.addons.documents.markdown_writing import Writer, write_alt
from transformer_cli.addons.documents.tags import Token as Tag
from transformer_cli.addons.documents.units import Builder, Document, Item, Unit, add_run
from transformer_cli.data.normalization import has_letters

_CELL_END = re.compile(r"\\.|`++|\|")
_ALERT = re.compile(r"\[![\w-]+\][+-]?(?:[ \t]+|$)")
_MOST_CHECKED = 20  # texts of a paragraph, each of which is checked within the paragraph; of more, each is alone
_Stretch = tuple[str, int]  # a part of a text, and where it is in the document


def parse_markdown(text: str) -> Document:
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self.builder = Builder(text)
        self.env: dict[str, Any] = {ON_PLACE: self.builder.on_unit}  # and the link definitions
        self.alts: dict[int, str] = {}  # by unit: what stands for the text of an image when a translation is checked

    def parse(self) -> Document:
        text = self.builder.source.replace("\x00", "\ufffd")
        masked = mask_tags(text, keep_lines=True).text
        lines = line_spans(text)
        for block in markdown_blocks(masked, self.env):
            spans = list(_spans(masked, lines, block))
            stretches = [(text[start:end], start) for start, end in spans]
            if block.kind is BlockKind.html:
                self._html(stretches)
            elif block.kind is BlockKind.row:
                for start, end in _cells(masked, *spans[0]):
                    self._text(_without_escapes(text, start, end), block)
            else:
                self._paragraph(stretches, block)
        return self.builder.document()

    def _html(self, stretches: Sequence[_Stretch]) -> None:
        """Add HTML; the marks of a quote before its lines are read as spaces."""
        first = position = stretches[0][1]
        parts = []
        for content, start in stretches:
            parts += ["\n" * (start > position), " " * (start - position - 1), content]
            position = start + len(content)
        add_html(self.builder, first, position, "".join(parts))

    def _paragraph(self, lines: Sequence[_Stretch], block: Block) -> None:
        content, start = lines[0]
        if block.is_quoted and (alert := _ALERT.match(content)):
            self._text([(content[alert.end() :], start + alert.end())], block)
            lines = lines[1:]
        lines = _without_attributes(lines)
        self._text(
            [(("\n" if i else "") + content, start - (i > 0)) for i, (content, start) in enumerate(lines)], block
        )

    def _text(self, stretches: Sequence[_Stretch], block: Block) -> None:
        """Add what is in a text, parts of which are somewhere in the document."""
        text = "".join(content for content, _ in stretches)
        starts, shifts, position = [], [], 0
        for content, start in stretches:
            is_line = content.startswith("\n")
            starts.append(position + is_line)
            shifts.append(start - position)
            position += len(content)

        def place(offset: int) -> int:
            return offset + shifts[bisect_right(starts, offset) - 1]

        found = markdown_inlines(text, self.env)
        for inner in found.inner:
            start, end = place(inner.start), place(inner.end)
            if isinstance(inner, Tag):
                self._attributes(replace(inner, start=start, end=end))
            elif has_letters(inner.text):
                self._alt(start, end, inner.text, inner.suffix, block.kind)
        has_links = any(item.is_tag and item.name.startswith(("[", "^")) for item in found.items)
        runs: list[list[Item]] = [[]]
        for item in found.items:
            item.start, item.end = place(item.start), place(item.end)
            if item.is_tag and item.name == BREAK:
                runs.append([])
            else:
                runs[-1].append(item)
        for i, run in enumerate(runs):
            self._run(run, block, has_links=has_links, follows_break=i > 0, is_part=len(runs) > 1)

    def _run(self, run: Sequence[Item], block: Block, *, has_links: bool, follows_break: bool, is_part: bool) -> None:
        builder = self.builder
        first = len(builder.places)
        add_run(builder, run)
        places = builder.places[first:]
        for start, end, number in places:
            writer = Writer(block, self.env, self.alts, has_links=has_links, is_part=is_part or len(places) > 1)
            if len(places) <= _MOST_CHECKED:
                writer.surround(builder.source, run, start, end, follows_break=follows_break)
            builder.units[number] = replace(builder.units[number], write=writer)

    def _attributes(self, tag: Tag) -> None:
        builder = self.builder
        first = len(builder.units)
        add_attributes(builder, tag)
        for number, unit in enumerate(builder.units[first:], first):
            builder.units[number] = replace(unit, escape=partial(_escape_attribute, unit.escape))

    def _alt(self, start: int, end: int, text: str, suffix: str, kind: BlockKind) -> None:
        builder = self.builder
        self.alts[len(builder.units)] = f"x{suffix}"
        builder.inner.append((start, end, len(builder.units)))
        write = partial(write_alt, suffix=suffix, kind=kind)
        builder.units.append(Unit(text, (builder.source[start:end],), write=write))


def _escape_attribute(escape: Callable[[str], str], text: str) -> str:
    """Escapes text as in HTML, but for the marks of a table and of code, which Markdown finds within tags, too."""
    return escape(text).replace("|", "&#124;").replace("`", "&#96;")


def _without_attributes(lines: Sequence[_Stretch]) -> list[_Stretch]:
    """The lines of a block without the attribute lists of the block as a whole, which stay where they are."""
    found = list(lines)
    if found:
        content, start = found[0]
        shown = without_first_attributes(content)
        found[0] = shown, start + len(content) - len(shown)
        content, start = found[-1]
        found[-1] = without_final_attributes(content), start
    return found


def _spans(text: str, lines: Sequence[tuple[int, int]], block: Block) -> Iterator[tuple[int, int]]:
    """The lines of a block, without the white space before them."""
    contents = block.content.removesuffix("\n").split("\n")
    for content, (start, end) in zip(contents, lines[block.first : block.first + len(contents)], strict=True):
        shown = content.lstrip(" \t")
        at = text.rfind(shown, start, end)
        assert at >= 0, "a line of a block is the end of a line of the document"
        yield at, at + len(shown)


def _cells(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The cells of a row; a | in code or after a backslash divides none."""
    ticks: dict[int, list[int]] = {}  # where the runs of backticks are, by their length
    for run in re.compile("`+").finditer(text, start, end):
        ticks.setdefault(len(run[0]), []).append(run.start())
    position = start
    while match := _CELL_END.search(text, position, end):
        position = match.end()
        if match[0] == "|":
            yield start, match.start()
            start = position
        elif match[0][0] == "`":
            places = ticks[len(match[0])]
            at = bisect_right(places, match.start())
            position = places[at] + len(match[0]) if at < len(places) else position
    yield start, end


def _without_escapes(text: str, start: int, end: int) -> list[_Stretch]:
    """A cell in parts, between the backslashes that keep a | from dividing it."""
    found: list[_Stretch] = []
    while (at := text.find("\\|", start, end)) >= 0:
        found += [(text[start:at], start), ("|", at)]
        start = at + 2
    return [*found, (text[start:end], start)]
