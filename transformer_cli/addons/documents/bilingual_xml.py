"""XML that holds texts beside their translations: its elements, byte by byte, and what is inline in a text.

Unlike other XML it must be well-formed: a translation that is written in the wrong place is worse than none.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from transformer_cli.addons.documents.messages import DocumentWriter, Value
from transformer_cli.addons.documents.po_inline import inline_items
from transformer_cli.addons.documents.tags import Kind, Token, tokens
from transformer_cli.addons.documents.units import Builder, Document, Item, add_run
from transformer_cli.addons.documents.xml import ENTITY, character_of, escape_xml, text_items
from transformer_cli.errors import quoted

_ATTRIBUTE = re.compile(r"\s([^\s=<>\"'/]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
_SPACE = re.compile(r"\sxml:space\s*+=\s*+[\"'](preserve|default)[\"']")
_CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_NATIVE = {"bpt", "ept", "it", "ph", "ut"}  # hold native code in XLIFF 1 and in TMX
_OPENS = {"bpt", "bx", "sc", "sm"}
_CLOSES = {"ept", "ex", "ec", "em"}
_GAP = re.compile(r"[^\S\n]*\n\s*|\s*\t\s*|\s{2,}")


@dataclass
class Element:
    name: str  # without the prefix that the root has
    start: int
    inner: int  # the end of its opening tag
    is_empty: bool = False  # <x/>
    preserves_space: bool = False
    stop: int = 0  # the start of its closing tag
    end: int = 0
    children: list["Element"] = field(default_factory=list)  # of a unit: those that are needed
    is_translated: bool = True

    def child(self, name: str) -> "Element | None":
        return next((one for one in self.children if one.name == name), None)


class BilingualReader(DocumentWriter):
    """Base class of the readers of such formats. `opened` and `closed` get the elements in their order."""

    root: str
    what: str  # for messages
    parents: Iterable[str]  # names of elements that keep their children
    prefix = ""  # that the root element has, with its colon

    def read(self) -> Document:
        """Raises UnreadableError, with the line, for XML that is not well-formed or of another kind."""
        stack: list[Element] = []
        is_over = False
        for n, token in enumerate(tokens(self.text, is_xml=True)):
            if n % 500 == 0:
                self.on_unit(len(self.units))
            if token.kind in (Kind.opening, Kind.empty):
                if is_over:
                    raise self.error(
                        token.start, f"{self.shown(token.start)} follows the root element. Correct the file"
                    )
                if not stack:
                    self.prefix = self._check_root(token)
                element = self._element(token, stack[-1] if stack else None)
                if stack and stack[-1].name in self.parents:
                    stack[-1].children.append(element)
                self.opened(element)
                if token.kind is Kind.opening:
                    stack.append(element)
                    continue
                element.stop = element.end = token.end
                self.closed(element)
                is_over = not stack
            elif token.kind is Kind.closing:
                if not stack or stack[-1].name != token.name.removeprefix(self.prefix):
                    open_one = f"<{stack[-1].name}> is" if stack else "nothing is"
                    raise self.error(
                        token.start, f"{self.shown(token.start)} ends nothing, as {open_one} open. Correct the file"
                    )
                element = stack.pop()
                element.stop, element.end = token.start, token.end
                self.closed(element)
                is_over = not stack
            elif token.kind is Kind.rest:
                raise self.error(token.start, f"{self.shown(token.start)} has no end. Correct the file")
        if not is_over:
            within = f" within <{stack[-1].name}>" if stack else f" without being {self.what}"
            raise self.error(len(self.text), f"the file ends here,{within}. Export it again")
        return self.document()

    def opened(self, element: Element) -> None:
        pass

    def closed(self, element: Element) -> None:
        raise NotImplementedError

    def attributes(self, element: Element) -> dict[str, str]:
        return attributes_of(self.text[element.start : element.inner])

    def has_text(self, element: Element) -> bool:
        """Whether there is anything but white space and tags in it."""
        found = tokens(self.text[element.inner : element.stop], is_xml=True)
        return any(
            self.text[element.inner + one.start : element.inner + one.end].strip()
            for one in found
            if one.kind in (Kind.text, Kind.cdata)
        )

    def _check_root(self, token: Token) -> str:
        """The prefix of the root element, with its colon."""
        prefix, colon, name = token.name.rpartition(":")
        if name != self.root:
            raise self.error(
                token.start,
                f"is not {self.what}: its root element is <{quoted(token.name, 40)[1:-1]}>. Name its format",
            )
        return prefix + colon

    def _element(self, token: Token, outer: Element | None) -> Element:
        element = Element(
            token.name.removeprefix(self.prefix),
            token.start,
            token.end,
            is_empty=token.kind is Kind.empty,
            preserves_space=outer is not None and outer.preserves_space,
            is_translated=outer is None or outer.is_translated,
        )
        if space := _SPACE.search(self.text, token.start, token.end):
            element.preserves_space = space[1] == "preserve"
        return element

    def indentation(self, start: int) -> str:
        """The white space before a place, if it begins a line: with it, another element can have a line of its own."""
        before = self.text[max(0, start - 1000) : start]
        space = before[len(before.rstrip()) :]
        return space if "\n" in space or "\r" in space else ""


def attributes_of(tag: str) -> dict[str, str]:
    return {match[1]: match[2] if match[3] is None else match[3] for match in _ATTRIBUTE.finditer(tag)}


def with_attributes(tag: str, new: Mapping[str, str | None]) -> str:
    """An opening tag with other values of attributes; None removes one."""
    rest = dict(new)

    def attribute(match: re.Match[str]) -> str:
        if match[1] not in rest:
            return match[0]
        value = rest.pop(match[1])
        start, end = (place - match.start() for place in match.span(2 if match[3] is None else 3))
        return "" if value is None else match[0][:start] + value + match[0][end:]

    tag = _ATTRIBUTE.sub(attribute, tag)
    added = "".join(f' {name}="{value}"' for name, value in rest.items() if value is not None)
    at = len(tag) - (2 if tag.endswith("/>") else 1)
    return tag[:at].rstrip() + added + tag[len(tag[:at].rstrip()) :] if added else tag


# ---- Text with inline elements


def parse_inline(content: str, *, preserves_space: bool, prefix: str = "") -> Document:
    """The units of what is in an element with text."""
    return _Inline(without_cdata(content), preserves_space=preserves_space, prefix=prefix).read()


def without_cdata(content: str) -> str:
    """The content with text for its CDATA sections, as it is to be written elsewhere."""
    return _CDATA.sub(lambda match: escape_xml(match[1]), content)


class _Inline:
    def __init__(self, content: str, *, preserves_space: bool, prefix: str) -> None:
        self.content, self.prefix = content, prefix
        self.builder = Builder(content)
        self.preserves_space = preserves_space
        self.newline = "\r\n" if "\r\n" in content else "\n"
        self.run: list[Item] = []
        self.n_lines = 1

    def read(self) -> Document:
        found = list(tokens(self.content, is_xml=True))
        native: list[int] = []  # depth within native code, and the token that it begins with
        blocks: list[bool] = []  # of each <mrk> that is open: whether it is a segment
        for i, token in enumerate(self.builder.watched(found)):
            name = token.name.removeprefix(self.prefix)
            if native:
                native[0] += {Kind.opening: 1, Kind.closing: -1}.get(token.kind, 0)
                if native[0] == 0:
                    first = found[native[1]]
                    self.run.append(self._tag(first.name.removeprefix(self.prefix), first.start, token.end, first.end))
                    native = []
            elif token.kind is Kind.text:
                self._add_text(token.start, token.end)
            elif token.kind is Kind.opening and (name in _NATIVE or self._is_kept(token)):
                native = [1, i]
            elif name == "mrk" and (token.kind is Kind.opening or (token.kind is Kind.closing and blocks)):
                if token.kind is Kind.opening:
                    blocks.append(attributes_of(self.content[token.start : token.end]).get("mtype") == "seg")
                    is_segment = blocks[-1]
                else:
                    is_segment = blocks.pop()
                if is_segment:
                    self._finish()
                else:
                    self.run.append(self._tag(name, token.start, token.end, token.end, token.kind))
            else:
                self.run.append(self._tag(name, token.start, token.end, token.end, token.kind))
        self._finish()
        return self.builder.document()

    def _is_kept(self, token: Token) -> bool:
        """Whether an element around text says that it is not to be translated."""
        attributes = attributes_of(self.content[token.start : token.end])
        return attributes.get("translate") == "no" or attributes.get("mtype") == "protected"

    def _tag(self, name: str, start: int, end: int, tag_end: int, kind: Kind = Kind.empty) -> Item:
        """A tag, which is paired with another by its name."""
        if kind in (Kind.opening, Kind.closing) and name not in _OPENS | _CLOSES:
            return Item(start, end, name=name, is_tag=True, opens=kind is Kind.opening, closes=kind is Kind.closing)
        attributes = attributes_of(self.content[start:tag_end])
        if name in _OPENS | _CLOSES:
            key = attributes.get("rid") or attributes.get("startRef") or attributes.get("i") or attributes.get("id")
            opens = name in _OPENS
            return Item(start, end, name=f"pair {key}".replace("-", "_"), is_tag=True, opens=opens, closes=not opens)
        inner = self.content[tag_end:end]
        if name == "mrk" and inner:  # a name or code, which is a word of the sentence
            text = "".join(item.text for item in text_items(inner, 0, len(re.sub(r"</[^<]*\Z", "", inner))))
            if "<" not in text and text.strip():
                return Item(start, end, text, is_protected=True)
        return Item(start, end, name="" if kind is Kind.empty else "!--", is_tag=True)

    def _add_text(self, start: int, end: int) -> None:
        position = start
        for gap in _GAP.finditer(self.content, start, end) if self.preserves_space else ():
            self._add_items(position, gap.start())
            follows = self.content[gap.end() : gap.end() + 1]
            if gap[0] in ("\n", "\r\n") and follows.islower() and self.run:
                self.run.append(Item(*gap.span(), " "))
                self.n_lines += 1
            else:
                self._finish()
            position = gap.end()
        self._add_items(position, end)

    def _add_items(self, start: int, end: int) -> None:
        """Text in which there may be variables, and tags that are written as text."""
        for item in text_items(self.content, start, end):
            if item.is_protected or not ("<" in item.text or "{" in item.text or "&" in item.text):
                self.run.append(item)
                continue
            raw = self.content[item.start : item.end]
            places = _places(raw, item)
            for one in inline_items(item.text, 0, len(item.text), kinds=frozenset()):
                self.run.append(replace(one, start=places[one.start], end=places[one.end]))

    def _finish(self) -> None:
        n_lines, self.n_lines = self.n_lines, 1

        def escape(text: str) -> str:
            return escape_xml(text).replace("\n", self.newline)

        add_run(self.builder, self.run, escape, n_lines=n_lines)
        self.run = []


def _places(raw: str, item: Item) -> list[int]:
    """The place of each character of an item's text in the content, and of its end."""
    value = xml_value(raw)
    return [item.start + value.span(i, i)[0] for i in range(len(item.text) + 1)]


def xml_value(raw: str) -> Value:
    """A text of XML without elements."""
    return Value.of(raw, ENTITY, lambda match: character_of(match) or match[0])
