"""Texts of a spreadsheet of OpenDocument that repeat those of its cells, and follow them when they are translated."""

import re
from html import unescape

from transformer_cli.addons.documents.package import Package
from transformer_cli.addons.documents.sheet_references import follow_in_formula
from transformer_cli.addons.documents.xml import escape_in_quotes
from transformer_cli.addons.documents.xml_tree import decoded_xml

_CONTENT = "content.xml"
_CELL = re.compile(r"(?P<tag><table:table-cell\b[^<>]*(?<!/)>)(?P<inner>.*?)</table:table-cell>", re.DOTALL)
_OTHER = re.compile(r"<(office:annotation|draw:[\w-]+)\b[^<>]*(?<!/)>.*?</\1>", re.DOTALL)  # on a cell
_LINE = re.compile(r"<text:p\b[^<>]*(?<!/)>(.*?)</text:p>", re.DOTALL)
_FORMULA = re.compile(
    r"(\s(?:table:formula|table:condition|table:expression|style:condition|calcext:value)=\")([^\"]*&quot;[^\"]*)"
)
_REPEATED = re.compile(
    r"(<table:(?:filter-condition|filter-set-item)\b[^<>]*?\stable:value=\"|<table:data-pilot-field\b[^<>]*?\stable:"
    r"(?:source-field-name|selected-page)=\"|<table:data-pilot-member\b[^<>]*?\stable:name=\")([^\"]*)"
)
_VALUE = re.compile(r"\s(?:office|calcext):(?:value-type|string-value)=\"[^\"]*\"")
_IS_TEXT = re.compile(r"\stable:formula=\"(?P<formula>[^\"]*)\".*?\soffice:value-type=\"string\"", re.DOTALL)


def follow_calc_cells(package: Package, changed: dict[str, str]) -> None:
    """Change what repeats the texts of cells that are translated in `changed`, and leave out results that are texts."""
    before, after = package.text(_CONTENT), changed.get(_CONTENT, "")
    texts: dict[str, str] = {}
    for old, new in zip(_CELL.finditer(before), _CELL.finditer(after), strict=False):
        shown = _shown(old["inner"]), _shown(new["inner"])
        if shown[0] != shown[1]:
            texts.setdefault(*shown)
    if not texts:
        return

    def formula(match: re.Match[str]) -> str:
        old = unescape(match[2])
        new = follow_in_formula(old, texts)
        return match[0] if new == old else match[1] + escape_in_quotes(new)

    def repeated(match: re.Match[str]) -> str:
        new = texts.get(unescape(match[2]))
        return match[0] if new is None else match[1] + escape_in_quotes(new)

    text = _CELL.sub(_without_result, after)
    changed[_CONTENT] = _REPEATED.sub(repeated, _FORMULA.sub(formula, text))


def _without_result(match: re.Match[str]) -> str:
    """A cell with a formula whose result is a text is computed again, if there is none."""
    if _IS_TEXT.search(match["tag"]) is None:
        return match[0]
    return _VALUE.sub("", match["tag"]) + _LINE.sub("", match["inner"]) + "</table:table-cell>"


def _shown(cell: str) -> str:
    lines = _LINE.findall(_OTHER.sub("", cell))
    return decoded_xml("\n".join(re.sub(r"<[^<>]*>", "", line) for line in lines))
