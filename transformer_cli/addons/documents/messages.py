"""Messages: texts that a file keeps by a key or beside their translations, with variables, tags and lines in them."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from transformer_cli.addons.documents.inline_tags import InlineItems, add_lines
from transformer_cli.addons.documents.po_inline import inline_items
from transformer_cli.addons.documents.units import ON_UNIT, Builder, Document, Parts, Unit, UnreadableError
from transformer_cli.errors import quoted

_LINE = re.compile(r"(?:[^\r\n]|\r(?!\n))+")
_GAP = re.compile(r"\s*[\t\r\v\f]\s*|\s{2,}")


@dataclass(frozen=True)
class Value:
    """A text, and how a file has it with its escapes."""

    raw: str
    text: str
    offsets: Sequence[int] = ()  # in `raw`, of each character and of the end; empty: there are no escapes

    @classmethod
    def of(cls, raw: str, escapes: re.Pattern[str], meaning: Callable[[re.Match[str]], str]) -> "Value":
        """The value of `raw`, in which each match of `escapes` means the characters that `meaning` gives."""
        offsets: list[int] = []
        parts: list[str] = []
        position = 0
        for match in escapes.finditer(raw):
            new = meaning(match)
            offsets += range(position, match.start())
            offsets += [match.start()] * bool(new) + [match.end()] * (len(new) - 1)
            parts += [raw[position : match.start()], new]
            position = match.end()
        if not parts:
            return cls(raw, raw)
        offsets += range(position, len(raw) + 1)
        return cls(raw, "".join([*parts, raw[position:]]), offsets)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The span in `raw` of a stretch of the text."""
        return (self.offsets[start], self.offsets[end]) if self.offsets else (start, end)


class _Builder(Builder):
    """Collects units of a text, with literal parts as the file has them."""

    def __init__(self, value: Value) -> None:
        super().__init__(value.text)
        self.value = value

    def parts(self, start: int, end: int) -> Parts:
        first, last = self.value.span(start, end)
        return (self.value.raw[first:last],) if first < last else ()


def parse_message(
    value: Value,
    kinds: frozenset[str] = frozenset(),
    escape: Callable[[str], str] = str,
    *,
    escape_kept: Callable[[str], str] | None = None,
    lines_matter: bool = True,
    has_choices: bool = False,
) -> Document:
    """The units of a message, with variables of some `kinds`, see po_inline.

    Lines are one text where the next one goes on in lower case; columns that white space aligns are several. Of a
    message that is one choice of ICU, each branch is a message (`has_choices`). `escape` gets line breaks as "\\n";
    `escape_kept` writes variables, if they are written in another way.
    """
    text = value.text
    builder = _Builder(value)
    newline = "\r\n" if "\r\n" in text else "\n"
    branches = _branches(text) if has_choices else None
    in_plural = frozenset() if branches is None else frozenset({"#"})
    inline = partial(inline_items, kinds=kinds | in_plural)
    for stretch in [(0, len(text))] if branches is None else branches:
        lines: list[tuple[int, int]] = []
        for start, end in builder.watched(_stretches(text, stretch, inline)):
            goes_on = bool(lines) and text[lines[-1][1] : start] == newline and text[start].islower()
            if lines and not (goes_on or not lines_matter):
                add_lines(builder, lines, escape, inline)
                lines = []
            lines.append((start, end))
        if lines:
            add_lines(builder, lines, escape, inline)
    document = builder.document()
    return Document(document.parts, tuple(_escaped(unit, escape_kept or escape) for unit in document.units))


def _stretches(text: str, span: tuple[int, int], inline: InlineItems) -> Iterator[tuple[int, int]]:
    """The spans between line ends, tabs and runs of spaces that are not within variables and mark-up."""
    for line in _LINE.finditer(text, *span):
        start = line.start()
        for item in inline(text, *line.span()):
            for gap in () if item.is_tag or item.is_protected else _GAP.finditer(text, item.start, item.end):
                if start < gap.start():
                    yield start, gap.start()
                start = gap.end()
        if start < line.end():
            yield start, line.end()


def _escaped(unit: Unit, escape: Callable[[str], str]) -> Unit:
    return replace(unit, protected=tuple(replace(one, raw=escape(one.raw)) for one in unit.protected))


# ---- Choices of ICU

_CHOICE = re.compile(r"\s*\{\s{0,5}\w{1,50}\s{0,5},\s{0,5}(?:plural|select|selectordinal)\s{0,5},")
_BRANCH = re.compile(r"\s*(?:offset:\s*\d{1,9}\s+)?(?:=\d{1,9}|\w{1,50})\s*\{")
_BRACE = re.compile(r"'[{}|#][^']*'?|[{}]")
_DEEPEST = 5  # choices within choices


def _branches(text: str) -> list[tuple[int, int]] | None:
    """The branches of a text that is a choice and nothing else, and those of choices that are a whole branch."""
    found: list[tuple[int, int]] = []
    waiting = [(0, len(text), 0)]
    while waiting:
        start, end, depth = waiting.pop()
        inner = _inner_branches(text, start, end) if depth < _DEEPEST else None
        if inner is not None:
            waiting += [(*one, depth + 1) for one in reversed(inner)]
        elif depth == 0:
            return None
        else:
            found.append((start, end))
    return found


def _inner_branches(text: str, start: int, end: int) -> list[tuple[int, int]] | None:
    match = _CHOICE.match(text, start, end)
    if match is None:
        return None
    found: list[tuple[int, int]] = []
    position = match.end()
    while (branch := _BRANCH.match(text, position, end)) is not None:
        depth, first = 1, branch.end()
        for brace in _BRACE.finditer(text, first, end):
            depth += {"{": 1, "}": -1}.get(brace[0], 0)
            if depth == 0:
                found.append((first, brace.start()))
                position = brace.end()
                break
        else:
            return None
    return found if text[position:end].strip() == "}" else None


# ---- Writing


class DocumentWriter:
    """A document that is written from its beginning to its end: what is replaced, and all else as it is."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.parts: list[str | int] = []
        self.units: list[Unit] = []
        self.position = 0
        self.on_unit = ON_UNIT.get()

    def copy(self, end: int) -> None:
        """Keep the text up to a place."""
        assert end >= self.position
        self.parts.append(self.text[self.position : end])
        self.position = end

    def put(self, start: int, end: int, parts: Iterable[str | int]) -> None:
        """Write parts instead of a stretch of the text, or at a place."""
        self.copy(start)
        self.parts += parts
        self.position = end

    def adopt(self, document: Document) -> Parts:
        """The parts of a document, whose units are units of this one from now on."""
        first = len(self.units)
        self.units += document.units
        self.on_unit(len(self.units))
        return tuple(part + first if isinstance(part, int) else part for part in document.parts)

    def document(self) -> Document:
        self.copy(len(self.text))
        return Document(tuple(part for part in self.parts if part != ""), tuple(self.units))

    def error(self, position: int, what: str) -> UnreadableError:
        return UnreadableError(self.text.count("\n", 0, position) + 1, what)

    def shown(self, position: int) -> str:
        """The beginning of the line from a place on, for a message."""
        return quoted(self.text[position : position + 200].partition("\n")[0].strip(), 40)
