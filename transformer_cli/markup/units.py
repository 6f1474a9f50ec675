"""A document as literal text and units of translation, and the mark-up within a unit.

A unit is what is translated as one text: a paragraph, a heading, a table cell, an attribute, a subtitle. Everything
else of a document is literal and never changed.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Parts = tuple[str | int, ...]  # literal text, and indices of units
SPACE = re.compile(r"\s+")
_NBSP = ("&nbsp;", "&#160;", "&#xA0;", "&#xa0;")
_LETTER = re.compile(r"[^\W\d_]")


@dataclass(frozen=True)
class Tag:
    """Mark-up at a place in a unit's text.

    It is a pair's opening or closing tag if it has a `partner`, and otherwise stands alone, as an image does, or as a
    tag whose partner is in another unit.
    """

    offset: int  # of the character of Unit.text before which it stands
    parts: Parts
    partner: int | None = None  # index of the other tag of the pair
    spans: bool = False  # continues into another unit: its order among others of its kind is kept
    needs_text: bool = False  # a pair that is no mark-up when it is empty, as ** of Markdown


@dataclass(frozen=True)
class Protected:
    """Text of a unit that is not to be translated, as that of a code span."""

    start: int  # in Unit.text
    end: int
    raw: str  # as it is written in the document, with its mark-up


@dataclass(frozen=True)
class Unit:
    """A text to translate: without mark-up, on one line, with single spaces, entities decoded."""

    text: str
    raw: Parts  # what the document has there, and keeps if the translation is equal to the text
    tags: tuple[Tag, ...] = ()  # in the order of the document; pairs are nested
    protected: tuple[Protected, ...] = ()
    escape: Callable[[str], str] = str  # writes text so that the format reads it as text
    n_lines: int = 1  # on which the translation is written


@dataclass(frozen=True)
class Document:
    parts: Parts
    units: tuple[Unit, ...]


def has_letters(text: str) -> bool:
    """Whether there is anything to translate."""
    return _LETTER.search(text) is not None


@dataclass
class Builder:
    """Collects the units of a document whose text is `source`, by their places in it."""

    source: str
    units: list[Unit] = field(default_factory=list)
    places: list[tuple[int, int, int]] = field(default_factory=list)  # start, end, unit; in order, none overlaps
    inner: list[tuple[int, int, int]] = field(default_factory=list)  # of units within the mark-up of others

    def parts(self, start: int, end: int) -> Parts:
        """A stretch of the source, with the inner units that it holds."""
        first = bisect_left(self.inner, (start, -1, -1))
        found: list[str | int] = []
        while first < len(self.inner) and self.inner[first][1] <= end:
            inner_start, inner_end, unit = self.inner[first]
            found += [self.source[start:inner_start], unit]
            start, first = inner_end, first + 1
        return tuple(part for part in (*found, self.source[start:end]) if part != "")

    def add(self, start: int, end: int, unit: Unit) -> None:
        self.places.append((start, end, len(self.units)))
        self.units.append(unit)

    def add_inner(self, start: int, end: int, escape: Callable[[str], str], decode: Callable[[str], str]) -> None:
        """A unit within mark-up, as the text of an image, unless there is nothing to translate in it."""
        text = " ".join(decode(self.source[start:end]).split())
        if has_letters(text):
            self.inner.append((start, end, len(self.units)))
            self.units.append(Unit(text, (self.source[start:end],), escape=escape))

    def document(self) -> Document:
        found: list[str | int] = []
        position = 0
        for start, end, unit in self.places:
            found += [*self.parts(position, start), unit]
            position = end
        return Document((*found, *self.parts(position, len(self.source))), tuple(self.units))


@dataclass
class Item:
    """A piece of a run of text and inline mark-up: text, a tag, or something that is not to be translated."""

    start: int  # in the source
    end: int
    text: str = ""  # decoded
    name: str = ""  # of a tag with a partner
    is_tag: bool = False
    opens: bool = False
    closes: bool = False
    is_protected: bool = False
    needs_text: bool = False
    markup: str | None = None  # of a tag whose mark-up is not as it is in the source

    @property
    def has_text(self) -> bool:
        return not self.is_tag and self.text.strip() != ""


def add_run(builder: Builder, items: Sequence[Item], escape: Callable[[str], str], *, n_lines: int = 1) -> None:
    """Make a unit of a run, from its first to its last text, with the tags that have their partners within."""
    shown = [i for i, item in enumerate(items) if item.has_text]
    if not shown or not has_letters("".join(item.text for item in items if not item.is_tag and not item.is_protected)):
        return
    partners = match_pairs(items)
    first, last = shown[0], shown[-1]
    # What stands before or after all text stays there, unless its partner is in between.
    inside = [i for i, partner in partners.items() if first < partner < last]
    first, last = min([first, *inside]), max([last, *inside])
    run = _trimmed(builder.source, list(items[first : last + 1]))
    start, end = run[0].start, run[-1].end
    text, tags, protected = "", [], []
    for i, item in enumerate(run, first):
        if item.is_tag:
            parts = builder.parts(item.start, item.end) if item.markup is None else (item.markup,)
            partner = partners.get(i)
            spans = partner is None and (item.opens != item.closes)
            tags.append((i, Tag(len(text), parts, partner, spans, item.needs_text)))
        elif item.is_protected:
            new = " ".join(item.text.split())
            raw = builder.source[item.start : item.end]
            protected.append(Protected(len(text), len(text) + len(new), raw))
            text += new
        else:
            new = SPACE.sub(" ", item.text)
            if new.startswith(" ") and (text == "" or text.endswith(" ")):
                # White space on both sides of a tag is one space for the model, and the other one belongs to the tag.
                if tags:
                    i_tag, tag = tags[-1]
                    tags[-1] = (i_tag, _with_space(tag, " "))
                new = new[1:]
            text += new
    number = {i: n for n, (i, _) in enumerate(tags)}
    final = tuple(
        Tag(
            tag.offset,
            tag.parts,
            None if tag.partner is None else number.get(tag.partner),
            tag.spans,
            tag.needs_text,
        )
        for _, tag in tags
    )
    unit = Unit(text, builder.parts(start, end), final, tuple(protected), escape, n_lines)
    builder.add(start, end, unit)


def match_pairs(items: Sequence[Item]) -> dict[int, int]:
    """The partner of each tag that has one; pairs are nested, and tags that cannot be are left alone."""
    partners: dict[int, int] = {}
    stack: list[int] = []
    open_by_name: dict[str, list[int]] = {}  # places in the stack
    for i, item in enumerate(items):
        if item.opens and not item.closes:
            open_by_name.setdefault(item.name, []).append(len(stack))
            stack.append(i)
        elif item.closes and not item.opens and open_by_name.get(item.name):
            place = open_by_name[item.name][-1]
            while len(stack) > place:
                last = stack.pop()
                open_by_name[items[last].name].pop()
            partners[i], partners[last] = last, i
    return partners


def _with_space(tag: Tag, space: str) -> Tag:
    return Tag(tag.offset, (*tag.parts, space), tag.partner, tag.spans, tag.needs_text)


def _trimmed(source: str, run: list[Item]) -> list[Item]:
    """Without white space before its first text and after its last, which stay as they are in the document."""
    first, last = run[0], run[-1]
    if not first.is_tag and not first.is_protected:
        run[0] = first = Item(_skip_space(source, first.start, first.end), first.end, first.text.lstrip())
    last = run[-1]
    if not last.is_tag and not last.is_protected:
        run[-1] = Item(last.start, _skip_space_back(source, last.start, last.end), last.text.rstrip())
    return run


def _skip_space(source: str, start: int, end: int) -> int:
    while start < end:
        if source[start].isspace():
            start += 1
        elif source.startswith(_NBSP, start):
            start += next(len(one) for one in _NBSP if source.startswith(one, start))
        else:
            break
    return start


def _skip_space_back(source: str, start: int, end: int) -> int:
    while start < end:
        if source[end - 1].isspace():
            end -= 1
        elif source.endswith(_NBSP, start, end):
            end -= next(len(one) for one in _NBSP if source.endswith(one, start, end))
        else:
            break
    return end
