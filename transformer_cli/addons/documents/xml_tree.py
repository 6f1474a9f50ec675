"""The elements of well-formed XML, with their places in the text."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import unescape
from itertools import chain

_MARKUP = re.compile(
    r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|<(?P<closes>/?)(?P<name>[^\s/>!?]+)"
    r"(?P<attributes>(?:[^>\"'/]|/(?!>)|\"[^\"]*\"|'[^']*')*)(?P<is_empty>/?)>",
    re.DOTALL,
)
_XMLNS = re.compile(r"\sxmlns(?::([^\s=]+))?\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")


@dataclass(slots=True)
class XmlElement:
    """One element; its opening tag is from `start` to `inner_start`, its closing tag from `inner_end` to `end`."""

    name: str  # with the prefix that is given for its namespace, as w:p
    raw_name: str  # as it is written
    start: int
    inner_start: int
    inner_end: int = 0  # of an empty element as all three others: the end of its tag
    end: int = 0
    children: "list[XmlElement]" = field(default_factory=list)

    def child(self, name: str) -> "XmlElement | None":
        return next((one for one in self.children if one.name == name), None)

    def descendants(self) -> "Iterator[XmlElement]":
        """All elements within, in their order."""
        stack = [iter(self.children)]
        while stack:
            for one in stack[-1]:
                yield one
                stack.append(iter(one.children))
                break
            else:
                stack.pop()


def read_elements(text: str, prefixes: Mapping[str, str], left_out: tuple[int, int] | None = None) -> XmlElement:
    """The root of a text that is well-formed XML. `prefixes` are those of namespaces by URI; others have none.

    `left_out` is the stretch of an element that is not read.
    """
    root = XmlElement("", "", 0, 0, len(text), len(text))
    stack, scopes = [root], [dict[str, str]()]
    first, last = left_out or (len(text), len(text))
    for match in chain(_MARKUP.finditer(text, 0, first), _MARKUP.finditer(text, last)):
        raw_name = match["name"]
        if raw_name is None:
            continue
        if match["closes"]:
            element = stack.pop()
            scopes.pop()
            element.inner_end, element.end = match.span()
            continue
        scope = scopes[-1]
        if "xmlns" in match["attributes"]:
            declared = {one[1] or "": unescape(one[2] or one[3] or "") for one in _XMLNS.finditer(match["attributes"])}
            scope = {**scope, **declared}
        prefix, _, local = raw_name.rpartition(":")
        known = prefixes.get(scope.get(prefix, ""))
        element = XmlElement(f"{known}:{local}" if known else local, raw_name, match.start(), match.end())
        stack[-1].children.append(element)
        if match["is_empty"]:
            element.inner_end = element.end = match.end()
        else:
            stack.append(element)
            scopes.append(scope)
    return root


def decoded_xml(raw: str) -> str:
    """The text that XML has as `raw`, in which each line end is one character."""
    return unescape(raw.replace("\r\n", "\n").replace("\r", "\n"))


def attribute_span(text: str, element: XmlElement, name: str) -> tuple[int, int] | None:
    """The place of the value of an attribute, whatever the prefix of its name is."""
    pattern = rf"\s(?:[\w.-]+:)?{re.escape(name)}\s*=\s*(?:\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)')"
    match = re.compile(pattern).search(text, element.start, element.inner_start)
    if match is None:
        return None
    return match.span("single" if match["double"] is None else "double")


def attribute(text: str, element: XmlElement, name: str) -> str | None:
    span = attribute_span(text, element, name)
    return None if span is None else unescape(text[slice(*span)])
