"""Office Open XML: the texts of documents of Word, of presentations and of spreadsheets (ISO/IEC 29500)."""

import re
from collections.abc import Iterator
from functools import partial

from transformer_cli.addons.documents.formats import OpenFile
from transformer_cli.addons.documents.package import Package, refuse_package
from transformer_cli.addons.documents.run_atoms import Runs
from transformer_cli.addons.documents.runs import Paragraph
from transformer_cli.addons.documents.sheet_references import LIST, follow_cells
from transformer_cli.addons.documents.sheet_tables import name_columns
from transformer_cli.addons.documents.units import Builder, Document, MarkupChangedError
from transformer_cli.addons.documents.xml import escape_in_quotes, escape_xml
from transformer_cli.addons.documents.xml_tree import XmlElement, attribute, attribute_span, read_elements

_CONTENT_TYPES = "[Content_Types].xml"
_OPEN_XML, _STRICT = "http://schemas.openxmlformats.org/", "http://purl.oclc.org/ooxml/"
_NAMESPACES = {
    "w": ("wordprocessingml/2006/main", "wordprocessingml/main"),
    "a": ("drawingml/2006/main", "drawingml/main"),
    "x": ("spreadsheetml/2006/main", "spreadsheetml/main"),
    "p": ("presentationml/2006/main", "presentationml/main"),
    "c": ("drawingml/2006/chart", "drawingml/chart"),
    "wp": ("drawingml/2006/wordprocessingDrawing", "drawingml/wordprocessingDrawing"),
    "xdr": ("drawingml/2006/spreadsheetDrawing", "drawingml/spreadsheetDrawing"),
    "pic": ("drawingml/2006/picture", "drawingml/picture"),
}
_PREFIXES = {
    **{_OPEN_XML + names[0]: prefix for prefix, names in _NAMESPACES.items()},
    **{_STRICT + names[1]: prefix for prefix, names in _NAMESPACES.items()},
    "http://schemas.microsoft.com/office/spreadsheetml/2018/threadedcomments": "tc",
    "http://schemas.microsoft.com/office/powerpoint/2018/8/main": "p188",
}


def _names(prefix: str, text: str) -> frozenset[str]:
    return frozenset(f"{prefix}:{name}" for name in text.split())


_WORD = Runs(
    "w:r",
    "w:rPr",
    "w:t",
    containers=_names("w", "hyperlink ins moveTo sdt smartTag customXml bdo dir"),
    tabs=_names("w", "tab ptab"),
    breaks=_names("w", "br cr"),
    left_out=_names("w", "proofErr lastRenderedPageBreak"),
    characters={"w:noBreakHyphen": "\u2011", "w:softHyphen": ""},
    marks={
        f"w:{name}Start": f"w:{name}End"
        for name in ("bookmark", "commentRange", "perm", "moveFromRange", "moveToRange", "customXmlInsRange")
    },
    with_reading="w:ruby",
    read_words="w:rubyBase",
    own_field="w:fldSimple",
    field_part="w:fldChar",
    unimportant=re.compile(r"<[\w.-]+:(?:lang|noProof)\b[^<>]*/>"),
    keeps_space='xml:space="preserve"',
)
_DRAWING = Runs(
    "a:r",
    "a:rPr",
    "a:t",
    breaks=_names("a", "br"),
    fields=_names("a", "fld"),
    separators=r"[\t\v]|_x000[9bB]_",
    unimportant=re.compile(r"\s(?:lang|altLang|dirty|err|noProof|smtClean|smtId|bmk)=\"[^\"]*\""),
)
_SHEET = Runs(
    "x:r", "x:rPr", "x:t", separators=r"\r?\n|&#(?:10|13|[xX]0?[aAdD]);|_x000D_", keeps_space='xml:space="preserve"'
)
_PARAGRAPHS = {"w:p": _WORD, "a:p": _DRAWING, "x:si": _SHEET, "x:is": _SHEET, "x:text": _SHEET}
_OF_LAYOUT = re.compile(r"\.(?:slideLayout|slideMaster|notesMaster|handoutMaster)\+xml")
_WHOLE = ("p:text", "tc:text")  # elements whose content is a text
_INLINE = "inlineStr"
_CELLS = re.compile(r"<((?:\w+:)?)sheetData\b[^<>]*(?<!/)>.*</\1sheetData>", re.DOTALL)
_IN_SHEET = re.compile(rb"inlineStr|<(?:\w+:)?dataValidation\b")
# The messages of a cell in which not everything may be written, and how long Excel lets them be.
_MESSAGES = {"promptTitle": 32, "prompt": 255, "errorTitle": 32, "error": 225}
_ATTRIBUTES = {
    **dict.fromkeys(("wp:docPr", "p:cNvPr", "pic:cNvPr", "xdr:cNvPr", "a:cNvPr"), ("descr", "title")),  # of pictures
    "w:listItem": ("displayText",),  # of a list to choose from
}

