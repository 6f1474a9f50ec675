"""Files of keys and texts, of which the texts are translated: .properties of Java and .strings of Apple.

All else stays as it is: keys, comments, separators, line ends, and the escapes of what is not translated.
"""

import re
from collections.abc import Callable
from functools import partial

from transformer_cli.addons.documents.messages import DocumentWriter, Value, parse_message
from transformer_cli.addons.documents.units import Document

_UTF_16 = r"[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|[0-9a-fA-F]{4}"
_MEANING = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "a": "\a", "b": "\b", "v": "\v"}


def utf_16(escape: str) -> str:
    """The character of one code unit or two, each in hexadecimal after a backslash and a letter."""
    return bytes.fromhex(re.sub(r"\\[uU]", "", escape)).decode("utf-16-be", "replace")


def with_escapes(text: str, letter: str = "u", *, upper: bool = False) -> str:
    """The text with each character that is not ASCII as its code units in UTF-16, in hexadecimal."""

    def escape(match: re.Match[str]) -> str:
        code = match[0].encode("utf-16-be").hex()
        code = code.upper() if upper else code
        return "".join(f"\\{letter}{code[i : i + 4]}" for i in range(0, len(code), 4))

    return re.sub(r"[^\x00-\x7f]", escape, text)


# ---- .properties

_END = r"(?:\r\n?|\n)"
_SPACE = rf"(?:[ \t\f]|\\{_END}[ \t\f]*+)*+"
# No part of this can match in two ways. It matches whatever is on a line, with those that continue it.
_ENTRY = re.compile(
    rf"[ \t\f]*+(?:[#!][^\r\n]*+|(?:\\(?:\r\n|[\s\S])|[^\\\s:=])*+{_SPACE}(?:[=:]{_SPACE})?+"
    rf"(?P<value>(?:\\(?:\r\n|[\s\S]|\Z)|[^\\\r\n])*+))(?:{_END}|\Z)"
)
_PROPERTY_ESCAPE = re.compile(rf"\\(?:u({_UTF_16})|({_END}[ \t\f]*)|(.))")
_FORMAT_ESCAPE = re.compile(rf"(?P<quote>'')|{_PROPERTY_ESCAPE.pattern}")
_ARGUMENT = re.compile(r"\{\s*(?:\d{1,3}|\w{1,50}\s*,)[^{}]*")
_QUOTED = re.compile(r"'[{}][^']*'|''")
_OF_PROPERTIES = frozenset({"java", "quoted"})


def parse_properties(text: str) -> Document:
    writer = DocumentWriter(text)
    style = partial(_escaped_property, is_ascii=text.isascii(), upper=_has_upper(text))
    for match in _ENTRY.finditer(text):
        if match["value"] is not None and match["value"].strip():
            start, end = match.span("value")
            writer.put(start, end, writer.adopt(_property(match["value"], style)))
    return writer.document()


def _property(raw: str, style: Callable[..., str]) -> Document:
    """A text, in which MessageFormat has two apostrophes for one: if it has a variable, or two of them already."""
    has_single = "'" in _QUOTED.sub("", raw)
    has_variable = _ARGUMENT.search(raw) is not None
    doubles = not has_single and (has_variable or "''" in raw)
    value = Value.of(raw, _FORMAT_ESCAPE if doubles else _PROPERTY_ESCAPE, _meaning)
    apostrophe = "''" if doubles else "’" if has_variable else "'"
    escape, kept = partial(style, apostrophe=apostrophe), partial(style, apostrophe="''" if doubles else "'")
    return parse_message(value, _OF_PROPERTIES, escape, escape_kept=kept, has_choices=True)


def _escaped_property(text: str, *, apostrophe: str, is_ascii: bool, upper: bool) -> str:
    if not _QUOTED.match(text):
        text = text.replace("'", apostrophe)
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return with_escapes(text, upper=upper) if is_ascii else text


def _has_upper(file: str) -> bool:
    """Whether the file writes its codes in capitals, as Java does and native2ascii does not."""
    return re.search(r"\\u[0-9]*[A-F]", file) is not None


def _meaning(match: re.Match[str]) -> str:
    if match.groupdict().get("quote"):
        return "'"
    *_, code, line_end, letter = match.groups()
    if code is not None:
        return utf_16(code)
    return "" if line_end is not None else _MEANING.get(letter, letter)


# ---- .strings

_TOKEN = re.compile(
    r"(?P<space>[\s\ufeff]++|/\*(?:[^*]|\*(?!/))*+\*/|//[^\r\n]*+)|\"(?P<string>(?:[^\"\\]|\\[\s\S])*+)\""
    r"|(?P<word>[\w.$:/-]++)|(?P<mark>[=;{}])"
)
_STRING_ESCAPE = re.compile(rf"\\(?:[uU]({_UTF_16})|([0-7]{{1,3}})|([\s\S]))".replace(r"\\u[dD]", r"\\[uU][dD]"))
_OF_STRINGS = frozenset({"objc"})


def parse_strings(text: str) -> Document:
    """Raises UnreadableError for what is no list of strings."""
    writer = DocumentWriter(text)
    position, is_value = 0, False
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            what = f"{writer.shown(position)} is no key, text or comment"
            raise writer.error(position, f"{what}. Correct the file")
        if match["string"] is not None and is_value:
            value = Value.of(match["string"], _STRING_ESCAPE, _meaning_of_string)
            writer.put(*match.span("string"), writer.adopt(parse_message(value, _OF_STRINGS, _escaped_string)))
        if match["space"] is None:
            is_value = match["mark"] == "="
        position = match.end()
    return writer.document()


def _meaning_of_string(match: re.Match[str]) -> str:
    if match[1] is not None:
        return utf_16(match[1])
    return chr(int(match[2], 8)) if match[2] is not None else _MEANING.get(match[3], match[3])


def _escaped_string(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
