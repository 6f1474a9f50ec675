"""Tables of spreadsheets: the name of each column must be the text of its head, or Excel calls the file damaged."""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from html import unescape

from transformer_cli.addons.documents.package import Package
from transformer_cli.addons.documents.xml import escape_in_quotes, escape_xml
from transformer_cli.addons.documents.xml_tree import XmlElement, attribute, attribute_span, decoded_xml, read_elements

_SHARED = "xl/sharedStrings.xml"
_ITEM = re.compile(r"<((?:\w+:)?)si(?:\s[^<>]*?)?(?:/>|>.*?</\1si>)", re.DOTALL)
_ROOT = re.compile(r"<(?:\w+:)?sst\b[^<>]*>")
_CELL = re.compile(r"([A-Z]+)([0-9]+)")
_COLUMN = re.compile(r"\[(@?)((?:[^\[\]#@']|'.)(?:[^\[\]']|'.)*)\]")  # in a formula
_SPECIAL = re.compile(r"[\[\]#'@]")
_FORMULAS = re.compile(
    r"(<(?:\w+:)?(f|formula|formula1|formula2|calculatedColumnFormula|totalsRowFormula|definedName)\b[^<>]*(?<!/)>)"
    r"([^<>]*\[[^<>]*)(?=</)"
)


@dataclass
class _Head:
    """The text of a column's head as it is translated."""

    text: str
    member: str
    end: int  # of it there


@dataclass
class _Column:
    table: str  # the member
    span: tuple[int, int]  # of its name, in that
    name: str
    head: _Head


def name_columns(package: Package, prefixes: dict[str, str], changed: dict[str, str]) -> None:
    """Give the columns of all tables the names that their heads have in `changed`, also in formulas."""
    columns = list(_columns(package, prefixes, changed))
    if not columns:
        return
    _make_unique(columns, package, changed)
    names = {one.name: one.head.text for one in columns}
    for table in {one.table: None for one in columns}:
        text = package.xml(table)
        for one in sorted((one for one in columns if one.table == table), key=lambda one: one.span, reverse=True):
            written = escape_in_quotes(one.head.text).replace("\n", "_x000a_")
            text = text[: one.span[0]] + written + text[one.span[1] :]
        changed[table] = text
    for member in package.names():
        if re.fullmatch(r"xl/(?:workbook|worksheets/[^/]*|tables/[^/]*)\.xml", member):
            text = changed.get(member, package.xml(member))
            again = _FORMULAS.sub(partial(_renamed, names), text)
            if again != text:
                changed[member] = again


def _columns(package: Package, prefixes: dict[str, str], changed: dict[str, str]) -> Iterator[_Column]:
    shared: _Shared | None = None
    for sheet in package.names():
        folder, name = posixpath.split(sheet)
        relations = f"{folder}/_rels/{name}.rels"
        if folder != "xl/worksheets" or relations not in package:
            continue
        text = package.xml(relations)
        for relation in read_elements(text, {}).descendants():
            if not (attribute(text, relation, "Type") or "").endswith("/table"):
                continue
            table = posixpath.normpath(posixpath.join(folder, attribute(text, relation, "Target") or "")).lstrip("/")
            if table in package:
                shared = shared or _Shared(package, prefixes, changed)
                yield from _of_table(package, sheet, table, prefixes, changed, shared)


class _Shared:
    """The texts that cells share, of which heads are few: each is read when it is asked for."""

    def __init__(self, package: Package, prefixes: dict[str, str], changed: dict[str, str]) -> None:
        self.prefixes = prefixes
        self.text = (changed.get(_SHARED) or package.xml(_SHARED)) if _SHARED in package else ""
        self.spans = [match.span() for match in _ITEM.finditer(self.text)]
        root = _ROOT.search(self.text)
        self.root = "" if root is None else root[0]  # which has the namespaces
        self.heads: dict[int, _Head] = {}

    def head(self, number: int) -> _Head | None:
        if number not in self.heads and number < len(self.spans):
            start, end = self.spans[number]
            shown = self.root + self.text[start:end]
            item = next(one for one in read_elements(shown, self.prefixes).descendants() if one.name == "x:si")
            head = _head(shown, _SHARED, item)
            head.end += start - len(self.root)
            self.heads[number] = head
        return self.heads.get(number)


