"""Translated texts as Markdown: escaped so that they are text, and checked by reading them again.

Whether `**` is mark-up depends on the characters beside it, and those are others in a translation. A text in which
mark-up would be lost or added is written with tags of HTML instead, which are mark-up anywhere.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from transformer_cli.addons.documents.markdown_blocks import Block, BlockKind, is_one_paragraph
from transformer_cli.addons.documents.markdown_inlines import markdown_inlines
from transformer_cli.addons.documents.units import Item, MarkupChangedError, Parts, Piece, Unit

# What would be read as mark-up. `_` is none within a word, nor is `*` between spaces.
_TO_ESCAPE = re.compile(
    r"\\(?=[!-/:-@\[-`{-~]|$)|`|\[|\*(?!\s)|(?<=\S)\*|(?<!\w)_|_(?!\w)|<(?=[a-zA-Z/!?])|&(?=#?\w+;)"
    r"|~(?=~|\S[^~]*~)|\$(?=[^\s$][^$]*(?<!\s)\$(?!\w)|\$)"
)
_FIRST = re.compile(r"(?:(>|[#+=-](?=[#+=-]*(?:\s|$))|:(?=:|\s)|!(?=!!)|\?(?=\?\?)|\$(?=\$))|([0-9]+)([.)])(?=\s|$))")
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_FINAL_HASHES = re.compile(r"(?:^|(?<=\s))#(?=#*$)")
# Before a mark in another part of a block, of which it would be the partner.
_ACTIVE = re.compile(r"\\.|[*_]")
_WITHOUT_PARTNER = {"*": "\\*", "_": "\\_", "\\`": "&#96;"}
_LINE_END = re.compile(r"\r\n?|\n")
_QUOTED_LINE_END = re.compile(r"(?:\r\n?|\n)(?:[ \t]*> ?)*")
_HARD_BREAK = re.compile(r"(?:\\| {2,})(?:\r\n?|\n)")
_NAMES = {"*": "em", "_": "em", "**": "strong", "__": "strong", "~": "s", "~~": "s"}
_TAGS = {f"<{slash}{name}>": (name, kind) for name in _NAMES.values() for slash, kind in (("", 1), ("/", -1))}
_Mark = tuple[str, int | None]  # as it is written, and 1 of the first of a pair, -1 of its last, 0 alone, None of text


def escape_markdown(text: str) -> str:
    return _TO_ESCAPE.sub(lambda match: "\\" + match[0], text)


def _escape_all(text: str) -> str:
    return _PUNCTUATION.sub(lambda match: "\\" + match[0], text)


def write_alt(unit: Unit, pieces: Sequence[Piece], *, suffix: str, kind: BlockKind) -> Parts:
    """The text of an image; `suffix` names its definition if the text was the name."""
    text = escape_markdown("".join(str(piece.content) for piece in pieces)).replace("]", "\\]")
    return ((text.replace("|", "\\|") if kind is BlockKind.row else text) + suffix,)


@dataclass(eq=False)
class Writer:
    """Writes the translation of a unit. Raises MarkupChangedError where no way to write it keeps its mark-up."""

    block: Block
    env: dict[str, Any]  # with the link definitions
    alts: dict[int, str]  # what stands for an image's text here
    has_links: bool
    is_part: bool  # of a block with other units
    before: str = ""  # what stays as it is in the same line
    after: str = ""
    marks_before: "list[_Mark]" = field(default_factory=list)
    marks_after: "list[_Mark]" = field(default_factory=list)

    def surround(self, source: str, items: Sequence[Item], start: int, end: int, *, follows_break: bool) -> None:
        """Note what stands before and after the unit, which is from `start` to `end` of the source."""
        self.before, self.after = self._shown(source[items[0].start : start]), self._shown(source[end : items[-1].end])
        self.marks_before = [self._mark(item, source) for item in items if item.end <= start]
        if follows_break:  # there is a line before, which another block cannot interrupt everywhere
            self.before = "x\n" + self.before
            self.marks_before.insert(0, ("x ", None))
        self.marks_after = [self._mark(item, source) for item in items if item.start >= end]

    def __call__(self, unit: Unit, pieces: Sequence[Piece]) -> Parts:
        for order in (pieces, _without_leading_tags(unit, pieces)):
            for as_html, escape in ((False, escape_markdown), (True, escape_markdown), (True, _escape_all)):
                parts = self._written(unit, order, escape, as_html=as_html)
                if self._is_kept(unit, order, parts):
                    return tuple(parts)
        raise MarkupChangedError

    def _written(
        self, unit: Unit, pieces: Sequence[Piece], escape: Callable[[str], str], *, as_html: bool
    ) -> list[str | int]:
        found: list[str | int] = []
        for i, piece in enumerate(pieces):
            text = piece.content
            if isinstance(text, str) and piece.is_text:
                text = escape(text)
                if (self.has_links or self.block.kind is BlockKind.label) and escape is escape_markdown:
                    text = text.replace("]", "\\]")
                if self.is_part:
                    text = _ACTIVE.sub(lambda match: _WITHOUT_PARTNER.get(match[0], match[0]), text)
                after = str(pieces[i + 1].content) if i + 1 < len(pieces) else None
                text = self._at_edges(text, str(found[-1]) if found else self.before or "\n", after)
                if self.block.kind is BlockKind.row:
                    text = text.replace("|", "\\|")
                elif self.block.kind is BlockKind.title:
                    text = text.replace('\\"', '"').replace('"', "&quot;")
            elif isinstance(text, str) and piece.tag is not None and as_html:
                text = _as_html(text, _kind(unit, piece))
            found.append(text)
        return found

    def _at_edges(self, text: str, before: str, after: str | None) -> str:
        if before.rstrip(" \t>").endswith(("\n", "\r")) and self.block.kind is BlockKind.paragraph:
            if match := _FIRST.match(text):
                at = match.start(1) if match[1] else match.start(3)
                text = f"{text[:at]}\\{text[at:]}"
            elif self.block.follows and text[:1] in ('"', "'", "("):
                text = "\\" + text
        if before.endswith("]") and text[:1] in ("(", ":"):
            text = "\\" + text
        if after is not None and after.startswith("[") and text.endswith("!"):
            text = text[:-1] + "\\!"
        if after is None and self.block.kind is BlockKind.heading:
            text = _FINAL_HASHES.sub("\\#", text)
        return text

    def _is_kept(self, unit: Unit, pieces: Sequence[Piece], parts: Sequence[str | int]) -> bool:
        """Whether the translation is read as it is meant."""
        text = "".join([self.before, *map(self._shown, parts), self.after]).strip()
        if self.block.kind is BlockKind.paragraph and not is_one_paragraph(text):
            return False
        meant = list(self.marks_before)
        previous = None
        for piece in pieces:
            content = self._shown(piece.content)
            if piece.tag is not None and piece.tag == previous:
                content = meant.pop()[0] + content
            previous = piece.tag
            if piece.tag is None and not piece.is_text:  # several that are not to be translated, beside each other
                meant += self._marks(content)
            else:
                meant.append((content, _kind(unit, piece)))
        read = self._marks(text)
        return _comparable([*meant, *self.marks_after]) == _comparable(read)

    def _marks(self, text: str) -> list[_Mark]:
        return [self._mark(item, text) for item in markdown_inlines(text, self.env).items]

    def _shown(self, part: str | int) -> str:
        """A part without the marks of quotes before its lines, and without the backslashes for a table."""
        if isinstance(part, int):
            return self.alts.get(part, "x")
        shown = (_QUOTED_LINE_END if self.block.is_quoted else _LINE_END).sub("\n", part)
        return shown.replace("\\|", "|") if self.block.kind is BlockKind.row else shown

    def _mark(self, item: Item, source: str) -> _Mark:
        raw = self._shown(source[item.start : item.end])
        if item.is_tag:
            return raw, item.opens - item.closes
        return (raw, 0) if item.is_protected else (item.text, None)


def _without_leading_tags(unit: Unit, pieces: Sequence[Piece]) -> Sequence[Piece]:
    """Tags such as a comment, with which a block of HTML would begin, after all others."""
    n = next((i for i, piece in enumerate(pieces) if _kind(unit, piece) != 0), 0)
    return [*pieces[n:], *pieces[:n]]


def _kind(unit: Unit, piece: Piece) -> int | None:
    if piece.tag is None:
        return None if piece.is_text else 0
    partner = unit.tags[piece.tag].partner
    return 0 if partner is None else 1 if partner > piece.tag else -1


def _comparable(marks: Sequence[_Mark]) -> list[_Mark]:
    """Texts in one piece, without the white space around them, and marks by what they mean."""
    found: list[_Mark] = []
    for raw, kind in marks:
        if kind == 0 and not raw.startswith(("`", "<", "[", "!", "\\", " ")):
            kind = None  # a URL or a variable
        if kind is None:
            before = found.pop()[0] if found and found[-1][1] is None else ""
            found.append((before + raw, None))
            continue
        raw = " ".join(raw.split()) if not _HARD_BREAK.match(raw) else "<br />"
        if raw.startswith("<"):
            found.append(_TAGS.get(raw, (raw, 0)))
        else:
            found.append((_NAMES.get(raw, raw) if kind else raw, kind))
    stripped = [(" ".join(raw.split()), kind) for raw, kind in found]
    return [mark for mark in stripped if mark[0]]


def _as_html(text: str, kind: int | None) -> str:
    """A mark as a tag, which is one between any characters."""
    if _HARD_BREAK.match(text):
        return "<br />"
    name = _NAMES.get(text.strip())
    if name is None or not kind:
        return text
    return text.replace(text.strip(), f"<{name}>" if kind > 0 else f"</{name}>")
