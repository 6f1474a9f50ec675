"""Paragraphs of Office Open XML (ISO/IEC 29500): runs of text, each with its own formatting.

A paragraph is a unit, or several where tabs and line breaks divide it. The formatting that most of its text has is that
of the unit; each stretch in another one is a pair of tags, and so are links. What is no text (pictures, notes, marks of
comments) is a tag of its own, and the results of fields, such as page numbers, are not translated.

The translation is written as new runs with the formatting of the old ones, from the first letter of a unit to its last.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from transformer_cli.addons.documents.run_atoms import MAX_DEPTH, Atom, AtomKind, RunMarkup, Runs, read_atoms
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
from transformer_cli.addons.documents.xml_tree import XmlElement
from transformer_cli.data.normalization import has_letters


@dataclass(slots=True)
class _Mark:
    """What the writer does where a tag of a unit is placed."""

    kind: AtomKind
    form: int = 0
    opens: bool = False


class Paragraph:
    """The units of one paragraph, `element`, of the builder's source."""

    def __init__(self, builder: Builder, element: XmlElement, runs: Runs) -> None:
        self.builder, self.source = builder, builder.source
        if (text := _only_text(self.source, element, runs)) is not None:
            builder.add_text(*text, escape_xml)
            return
        self.markup = RunMarkup(self.source, element, runs)
        for segment in _segments(read_atoms(builder, element, self.markup)):
            self._add(segment)

    def _add(self, atoms: Sequence[Atom]) -> None:
        """Make a unit of atoms between separators, if there are letters in them."""
        shown = [i for i, one in enumerate(atoms) if one.kind == AtomKind.TEXT and one.is_literal and one.text.strip()]
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

    def parts(self, atom: Atom) -> Parts:
        """An object, in a run of its own if it needs one; what it holds may have units."""
        if atom.raw is not None:
            return (atom.raw,)
        inner = self.builder.parts(atom.start, atom.end)
        if atom.kind not in (AtomKind.OBJECT, AtomKind.SEPARATOR):
            return inner
        return self.markup.in_run(atom.form, inner)


class _Unit:
    """Atoms as a unit."""

    def __init__(self, paragraph: Paragraph, atoms: list[Atom]) -> None:
        self.paragraph, self.markup, self.atoms = paragraph, paragraph.markup, atoms
        self.text = ""
        self.tags: list[Tag] = []
        self.marks: list[_Mark] = []
        self.protected: list[Protected] = []
        self.items: list[Item] = []  # of the tags
        self.joints: list[int] = []
        self.begins = atoms[0].form if atoms[0].kind == AtomKind.TEXT else None
        self.ends = atoms[-1].form if atoms[-1].kind == AtomKind.TEXT else None
        lengths = Counter[tuple[tuple[int, ...], int]]()
        for one in atoms:
            if one.kind == AtomKind.TEXT:
                lengths[one.path, one.form] += len(one.text.strip())
        self.bases: dict[tuple[int, ...], int] = {}  # the formatting of most of the text that is right in a container
        for (path, form), _ in lengths.most_common():
            self.bases.setdefault(path, form)
        self.base = self.bases.get(min((one.path for one in atoms), key=len), 0)

    def span(self) -> tuple[int, int]:
        first, last, source = self.atoms[0], self.atoms[-1], self.paragraph.source
        start, end = first.start, last.end
        if first.kind == AtomKind.TEXT:
            raw = source[start : first.end]
            start += len(raw) - len(raw.lstrip())
        if last.kind == AtomKind.TEXT:
            end = last.start + len(source[last.start : end].rstrip())
        return start, end

    def unit(self) -> Unit:
        open_form: int | None = None
        waiting: list[Atom] = []  # what is no text, after a text

        def flush(following: int | None) -> None:
            """Write what waits, before text in the formatting `following`, or the end of a container."""
            nonlocal open_form
            if open_form is not None and open_form != following:
                last = self.tags[-1].offset  # white space at the end of a run is not what its formatting is for
                place = max(last, len(self.text.rstrip()))
                self._tag((), _Mark(AtomKind.TEXT, open_form), closes=True, name="form", place=place)
                open_form = None
            for one in waiting:
                self._object(one)
            waiting.clear()
            if following is not None and open_form is None:
                open_form = following
                self._tag((), _Mark(AtomKind.TEXT, following, opens=True), opens=True, name="form")

        for atom in self.paragraph.builder.watched(self.atoms):
            if atom.kind in (AtomKind.TEXT, AtomKind.PROTECTED):
                base = self.bases.get(atom.path, atom.form)
                form = atom.form if atom.kind == AtomKind.TEXT and atom.form != base else None
                if form != open_form:
                    flush(None)
                    self._add_space(atom)
                flush(form)
                self._add_text(atom)
            elif atom.kind in (AtomKind.OPEN, AtomKind.CLOSE):
                flush(None)
                opens = atom.kind == AtomKind.OPEN
                inner = self.bases.get((*atom.path, atom.form), self.base)
                mark = _Mark(AtomKind.OPEN, inner, opens=opens)
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

    def _add_space(self, atom: Atom) -> None:
        """Add the white space that a text begins with."""
        if atom.text[:1].isspace() and self.text and not self.text.endswith(" "):
            self.text += " "

    def _add_text(self, atom: Atom) -> None:
        new = WHITE_SPACE.sub(" ", atom.text)
        if new.startswith(" ") and (self.text == "" or self.text.endswith(" ")):
            new = new[1:]
            if self.tags and self.tags[-1].offset == len(self.text) and self.marks[-1].kind == AtomKind.OBJECT:
                # White space on both sides of an object is one space for the model; the other belongs to the object.
                space = f"{self.markup.opened(atom.form)} {self.markup.closed()}"
                self.tags[-1] = replace(self.tags[-1], space=space)
        if atom.kind == AtomKind.PROTECTED:
            assert atom.raw is not None
            self.protected.append(Protected(len(self.text), len(self.text) + len(new), atom.raw))
        self.text += new

    def _object(self, atom: Atom) -> None:
        place = len(self.text)
        if atom.kind == AtomKind.SEPARATOR and self.text and not self.text.endswith(" "):
            self.joints.append(place)  # the words on both sides of a line break are two
            self.text += " "
        kind = AtomKind.MARK if atom.kind == AtomKind.MARK else AtomKind.OBJECT
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
        markup, forms = self.markup, [self.base]
        found: list[str | int] = []
        now = self.begins  # the formatting of the run that is open
        keeps_space = self.atoms[0].keeps_space
        text = ""  # of that run

        def flush() -> None:
            nonlocal text
            stem = text if keeps_space else text.rstrip()
            found.append(escape_xml(stem))
            if stem != text:
                found.append(markup.text_again() + escape_xml(text[len(stem) :]))
            text = ""

        def close() -> None:
            nonlocal now, keeps_space
            if now is not None:
                flush()
                found.append(markup.closed())
                now, keeps_space = None, True

        def open_run(form: int) -> None:
            nonlocal now
            if now != form:
                close()
                found.append(markup.opened(form))
                now = form

        for piece in pieces:
            if piece.is_text:
                open_run(forms[-1])
                text += str(piece.content)
                continue
            mark = None if piece.tag is None else self.marks[piece.tag]
            if mark is None or mark.kind not in (AtomKind.TEXT, AtomKind.OPEN):
                close()
                found.append(piece.content)
            else:
                if mark.kind == AtomKind.OPEN:
                    close()
                    found.append(piece.content)
                if mark.opens:
                    forms.append(mark.form)
                elif len(forms) > 1:
                    forms.pop()
        if self.atoms[0].raw is not None:  # which begins in a run
            found.insert(0, markup.run_closed())
        if self.ends is None:
            close()
            if self.atoms[-1].raw is not None:
                found.append(markup.run_opened())
        else:
            open_run(self.ends)
            flush()
        return tuple(part for part in found if part != "")