def _of_table(
    package: Package,
    sheet: str,
    table: str,
    prefixes: dict[str, str],
    changed: dict[str, str],
    shared: _Shared,
) -> Iterator[_Column]:
    text = package.xml(table)
    (root,) = read_elements(text, prefixes).children
    first = _CELL.match(attribute(text, root, "ref") or "")
    if first is None or attribute(text, root, "headerRowCount") == "0":
        return
    heads = _heads(changed.get(sheet) or package.xml(sheet), sheet, first[2], prefixes, shared)
    columns = (one for one in root.descendants() if one.name == "x:tableColumn")
    for n, column in enumerate(columns, _number(first[1])):
        span = attribute_span(text, column, "name")
        if n in heads and span is not None:
            yield _Column(table, span, unescape(text[slice(*span)]).replace("_x000a_", "\n"), heads[n])


def _heads(text: str, sheet: str, row: str, prefixes: dict[str, str], shared: _Shared) -> dict[int, _Head]:
    """The texts in the cells of a row, by the numbers of their columns."""
    found = re.search(rf"<((?:\w+:)?)row\b[^<>]*\sr=[\"']{row}[\"'][^<>]*(?<!/)>.*?</\1row>", text, re.DOTALL)
    begin = re.search(r"<(?:\w+:)?worksheet\b[^<>]*>", text)
    if found is None or begin is None:
        return {}
    heads: dict[int, _Head] = {}
    shown = begin[0] + found[0]  # with the namespaces
    for cell in read_elements(shown, prefixes).descendants():
        place = _CELL.fullmatch(attribute(shown, cell, "r") or "") if cell.name == "x:c" else None
        value, inline = cell.child("x:v"), cell.child("x:is")
        if place is None:
            continue
        if inline is not None:
            head = _head(shown, sheet, inline)
            head.end += found.start() - len(begin[0])
            heads[_number(place[1])] = head
        elif value is not None and attribute(shown, cell, "t") == "s":
            number = shown[value.inner_start : value.inner_end].strip()
            found_head = shared.head(int(number)) if number.isascii() and number.isdigit() else None
            if found_head is not None:
                heads[_number(place[1])] = found_head
    return heads


def _number(letters: str) -> int:
    """The number of a column: 1 of A, 27 of AA."""
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number


def _head(source: str, member: str, item: XmlElement) -> _Head:
    found = (one.child("x:t") if one.name == "x:r" else one for one in item.children)  # and no readings (x:rPh)
    parts = [one for one in found if one is not None and one.name == "x:t"]
    text = decoded_xml("".join(source[one.inner_start : one.inner_end] for one in parts))
    return _Head(text, member, parts[-1].inner_end if parts else item.inner_end)


def _make_unique(columns: list[_Column], package: Package, changed: dict[str, str]) -> None:
    """Number the heads of a table that became equal: Excel tells columns apart by name, whatever the case."""
    taken: set[tuple[str, str]] = set()
    added: list[tuple[str, int, str]] = []
    for one in columns:
        head, n = one.head, 1
        while (one.table, head.text.lower() + (f" {n}" if n > 1 else "")) in taken:
            n += 1
        if n > 1:
            added.append((head.member, head.end, f" {n}"))
            head.text += f" {n}"
        taken.add((one.table, head.text.lower()))
    for member, end, number in sorted(added, reverse=True):
        text = changed.get(member) or package.xml(member)
        changed[member] = text[:end] + number + text[end:]


def _renamed(names: dict[str, str], match: re.Match[str]) -> str:
    def column(found: re.Match[str]) -> str:
        old = re.sub(r"'(.)", r"\1", found[2])
        new = names.get(old)
        return found[0] if new is None else f"[{found[1]}{_SPECIAL.sub(_escaped, new)}]"

    return match[1] + escape_xml(_COLUMN.sub(column, unescape(match[3])))


def _escaped(match: re.Match[str]) -> str:
    return f"'{match[0]}"
