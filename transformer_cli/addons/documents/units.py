"""A document as literal text and units of translation, and the mark-up within a unit.

A unit is what is translated as one text: a paragraph, a heading, a table cell, an attribute, a subtitle. Everything
else of a document is literal and never changed.
"""

import re
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from html import unescape
from typing import TypeVar

from transformer_cli.addons.documents.joints import JOINT_WINDOW, Joint, JointTag, joint_between
from transformer_cli.data.normalization import has_letters

_T = TypeVar("_T")
Parts = tuple[str | int, ...]  # literal text, and indices of units
WHITE_SPACE = re.compile(r"\s+")
_LINE_END = re.compile(r"\r\n?|\n")
_ITEMS_BETWEEN_CALLS = 500  # of `on_unit`, in loops over parts of a unit
_ENTITY = re.compile(r"&(?:#\w{1,8}|\w{1,32});?")
LINE_BREAK = "br"  # the name of a tag that is one
_FIRST_LETTER = re.compile(r"[\W\d_]*[^\W\d_]")
_SENTENCE_ENDS = tuple(".!?:…。！？：")


@dataclass(frozen=True, slots=True)
class Tag:
    """Mark-up at a place in a unit's text.

    It is a pair's opening or closing tag if it has a `partner`, and otherwise stands alone, as an image does, or as a
    tag whose partner is in another unit.
    """

    offset: int  # of the character of Unit.text before which it stands
    parts: Parts
    partner: int | None = None  # index of the other tag of the pair
    space: str = ""  # white space behind it that the model is not shown, as there is some before it, too
    spans: bool = False  # continues into another unit: its order among others of its kind is kept
    needs_text: bool = False  # a pair that is no mark-up when it is empty, as ** of Markdown


@dataclass(frozen=True, slots=True)
class Protected:
    """Text of a unit that is not to be translated, as that of a code span."""

    start: int  # in Unit.text
    end: int
    raw: str  # as it is written in the document, with its mark-up
    begins_with_space: bool = False  # in `raw`: the document has no other before it
    ends_with_space: bool = False


class MarkupChangedError(ValueError):
    """A translation that cannot be written without losing mark-up, or adding some."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a translated unit: text that is not escaped yet, or mark-up."""

    content: str | int
    is_text: bool = False
    tag: int | None = None  # index of the tag that it belongs to


@dataclass(frozen=True, slots=True)
class Unit:
    """A text to translate: without mark-up, on one line, with single spaces, entities decoded."""

    text: str
    raw: Parts  # what the document has there, and keeps if the translation is equal to the text
    tags: tuple[Tag, ...] = ()  # in the order of the document; pairs are nested
    protected: tuple[Protected, ...] = ()
    escape: Callable[[str], str] = str  # writes text so that the format reads it as text
    n_lines: int = 1  # on which the translation is written
    joints: tuple[int, ...] = ()  # offsets of spaces that the document does not have
    write: "Callable[[Unit, Sequence[Piece]], Parts] | None" = None  # instead of `escape`, for a format with context


@dataclass(frozen=True)
class Document:
    parts: Parts
    units: tuple[Unit, ...]
    lines: tuple[int, ...] = ()  # of the source, on which the units begin, from 1; where a parser knows them


