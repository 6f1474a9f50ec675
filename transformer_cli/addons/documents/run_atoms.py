"""The parts of a paragraph of Office Open XML (ISO/IEC 29500): texts, each with its formatting, and what is between."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from html import unescape

from transformer_cli.addons.documents.units import Builder, Parts
from transformer_cli.addons.documents.xml_tree import XmlElement, attribute

MAX_DEPTH = 50  # of links and the like within each other
_TRANSLATED_FIELDS = ("HYPERLINK", "TOC", "INDEX", "FORMTEXT", "QUOTE")  # whose results are text of the document


@dataclass(frozen=True)
class Runs:
    """How a vocabulary of Office Open XML names the parts of a paragraph; elements without a name here are objects."""

    run: str
    properties: str
    text: str
    containers: frozenset[str] = frozenset()  # of runs, in a paragraph
    tabs: frozenset[str] = frozenset()
    breaks: frozenset[str] = frozenset()
    left_out: frozenset[str] = frozenset()  # what a program writes for itself, and finds again
    characters: dict[str, str] = field(default_factory=dict)  # elements that stand for one
    marks: dict[str, str] = field(default_factory=dict)  # of places: the names of their ends
    fields: frozenset[str] = frozenset()  # elements whose text a program computes
    own_field: str = ""  # one that says in an attribute what it is
    with_reading: str = ""  # words and how they are read, beside nothing else in a run
    read_words: str = ""  # the words in that
    field_part: str = ""  # begins, divides or ends a field that is in runs
    separators: str = ""  # characters that end a text
    unimportant: re.Pattern[str] = re.compile("(?!)")  # in the properties of a run
    keeps_space: str = ""  # attribute of an element whose text may begin or end with white space


class AtomKind(Enum):
    """What an atom is."""

    TEXT = auto()
    SEPARATOR = auto()  # a tab or a line break
    OBJECT = auto()  # within a run
    LEVEL = auto()  # beside runs
    OPEN = auto()  # of a container
    CLOSE = auto()
    MARK = auto()  # of a place
    PROTECTED = auto()  # a text that is not translated


@dataclass(slots=True)
class Atom:
    """A part of a paragraph."""

    kind: AtomKind
    start: int
    end: int
    path: tuple[int, ...]  # numbers of the containers around it
    form: int = 0  # the number of the formatting of its run, or of the container that opens or closes
    text: str = ""
    name: str = ""  # of a mark, or an object
    opens: bool = False  # of a mark
    closes: bool = False
    is_literal: bool = False  # its text is that of the document from start to end
    keeps_space: bool = False  # as its element says
    is_weak: bool = False  # a separator that divides sentences only
    raw: str | None = None  # runs, where they are not those of the document


class RunMarkup:
    """The mark-up of runs, as the paragraph `element` of `source` writes it, and all formatting that they have."""

    def __init__(self, source: str, element: XmlElement, runs: Runs) -> None:
        self.source, self.runs = source, runs
        self.forms: list[str] = []  # the properties of each, as they are written
        self._numbers: dict[str, int] = {}
        self._prefix = element.raw_name.rpartition(":")[0]
        self._prefix += ":" if self._prefix else ""

    def form(self, properties: XmlElement | None) -> int:
        """The number of a formatting: the same for all that look the same."""
        raw = "" if properties is None else self.source[properties.start : properties.end]
        key = re.sub(r"\s+", " ", self.runs.unimportant.sub("", raw))
        key = "" if re.fullmatch(r"<[^<>]*/>|<[^<>]*>\s*</[^<>]*>", key) and "=" not in key else key
        if key not in self._numbers:
            self._numbers[key] = len(self.forms)
            self.forms.append(raw)
        return self._numbers[key]

    def opened(self, form: int) -> str:
        """The beginning of a run with text."""
        keeps_space = f" {self.runs.keeps_space}" if self.runs.keeps_space else ""
        return f"<{self._raw(self.runs.run)}>{self.forms[form]}<{self._raw(self.runs.text)}{keeps_space}>"

    def closed(self) -> str:
        return f"</{self._raw(self.runs.text)}></{self._raw(self.runs.run)}>"

    def run_opened(self) -> str:
        return f"<{self._raw(self.runs.run)}>"

    def run_closed(self) -> str:
        return f"</{self._raw(self.runs.run)}>"

    def text_again(self) -> str:
        """The end of a text, and the beginning of another in the same run that keeps its white space."""
        text = self._raw(self.runs.text)
        return f"</{text}><{text} {self.runs.keeps_space}>"

    def composed(self, atom: Atom) -> str:
        """An atom as it stands beside runs: in one of its own if it needs one."""
        if atom.kind == AtomKind.TEXT and atom.is_literal:
            return f"{self.opened(atom.form)}{self.source[atom.start : atom.end]}{self.closed()}"
        kind = AtomKind.OBJECT if atom.kind == AtomKind.TEXT else atom.kind
        if atom.raw is not None:
            return atom.raw
        inner = self.source[atom.start : atom.end]
        if kind not in (AtomKind.OBJECT, AtomKind.SEPARATOR):
            return inner
        return "".join(map(str, self.in_run(atom.form, (inner,))))

    def in_run(self, form: int, content: Parts) -> Parts:
        return (f"{self.run_opened()}{self.forms[form]}", *content, self.run_closed())

    def _raw(self, name: str) -> str:
        return self._prefix + name.rpartition(":")[2]


def read_atoms(builder: Builder, element: XmlElement, markup: RunMarkup) -> list[Atom]:
    """The parts of the paragraph `element`, in their order."""
    return _Reader(builder, markup).read(element)


class _Reader:
    """Reads one paragraph."""

    def __init__(self, builder: Builder, markup: RunMarkup) -> None:
        self.builder, self.source, self.runs, self.markup = builder, builder.source, markup.runs, markup
        self._mark_ends = {end: start for start, end in markup.runs.marks.items()}
        self._n_containers = 0

    def read(self, element: XmlElement) -> list[Atom]:
        return self._fields(list(self._walk(element, ())))

    def _walk(self, parent: XmlElement, path: tuple[int, ...]) -> Iterator[Atom]:
        runs = self.runs
        for child in self.builder.watched(parent.children):
            name = child.name
            if name == runs.run:
                yield from self._run(child, path)
            elif name == runs.text:  # without a run, as a cell of a spreadsheet may have it
                yield from self._text(child, path, self.markup.form(None))
            elif name in runs.left_out or name.endswith("Pr"):
                continue
            elif (name in runs.containers or self._is_container(child)) and len(path) < MAX_DEPTH:
                yield from self._container(child, path)
            elif name in runs.fields or name == runs.own_field:
                shown = self._shown(child)
                kind = AtomKind.PROTECTED if shown else AtomKind.LEVEL
                yield Atom(kind, child.start, child.end, path, text=shown, raw=self.source[child.start : child.end])
            elif name in runs.breaks:  # of PowerPoint, which has them beside runs
                raw = self.source[child.start : child.end]
                yield Atom(AtomKind.SEPARATOR, child.start, child.end, path, is_weak=True, raw=raw)
            elif name in runs.marks or name in self._mark_ends:
                yield self._mark(child, path)
            else:
                yield Atom(AtomKind.LEVEL, child.start, child.end, path)

    def _is_container(self, element: XmlElement) -> bool:
        return element.name == self.runs.own_field and _is_translated(attribute(self.source, element, "instr") or "")

    def _container(self, element: XmlElement, path: tuple[int, ...]) -> Iterator[Atom]:
        content = next((one for one in element.children if one.name == f"{element.name}Content"), element)
        yield from self._container_of(element, content, path)

    def _read_words(self, run: XmlElement) -> XmlElement | None:
        """The words of a run that has nothing but words with a reading."""
        skipped = {self.runs.properties, *self.runs.left_out}
        shown = [one for one in run.children if one.name not in skipped]
        is_read = len(shown) == 1 and shown[0].name == self.runs.with_reading
        return shown[0].child(self.runs.read_words) if is_read else None

    def _container_of(self, element: XmlElement, content: XmlElement, path: tuple[int, ...]) -> Iterator[Atom]:
        """An element as a pair of tags around what is in `content`, with all else that it has before and after."""
        self._n_containers += 1
        inner = (*path, self._n_containers)
        if content.inner_start == content.end:  # is empty
            yield Atom(AtomKind.LEVEL, element.start, element.end, path)
            return
        yield Atom(AtomKind.OPEN, element.start, content.inner_start, path, self._n_containers)
        number = self._n_containers
        yield from self._walk(content, inner)
        yield Atom(AtomKind.CLOSE, content.inner_end, element.end, path, number)

    def _run(self, run: XmlElement, path: tuple[int, ...]) -> Iterator[Atom]:
        runs, form = self.runs, self.markup.form(run.child(self.runs.properties))
        if (words := self._read_words(run)) is not None and len(path) < MAX_DEPTH:
            yield from self._container_of(run, words, path)
            return
        for child in run.children:
            if child.name == runs.properties or child.name in runs.left_out:
                continue
            if child.name == runs.text:
                yield from self._text(child, path, form)
            elif child.name in runs.characters:
                yield Atom(AtomKind.TEXT, child.start, child.end, path, form, runs.characters[child.name])
            elif child.name in runs.tabs or (
                child.name in runs.breaks and attribute(self.source, child, "type") is None
            ):
                is_weak = child.name in runs.breaks
                yield Atom(AtomKind.SEPARATOR, child.start, child.end, path, form, is_weak=is_weak)
            else:
                yield Atom(AtomKind.OBJECT, child.start, child.end, path, form, name=child.name)

    def _text(self, element: XmlElement, path: tuple[int, ...], form: int) -> Iterator[Atom]:
        start, end = element.inner_start, element.inner_end
        if "<" in self.source[start:end]:  # a comment or CDATA section, which no office program writes
            yield Atom(AtomKind.OBJECT, element.start, element.end, path, form)
            return
        keeps = "preserve" in self.source[element.start : start] or not self.runs.keeps_space
        position = start
        cuts = re.finditer(self.runs.separators, self.source[start:end]) if self.runs.separators else ()
        for cut in [*((start + one.start(), start + one.end()) for one in cuts), (end, end)]:
            if position < cut[0]:
                text = unescape(self.source[position : cut[0]])
                yield Atom(AtomKind.TEXT, position, cut[0], path, form, text, is_literal=True, keeps_space=keeps)
            if cut[0] < cut[1]:
                yield Atom(AtomKind.SEPARATOR, *cut, path, form, is_literal=True)
            position = cut[1]

    def _mark(self, element: XmlElement, path: tuple[int, ...]) -> Atom:
        opens = element.name in self.runs.marks
        name = element.name if opens else self._mark_ends[element.name]
        number = attribute(self.source, element, "id") or ""
        return Atom(
            AtomKind.MARK, element.start, element.end, path, name=f"{name} {number}", opens=opens, closes=not opens
        )

    def _shown(self, element: XmlElement) -> str:
        texts = (
            self.source[one.inner_start : one.inner_end] for one in element.descendants() if one.name == self.runs.text
        )
        return " ".join(unescape("".join(texts)).split())

    def _fields(self, atoms: list[Atom]) -> list[Atom]:
        """Fields in runs: the result of one that is computed is protected, that of others is text like any."""
        if not self.runs.field_part or all(one.name != self.runs.field_part for one in atoms):
            return atoms
        found: list[Atom] = []
        starts: list[int] = []  # of the fields that are open, in `found`
        for atom in atoms:
            found.append(atom)
            if atom.name != self.runs.field_part:
                continue
            kind = self.source[atom.start : atom.end]
            if "begin" in kind:
                starts.append(len(found) - 1)
            elif "end" in kind and starts:
                start = starts.pop()
                found[start:] = self._field(found[start:])
        for start in reversed(starts):  # whose ends are in other paragraphs
            divides = self._divides(found[start:])
            if divides is not None and found[start].path == found[start + divides].path:
                found[start : start + divides + 1] = [self._level(found[start : start + divides + 1], AtomKind.LEVEL)]
        return found

    def _divides(self, atoms: Sequence[Atom]) -> int | None:
        """The place between what a field is and its result."""
        for i, one in enumerate(atoms):
            if one.name == self.runs.field_part and "separate" in self.source[one.start : one.end]:
                return i
        return None

    def _field(self, atoms: list[Atom]) -> list[Atom]:
        path, end = atoms[0].path, atoms[-1]
        if end.path != path:
            return atoms
        found = self._divides(atoms)
        divides = len(atoms) - 1 if found is None else found
        instruction = unescape(
            re.sub(r"<[^<>]*>", "", "".join(self.source[one.start : one.end] for one in atoms[:divides]))
        )
        if _is_translated(instruction) and divides < len(atoms) - 1:
            self._n_containers += 1
            number = self._n_containers
            inner = [replace(one, path=(*path, number, *one.path[len(path) :])) for one in atoms[divides + 1 : -1]]
            opening, closing = self._level(atoms[: divides + 1], AtomKind.OPEN), self._level([end], AtomKind.CLOSE)
            return [replace(opening, form=number), *inner, replace(closing, form=number)]
        shown = " ".join("".join(one.text for one in atoms[divides:]).split())
        return [replace(self._level(atoms, AtomKind.PROTECTED if shown else AtomKind.LEVEL), text=shown)]

    def _level(self, atoms: Sequence[Atom], kind: AtomKind) -> Atom:
        """Atoms as one, beside runs and not in one."""
        raw = "".join(self.markup.composed(one) for one in atoms)
        return Atom(kind, atoms[0].start, atoms[-1].end, atoms[0].path, raw=raw)


def _is_translated(instruction: str) -> bool:
    return instruction.split()[:1] != [] and instruction.split()[0].upper() in _TRANSLATED_FIELDS
