"""The syntax of a catalogue of gettext (.po): keywords and strings, wherever they are on their lines, and comments."""

import re
from dataclasses import dataclass, field

from transformer_cli.addons.documents.units import UnreadableError
from transformer_cli.errors import quoted

# No part of this can match in two ways. A comment may follow a string on its line.
_TOKEN = re.compile(
    r"(?P<space>[\s\ufeff]++)|(?P<comment>#[^\n]*+)"
    r"|(?P<keyword>domain|msgctxt|msgid_plural|msgid|msgstr(?:\s*+\[\s*+\d{1,3}\s*+\])?+)(?![\w\[])"
    r'|"(?P<string>(?:[^"\\\n]|\\[^\n])*+)"'
)
_NUMBER = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2}))")
_ESCAPED = re.compile(rf"((?:{_NUMBER.pattern})++)|\\(.)")
_MEANING = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_FIRST = ("msgctxt", "msgid", "domain")  # with which another message begins


@dataclass
class String:
    """A keyword with its strings, which are one text."""

    start: int  # of the keyword
    first: tuple[int, int]  # the first string, with its quotes
    text: str


@dataclass
class Message:
    """A message: its text, its translations, and what comments say of it."""

    start: int = -1  # of its first keyword
    flags_at: int = -1  # the place after `#,`
    previous_at: int = -1  # of the first comment with an older text
    flags: set[str] = field(default_factory=set)
    references: str = ""
    values: dict[str, String] = field(default_factory=dict)

    @property
    def translations(self) -> dict[int, String]:
        """The translations by the number of the plural form."""
        return {_form(key): value for key, value in self.values.items() if key.startswith("msgstr")}


def messages(text: str) -> list[Message]:
    """Raises UnreadableError for what gettext does not read either."""
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.found: list[Message] = []
        self.message = Message()
        self.upcoming = Message()  # that comments are of
        self.keyword = ""  # that has no string yet, or that strings are added to
        self.keyword_at = 0

    def read(self) -> list[Message]:
        position = 0
        while position < len(self.text):
            match = _TOKEN.match(self.text, position)
            if match is None:
                raise self._error(position, f"{quoted(self._line(position), 40)} is neither a keyword nor a string")
            if match["comment"] is not None:
                self._comment(match["comment"], position)
            elif match["keyword"] is not None:
                self._begin(re.sub(r"\s", "", match["keyword"]), position)
            elif match["string"] is not None:
                self._string(match["string"], match.span())
            position = match.end()
        self._end()
        return self.found

    def _comment(self, comment: str, position: int) -> None:
        into = self.message if self.message.values and not self.message.translations else self.upcoming
        if comment.startswith(("#,", "#=")):
            into.flags |= {flag.strip() for flag in comment[2:].split(",")}
            if comment[1] == "," and into.flags_at < 0 and into is self.upcoming:
                into.flags_at = position + 2
        elif comment.startswith("#:"):
            into.references += comment[2:]
        elif comment.startswith("#|") and into.previous_at < 0 and into is self.upcoming:
            into.previous_at = position

    def _begin(self, keyword: str, position: int) -> None:
        self._check_string()
        values = self.message.values
        if keyword in _FIRST and any(key.startswith(("msgid", "msgstr", "domain")) for key in values):
            self._end()
            values = self.message.values
        if keyword in values:
            raise self._error(position, f"{keyword} stands twice in a message")
        if not values:
            self.message, self.upcoming = self.upcoming, Message()
            self.message.start = position
        needs = {"msgid_plural": "msgid", "msgstr": "msgid"}.get(keyword, "msgid_plural" if "[" in keyword else "")
        if needs and needs not in self.message.values:
            raise self._error(position, f"{keyword} without {needs}")
        if keyword == "msgstr" and "msgid_plural" in self.message.values:
            raise self._error(position, "msgstr in a message with a plural, which needs msgstr[0]")
        self.keyword, self.keyword_at = keyword, position

    def _string(self, string: str, span: tuple[int, int]) -> None:
        if not self.keyword:
            raise self._error(span[0], f"{quoted(string, 40)} follows no keyword")
        value = self.message.values.setdefault(self.keyword, String(self.keyword_at, span, ""))
        value.text += unescaped(string)

    def _end(self) -> None:
        """Take the message as complete."""
        self._check_string()
        values = self.message.values
        if values and "domain" not in values:
            if not self.message.translations:
                raise self._error(self.message.start, "a message without msgstr")
            self.found.append(self.message)
        self.message, self.keyword = Message(), ""

    def _check_string(self) -> None:
        if self.keyword and self.keyword not in self.message.values:
            raise self._error(self.keyword_at, f"{self.keyword} without a string")

    def _line(self, position: int) -> str:
        return self.text[position:].partition("\n")[0].strip()

    def _error(self, position: int, what: str) -> UnreadableError:
        return UnreadableError(self.text.count("\n", 0, position) + 1, f"{what}. Correct the catalogue")


def unescaped(string: str) -> str:
    def character(match: re.Match[str]) -> str:
        if match[4] is not None:
            return _MEANING.get(match[4], match[4])
        numbers = [int(octal or code, 8 if octal else 16) for octal, code in _NUMBER.findall(match[1])]
        try:
            return bytes(numbers).decode()  # xgettext --escape writes the bytes of a character so
        except ValueError:
            return "".join(map(chr, numbers))

    return _ESCAPED.sub(character, string)


def _form(keyword: str) -> int:
    return int(keyword[7:-1]) if "[" in keyword else 0