class UnreadableError(Exception):
    """A document that is not of the format that it is given as."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line


def accept_units(n_units: int) -> None:
    """Accepts any number of units: the default callback."""


# Called with the number of units found so far, by every parser; what it raises ends the parsing.
ON_UNIT: ContextVar[Callable[[int], object]] = ContextVar("on_unit", default=accept_units)

# The codes of the languages that a document is translated from and into, each empty if it is not known: for formats
# that hold texts in several languages, or name that of their translations. Set for the time of parsing.
LANGUAGES: ContextVar[tuple[str, str]] = ContextVar("languages", default=("", ""))


@dataclass
class Builder:
    """Collects the units of a document whose text is `source`, by their places in it."""

    source: str
    units: list[Unit] = field(default_factory=list)
    places: list[tuple[int, int, int]] = field(default_factory=list)  # start, end, unit; in order, none overlaps
    inner: list[tuple[int, int, int]] = field(default_factory=list)  # of units within the mark-up of others
    is_inner: bool = False  # whether the units that are added now are such, in any order
    on_unit: Callable[[int], object] = field(default_factory=ON_UNIT.get)

    def watched(self, items: Iterable[_T]) -> Iterator[_T]:
        """The items of a long loop, in which `on_unit` is called now and then, so that it can end it."""
        for n, item in enumerate(items, 1):
            if n % _ITEMS_BETWEEN_CALLS == 0:
                self.on_unit(len(self.units))
            yield item

    def parts(self, start: int, end: int) -> Parts:
        """A stretch of the source, with the inner units that it holds."""
        first = bisect_left(self.inner, (start, -1, -1))
        found: list[str | int] = []
        while first < len(self.inner) and self.inner[first][1] <= end:
            inner_start, inner_end, unit = self.inner[first]
            if inner_start >= start:  # and not within the one before it
                found += [self.source[start:inner_start], unit]
                start = inner_end
            first += 1
        return tuple(part for part in (*found, self.source[start:end]) if part != "")

    def add(self, start: int, end: int, unit: Unit) -> None:
        self.on_unit(len(self.units) + 1)
        place = (start, end, len(self.units))
        if self.is_inner:
            insort(self.inner, place)
        else:
            self.places.append(place)
        self.units.append(unit)

    def add_text(self, start: int, end: int, escape: Callable[[str], str]) -> None:
        """A unit of a stretch of XML without tags, unless there is nothing to translate in it."""
        raw = self.source[start:end]
        text = " ".join(unescape(raw).split())
        if has_letters(text):
            start, end = start + len(raw) - len(raw.lstrip()), end - len(raw) + len(raw.rstrip())
            self.add(start, end, Unit(text, (raw.strip(),), escape=escape))

    def add_inner(self, start: int, end: int, escape: Callable[[str], str], decode: Callable[[str], str]) -> None:
        """A unit within mark-up, as the text of an image, unless there is nothing to translate in it."""
        text = " ".join(decode(self.source[start:end]).split())
        if has_letters(text):
            self.on_unit(len(self.units) + 1)
            self.inner.append((start, end, len(self.units)))
            self.units.append(Unit(text, (self.source[start:end],), escape=escape))

    def document(self) -> Document:
        found: list[str | int] = []
        position = 0
        for start, end, unit in self.places:
            found += [*self.parts(position, start), unit]
            position = end
        return Document((*found, *self.parts(position, len(self.source))), tuple(self.units), self._lines())

    def _lines(self) -> tuple[int, ...]:
        ends = [match.start() for match in _LINE_END.finditer(self.source)]
        starts = sorted((unit, start) for start, _, unit in (*self.places, *self.inner))
        return tuple(bisect_left(ends, start) + 1 for _, start in starts)


@dataclass(slots=True)
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


def add_run(
    builder: Builder,
    items: Sequence[Item],
    escape: Callable[[str], str] = str,
    *,
    n_lines: int = 1,
    has_joints: bool = True,
) -> None:
    """Make a unit of each text of a run, from its first to its last letter, with the tags that are within.

    Without `has_joints`, words end at white space and line breaks alone, whatever other tags are between them.
    """
    items = _merged(items)
    joints = _joints(builder, items) if has_joints else _spaces_at_breaks(items)
    position = 0
    for cut in [*(_cuts(items, joints) if n_lines == 1 else ()), len(items)]:
        _add_text(builder, items[position:cut], joints, position, escape, n_lines)
        position = cut


def _merged(items: Sequence[Item]) -> list[Item]:
    """The items, with one for those beside each other that are not to be translated."""
    groups: list[list[Item]] = []
    for item in items:
        last = groups[-1][-1] if groups else None
        if last is not None and item.is_protected and last.is_protected and last.end == item.start:
            groups[-1].append(item)
        else:
            groups.append([item])
    return [
        replace(one[0], end=one[-1].end, text="".join(item.text for item in one)) if len(one) > 1 else one[0]
        for one in groups
    ]


def _joints(builder: Builder, items: Sequence[Item]) -> dict[int, Joint]:
    """The joints of a run, each by the item that follows its tags."""
    found: dict[int, Joint] = {}
    before, last = "", -1
    for i, item in enumerate(builder.watched(items)):
        if item.is_tag or not item.text:
            continue
        tags = [
            JointTag(tag.name.lstrip("<").rstrip("0123456789"), tag.opens, tag.closes) for tag in items[last + 1 : i]
        ]
        if tags and before:
            tags = [*_ends_of_code(items[last], closes=True), *tags, *_ends_of_code(item, closes=False)]
        joint = joint_between(before, item.text, tags)
        if joint is not Joint.none:
            found[i] = joint
        before, last = ("" if joint is Joint.split else before[-JOINT_WINDOW:]) + item.text, i
    return found


def _spaces_at_breaks(items: Sequence[Item]) -> dict[int, Joint]:
    """A space at each line break between words, by the item that follows it."""
    found: dict[int, Joint] = {}
    before, has_break = " ", False
    for i, item in enumerate(items):
        if item.is_tag or not item.text:
            has_break = has_break or item.name == LINE_BREAK
            continue
        if has_break and not (before[-1].isspace() or item.text[0].isspace()):
            found[i] = Joint.space
        before, has_break = item.text, False
    return found


def sentence_goes_on(before: str, after: str) -> bool:
    """Whether a sentence goes on after a line break: in lower case, and none ended before it."""
    letter = _FIRST_LETTER.match(after)
    return letter is not None and letter[0][-1].islower() and not before.rstrip().endswith(_SENTENCE_ENDS)


def _ends_of_code(item: Item, *, closes: bool) -> list[JointTag]:
    """A tag for the end or the beginning of protected text; if it has several words, it is no part of a word."""
    name = "`" if len(item.text.split()) < 2 else "code"
    return [JointTag(name, opens=not closes, closes=closes)] if item.is_protected else []


def _cuts(items: Sequence[Item], joints: dict[int, Joint]) -> list[int]:
    """Items with which another text begins; no pair of tags is cut, and a tag that has no other place is in between."""
    if Joint.split not in joints.values():
        return []
    partners = match_pairs(items)
    texts = [i for i, item in enumerate(items) if not item.is_tag and item.text]
    previous = dict(zip(texts[1:], texts, strict=False))
    # Of each joint, how many pairs are around both texts, and the innermost of them.
    around: dict[int, tuple[int, tuple[int, int] | None]] = {}
    stack: list[tuple[int, int]] = []
    for i in range(len(items)):
        partner = partners.get(i)
        if partner is not None and partner > i:
            stack.append((i, partner))
        elif partner is not None:
            stack.pop()
        if joints.get(i) is Joint.split:
            depth = len(stack)
            while depth and stack[depth - 1][0] > previous[i]:
                depth -= 1
            around[i] = depth, stack[depth - 1] if depth else None
    allowed: set[int] = set()

    def is_free(place: int) -> bool:
        """Whether a text begins or ends at a tag."""
        following = bisect_left(texts, place)
        return following in (0, len(texts)) or texts[following] in allowed

    def is_allowed(i: int) -> bool:
        pair = around[i][1]
        if pair is not None and not (is_free(pair[0]) and is_free(pair[1])):
            return False
        between = range(previous[i] + 1, i)
        stays = [tag for tag in between if tag not in partners or is_free(partners[tag])]
        # A tag within an element that ends between the texts moves with the first, and one within an element that
        # begins there moves with the second.
        ends = [tag for tag in between if tag not in stays and partners[tag] <= previous[i]]
        begins = [tag for tag in between if tag not in stays and partners[tag] > i]
        return any(max(ends, default=-1) < tag < min(begins, default=i) for tag in stays)

    # A joint may depend on others on both sides of it.
    for direction in (1, -1, 1, -1):
        for i in sorted(around, key=lambda i: (around[i][0], direction * i)):
            if i not in allowed and is_allowed(i):
                allowed.add(i)
    return [_cut(previous[i], i, partners) for i in sorted(allowed)]


def _cut(last: int, following: int, partners: dict[int, int]) -> int:
    """The first item after the closing tags of the elements that end between two texts."""
    closing = [i for i in range(last + 1, following) if partners.get(i, following) <= last]
    return closing[-1] + 1 if closing else last + 1


def _add_text(
    builder: Builder,
    items: Sequence[Item],
    joints: dict[int, Joint],
    number: int,
    escape: Callable[[str], str],
    n_lines: int,
) -> None:
    """Make a unit of items, from the first to the last with text, and the tags that have their partners within.

    `number` is that of the first item in the run that has the joints.
    """
    shown = [i for i, item in enumerate(items) if item.has_text]
    if not shown or not has_letters("".join(item.text for item in items if not item.is_tag and not item.is_protected)):
        return
    partners = match_pairs(items)
    first, last = shown[0], shown[-1]
    # What stands before or after all text stays there, unless its partner is in between or has other mark-up now.
    inside = [i for i, partner in partners.items() if first < partner < last or items[partner].markup is not None]
    inside += [i for i in partners if items[i].markup is not None]
    first, last = min([first, *inside]), max([last, *inside])
    run = _trimmed(builder.source, list(items[first : last + 1]))
    start, end = run[0].start, run[-1].end
    text = ""
    tags: list[tuple[int, Tag]] = []
    protected: list[Protected] = []
    spaces: list[int] = []
    following = _following(run)
    for i, item in enumerate(builder.watched(run), first):
        if text and number + i in joints:
            spaces.append(_space_at(tags, run, first, len(text)))
            text += " "
        if item.is_tag:
            parts = builder.parts(item.start, item.end) if item.markup is None else (item.markup,)
            partner = partners.get(i)
            spans = partner is None and (item.opens != item.closes)
            tags.append((i, Tag(len(text), parts, partner, spans=spans, needs_text=item.needs_text)))
        elif item.is_protected:
            new = " ".join(item.text.split())
            raw = builder.source[item.start : item.end]
            begins = item.text[:1].isspace() and text != "" and not text.endswith(" ")
            ends = item.text[-1:].isspace() and not following[i - first].isspace()
            if begins:
                _space_at(tags, run, first, len(text))
                text += " "
            protected.append(Protected(len(text), len(text) + len(new), raw, begins, ends))
            text += new + " " * ends
        else:
            new = WHITE_SPACE.sub(" ", item.text)
            if new.startswith(" ") and (text == "" or text.endswith(" ")):
                # White space on both sides of a tag is one space for the model, and the other one belongs to the tag.
                if tags:
                    i_tag, tag = tags[-1]
                    tags[-1] = (i_tag, replace(tag, space=" "))
                new = new[1:]
            text += new
    places = {i: n for n, (i, _) in enumerate(tags)}
    final = tuple(tag if tag.partner is None else replace(tag, partner=places.get(tag.partner)) for _, tag in tags)
    unit = Unit(text, builder.parts(start, end), final, tuple(protected), escape, n_lines, tuple(spaces))
    builder.add(start, end, unit)


def _following(run: Sequence[Item]) -> list[str]:
    """The first character of text after each item; a space after the last."""
    found = [" "]
    for item in reversed(run[1:]):
        found.append(found[-1] if item.is_tag or not item.text else item.text[0])
    return found[::-1]


def _space_at(tags: list[tuple[int, Tag]], run: Sequence[Item], first: int, place: int) -> int:
    """The index of the space of a joint: after closing tags and before opening tags, which are moved behind it."""
    n = len(tags)
    while n and tags[n - 1][1].offset == place and run[tags[n - 1][0] - first].opens:
        n -= 1
        i, tag = tags[n]
        tags[n] = i, replace(tag, offset=place + 1)
    return place


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


def _trimmed(source: str, run: list[Item]) -> list[Item]:
    """The items without white space before the first text and after the last, which stays in the document."""
    first = run[0]
    if not first.is_tag and not first.is_protected:
        text = first.text.lstrip()
        run[0] = Item(_skip(source, first.start, first.end, len(first.text) - len(text)), first.end, text)
    last = run[-1]
    if not last.is_tag and not last.is_protected:
        text = last.text.rstrip()
        run[-1] = Item(last.start, _skip_back(source, last.start, last.end, len(last.text) - len(text)), text)
    return run


def _skip(source: str, start: int, end: int, n: int) -> int:
    """The place after `n` characters of white space, which may be written as entities."""
    while n > 0 and start < end:
        entity = None if source[start].isspace() else _ENTITY.match(source, start, end)
        n -= 1 if entity is None else len(unescape(entity[0]))
        start = start + 1 if entity is None else entity.end()
    return start


def _skip_back(source: str, start: int, end: int, n: int) -> int:
    while n > 0 and start < end:
        at = -1 if source[end - 1].isspace() else source.rfind("&", start, end)
        n -= 1 if at < 0 else len(unescape(source[at:end]))
        end = end - 1 if at < 0 else at
    return end
