"""XML: text in elements that hold text, whatever their names are. No entity is expanded and nothing is fetched.

Elements within an element that has text of its own are inline, and so is what is within those; each of the others has
its own units. Attributes and CDATA sections are kept, as what they mean is not known.
"""

import re

from transformer_cli.addons.documents.html import escape_text
from transformer_cli.addons.documents.tags import Kind, Token, tokens
from transformer_cli.addons.documents.units import Builder, Document, Item, UnreadableError, add_run
from transformer_cli.addons.documents.xml_elements import ANDROID, Elements

_NAMED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
ENTITY = re.compile(r"&(?:#([0-9]{1,7})|#x([0-9a-fA-F]{1,6})|([\w.:-]{1,100}));")
_NO_CHARACTERS = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # section 2.2 of XML 1.0
_LONGEST_SHOWN = 100  # characters of an element with code that the model sees as a word
# What is more than a space between words: only where white space counts, and in string resources of Android.
_SPACE = r"[\t\n\r]|&#(?:0{0,4}(?:9|10|13)|x0{0,4}[9aAdD]);"
_GAP = re.compile(rf"(?:{_SPACE}| (?={_SPACE}| ))(?:{_SPACE}| )*+")
_ANDROID_GAP = re.compile(r"\s*+(?<!\\)(?:\\[nt]\s*+)++")
_ANDROID_ESCAPE = re.compile(
    r"\\u([dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|[0-9a-fA-F]{4})|\\(.)|\"", re.DOTALL
)


def parse_xml(text: str) -> Document:
    """Raises UnreadableError for a property list, whose keys and texts are elements of the same level."""
    return _Reader(text).read()


class _Reader:
    """The units of a document."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.builder = Builder(text)
        self.found = list(self.builder.watched(tokens(text, is_xml=True)))
        self.elements = Elements(text, self.found, self.builder.watched)
        self.is_android = self.elements.kind == ANDROID
        self.run: list[Item] = []

    def read(self) -> Document:
        if self.elements.root == "plist":
            raise UnreadableError(
                1,
                "is a property list of Apple, whose keys would be translated."
                " If it has plural forms, use --format stringsdict",
            )
        i = 0
        for _ in self.builder.watched(self.found):  # at least one at each step
            if i == len(self.found):
                break
            token = self.found[i]
            is_inline = self.elements.is_inline[i]
            if token.kind is Kind.opening and self.elements.is_kept(i):
                until = self.elements.closing[i]
                if is_inline:
                    self.run.append(self._kept(i, until))
                else:
                    self._finish()
                i = until + 1
                continue
            if token.kind is Kind.text:
                self._add_text(token, preserves_space=self.elements.preserves_space(i))
            elif token.kind in (Kind.comment, Kind.cdata) or is_inline:
                opens, closes = (token.kind is kind for kind in (Kind.opening, Kind.closing))
                # A hyphen in a name has no meaning here; in HTML it is that of an element of its own kind.
                name = "!--" if token.kind is Kind.comment else token.name.replace("-", "_")
                self.run.append(Item(token.start, token.end, name=name, is_tag=True, opens=opens, closes=closes))
            else:
                self._finish()
            i += 1
        self._finish()
        return self.builder.document()

    def _finish(self) -> None:
        add_run(self.builder, self.run, escape_android if self.is_android else escape_xml)
        self.run.clear()

    def _kept(self, first: int, last: int) -> Item:
        """An element that is not translated, within text: the model sees code as the word that it is."""
        start, end = self.found[first].start, self.found[last].end
        inner = (one for one in self.found[first + 1 : last] if one.kind is Kind.text)
        shown = "".join(item.text for one in inner for item in text_items(self.text, one.start, one.end))
        if self.elements.is_word(first) and shown.strip() and len(shown) <= _LONGEST_SHOWN:
            return Item(start, end, shown, is_protected=True)
        return Item(start, end, is_tag=True)

    def _add_text(self, token: Token, *, preserves_space: bool) -> None:
        """Add the items of a text, which white space that counts divides into several."""
        start = token.start
        gap = _ANDROID_GAP if self.is_android else _GAP if preserves_space else None
        for match in () if gap is None else gap.finditer(self.text, token.start, token.end):
            self._add_items(start, match.start())
            self._finish()
            start = match.end()
        self._add_items(start, token.end)

    def _add_items(self, start: int, end: int) -> None:
        items = text_items(self.text, start, end)
        self.run += [one for item in items for one in _android_items(self.text, item)] if self.is_android else items


def escape_xml(text: str) -> str:
    return escape_text(_NO_CHARACTERS.sub("\ufffd", text))


def escape_in_quotes(text: str) -> str:
    return escape_xml(text).replace('"', "&quot;").replace("'", "&apos;")


def text_items(text: str, first: int, end: int) -> list[Item]:
    """Text with its character references decoded; an entity that only a DTD can explain is kept as it is."""
    items: list[Item] = []
    start, decoded = first, []
    position = start
    for match in ENTITY.finditer(text, first, end):
        character = character_of(match)
        decoded.append(text[position : match.start()])
        position = match.end()
        if character is not None:
            decoded.append(character)
            continue
        items += [Item(start, match.start(), "".join(decoded)), Item(*match.span(), match[0], is_protected=True)]
        start, decoded = match.end(), []
    items.append(Item(start, end, "".join([*decoded, text[position:end]])))
    return [item for item in items if item.start < item.end]


def character_of(match: re.Match[str]) -> str | None:
    if match[3] is not None:
        return _NAMED.get(match[3])
    number = int(match[1]) if match[1] is not None else int(match[2], 16)
    is_legal = number < 0x110000 and not 0xD800 <= number < 0xE000
    return chr(number) if is_legal else None


# ---- String resources of Android


def escape_android(text: str) -> str:
    """The text with the backslashes of string resources, https://developer.android.com/guide/topics/resources."""
    escaped = re.sub(r"[\\'\"]", r"\\\g<0>", escape_xml(text))
    return f"\\{escaped}" if escaped.startswith(("@", "?")) else escaped


def _android_items(source: str, item: Item) -> list[Item]:
    """A text without its backslashes; a quote without one, within which white space counts, stays where it is."""
    if item.is_protected:
        return [item]
    parts: list[Item] = []
    decoded, start = [], item.start
    position = start
    for match in _ANDROID_ESCAPE.finditer(source, item.start, item.end):
        decoded.append(source[position : match.start()])
        position = match.end()
        character = match[2] if match[1] is None else _utf_16(match[1])
        if character is not None and not character.isspace():
            decoded.append(character)
            continue
        parts.append(Item(start, match.start(), "".join(decoded)))
        is_quote = character is None
        parts.append(Item(*match.span(), " " * (not is_quote), name="!--" * is_quote, is_tag=is_quote))
        decoded, start = [], position
    parts.append(Item(start, item.end, "".join([*decoded, source[position : item.end]])))
    return [
        part if part.is_tag else Item(part.start, part.end, _decoded(part.text))
        for part in parts
        if part.start < part.end
    ]


def _decoded(text: str) -> str:
    return ENTITY.sub(lambda match: character_of(match) or match[0], text)


def _utf_16(escape: str) -> str:
    """The character of one code unit or two, each in hexadecimal."""
    return bytes.fromhex(escape.replace("\\u", "")).decode("utf-16-be", "replace")
