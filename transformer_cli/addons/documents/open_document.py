"""OpenDocument: the texts of documents, presentations and spreadsheets of LibreOffice and others (ISO/IEC 26300).

A paragraph is a unit, or several where tabs and line breaks divide it. Formatting, links and what else is within it are
tags; formatting that cannot be seen is left out, such as that which LibreOffice writes to follow changes.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from html import unescape

from transformer_cli.addons.documents.calc_references import follow_calc_cells
from transformer_cli.addons.documents.formats import OpenFile
from transformer_cli.addons.documents.package import Package, refuse_package
from transformer_cli.addons.documents.units import LINE_BREAK, Builder, Document, Item, add_run, sentence_goes_on
from transformer_cli.addons.documents.xml import escape_in_quotes, escape_xml
from transformer_cli.addons.documents.xml_tree import XmlElement, attribute, attribute_span, read_elements

_NAMESPACE = "urn:oasis:names:tc:opendocument:xmlns:"
_NAMES = {"odt": "text", "odp": "presentation", "ods": "spreadsheet"}
_PREFIXES = {
    **{f"{_NAMESPACE}{name}:1.0": name for name in ("text", "office", "style", "table", "presentation", "form")},
    f"{_NAMESPACE}drawing:1.0": "draw",
    f"{_NAMESPACE}svg-compatible:1.0": "svg",
}
_PARAGRAPHS = ("text:p", "text:h")
_MESSAGES = ("table:help-message", "table:error-message")  # which have titles
_WHOLE = ("svg:title", "svg:desc")  # of pictures
_KEPT = ("text:tracked-changes", "office:scripts", "form:form", "text:sequence-decls", "text:user-field-decls")
_PAIRS = ("text:span", "text:a", "text:meta", "text:ruby", "text:ruby-base")
_TAB, _HIDDEN = "tab", "hidden "
_LEFT_OUT = ("text:soft-page-break",)
_INVISIBLE = re.compile(  # attributes of the style of a text
    r"\s(?:officeooo:(?:paragraph-)?rsid|(?:fo|style):(?:language|country|script)[\w-]*"
    r"|(?:fo|style):rfc-language-tag[\w-]*)=\"[^\"]*\""
)
_MOST_SHOWN = 100  # characters of a field that the model sees as a word


def open_document(data: bytes, kind: str) -> OpenFile:
    """A file of the format `kind`: odt, odp or ods. Raises UnreadableError."""
    package = Package(data)
    said = package.read("mimetype").decode("ascii", "replace").strip() if "mimetype" in package else ""
    found = next((one for one, name in _NAMES.items() if f".opendocument.{name}" in said), None)
    if found is None:
        refuse_package(f"is no file of the format {kind}. Open it in its program, and save it as .{kind}")
    if found != kind:
        refuse_package(f"is of the format {found}. Use format={found}")
    manifest = "META-INF/manifest.xml"
    if manifest in package and b"encryption-data" in package.read(manifest):
        refuse_package("is encrypted. Open it in its program, remove the password, and save it again")
    names = [name for name in ("content.xml", "styles.xml") if name in package]
    embedded = (name for name in package.names() if re.fullmatch(r"Object [^/]*/content\.xml", name))
    visible = _visible_styles(package, names)
    names += embedded
    for name in names:
        package.xml(name)
    finish = partial(follow_calc_cells, package) if kind == "ods" else None
    return package.opened(partial(_parsed, visible), names, finish)


def _visible_styles(package: Package, names: list[str]) -> dict[str, str]:
    """What the styles of texts change, by their names; empty where it cannot be seen."""
    found: dict[str, str] = {}
    for name in names:
        text = package.xml(name)
        for style in read_elements(text, _PREFIXES).descendants():
            if style.name == "style:style" and attribute(text, style, "family") == "text":
                inner = _INVISIBLE.sub("", text[style.inner_start : style.inner_end])
                parent = attribute(text, style, "parent-style-name") or ""
                seen = "" if re.fullmatch(r"(?:\s*<[\w.-]+:text-properties\s*/>\s*)?", inner) else inner
                found[attribute(text, style, "name") or ""] = parent + seen
    return found


def _parsed(visible: dict[str, str], _name: str, text: str) -> Document:
    builder = Builder(text)
    _Reader(builder, visible).read(read_elements(text, _PREFIXES))
    return builder.document()


@dataclass
class _Reader:
    builder: Builder
    visible: dict[str, str]
    n_hidden: int = 0
    is_chart: bool = field(init=False)

    def __post_init__(self) -> None:
        self.is_chart = "<office:chart" in self.builder.source

    def read(self, root: XmlElement) -> None:
        """Add the units of all paragraphs, those within the text of others before these."""
        builder, source = self.builder, self.builder.source
        stack: list[tuple[XmlElement, Iterator[XmlElement]]] = [(root, iter(root.children))]
        n_open = 0  # paragraphs
        while stack:
            builder.on_unit(len(builder.units))
            element, children = stack[-1]
            child = next((one for one in children if not self._is_kept(one)), None)
            if child is not None:
                if child.name in _MESSAGES and (title := attribute_span(source, child, "title")) is not None:
                    builder.add_text(*title, escape_in_quotes)
                stack.append((child, iter(child.children)))
                n_open += child.name in _PARAGRAPHS
                continue
            stack.pop()
            n_open -= element.name in _PARAGRAPHS
            builder.is_inner = n_open > 0
            if element.name in _PARAGRAPHS:
                self._paragraph(element)
            elif element.name in _WHOLE and "<" not in source[element.inner_start : element.inner_end]:
                builder.add_text(element.inner_start, element.inner_end, escape_xml)

    def _is_kept(self, element: XmlElement) -> bool:
        """Whether the texts within are not those of the document: deleted, computed, or those of an empty slide."""
        source = self.builder.source
        if element.name == "draw:g" and self.is_chart:  # the cells that a label of a chart is of
            return True
        if element.name in _KEPT or element.name.startswith("text:index-title-template"):
            return True
        if element.name == "table:table-cell":
            return attribute(source, element, "formula") is not None
        return element.name == "draw:frame" and attribute(source, element, "placeholder") == "true"

    def _paragraph(self, element: XmlElement) -> None:
        items = list(self.builder.watched(self._items(element)))
        run: list[Item] = []
        before = ""

        def finish() -> None:
            add_run(self.builder, _without_seams(_without_hidden(run)), escape_xml, has_joints=False)
            run.clear()

        following = _texts_after(items)
        for item, after in zip(items, following, strict=True):
            if item.name == _TAB or (item.name == LINE_BREAK and not sentence_goes_on(before, after)):
                finish()
            else:
                run.append(item)
            before = item.text if item.has_text else before
        finish()

    def _items(self, parent: XmlElement) -> Iterator[Item]:
        stack: list[tuple[XmlElement, Iterator[XmlElement], Item | None]] = [(parent, iter(parent.children), None)]
        position = parent.inner_start
        while stack:
            element, children, closing = stack[-1]
            child = next(children, None)
            end = element.inner_end if child is None else child.start
            yield from self._text(position, end)
            if child is None:
                stack.pop()
                position = element.end
                if closing is not None:
                    yield closing
                continue
            position = child.end
            if child.name in _PAIRS and child.inner_start < child.end:
                opening, closing = self._pair(child)
                yield opening
                stack.append((child, iter(child.children), closing))
                position = child.inner_start
            elif child.name == "text:s":
                yield Item(child.start, child.end, " ")
            elif child.name in ("text:tab", "text:line-break"):
                yield Item(child.start, child.end, name=_TAB if child.name == "text:tab" else LINE_BREAK, is_tag=True)
            elif child.name not in _LEFT_OUT:
                shown = self._shown(child)
                yield Item(child.start, child.end, shown, is_protected=bool(shown), is_tag=not shown)

    def _text(self, start: int, end: int) -> Iterator[Item]:
        raw = self.builder.source[start:end]
        if "<" in raw:  # a comment
            yield Item(start, end, is_tag=True)
        elif raw:
            yield Item(start, end, unescape(raw))

    def _pair(self, element: XmlElement) -> tuple[Item, Item]:
        """The tags of formatting or a link."""
        name = element.name
        if name == "text:span":
            style = attribute(self.builder.source, element, "style-name") or ""
            name = f"span {self.visible.get(style, style)}"
            if name == "span ":
                self.n_hidden += 1
                name = f"{_HIDDEN}{self.n_hidden}"
        opening = Item(element.start, element.inner_start, name=name, is_tag=True, opens=True)
        return opening, Item(element.inner_end, element.end, name=name, is_tag=True, closes=True)

    def _shown(self, element: XmlElement) -> str:
        """The text of a field, which is computed; none of what holds paragraphs of its own, or is long."""
        if not element.name.startswith("text:") or element.name in ("text:note", "text:ruby-text"):
            return ""
        raw = self.builder.source[element.inner_start : element.inner_end]
        shown = "" if "<" in raw else " ".join(unescape(raw).split())
        return shown if len(shown) <= _MOST_SHOWN else ""


def _texts_after(items: list[Item]) -> list[str]:
    """The text that follows each item."""
    found: list[str] = []
    text = ""
    for item in reversed(items):
        found.append(text)
        text = item.text if item.has_text else text
    return found[::-1]


def _without_hidden(items: list[Item]) -> list[Item]:
    """The items with nothing as the mark-up of formatting that cannot be seen, where both its ends are among them."""
    counts = Counter(item.name for item in items if item.name.startswith(_HIDDEN))
    return [replace(item, markup="") if counts[item.name] == 2 else item for item in items]


def _without_seams(items: list[Item]) -> list[Item]:
    """The items without the tags between two stretches of the same formatting."""
    found: list[Item] = []
    for item in items:
        last = found[-1] if found else None
        if last is not None and last.closes and item.opens and last.name == item.name and item.name.startswith("span"):
            found.pop()
            continue
        found.append(item)
    return found
