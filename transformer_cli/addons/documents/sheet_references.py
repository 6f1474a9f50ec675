"""Texts of a workbook that repeat those of its cells, and follow them when they are translated.

A formula, a filter or a rule that compares with the text of a cell would no longer find it, a pivot table would lose
its fields when it is refreshed, and results of formulas would be in the old language.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from html import unescape

from transformer_cli.addons.documents.package import Package
from transformer_cli.addons.documents.xml import escape_in_quotes, escape_xml
from transformer_cli.addons.documents.xml_tree import decoded_xml

_ITEM = re.compile(r"<((?:\w+:)?)(?P<kind>si|is)(?:\s[^<>]*)?(?<!/)>(?P<inner>.*?)</\1(?P=kind)>", re.DOTALL)
_READING = re.compile(r"<((?:\w+:)?)rPh\b.*?</\1rPh>", re.DOTALL)
_SHOWN = re.compile(r"<(?:\w+:)?t(?:\s[^<>]*)?(?<!/)>([^<]*)<")
_FORMULA = re.compile(
    r"(?P<tag><(?:\w+:)?(?:f|formula|formula[12]|calculatedColumnFormula|totalsRowFormula|definedName)\b[^<>]*(?<!/)>)"
    r"(?P<formula>[^<>]*(?:\"|&quot;)[^<>]*)(?=</)"
)
LIST = re.compile(
    r"\s*(?:\"|&quot;)(?P<items>(?:(?!&quot;)[^\"<>])*)(?:\"|&quot;)\s*"
)  # the formula of a list of validation
_VALIDATION = re.compile(
    r"(?P<before><((?:\w+:)?)dataValidation\s[^<>]*\btype=\"list\"[^<>]*(?<!/)>\s*<\2formula1>)(?P<formula>[^<>]*)(?=<)"
)
_LONGEST_LIST = 255  # characters that Excel reads of it, and of an item of a pivot table
_PART = re.compile(
    r"(?P<function>contains-text|[A-Za-z_][\w.]*)?\(|(?P<closes>\))|\"(?P<text>(?:[^\"]|\"\")*)\"|'(?:[^']|'')*'"
)
# Functions whose texts are formats, addresses and the like.
_OF_CODES = (
    "TEXT CELL INFO DATEDIF CONVERT INDIRECT ADDRESS HYPERLINK NUMBERVALUE DATEVALUE TIMEVALUE WEBSERVICE FILTERXML"
    " CUBEKPIMEMBER CUBEMEMBER CUBEMEMBERPROPERTY CUBERANKEDMEMBER CUBESET CUBEVALUE"
)
_RESULT = re.compile(
    r"(?P<cell><(?P<prefix>(?:\w+:)?)c\s[^<>]*\bt=\"str\"[^<>]*(?<!/)>)(?P<formula><(?P=prefix)f\b[^<>]*(?:/>|>[^<>]*</(?P=prefix)f>))?"
    r"<(?P=prefix)v(?:\s[^<>]*)?>(?P<value>[^<>]*)</(?P=prefix)v>"
)
_COMPUTED_ELSEWHERE = ("[", "_xl")  # in formulas of which not every program knows how to compute them
_SHARED_ITEMS = re.compile(r"<((?:\w+:)?)sharedItems\b[^<>]*(?<!/)>.*?</\1sharedItems>", re.DOTALL)
_CALC = re.compile(r"<(?:\w+:)?calcPr\b")
_BEFORE_CALC = re.compile(
    r".*</(?P<prefix>(?:\w+:)?)(?:sheets|functionGroups|externalReferences|definedNames)>", re.DOTALL
)

_SHEET, _TABLE, _BOOK = "worksheet+xml", "table+xml", ".main+xml"
_CACHE, _RECORDS, _PIVOT = "pivotCacheDefinition+xml", "pivotCacheRecords+xml", "pivotTable+xml"
_SLICERS = "slicer+xml"
_SLICER_CACHE = "slicerCache+xml"
# The attributes that repeat texts of cells, by the content types of the members.
_ATTRIBUTES = {
    _SHEET: {"filter": "val", "customFilter": "val", "cfRule": "text"},
    _TABLE: {"filter": "val", "customFilter": "val", "tableColumn": "totalsRowLabel"},
    _RECORDS: {"s": "v"},
    _PIVOT: {
        "pivotField": "name",
        "pivotTableDefinition": "rowHeaderCaption|colHeaderCaption|grandTotalCaption|dataCaption",
    },
    _SLICERS: {"slicer": "caption"},
}
_MAY_REFER = re.compile(rb"<(?:\w+:)?(?:f|formula[12]?|filter|customFilter|cfRule)\b|totalsRowLabel")


def follow_cells(package: Package, types: Mapping[str, str], changed: dict[str, str]) -> None:
    """Change what repeats the texts of cells that are translated in `changed`, by the content types of the members."""
    cells = _Cells(package, changed)
    shared = [name for name, kind in types.items() if kind.endswith(("sharedStrings+xml", _SHEET)) and name in changed]
    for name in shared:
        cells.read(name)
    for name in shared:
        cells.read_lists(name)
    if not cells.texts:
        return
    for kind, change in (
        (_CACHE, cells.cache),
        (_RECORDS, partial(cells.attributes, _RECORDS)),
        (_PIVOT, cells.pivot),
        (_SLICER_CACHE, cells.slicer_cache),
        (_SLICERS, partial(cells.attributes, _SLICERS)),
        (_SHEET, cells.sheet),
        (_TABLE, cells.table),
        (_BOOK, cells.book),
    ):
        for name in (one for one, of_member in types.items() if of_member.endswith(kind) and one in package):
            if name in changed or kind not in (_SHEET, _TABLE) or _MAY_REFER.search(package.read(name)):
                cells.change(name, change)


@dataclass
class _Cells:
    """The texts of cells with their translations, and the members that are changed by them."""

    package: Package
    changed: dict[str, str]
    texts: dict[str, str] = field(default_factory=dict)
    kept_fields: set[str] = field(default_factory=set)  # of pivot tables, which keep their names
    fields: set[str] = field(default_factory=set)  # the names that they have now, in small letters
    has_results: bool = False  # texts that formulas have computed

    def change(self, name: str, by: Callable[[str], str]) -> None:
        text = self.changed.get(name) or self.package.xml(name)
        if (new := by(text)) != text:
            self.changed[name] = new

    def read(self, name: str) -> None:
        """Learn the translations of a member's cells, and leave out the readings of the texts before."""
        before, after = self.package.text(name), self.changed[name]
        if before == after:
            return
        is_new: list[bool] = []
        for old, new in zip(_ITEM.finditer(before), _ITEM.finditer(after), strict=True):
            texts = _shown(old["inner"]), _shown(new["inner"])
            is_new.append(texts[0] != texts[1])
            if is_new[-1]:
                self.texts.setdefault(*texts)
        if "rPh" in after:
            states = iter(is_new)
            self.changed[name] = _ITEM.sub(
                lambda match: _READING.sub("", match[0]) if next(states) else match[0], after
            )

    def read_lists(self, name: str) -> None:
        """Learn the translations of the items of lists, and give those that are texts of cells the ones of these."""
        before, after = (list(_VALIDATION.finditer(text)) for text in (self.package.text(name), self.changed[name]))
        for old, new in zip(before, after, strict=True):
            for one, other in zip(_items(old["formula"]), _items(new["formula"]), strict=True):
                if one != other:
                    self.texts.setdefault(one, other)
        formulas = iter([self._list(one["formula"]) for one in before])
        if before:
            self.changed[name] = _VALIDATION.sub(lambda match: match["before"] + next(formulas), self.changed[name])

    def _list(self, formula: str) -> str:
        items = [self.texts.get(one, one) for one in _items(formula)]
        written = ",".join(items)
        is_same = items == _items(formula)
        if is_same or len(written) > _LONGEST_LIST or any("," in one or '"' in one for one in items):
            return formula
        return escape_xml(f'"{written}"')

    # ---- Members

    def sheet(self, text: str) -> str:
        text = self.attributes(_SHEET, self._formulas(text))
        return _RESULT.sub(self._result, text)

    def table(self, text: str) -> str:
        return self.attributes(_TABLE, self._formulas(text))

    def book(self, text: str) -> str:
        """The names of formulas, and a request to compute all results again."""
        text = self._formulas(text)
        if not self.has_results or "fullCalcOnLoad" in text:
            return text
        if (found := _CALC.search(text)) is not None:
            return f'{text[: found.end()]} fullCalcOnLoad="1"{text[found.end() :]}'
        place = _BEFORE_CALC.match(text)
        if place is None:
            return text
        return f'{text[: place.end()]}<{place["prefix"]}calcPr fullCalcOnLoad="1"/>{text[place.end() :]}'

    def cache(self, text: str) -> str:
        """The fields of a pivot table and their values, if no two translations are the same."""
        names = list(_values(text, "cacheField", "name"))
        translated = [self.texts.get(name, name) for name in names]
        if re.search(r"<(?:\w+:)?cacheField\b[^<>]*\sformula=", text) or not _are_apart(translated):
            self.kept_fields.update(names)
        else:
            text = self._attribute("cacheField", "name", text)
            names = translated
        self.fields.update(name.casefold() for name in names)
        return _SHARED_ITEMS.sub(self._shared_items, text)

    def pivot(self, text: str) -> str:
        def of_data(match: re.Match[str]) -> str:
            new = self.texts.get(unescape(match[2]))
            return match[0] if new is None or new.casefold() in self.fields else match[1] + escape_in_quotes(new)

        text = _attribute_of("dataField", "name").sub(of_data, text)
        return self.attributes(_PIVOT, text)

    def slicer_cache(self, text: str) -> str:
        return self._attribute("slicerCacheDefinition", "sourceName", text, self.kept_fields)

    def attributes(self, kind: str, text: str) -> str:
        for element, names in _ATTRIBUTES[kind].items():
            text = self._attribute(element, names, text)
        return text

    # ---- Parts of them

    def _attribute(self, element: str, names: str, text: str, kept: Iterable[str] = ()) -> str:
        def follow(match: re.Match[str]) -> str:
            old = unescape(match[2])
            new = None if old in kept else self.texts.get(old)
            return match[0] if new is None else match[1] + escape_in_quotes(new)

        return _attribute_of(element, names).sub(follow, text)

    def _shared_items(self, match: re.Match[str]) -> str:
        translated = [self.texts.get(value, value) for value in _values(match[0], "s", "v")]
        is_short = all(len(value) <= _LONGEST_LIST for value in translated)
        return self._attribute("s", "v", match[0]) if is_short and _are_apart(translated) else match[0]

    def _formulas(self, text: str) -> str:
        return _FORMULA.sub(self._formula, text)

    def _formula(self, match: re.Match[str]) -> str:
        old = unescape(match["formula"])
        new = follow_in_formula(old, self.texts)
        return match[0] if new == old else match["tag"] + escape_xml(new)

    def _result(self, match: re.Match[str]) -> str:
        """A text that a formula has computed: that of a cell, or left out, so that it is computed again."""
        formula, value = match["formula"], unescape(match["value"])
        self.has_results |= formula is not None
        if value in self.texts:
            start, end = (place - match.start() for place in match.span("value"))
            return match[0][:start] + escape_xml(self.texts[value]) + match[0][end:]
        if formula is None or any(one in formula for one in _COMPUTED_ELSEWHERE):
            return match[0]
        return match["cell"] + formula


