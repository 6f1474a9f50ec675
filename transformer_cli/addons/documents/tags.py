"""Tags of HTML and XML, found by one pass over a text, whatever is in it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto


class Kind(Enum):
    text = auto()
    opening = auto()
    closing = auto()
    empty = auto()  # <br/>
    comment = auto()  # or a processing instruction, or code between <% and %>
    cdata = auto()
    declaration = auto()
    rest = auto()  # after something that has no end: never changed


@dataclass(frozen=True)
class Token:
    kind: Kind
    start: int
    end: int
    name: str = ""  # in lower case in HTML


# Code of a template: {{ x }}, {% x %} and {# x #} of Jinja and others, <% x %> and <?php x ?>. Its quotes and brackets
# are none of the document. None has another of its kind within, so that what is not closed is not read often.
_BRACES = (
    r"\{{2,3}+(?:[^{}\n]|\}(?!\})|\{(?!\{)){0,300}+\}{2,3}"
    r"|\{%(?:[^{%\n]|%(?!\})|\{(?!%)){0,300}+%\}|\{#(?:[^{#\n]|#(?!\})|\{(?!#)){0,300}+#\}"
)
_TEMPLATE = rf"{_BRACES}|<%(?:[^<%]|%(?!>)|<(?!%)){{0,1000}}+%>|<\?(?:php\b|=)(?:[^<?]|\?(?!>)|<(?!\?)){{0,1000}}+\?>"
TEMPLATE = re.compile(_TEMPLATE)
QUOTED = "|".join(f"{quote}(?:[^{quote}{{<]++|{_TEMPLATE}|[{{<])*+{quote}" for quote in "\"'")
_TEXT = re.compile(rf"(?:[^<{{]++|{_BRACES}|\{{)++")
# A quote counts only after an equals sign, as HTML has it. No part of this can match in two ways.
_TAG = re.compile(rf"<(/?)([^\W\d][^\s/>]*+)((?:=\s*+(?:{QUOTED})|{_TEMPLATE}|[^>])*+)>")
_TAG_BEGINS = re.compile(r"</?[^\W\d]")
_NO_TAG = re.compile(r"</[^a-zA-Z]")  # which HTML reads as a comment, up to the next >
_HTML_COMMENT = re.compile(r"<!--(?:-?>|.*?--!?>)", re.DOTALL)  # <!--> is a whole one
_DECLARATION_PART = re.compile(r"\"[^\"]*+\"|'[^']*+'|<!--.*?-->|[\[\]>]", re.DOTALL)
_CDATA = "<![CDATA["
_FOREIGN = ("svg", "math")  # in which HTML has CDATA sections
_RAW_TEXT = ("script", "style", "textarea", "xmp", "iframe", "noembed", "noframes", "title")
_RAW_TEXT_END = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in _RAW_TEXT}
# Within <!-- and --> in a script, a second <script> has an end of its own, which is not the end of the first.
_SCRIPT_PART = re.compile(r"<!--|-->|</?script(?=[\s/>])", re.IGNORECASE)


def tokens(text: str, *, is_xml: bool) -> Iterator[Token]:
    """Splits a text into tokens, whose concatenation is the text."""
    position = n_foreign = 0
    last_of_code = -1 if is_xml else text.rfind("%>")
    while position < len(text):
        start = position
        if text[start] != "<":
            position = _text_end(text, start, is_xml=is_xml)
            yield Token(Kind.text, start, position)
            continue
        if text.startswith("<%", start) and start + 2 <= last_of_code:
            token = _until(text, start, "%>", Kind.comment, start + 2)
        elif not is_xml and _NO_TAG.match(text, start):
            token = _until(text, start, ">", Kind.comment, start)
        elif n_foreign > 0 and text.startswith(_CDATA, start):
            token = _until(text, start, "]]>", Kind.comment, start)
        else:
            token = markup_at(text, start, is_xml=is_xml)
        yield token
        position = token.end
        if not is_xml and token.name in _FOREIGN:
            n_foreign = max(0, n_foreign + {Kind.opening: 1, Kind.closing: -1}.get(token.kind, 0))
        if token.kind is Kind.opening and not is_xml and token.name in (*_RAW_TEXT, "plaintext"):
            end = _raw_text_end(text, position, token.name)
            kind = Kind.text if token.name == "title" and end is not None else Kind.comment
            kind = Kind.rest if end is None else kind
            stop = len(text) if end is None else end
            if stop > position:
                yield Token(kind, position, stop)
            position = stop


def _text_end(text: str, start: int, *, is_xml: bool) -> int:
    if is_xml:
        end = text.find("<", start)
        return len(text) if end < 0 else end
    match = _TEXT.match(text, start)
    assert match is not None
    return match.end()


def _raw_text_end(text: str, start: int, name: str) -> int | None:
    """The start of the closing tag of an element that has no tags within it."""
    if name == "plaintext":  # which has no end
        return None
    if name != "script":
        found = _RAW_TEXT_END[name].search(text, start)
        return None if found is None else found.start()
    is_escaped = is_nested = False
    for match in _SCRIPT_PART.finditer(text, start):
        if match[0] == "<!--":
            is_escaped = is_escaped or not text.startswith((">", "->"), match.end())
        elif match[0] == "-->":
            is_escaped = is_nested = False
        elif match[0][1] != "/":
            is_nested = is_escaped
        elif is_nested:
            is_nested = False
        else:
            return match.start()
    return None


def markup_at(text: str, start: int, *, is_xml: bool) -> Token:
    if not is_xml and text.startswith("<!--", start):
        comment = _HTML_COMMENT.match(text, start)
        return Token(Kind.rest, start, len(text)) if comment is None else Token(Kind.comment, start, comment.end())
    if text.startswith("<!--", start):
        return _until(text, start, "-->", Kind.comment, start + 4)
    if is_xml and text.startswith(_CDATA, start):
        return _until(text, start, "]]>", Kind.cdata, start + 9)
    if text.startswith("<!", start):
        return _declaration(text, start) if is_xml else _until(text, start, ">", Kind.declaration, start)
    if text.startswith("<?", start):
        is_code = is_xml or text.startswith(("<?php", "<?=", "<?xml"), start)
        return _until(text, start, "?>" if is_code else ">", Kind.comment, start + 2)
    if match := _TAG.match(text, start):
        name = match[2] if is_xml else match[2].lower()
        is_empty = match[3].endswith("/") or match[2].endswith("/")
        kind = Kind.closing if match[1] else Kind.empty if is_empty else Kind.opening
        return Token(kind, start, match.end(), name)
    if _TAG_BEGINS.match(text, start):  # and there is no > after it
        return Token(Kind.rest, start, len(text))
    return Token(Kind.text, start, start + 1)


def _until(text: str, start: int, end: str, kind: Kind, after: int) -> Token:
    found = text.find(end, after)
    return Token(Kind.rest, start, len(text)) if found < 0 else Token(kind, start, found + len(end))


def _declaration(text: str, start: int) -> Token:
    """A DOCTYPE, with the declarations within it, which are never obeyed."""
    depth = 0
    for match in _DECLARATION_PART.finditer(text, start):
        if match[0] == "[":
            depth += 1
        elif match[0] == "]":
            depth -= 1
        elif match[0] == ">" and depth <= 0:
            return Token(Kind.declaration, start, match.end())
    return Token(Kind.rest, start, len(text))