# The main part of each format, and the parts beside it that hold text, by their content types.
_MAIN = {
    "docx": re.compile(r"(?:wordprocessingml|ms-word)\.(?:document|template)[\w.]*main\+xml"),
    "pptx": re.compile(r"(?:presentationml|ms-powerpoint)\.(?:presentation|slideshow|template)[\w.]*main\+xml"),
    "xlsx": re.compile(r"(?:spreadsheetml|ms-excel)\.(?:sheet|template)[\w.]*main\+xml"),
}
_CHARTS = r"|drawingml\.(?:chart|chartshapes|diagramData)\+xml|drawingml\.diagramDrawing\+xml"
_WITH_TEXT = {
    "docx": re.compile(r"wordprocessingml\.(?:header|footer|footnotes|endnotes|comments)\+xml" + _CHARTS),
    "pptx": re.compile(
        r"presentationml\.(?:slide|notesSlide|comments|slideLayout|slideMaster|notesMaster|handoutMaster)\+xml"
        r"|ms-powerpoint\.comments\+xml" + _CHARTS
    ),
    "xlsx": re.compile(
        r"spreadsheetml\.(?:sharedStrings|worksheet|comments)\+xml|threadedcomments\+xml|officedocument\.drawing\+xml"
        + _CHARTS
    ),
}


def open_office(data: bytes, kind: str) -> OpenFile:
    """A file of the format `kind`: docx, pptx or xlsx. Raises UnreadableError."""
    package = Package(data)
    types = _content_types(package)
    found = next((one for one, pattern in _MAIN.items() if any(map(pattern.search, types.values()))), None)
    if found is None:
        refuse_package(f"is no file of the format {kind}. Open it in its program, and save it as .{kind}")
    if found != kind:
        refuse_package(f"is of the format {found}. Use format={found}")
    main = [name for name, kind_of in types.items() if _MAIN[kind].search(kind_of)] if kind == "docx" else []
    others = sorted((name for name, one in types.items() if _WITH_TEXT[kind].search(one)), key=_natural)
    others.sort(key=lambda name: "/charts/" in name or "/diagrams/" in name)
    names = [name for name in dict.fromkeys([*main, *others]) if name in package and _has_text(package, name, types)]
    finish = partial(_finish_workbook, package, types) if kind == "xlsx" else None
    for name in names:
        package.xml(name)
    return package.opened(partial(_parsed, types), names, finish)


def _content_types(package: Package) -> dict[str, str]:
    """What the members are, by name, or by the ending of this."""
    if _CONTENT_TYPES not in package:
        refuse_package("is no file of Microsoft Office: it does not say what its members are. Check the format")
    text = package.xml(_CONTENT_TYPES)
    named, by_ending = dict[str, str](), dict[str, str]()
    for element in read_elements(text, {}).descendants():
        content_type = attribute(text, element, "ContentType") or ""
        if element.name == "Override":
            named[(attribute(text, element, "PartName") or "").lstrip("/")] = content_type
        elif element.name == "Default":
            by_ending[(attribute(text, element, "Extension") or "").lower()] = content_type
    for name in package.names():
        if name not in named and name != _CONTENT_TYPES:
            named[name] = by_ending.get(name.rpartition(".")[2].lower(), "")
    return named


