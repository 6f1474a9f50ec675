"""Inline mark-up of reStructuredText, as messages of Sphinx have it."""

import re

from transformer_cli.addons.documents.units import Item

# The mark-up begins after white space or an opening mark, and ends before white space or punctuation.
_BEGINS = r"(?<![^\s\-:/'\"<(\[{‘“«¡¿\\])"
_ENDS = r"(?![^\s\-.,:;!?\\/'\")\]}>’”»])"
_ALWAYS = (
    rf"{_BEGINS}``[^\s`](?:[^`\n]|`(?!`)){{0,300}}``{_ENDS}"
    rf"|{_BEGINS}(?P<role>:[a-zA-Z][\w:.+-]{{0,50}}:`)"
    rf"(?:(?P<title>[^`<>\n]{{1,300}}?)\s<[^`<>\n]{{1,300}}>`|(?P<content>[^`\n]{{1,300}})`){_ENDS}"
    rf"|{_BEGINS}`(?P<text>[^`<>\n]{{1,300}}?)\s<[^`<>\n]{{1,300}}>`__?{_ENDS}"
)
_IN_SPHINX = (
    rf"|{_BEGINS}`(?P<named>[^`<>\n]{{1,300}})`_{_ENDS}"
    rf"|{_BEGINS}(?:\|[^\s|][^|\n]{{0,100}}\|_{{0,2}}|\[[^\[\]\n]{{1,50}}\]_|(?<![\w`])[a-zA-Z0-9]\w{{0,50}}_){_ENDS}"
    rf"|{_BEGINS}\*\*(?P<bold>[^\s*](?:[^*\n]{{0,300}}[^\s*])?)\*\*{_ENDS}"
    rf"|{_BEGINS}\*(?P<italic>[^\s*](?:[^*\n]{{0,300}}[^\s*])?)\*{_ENDS}"
    rf"|{_BEGINS}`[^\s`][^`\n]{{0,300}}`{_ENDS}"
    r"|(?P<escaped>\\\s)"
)
MARKUP = {False: re.compile(_ALWAYS), True: re.compile(_ALWAYS + _IN_SPHINX)}
# Roles whose text is shown as it is; that of others is a name.
_TEXT_ROLES = ("guilabel", "menuselection", "strong", "emphasis", "dfn", "abbr", "sup", "sub", "title", "rubric")
_PAIRS = ("title", "text", "named", "bold", "italic")


def markup_items(match: re.Match[str]) -> list[Item]:
    """The items of one piece of mark-up: a pair of tags around its text, or what is kept."""
    groups = match.groupdict()
    for name in _PAIRS:
        if groups.get(name):
            return _pair(match, name)
    if groups.get("content") and match["role"].strip(":`") in _TEXT_ROLES:
        return _pair(match, "content")
    if groups.get("escaped"):
        return [Item(*match.span(), name="wbr", is_tag=True)]
    return [Item(*match.span(), _shown(match), is_protected=True)]


def _pair(match: re.Match[str], name: str) -> list[Item]:
    """The tags around a group; a name of a reference is kept behind its translation."""
    (start, end), of_pair = match.span(name), f"{name}{match.start()}:"
    first, last = match.start(), match.end()
    markup = f" <{match[name]}_>`_" if name == "named" else None
    needs_text = name in ("bold", "italic")
    return [
        Item(first, start, name=of_pair, is_tag=True, opens=True, needs_text=needs_text),
        Item(start, end, match[name]),
        Item(end, last, name=of_pair, is_tag=True, closes=True, needs_text=needs_text, markup=markup),
    ]


def _shown(match: re.Match[str]) -> str:
    """What the model sees of what is kept."""
    found = match.groupdict().get("content") or match[0]
    return found.strip("`|_~!") or match[0]
