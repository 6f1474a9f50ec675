"""Messages of gettext (.po): those without a translation get one, which is marked as fuzzy; all else is kept.

gettext does not use a fuzzy translation before someone has approved of it, by removing the mark. A translation that is
there is never replaced, not even a fuzzy one, as it may be someone's work.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from transformer_cli.markup.inline_tags import add_lines
from transformer_cli.markup.units import Builder, Document, Parts, Unit

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_KEYWORD = re.compile(r"\s*(msgctxt|msgid_plural|msgid|msgstr(?:\[\d{1,3}\])?)\s*\"((?:[^\"\\\n]|\\.)*+)\"\s*")
_MORE = re.compile(r"\s*\"((?:[^\"\\\n]|\\.)*+)\"\s*")
_ESCAPED = re.compile(r"\\(.)")
_MEANING = {"n": "\n", "t": "\t", "r": "\r"}
_ESCAPE = str.maketrans({"\\": "\\\\", '"': '\\"', "\t": "\\t", "\r": "\\r", "\n": "\\n"})


@dataclass
class _Value:
    """A keyword and its string."""

    start: int  # of its line
    end: int  # of its last line, with what ends it
    text: str


@dataclass
class _Entry:
    """A message: its comments, its text, and its translations."""

    start: int = -1  # of its first line that is no comment
    flags: int = -1  # where the list of flags begins, after `#,`
    previous: int = -1  # of its first line that tells an older text
    values: dict[str, _Value] = field(default_factory=dict)


def parse_po(text: str) -> Document:
    writer = _Writer(text)
    entry, last = _Entry(), ""
    for match in _LINE.finditer(text):
        start, end = match.span()
        if keyword := _KEYWORD.fullmatch(text, start, end):
            last = keyword[1]
            if last in entry.values or (last in ("msgctxt", "msgid") and "msgid" in entry.values):
                writer.write(entry)
                entry = _Entry()
            entry.start = start if entry.start < 0 else entry.start
            entry.values[last] = _Value(start, end, _unescaped(keyword[2]))
            continue
        more = _MORE.fullmatch(text, start, end)
        if more and last in entry.values:
            entry.values[last] = _Value(entry.values[last].start, end, entry.values[last].text + _unescaped(more[1]))
            continue
        if entry.values:
            writer.write(entry)
            entry = _Entry()
        last = ""
        if text.startswith("#,", start):
            entry.flags = start + 2
        elif text.startswith("#|", start) and entry.previous < 0:
            entry.previous = start
        elif not text.startswith("#", start):
            entry = _Entry()
    writer.write(entry)
    return writer.document()


class _Writer:
    """The document with room for what is missing."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self.parts: list[str | int] = []
        self.units: list[Unit] = []
        self.position = 0

    def write(self, entry: _Entry) -> None:
        """Give the translations of an entry that has none their places."""
        message = entry.values.get("msgid")
        missing = {key: value for key, value in entry.values.items() if key.startswith("msgstr")}
        if message is None or not message.text or not missing or any(value.text for value in missing.values()):
            return
        plural = entry.values.get("msgid_plural")
        singular = self._message(message.text)
        other = singular if plural is None else self._message(plural.text)
        if not any(isinstance(part, int) for part in (*singular, *other)):
            return
        self._mark_fuzzy(entry)
        for key, value in missing.items():
            is_singular = plural is None or (key == "msgstr[0]" and len(missing) > 1)
            parts = singular if is_singular else other
            self._copy(value.start)
            end = self.text[value.start : value.end]
            lines = self._in_lines(parts)
            is_long = any(isinstance(part, str) and self.newline in part for part in lines)
            first = f'{key} ""{self.newline}"' if is_long else f'{key} "'
            self.parts += [first, *lines, '"', end[len(end.rstrip()) :]]
            self.position = value.end

    def document(self) -> Document:
        self._copy(len(self.text))
        return Document(tuple(self.parts), tuple(self.units))

    def _copy(self, end: int) -> None:
        self.parts.append(self.text[self.position : end])
        self.position = end

    def _mark_fuzzy(self, entry: _Entry) -> None:
        if entry.flags >= 0:
            if "fuzzy" in self.text[entry.flags : entry.start]:
                return
            self._copy(entry.flags)
            self.parts.append(" fuzzy,")
        else:
            self._copy(entry.previous if entry.previous >= 0 else entry.start)
            self.parts.append(f"#, fuzzy{self.newline}")

    def _in_lines(self, parts: Parts) -> Parts:
        """Each line of a text is a string of its own, as gettext writes them."""
        found: list[str | int] = []
        for i, part in enumerate(parts):
            if isinstance(part, int):
                found.append(part)
                continue
            is_last = i == len(parts) - 1
            head, tail = (part[:-2], "\\n") if is_last and part.endswith("\\n") else (part, "")
            found.append(head.replace("\\n", f'\\n"{self.newline}"') + tail)
        return tuple(found)

    def _message(self, text: str) -> Parts:
        """A text with its units, escaped."""
        document = _parse_message(text)
        first = len(self.units)
        self.units += [_escaped_unit(unit) for unit in document.units]
        return tuple(part + first if isinstance(part, int) else part.translate(_ESCAPE) for part in document.parts)


def _parse_message(text: str) -> Document:
    """Lines are one text where the next one goes on in lower case."""
    builder = Builder(text)
    lines: list[tuple[int, int]] = []
    for match in re.finditer(r"[^\n]+", text):
        begins = text[match.start() : match.start() + 1]
        if lines and not (begins.islower() and lines[-1][1] + 1 == match.start()):
            add_lines(builder, lines, str)
            lines = []
        lines.append(match.span())
    if lines:
        add_lines(builder, lines, str)
    return builder.document()


def _escaped_unit(unit: Unit) -> Unit:
    def escape_parts(parts: Parts) -> Parts:
        return tuple(part if isinstance(part, int) else part.translate(_ESCAPE) for part in parts)

    escape: Callable[[str], str] = lambda text: text.translate(_ESCAPE)  # noqa: E731
    tags = tuple(replace(tag, parts=escape_parts(tag.parts)) for tag in unit.tags)
    protected = tuple(replace(one, raw=one.raw.translate(_ESCAPE)) for one in unit.protected)
    return replace(unit, raw=escape_parts(unit.raw), tags=tags, protected=protected, escape=escape)


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: _MEANING.get(match[1], match[1]), text)
