"""YAML of texts by their keys, as Rails has them: only values are translated, in the style that each has.

PyYAML says where they are. Numbers, booleans, symbols, values with a tag, aliases, keys and comments stay.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import yaml

from transformer_cli.addons.documents.inline_tags import add_lines
from transformer_cli.addons.documents.messages import DocumentWriter, Value, parse_message
from transformer_cli.addons.documents.po_inline import inline_items
from transformer_cli.addons.documents.units import (
    Builder,
    Document,
    MarkupChangedError,
    Parts,
    Piece,
    Unit,
    UnreadableError,
)
from transformer_cli.errors import quoted

_KINDS = frozenset({"rails"})
_STRING = "tag:yaml.org,2002:str"
_RESOLVER: Any = yaml.resolver.Resolver()
_ANCHOR = re.compile(r"&[^\s,\[\]{}]+\s+")
_SYMBOL = re.compile(r":\w+")
_FOLD = r"[ \t]*\r?\n[ \t\r\n]*"
_ESCAPES = {
    "": re.compile(_FOLD),
    "'": re.compile(rf"''|{_FOLD}"),
    '"': re.compile(rf"\\(?:x([0-9a-fA-F]{{2}})|u([0-9a-fA-F]{{4}})|U([0-9a-fA-F]{{8}})|(\r?\n[ \t]*)|(.))|{_FOLD}"),
}
_MEANING = dict(zip("0abtnvferN_LP", "\0\a\b\t\n\v\f\x1b\r\x85\xa0\u2028\u2029", strict=True)) | {"\t": "\t"}
_DEEPEST = 500
_NO_PLAIN = re.compile(
    r"[-?:,\[\]{}#&*!|>'\"%@`\s]|\.\.\.|.*(?::(?:\s|\Z)|\s#|[\x00-\x1f\x7f-\xa0\u2028\u2029\ufeff])", re.DOTALL
)
_NO_FLOW = re.compile(r".*[,\[\]{}]", re.DOTALL)
_SPECIAL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff]")  # are none of YAML, or ends of lines
_INLINE = partial(inline_items, kinds=_KINDS)
_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n|\Z)")


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # thirty times as fast, where PyYAML has it


def parse_yaml(text: str) -> Document:
    """Raises UnreadableError for what is no YAML."""
    return _Reader(text).read()


@dataclass
class _Collection:
    is_mapping: bool
    is_flow: bool
    is_key_next: bool


class _Reader(DocumentWriter):
    def read(self) -> Document:
        stack: list[_Collection] = []
        try:
            events: Iterator[Any] = yaml.parse(self.text, Loader=_LOADER)
            for event in events:
                if isinstance(event, yaml.CollectionEndEvent):
                    stack.pop()
                elif isinstance(event, yaml.NodeEvent):
                    is_key = bool(stack) and stack[-1].is_key_next
                    if stack:
                        stack[-1].is_key_next = stack[-1].is_mapping and not is_key
                    if isinstance(event, yaml.CollectionStartEvent):
                        is_mapping = isinstance(event, yaml.MappingStartEvent)
                        is_flow = bool(event.flow_style) or (bool(stack) and stack[-1].is_flow)
                        if len(stack) == _DEEPEST:
                            what = f"has more than {_DEEPEST:,} lists or mappings within each other"
                            mark: Any = event.start_mark
                            raise self.error(mark.index, f"{what}. Is it the right file?")
                        stack.append(_Collection(is_mapping, is_flow, is_mapping))
                    elif isinstance(event, yaml.ScalarEvent) and not is_key and event.tag is None:
                        self._scalar(event, is_flow=bool(stack) and stack[-1].is_flow)
        except yaml.YAMLError as error:
            raise self._unreadable(error) from error
        return self.document()

    def _unreadable(self, error: yaml.YAMLError) -> UnreadableError:
        mark = getattr(error, "problem_mark", None)
        line = self.text.count("\n", 0, getattr(error, "position", 0) or 0) + 1 if mark is None else mark.line + 1
        fault = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read"
        return UnreadableError(line, f"is no YAML: {quoted(str(fault), 100)[1:-1]}. Correct it")

    def _scalar(self, event: Any, *, is_flow: bool) -> None:
        start, end = event.start_mark.index, event.end_mark.index
        if event.anchor and (anchor := _ANCHOR.match(self.text, start, end)):
            start = anchor.end()
        style = event.style or ""
        if style in ("|", ">"):
            self._block(start, end, is_folded=style == ">")
            return
        if not style and (_RESOLVER.resolve(yaml.ScalarNode, event.value, (True, False)) != _STRING):
            return
        if not style and _SYMBOL.fullmatch(event.value):
            return
        start, end = start + len(style), end - len(style)
        value = Value.of(self.text[start:end], _ESCAPES[style], _meaning)
        if value.text != event.value:  # PyYAML reads it in another way
            return
        if style:
            document = parse_message(value, _KINDS, _escaped if style == '"' else _escaped_single)
        else:
            document = _plain(parse_message(value, _KINDS), value, partial(_can_be_plain, is_flow=is_flow))
        self.put(start, end, self.adopt(document))

    def _block(self, start: int, end: int, *, is_folded: bool) -> None:
        """A block whose lines are texts, or with `>` whose paragraphs are."""
        header = _LINE.match(self.text, start)
        assert header is not None
        lines = [match.span() for match in _LINE.finditer(self.text, header.end(), end) if match[0]]
        indents = [_indent(self.text[slice(*line)]) for line in lines if self.text[slice(*line)].strip()]
        if not indents:
            return
        indent = min(indents)
        body = lines[0][0], lines[-1][1]
        builder = Builder(self.text[slice(*body)])
        newline = "\r\n" if "\r\n" in builder.source else "\n"
        escape = partial(_escaped_line, newline=newline + " " * indent)
        paragraph: list[tuple[int, int]] = []
        depth = 0
        for first, last in builder.watched(lines):
            line = self.text[first:last].rstrip()
            this, start = _indent(line), first - body[0]
            follows = line[this : this + 1]
            goes_on = bool(paragraph) and this == depth and (this == indent if is_folded else follows.islower())
            if paragraph and not (line and goes_on):
                add_lines(builder, paragraph, escape, _INLINE)
                paragraph = []
            if line:
                paragraph.append((start + this, start + len(line)))
                depth = this
        if paragraph:
            add_lines(builder, paragraph, escape, _INLINE)
        self.put(*body, self.adopt(builder.document()))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _meaning(match: re.Match[str]) -> str:
    if match[0] == "''":
        return "'"
    if match[0][0] != "\\":  # an end of a line, which is a space, and others that are lines
        n_lines = match[0].count("\n")
        return "\n" * (n_lines - 1) or " "
    *codes, line_end, letter = match.groups()
    code = next((one for one in codes if one), "")
    if code:
        number = int(code, 16)
        return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else "\ufffd"
    return "" if line_end is not None else _MEANING.get(letter, letter)


def _plain(document: Document, value: Value, can_be_plain: Callable[[str], bool]) -> Document:
    """The units of a text without quotes, which gets some where the translation needs them.

    Of a text of several units each must do without: the quotes would be around all of them.
    """

    def text_of(pieces: Sequence[Piece]) -> str:
        return "".join(_unfolded(str(piece.content)) for piece in pieces)

    def write_all(unit: Unit, pieces: Sequence[Piece]) -> Parts:
        text = before + text_of(pieces) + after
        if can_be_plain(text):
            return (text,)
        return (f"'{text}'",) if text.isprintable() and "'" not in text else (f'"{_escaped(text)}"',)

    def write_one(unit: Unit, pieces: Sequence[Piece], *, is_first: bool) -> Parts:
        text = text_of(pieces)
        # What is before or after it is text that needs no quotes.
        if not can_be_plain(text if is_first else f"x{text}") or _NO_FLOW.match(text):
            raise MarkupChangedError
        return (text,)

    if len(document.units) != 1:
        units = (
            replace(one, write=partial(write_one, is_first=document.parts[0] == i))
            for i, one in enumerate(document.units)
        )
        return Document(document.parts, tuple(units))
    at = document.parts.index(0)
    before, after = (_unfolded("".join(map(str, parts))) for parts in (document.parts[:at], document.parts[at + 1 :]))
    return Document((0,), (replace(document.units[0], raw=(value.raw,), write=write_all),))


def _unfolded(raw: str) -> str:
    return re.sub(_FOLD, " ", raw)


def _can_be_plain(text: str, *, is_flow: bool) -> bool:
    if _NO_PLAIN.match(text) or text != text.strip() or (is_flow and _NO_FLOW.match(text)):
        return False
    return bool(_RESOLVER.resolve(yaml.ScalarNode, text, (True, False)) == _STRING)


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return _SPECIAL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escaped_single(text: str) -> str:
    return _SPECIAL.sub(" ", text.replace("'", "''")).replace("\n", " ")


def _escaped_line(text: str, *, newline: str) -> str:
    return "\n".join(_SPECIAL.sub(" ", line) for line in text.split("\n")).replace("\n", newline)
