"""Paragraphs of Office Open XML (ISO/IEC 29500): runs of text, each with its own formatting.

A paragraph is a unit, or several where tabs and line breaks divide it. The formatting that most of its text has is that
of the unit; each stretch in another one is a pair of tags, and so are links. What is no text (pictures, notes, marks of
comments) is a tag of its own, and the results of fields, such as page numbers, are not translated.

The translation is written as new runs with the formatting of the old ones, from the first letter of a unit to its last.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from html import unescape

from transformer_cli.addons.documents.units import (
    WHITE_SPACE,
    Builder,
    Item,
    Parts,
    Piece,
    Protected,
    Tag,
    Unit,
    match_pairs,
    sentence_goes_on,
)
from transformer_cli.addons.documents.xml import escape_xml
from transformer_cli.addons.documents.xml_tree import Element, attribute
from transformer_cli.data.normalization import has_letters

_MAX_DEPTH = 50  # of links and the like within each other
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
    field_part: str = ""  # begins, divides or ends a field that is in runs
    separators: str = ""  # characters that end a text
    unimportant: re.Pattern[str] = re.compile("(?!)")  # in the properties of a run
    keeps_space: str = ""  # attribute of an element whose text may begin or end with white space


class _Kind:
    TEXT, SEPARATOR, OBJECT, LEVEL, OPEN, CLOSE, MARK, PROTECTED = range(8)


@dataclass(slots=True)
class _Atom:
    """A part of a paragraph."""

    kind: int
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


@dataclass(slots=True)
class _Mark:
    """What the writer does where a tag of a unit is placed."""

    kind: int
    form: int = 0
    opens: bool = False


class Paragraph:
    """The units of one paragraph, `element`, of the builder's source."""

    def __init__(self, builder: Builder, element: Element, runs: Runs) -> None:
        self.builder, self.source, self.runs = builder, builder.source, runs
        self._mark_ends = {end: start for start, end in runs.marks.items()}
        self.forms: list[str] = []  # the properties of each, as they are written
        self._numbers: dict[str, int] = {}
        self._n_containers = 0
        self.prefix = element.raw_name.rpartition(":")[0]
        self.prefix += ":" if self.prefix else ""
        atoms = self._fields(list(self._walk(element, ())))
        for segment in _segments(atoms):
            self._add(segment)

    # ---- Reading

    def _walk(self, parent: Element, path: tuple[int, ...]) -> Iterator[_Atom]:
        runs = self.runs
        for child in self.builder.watched(parent.children):
            name = child.name
            if name == runs.run:
                yield from self._run(child, path)
            elif name == runs.text:  # without a run, as a cell of a spreadsheet may have it
                yield from self._text(child, path, self._form(None))
            elif name in runs.left_out or name.endswith("Pr"):
                continue
            elif (name in runs.containers or self._is_container(child)) and len(path) < _MAX_DEPTH:
                yield from self._container(child, path)
            elif name in runs.fields or name == runs.own_field:
                shown = self._shown(child)
                kind = _Kind.PROTECTED if shown else _Kind.LEVEL
                yield _Atom(kind, child.start, child.end, path, text=shown, raw=self.source[child.start : child.end])
            elif name in runs.marks or name in self._mark_ends:
                yield self._mark(child, path)
            else:
                yield _Atom(_Kind.LEVEL, child.start, child.end, path)

    def _is_container(self, element: Element) -> bool:
        return element.name == self.runs.own_field and _is_translated(attribute(self.source, element, "instr") or "")

    def _container(self, element: Element, path: tuple[int, ...]) -> Iterator[_Atom]:
        content = next((one for one in element.children if one.name == f"{element.name}Content"), element)
        self._n_containers += 1
        inner = (*path, self._n_containers)
        if content.inner_start == content.end:  # is empty
            yield _Atom(_Kind.LEVEL, element.start, element.end, path)
            return
        yield _Atom(_Kind.OPEN, element.start, content.inner_start, path, self._n_containers)
        number = self._n_containers
        yield from self._walk(content, inner)
        yield _Atom(_Kind.CLOSE, content.inner_end, element.end, path, number)

    def _run(self, run: Element, path: tuple[int, ...]) -> Iterator[_Atom]:
        runs, form = self.runs, self._form(run.child(self.runs.properties))
        for child in run.children:
            if child.name == runs.properties or child.name in runs.left_out:
                continue
            if child.name == runs.text:
                yield from self._text(child, path, form)
            elif child.name in runs.characters:
                yield _Atom(_Kind.TEXT, child.start, child.end, path, form, runs.characters[child.name])
            elif child.name in runs.tabs or (
                child.name in runs.breaks and attribute(self.source, child, "type") is None
            ):
                is_weak = child.name in runs.breaks
                yield _Atom(_Kind.SEPARATOR, child.start, child.end, path, form, is_weak=is_weak)
            else:
                yield _Atom(_Kind.OBJECT, child.start, child.end, path, form, name=child.name)

    def _text(self, element: Element, path: tuple[int, ...], form: int) -> Iterator[_Atom]:
        start, end = element.inner_start, element.inner_end
        if "<" in self.source[start:end]:  # a comment or CDATA section, which no office program writes
            yield _Atom(_Kind.OBJECT, element.start, element.end, path, form)
            return
        keeps = "preserve" in self.source[element.start : start] or not self.runs.keeps_space
        position = start
        cuts = re.finditer(self.runs.separators, self.source[start:end]) if self.runs.separators else ()
        for cut in [*((start + one.start(), start + one.end()) for one in cuts), (end, end)]:
            if position < cut[0]:
                text = unescape(self.source[position : cut[0]])
                yield _Atom(_Kind.TEXT, position, cut[0], path, form, text, is_literal=True, keeps_space=keeps)
            if cut[0] < cut[1]:
                yield _Atom(_Kind.SEPARATOR, *cut, path, form, is_literal=True)
            position = cut[1]

    def _mark(self, element: Element, path: tuple[int, ...]) -> _Atom:
        opens = element.name in self.runs.marks
        name = element.name if opens else self._mark_ends[element.name]
        number = attribute(self.source, element, "id") or ""
        return _Atom(
            _Kind.MARK, element.start, element.end, path, name=f"{name} {number}", opens=opens, closes=not opens
        )

    def _form(self, properties: Element | None) -> int:
        raw = "" if properties is None else self.source[properties.start : properties.end]
        key = re.sub(r"\s+", " ", self.runs.unimportant.sub("", raw))
        key = "" if re.fullmatch(r"<[^<>]*/>|<[^<>]*>\s*</[^<>]*>", key) and "=" not in key else key
        if key not in self._numbers:
            self._numbers[key] = len(self.forms)
            self.forms.append(raw)
        return self._numbers[key]

    def _shown(self, element: Element) -> str:
        texts = (
            self.source[one.inner_start : one.inner_end] for one in element.descendants() if one.name == self.runs.text
        )
        return " ".join(unescape("".join(texts)).split())

    def _fields(self, atoms: list[_Atom]) -> list[_Atom]:
        """Fields in runs: the result of one that is computed is protected, that of others is text like any."""
        if not self.runs.field_part or all(one.name != self.runs.field_part for one in atoms):
            return atoms
        found: list[_Atom] = []
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
                found[start : start + divides + 1] = [self._level(found[start : start + divides + 1], _Kind.LEVEL)]
        return found

    def _divides(self, atoms: Sequence[_Atom]) -> int | None:
        """The place between what a field is and its result."""
        for i, one in enumerate(atoms):
            if one.name == self.runs.field_part and "separate" in self.source[one.start : one.end]:
                return i
        return None

    def _field(self, atoms: list[_Atom]) -> list[_Atom]:
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
            opening, closing = self._level(atoms[: divides + 1], _Kind.OPEN), self._level([end], _Kind.CLOSE)
            return [replace(opening, form=number), *inner, replace(closing, form=number)]
        shown = " ".join("".join(one.text for one in atoms[divides:]).split())
        return [replace(self._level(atoms, _Kind.PROTECTED if shown else _Kind.LEVEL), text=shown)]

    def _level(self, atoms: Sequence[_Atom], kind: int) -> _Atom:
        """Atoms as one, beside runs and not in one."""
        raw = "".join(self._composed(one) for one in atoms)
        return _Atom(kind, atoms[0].start, atoms[-1].end, atoms[0].path, raw=raw)

    # ---- Units

    def _add(self, atoms: Sequence[_Atom]) -> None:
        """Make a unit of atoms between separators, if there are letters in them."""
        shown = [i for i, one in enumerate(atoms) if one.kind == _Kind.TEXT and one.is_literal and one.text.strip()]
        if not has_letters("".join(atoms[i].text for i in shown)):
            return
        first, last = shown[0], shown[-1]
        common = 0
        while atoms[first].path[: common + 1] == atoms[last].path[: common + 1] and common < len(atoms[first].path):
            common += 1
        # A link in which the text begins or ends, and not the whole of it, is a part of the unit.
        while len(atoms[first].path) > common:
            first -= 1
        while len(atoms[last].path) > common:
            last += 1
        made = _Unit(self, [*atoms[first : last + 1]])
        start, end = made.span()
        unit = replace(made.unit(), raw=self.builder.parts(start, end))
        self.builder.add(start, end, unit)

    # ---- Writing

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

    def parts(self, atom: _Atom) -> Parts:
        """An object, in a run of its own if it needs one; what it holds may have units."""
        if atom.raw is not None:
            return (atom.raw,)
        inner = self.builder.parts(atom.start, atom.end)
        if atom.kind not in (_Kind.OBJECT, _Kind.SEPARATOR):
            return inner
        run = self._raw(self.runs.run)
        return (f"<{run}>{self.forms[atom.form]}", *inner, f"</{run}>")

    def _composed(self, atom: _Atom) -> str:
        if atom.kind == _Kind.TEXT and atom.is_literal:
            return f"{self.opened(atom.form)}{self.source[atom.start : atom.end]}{self.closed()}"
        kind = _Kind.OBJECT if atom.kind == _Kind.TEXT else atom.kind
        if atom.raw is not None:
            return atom.raw
        inner = self.source[atom.start : atom.end]
        if kind not in (_Kind.OBJECT, _Kind.SEPARATOR):
            return inner
        run = self._raw(self.runs.run)
        return f"<{run}>{self.forms[atom.form]}{inner}</{run}>"

    def _raw(self, name: str) -> str:
        return self.prefix + name.rpartition(":")[2]