def _finish_workbook(package: Package, types: dict[str, str], changed: dict[str, str]) -> None:
    name_columns(package, _PREFIXES, changed)
    follow_cells(package, types, changed)


def _has_text(package: Package, name: str, types: dict[str, str]) -> bool:
    """Whether a member may have text: a worksheet only in messages, or cells that do not share theirs, as most do."""
    return not types[name].endswith("worksheet+xml") or _IN_SHEET.search(package.read(name)) is not None


def _natural(name: str) -> list[str | int]:
    """slide2 is before slide10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _parsed(types: dict[str, str], name: str, text: str) -> Document:
    builder = Builder(text)
    left_out = None if _INLINE in text else _CELLS.search(text)
    root = read_elements(text, _PREFIXES, None if left_out is None else left_out.span())
    add_paragraphs(builder, root, skips_placeholders=_OF_LAYOUT.search(types[name]) is not None)
    return builder.document()


def add_paragraphs(builder: Builder, root: XmlElement, *, skips_placeholders: bool = False) -> None:
    """Add the units of all paragraphs, those within the text of others before these.

    `skips_placeholders` leaves out what only says on a layout what a slide has there.
    """
    stack: list[tuple[XmlElement, Iterator[XmlElement]]] = [(root, iter(root.children))]
    n_open = 0  # paragraphs
    while True:
        builder.on_unit(len(builder.units))
        element, children = stack[-1]
        child = next(children, None)
        if child is not None and skips_placeholders and _is_placeholder(child):
            continue
        if child is not None:
            stack.append((child, iter(child.children)))
            n_open += child.name in _PARAGRAPHS
            continue
        stack.pop()
        if not stack:
            return
        runs = _PARAGRAPHS.get(element.name)
        n_open -= runs is not None
        builder.is_inner = n_open > 0
        if runs is not None:
            Paragraph(builder, element, runs)
        elif element.name in _WHOLE or (element.name == "c:v" and _is_text(stack)):
            if "<" not in builder.source[element.inner_start : element.inner_end]:
                builder.add_text(element.inner_start, element.inner_end, escape_xml)
        elif element.name in _ATTRIBUTES:
            _add_attributes(builder, element)
        elif element.name == "x:dataValidation":
            _add_validation(builder, element)


def _is_placeholder(shape: XmlElement) -> bool:
    properties = (one.child("p:nvPr") for one in shape.children if one.name.startswith("p:nv"))
    return any(one is not None and one.child("p:ph") is not None for one in properties)


def _is_text(stack: list[tuple[XmlElement, Iterator[XmlElement]]]) -> bool:
    """Whether the value of a chart within the end of the stack is a text, and not a number: a label or a series."""
    names = [element.name for element, _ in stack[-2:]]
    return names[-1:] == ["c:tx"] or (names[-1:] == ["c:pt"] and names[0] in ("c:strCache", "c:strLit", "c:lvl"))


def _add_attributes(builder: Builder, element: XmlElement) -> None:
    for name in _ATTRIBUTES[element.name]:
        span = attribute_span(builder.source, element, name)
        if span is not None:
            builder.add_text(*span, escape_in_quotes)


def _add_validation(builder: Builder, element: XmlElement) -> None:
    """Add the messages of a cell with rules, and the items that it may have."""
    source = builder.source
    spans = [(span, limit) for name, limit in _MESSAGES.items() if (span := attribute_span(source, element, name))]
    for span, limit in sorted(spans):
        builder.add_text(*span, partial(_escaped_message, limit=limit))
    formula = element.child("x:formula1")
    if formula is None or attribute(source, element, "type") != "list":
        return
    items = LIST.fullmatch(source, formula.inner_start, formula.inner_end)
    for item in re.compile(r"[^,]+").finditer(source, *items.span("items")) if items else ():
        builder.add_text(*item.span(), _escaped_item)


def _escaped_message(text: str, *, limit: int) -> str:
    if len(text) > limit:
        raise MarkupChangedError
    return escape_in_quotes(text)


def _escaped_item(text: str) -> str:
    if "," in text or '"' in text:
        raise MarkupChangedError
    return escape_xml(text)