def follow_in_formula(formula: str, texts: Mapping[str, str]) -> str:
    """A formula whose texts in quotes are those that cells have now, but for what functions read as a code."""
    functions: list[str] = []

    def part(found: re.Match[str]) -> str:
        if found["text"] is None:
            if found[0].endswith("("):
                functions.append((found["function"] or "").upper().rpartition(".")[2])
            elif found["closes"] is not None and functions:
                functions.pop()
            return found[0]
        new = texts.get(found["text"].replace('""', '"'))
        if new is None or any(one in _OF_CODES.split() for one in functions[-1:]):
            return found[0]
        doubled = new.replace('"', '""')
        return f'"{doubled}"'

    return _PART.sub(part, formula)


def _shown(item: str) -> str:
    return decoded_xml("".join(_SHOWN.findall(_READING.sub("", item))))


def _items(formula: str) -> list[str]:
    """The texts of a list of validation; none of a list that is in cells."""
    found = LIST.fullmatch(formula)
    return [] if found is None else [one.strip() for one in unescape(found["items"]).split(",")]


def _attribute_of(element: str, names: str) -> re.Pattern[str]:
    return re.compile(rf"(<(?:\w+:)?{element}\b[^<>]*?\s(?:{names})=\")([^\"]*)")


def _values(text: str, element: str, name: str) -> Iterator[str]:
    return (unescape(match[2]) for match in _attribute_of(element, name).finditer(text))


def _are_apart(names: Iterable[str]) -> bool:
    folded = [name.casefold() for name in names]
    return len(set(folded)) == len(folded)