class _Unit:
    """Atoms as a unit."""

    def __init__(self, paragraph: Paragraph, atoms: list[_Atom]) -> None:
        self.paragraph, self.atoms = paragraph, atoms
        self.text = ""
        self.tags: list[Tag] = []
        self.marks: list[_Mark] = []
        self.protected: list[Protected] = []
        self.items: list[Item] = []  # of the tags
        self.joints: list[int] = []
        self.begins = atoms[0].form if atoms[0].kind == _Kind.TEXT else None
        self.ends = atoms[-1].form if atoms[-1].kind == _Kind.TEXT else None
        lengths = Counter[tuple[tuple[int, ...], int]]()
        for one in atoms:
            lengths[one.path, one.form] += len(one.text.strip()) if one.kind == _Kind.TEXT else 0
        self.bases: dict[tuple[int, ...], int] = {}  # the formatting of most of the text that is right in a container
        for (path, form), _ in lengths.most_common():
            self.bases.setdefault(path, form)
        self.base = self.bases.get(min((one.path for one in atoms), key=len), 0)

    def span(self) -> tuple[int, int]:
        first, last, source = self.atoms[0], self.atoms[-1], self.paragraph.source
        start, end = first.start, last.end
        if first.kind == _Kind.TEXT:
            raw = source[start : first.end]
            start += len(raw) - len(raw.lstrip())
        if last.kind == _Kind.TEXT:
            end = last.start + len(source[last.start : end].rstrip())
        return start, end

    def unit(self) -> Unit:
        open_form: int | None = None
        waiting: list[_Atom] = []  # what is no text, after a text

        def flush(following: int | None) -> None:
            """Write what waits, before text in the formatting `following`, or the end of a container."""
            nonlocal open_form
            if open_form is not None and open_form != following:
                last = self.tags[-1].offset  # white space at the end of a run is not what its formatting is for
                place = max(last, len(self.text.rstrip()))
                self._tag((), _Mark(_Kind.TEXT, open_form), closes=True, name="form", place=place)
                open_form = None
            for one in waiting:
                self._object(one)
            waiting.clear()
            if following is not None and open_form is None:
                open_form = following
                self._tag((), _Mark(_Kind.TEXT, following, opens=True), opens=True, name="form")

        for atom in self.paragraph.builder.watched(self.atoms):
            if atom.kind in (_Kind.TEXT, _Kind.PROTECTED):
                base = self.bases.get(atom.path, atom.form)
                form = atom.form if atom.kind == _Kind.TEXT and atom.form != base else None
                if form != open_form:
                    flush(None)
                    self._add_space(atom)
                flush(form)
                self._add_text(atom)
            elif atom.kind in (_Kind.OPEN, _Kind.CLOSE):
                flush(None)
                opens = atom.kind == _Kind.OPEN
                inner = self.bases.get((*atom.path, atom.form), self.base)
                mark = _Mark(_Kind.OPEN, inner, opens=opens)
                self._tag(self.paragraph.parts(atom), mark, opens=opens, closes=not opens, name="container")
            else:
                waiting.append(atom)
        flush(None)
        self.text = self.text.rstrip()
        return self._built()

    def _built(self) -> Unit:
        partners = match_pairs(self._nested())
        tags = tuple(
            replace(
                tag,
                offset=min(tag.offset, len(self.text)),
                partner=partners.get(i),
                spans=partners.get(i) is None and item.opens != item.closes,
            )
            for i, (tag, item) in enumerate(zip(self.tags, self.items, strict=True))
        )
        is_plain = not tags and not self.protected and self.begins is not None and self.ends is not None
        return Unit(
            self.text,
            (),
            tags,
            tuple(self.protected),
            escape_xml,
            joints=tuple(self.joints),
            write=None if is_plain and self.begins == self.ends else self.write,
        )

    def _nested(self) -> list[Item]:
        """The items of the tags, without names where the pair of a mark would begin and end in different elements."""
        around: list[int] = []
        stack, n = [0], 0
        for item in self.items:
            is_mark = item.name not in ("form", "container")
            if not is_mark and item.opens:
                n += 1
                stack.append(n)
            around.append(stack[-1])
            if not is_mark and item.closes:
                stack.pop()
        ends = {(item.name, where) for item, where in zip(self.items, around, strict=True) if item.closes}
        starts = {(item.name, where) for item, where in zip(self.items, around, strict=True) if item.opens}
        return [
            item
            if item.name in ("form", "container") or {(item.name, where)} <= ends & starts
            else Item(0, 0, is_tag=True)
            for item, where in zip(self.items, around, strict=True)
        ]

    def _add_space(self, atom: _Atom) -> None:
        """Add the white space that a text begins with."""
        if atom.text[:1].isspace() and self.text and not self.text.endswith(" "):
            self.text += " "

    def _add_text(self, atom: _Atom) -> None:
        new = WHITE_SPACE.sub(" ", atom.text)
        if new.startswith(" ") and (self.text == "" or self.text.endswith(" ")):
            new = new[1:]
            if self.tags and self.tags[-1].offset == len(self.text) and self.marks[-1].kind == _Kind.OBJECT:
                # White space on both sides of an object is one space for the model; the other belongs to the object.
                space = f"{self.paragraph.opened(atom.form)} {self.paragraph.closed()}"
                self.tags[-1] = replace(self.tags[-1], parts=(*self.tags[-1].parts, space))
        if atom.kind == _Kind.PROTECTED:
            assert atom.raw is not None
            self.protected.append(Protected(len(self.text), len(self.text) + len(new), atom.raw))
        self.text += new

    def _object(self, atom: _Atom) -> None:
        place = len(self.text)
        if atom.kind == _Kind.SEPARATOR and self.text and not self.text.endswith(" "):
            self.joints.append(place)  # the words on both sides of a line break are two
            self.text += " "
        kind = _Kind.MARK if atom.kind == _Kind.MARK else _Kind.OBJECT
        mark = _Mark(kind)
        self._tag(self.paragraph.parts(atom), mark, opens=atom.opens, closes=atom.closes, name=atom.name, place=place)

    def _tag(
        self,
        parts: Parts,
        mark: _Mark,
        *,
        opens: bool = False,
        closes: bool = False,
        name: str = "",
        place: int | None = None,
    ) -> None:
        self.tags.append(Tag(len(self.text) if place is None else place, parts or ("",)))
        self.marks.append(mark)
        self.items.append(Item(0, 0, name=name, is_tag=True, opens=opens, closes=closes))

    def write(self, unit: Unit, pieces: Sequence[Piece]) -> Parts:
        """The translation as runs. It begins in the text of a run, or before one, and ends so."""
        paragraph, forms = self.paragraph, [self.base]
        found: list[str | int] = []
        now = self.begins  # the formatting of the run that is open
        keeps_space = self.atoms[0].keeps_space
        text = ""  # of that run

        def flush() -> None:
            nonlocal text
            stem = text if keeps_space else text.rstrip()
            found.append(escape_xml(stem))
            if stem != text:
                found.append(paragraph.text_again() + escape_xml(text[len(stem) :]))
            text = ""

        def close() -> None:
            nonlocal now, keeps_space
            if now is not None:
                flush()
                found.append(paragraph.closed())
                now, keeps_space = None, True

        def open_run(form: int) -> None:
            nonlocal now
            if now != form:
                close()
                found.append(paragraph.opened(form))
                now = form

        for piece in pieces:
            if piece.is_text:
                open_run(forms[-1])
                text += str(piece.content)
                continue
            mark = None if piece.tag is None else self.marks[piece.tag]
            if mark is None or mark.kind not in (_Kind.TEXT, _Kind.OPEN):
                close()
                found.append(piece.content)
            else:
                if mark.kind == _Kind.OPEN:
                    close()
                    found.append(piece.content)
                if mark.opens:
                    forms.append(mark.form)
                elif len(forms) > 1:
                    forms.pop()
        if self.atoms[0].raw is not None:  # which begins in a run
            found.insert(0, paragraph.run_closed())
        if self.ends is None:
            close()
            if self.atoms[-1].raw is not None:
                found.append(paragraph.run_opened())
        else:
            open_run(self.ends)
            flush()
        return tuple(part for part in found if part != "")