def _only_text(source: str, element: XmlElement, runs: Runs) -> tuple[int, int] | None:
    """The place of a text that is all there is in a paragraph, as in most cells of a spreadsheet."""
    if len(element.children) != 1 or element.children[0].name != runs.text:
        return None
    start, end = element.children[0].inner_start, element.children[0].inner_end
    is_divided = "<" in source[start:end] or (runs.separators and re.search(runs.separators, source[start:end]))
    return None if is_divided else (start, end)


def _segments(atoms: list[Atom]) -> list[list[Atom]]:
    """The atoms between separators at which a text ends; others are objects or white space within one."""
    weak = _weak_separators(atoms)
    cuts = [i for i, one in enumerate(atoms) if one.kind == AtomKind.SEPARATOR and i not in weak]
    for _ in range(MAX_DEPTH):
        kept = [i for n, i in enumerate(cuts) if _may_cut(atoms, cuts, n)]
        if kept == cuts:
            break
        cuts = kept
    else:
        cuts = [i for i in cuts if not atoms[i].path]
    chosen = set(cuts)
    found: list[list[Atom]] = [[]]
    for i, atom in enumerate(atoms):
        if i in chosen:
            found.append([])
        elif atom.kind == AtomKind.SEPARATOR and atom.is_literal:
            found[-1].append(replace(atom, kind=AtomKind.TEXT, text=" "))
        else:
            found[-1].append(atom)
    return found


def _weak_separators(atoms: Sequence[Atom]) -> set[int]:
    """Line breaks after which a sentence goes on."""
    found: set[int] = set()
    waiting: list[int] = []
    before = ""
    for i, atom in enumerate(atoms):
        if atom.kind == AtomKind.SEPARATOR and atom.is_weak:
            waiting.append(i)
        elif atom.kind == AtomKind.TEXT and atom.text.strip():
            if sentence_goes_on(before, atom.text):
                found.update(waiting)
            waiting, before = [], atom.text
    return found


def _may_cut(atoms: Sequence[Atom], cuts: Sequence[int], n: int) -> bool:
    """Whether each container around a separator has all the text up to those before and after it."""
    path = atoms[cuts[n]].path
    if not path:
        return True
    start = cuts[n - 1] if n else -1
    end = cuts[n + 1] if n + 1 < len(cuts) else len(atoms)
    return all(one.path[: len(path)] == path for one in atoms[start + 1 : end] if one.kind == AtomKind.TEXT)
