"""Template tags in Markdown, which its parser must not read: of Liquid, Jinja, Hugo and MDX, and attribute lists.

They are masked: replaced by private characters in braces, as long as they are, so that a tag in a link, its title or a
table is one word, marks beside it are those beside a brace, and every place in the text stays what it is.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from zlib import crc32

_BLANK_LINE = r"(?:\r\n?+|\n)[ \t>]*+(?=[\r\n]|\Z)"


def _between(opening: str, closing: str) -> str:
    """A tag, which may go on in the next lines of a block. Behind a backtick its marks are an example of themselves."""
    return rf"{opening}(?!`)(?:(?!{opening}|{closing}|{_BLANK_LINE}).)*+{closing}"


_TAGS = (
    _between(r"\{\{<", r">\}\}"),
    _between(r"\{\{%", r"%\}\}"),
    _between(r"\{%", r"%\}"),
    _between(r"\{/\*", r"\*/\}"),
    _between(r"\{#(?=\s)", r"#\}"),
    r"\{:(?:[^{}\r\n]|\{\{[^{}\r\n]*+\}\})*+\}",
)
_VARIABLE = r"(?:(?<!\$)\$(?=\{\{\s))?\{{2,3}+(?!`)[^{}\r\n]*+\}{2,3}+"
_PLANE = 65_534  # characters of each of the two private planes: for variables, and for all other tags
_MOST_TRIED = 100
_OF_VARIABLE, _OF_TAG = "\U000f0000-\U000ffffd", "\U00100000-\U0010fffd"
_MASKED = re.compile(rf"\{{([{_OF_VARIABLE}{_OF_TAG}])\1*+\}}")
_TEMPLATE = re.compile(
    rf"(?<!\\)\\?(?:(?P<tag>{'|'.join(_TAGS)})|{_VARIABLE}|\{{[{_OF_VARIABLE}{_OF_TAG}]++\}})", re.DOTALL
)
_ONLY_TAGS = re.compile(rf"[\s{{}}{_OF_VARIABLE}]*+[{_OF_TAG}][\s{{}}{_OF_VARIABLE}{_OF_TAG}]*+$")
_LINE = re.compile(r"((?:\r\n?|\n)[ \t>]*+)|[^\r\n]++")
_NAME = re.compile(r"\{(?:%|\{[<%])-?\s*+(\w++)")
_CODE = frozenset(
    ("code", "codeblock", "comment", "highlight", "katex", "math", "mermaid", "plantuml", "raw", "verbatim")
)
_MARKDOWN = frozenset(("raw", "verbatim"))  # which turn off tags alone: what they are around may be whole pages
_ATTRIBUTES = re.compile(r"\{(?:[ \t]*+(?:[:.#=]|[\w-]++=)[^{}\n]*+|/\*[^{}\n]*\*/)\}")
_FIRST_ATTRIBUTES = re.compile(r"\{:[^{}\n]*+\}[ \t]*+")


@dataclass(frozen=True)
class MaskedMarkdown:
    text: str
    tags: dict[str, str]  # by their characters

    def shown(self, text: str) -> str:
        """A part of the masked text as it was."""
        return _MASKED.sub(lambda match: self.tags.get(match[1], match[0]), text)


def mask_tags(text: str, *, keep_lines: bool = False) -> MaskedMarkdown:
    """The text with its tags masked; with `keep_lines`, the ends of lines within them stay, and what begins a line."""
    tags: dict[str, str] = {}
    parts = []
    position = 0
    for start, end, plane in _found(text):
        tag = text[start:end]
        character = _character(tag, plane, tags)
        if character is None:
            continue
        hidden = character * len(tag)
        if keep_lines:
            hidden = _LINE.sub(partial(_hidden_line, character), tag)
        parts += [text[position:start], "{", hidden[1:-1], "}"]
        position = end
    return MaskedMarkdown("".join([*parts, text[position:]]), tags)


def _hidden_line(character: str, line: re.Match[str]) -> str:
    return line[1] or character * len(line[0])


def is_only_tags(line: str) -> bool:
    """Whether a masked line has tags, and no text beside them; a variable is text."""
    return _ONLY_TAGS.match(line) is not None


def masked_tags(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The spans of the tags in a stretch of masked text."""
    return (match.span() for match in _MASKED.finditer(text, start, end))


def end_of_attributes(text: str, position: int) -> int:
    """The end of an attribute list that begins at a place; the place itself if none does."""
    match = _ATTRIBUTES.match(text, position)
    return position if match is None else match.end()


def without_first_attributes(line: str) -> str:
    """The first line of a block without kramdown's attributes of a list item."""
    match = _FIRST_ATTRIBUTES.match(line)
    return line if match is None else line[match.end() :]


def without_final_attributes(line: str) -> str:
    """The last line of a block without attributes such as the id of a heading, and the white space before them."""
    shown = line.rstrip(" \t")
    start = shown.rfind("{")
    before = shown[: max(start, 0)]
    is_apart = start == 0 or before.endswith((" ", "\t"))
    return before.rstrip(" \t") if is_apart and end_of_attributes(shown, start) == len(shown) else line


def _character(tag: str, plane: int, tags: dict[str, str]) -> str | None:
    """A character for a tag: the same one in every text, so that a label with a tag is found among the definitions.

    None where other tags have taken its characters, as in a text with ten thousands of them.
    """
    number = crc32(tag.encode("utf-8", "surrogatepass"))
    for n in range(number, number + _MOST_TRIED):
        character = chr(plane + n % _PLANE)
        if tags.setdefault(character, tag) == tag:
            return character
    return None


def _found(text: str) -> Iterator[tuple[int, int, int]]:
    """The span of each tag, with the code that it begins, and the plane of its character."""
    following = _Following(text)
    position = 0
    if "{" not in text:
        return  # as in most texts, which are searched faster for it alone
    while match := _TEMPLATE.search(text, position):
        start, position = match.span()
        if match["tag"] and text[start - 1 : start] != "`" and text[start] != "\\":
            position = _end_of_code(text, match, following)
        yield start, position, 0x100000 if match["tag"] else 0xF0000


class _Following:
    """The next match of a pattern after a place; places that are asked for in order take linear time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.found: dict[str, re.Match[str] | None] = {}

    def __call__(self, pattern: str, position: int) -> re.Match[str] | None:
        match = self.found.get(pattern)
        if pattern not in self.found or (match is not None and match.start() < position):
            match = self.found[pattern] = re.compile(pattern).search(self.text, position)
        return match


def _end_of_code(text: str, tag: re.Match[str], following: _Following) -> int:
    """The end of the tag that closes code; of any other tag, its own end."""
    name = _NAME.match(text, tag.start(), tag.end())
    if name is None or name[1] not in _CODE:
        return tag.end()
    is_liquid = text[tag.start() + 1] == "%"
    closing = rf"\{{%-?\s*+end{name[1]}\s*+-?%\}}" if is_liquid else rf"\{{\{{[<%]\s*+/\s*+{name[1]}\s*+[>%]\}}\}}"
    end = following(closing, tag.end())
    if end is None:
        return tag.end()
    blank = following(_BLANK_LINE, tag.end()) if name[1] in _MARKDOWN else None
    return tag.end() if blank is not None and blank.start() < end.start() else end.end()