def _segments(atoms: list[_Atom]) -> list[list[_Atom]]:
    """The atoms between separators at which a text ends; others are objects or white space within one."""
    weak = _weak_separators(atoms)
    cuts = [i for i, one in enumerate(atoms) if one.kind == _Kind.SEPARATOR and i not in weak]
    for _ in range(_MAX_DEPTH):
        kept = [i for n, i in enumerate(cuts) if _may_cut(atoms, cuts, n)]
        if kept == cuts:
            break
        cuts = kept
    else:
        cuts = [i for i in cuts if not atoms[i].path]
    chosen = set(cuts)
    found: list[list[_Atom]] = [[]]
    for i, atom in enumerate(atoms):
        if i in chosen:
            found.append([])
        elif atom.kind == _Kind.SEPARATOR and atom.is_literal:
            found[-1].append(replace(atom, kind=_Kind.TEXT, text=" "))
        else:
            found[-1].append(atom)
    return found


def _weak_separators(atoms: Sequence[_Atom]) -> set[int]:
    """Line breaks after which a sentence goes on."""
    found: set[int] = set()
    waiting: list[int] = []
    before = ""
    for i, atom in enumerate(atoms):
        if atom.kind == _Kind.SEPARATOR and atom.is_weak:
            waiting.append(i)
        elif atom.kind == _Kind.TEXT and atom.text.strip():
            if sentence_goes_on(before, atom.text):
                found.update(waiting)
            waiting, before = [], atom.text
    return found


def _may_cut(atoms: Sequence[_Atom], cuts: Sequence[int], n: int) -> bool:
    """Whether each container around a separator has all the text up to those before and after it."""
    path = atoms[cuts[n]].path
    if not path:
        return True
    start = cuts[n - 1] if n else -1
    end = cuts[n + 1] if n + 1 < len(cuts) else len(atoms)
    return all(one.path[: len(path)] == path for one in atoms[start + 1 : end] if one.kind == _Kind.TEXT)


def _is_translated(instruction: str) -> bool:
    return instruction.split()[:1] != [] and instruction.split()[0].upper() in _TRANSLATED_FIELDS
