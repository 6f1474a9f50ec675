"""XML: text in elements that hold text, whatever their names are. No entity is expanded and nothing is fetched.

Elements within an element that has text of its own are inline, and so is what is within those; each of the others has
its own units. Attributes and CDATA sections are kept, as what they mean is not known.
"""

import re

from transformer_cli.markup.html import escape_text
from transformer_cli.markup.tags import Kind, Token, tokens
from transformer_cli.markup.units import Builder, Document, Item, add_run

_NAMED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_ENTITY = re.compile(r"&(?:#([0-9]{1,7})|#x([0-9a-fA-F]{1,6})|([\w.:-]{1,100}));")
_KEPT = re.compile(r"\s(?:its:)?translate\s*+=\s*+[\"']no[\"']")
_NO_CHARACTERS = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # section 2.2 of XML 1.0


def parse_xml(text: str) -> Document:
    builder = Builder(text)
    found = list(tokens(text, is_xml=True))
    closing, is_inline = _elements(text, found)
    run: list[Item] = []
    i = 0
    while i < len(found):
        token = found[i]
        if token.kind is Kind.opening and i in closing and _KEPT.search(text, token.start, token.end):
            end = found[closing[i]].end
            if is_inline[i]:
                run.append(Item(token.start, end, is_tag=True))
            else:
                _finish(builder, run)
            i = closing[i] + 1
            continue
        if token.kind is Kind.text:
            run += _text_items(text, token)
        elif token.kind in (Kind.comment, Kind.cdata) or is_inline[i]:
            opens, closes = (token.kind is kind for kind in (Kind.opening, Kind.closing))
            # A hyphen in a name has no meaning here; in HTML it is that of an element of its own kind.
            name = "!--" if token.kind is Kind.comment else token.name.replace("-", "_")
            run.append(Item(token.start, token.end, name=name, is_tag=True, opens=opens, closes=closes))
        else:
            _finish(builder, run)
        i += 1
    _finish(builder, run)
    return builder.document()


def escape_xml(text: str) -> str:
    return escape_text(_NO_CHARACTERS.sub("\ufffd", text))


def _finish(builder: Builder, run: list[Item]) -> None:
    add_run(builder, run, escape_xml)
    run.clear()


def _elements(text: str, found: list[Token]) -> tuple[dict[int, int], list[bool]]:
    """The closing tag of each element, and which tags are within text."""
    parents: list[int] = []  # of each token: the index of its element's opening tag, -1 at the top
    closing: dict[int, int] = {}
    has_text: set[int] = set()
    stack: list[int] = []
    for i, token in enumerate(found):
        if token.kind is Kind.closing and stack and found[stack[-1]].name == token.name:
            closing[stack.pop()] = i
        parents.append(stack[-1] if stack else -1)
        if token.kind is Kind.opening:
            stack.append(i)
        elif token.kind is Kind.text and text[token.start : token.end].strip():
            has_text.add(parents[i])
    inline: list[bool] = []
    for i in range(len(found)):
        parent = parents[i]
        inline.append(parent in has_text or (parent >= 0 and inline[parent]))
    return closing, inline


def _text_items(text: str, token: Token) -> list[Item]:
    """Text with its character references decoded; an entity that only a DTD can explain is kept as it is."""
    items: list[Item] = []
    start, decoded = token.start, []
    position = start
    for match in _ENTITY.finditer(text, token.start, token.end):
        character = _character(match)
        decoded.append(text[position : match.start()])
        position = match.end()
        if character is not None:
            decoded.append(character)
            continue
        items += [Item(start, match.start(), "".join(decoded)), Item(*match.span(), match[0], is_protected=True)]
        start, decoded = match.end(), []
    items.append(Item(start, token.end, "".join([*decoded, text[position : token.end]])))
    return [item for item in items if item.start < item.end]


def _character(match: re.Match[str]) -> str | None:
    if match[3] is not None:
        return _NAMED.get(match[3])
    number = int(match[1]) if match[1] is not None else int(match[2], 16)
    is_legal = number < 0x110000 and not 0xD800 <= number < 0xE000
    return chr(number) if is_legal else None
