"""Inline tags of TMX and XLIFF: what is left of a text without them.

Tags become marks, which are characters that XML forbids, while a text is collected.
"""

import re

TAG, PLACEHOLDER, BREAK = "\x01", "\x02", "\x03"  # of formatting; of what stands in a text; of a line or a tab

_RUN = re.compile(r"[ \t\r\n\x01-\x03]+")
_MARKS = dict.fromkeys(map(ord, (TAG, PLACEHOLDER, BREAK)))
_IS_BREAK = re.compile(r"<(?:w:)?(?:br|tab|p|cr)\b|\\(?:line|par|tab)\b|\\[nrt]\Z|[\t\n\r]", re.IGNORECASE)
_BREAK_TYPES = {"lb", "x-br", "br", "x-tab", "tab", "linebreak", "fmt:br", "xlf:lb", "pb"}
_FIRST_WITHOUT_SPACES = "\u2e80"  # from here on scripts of East Asia, which put no spaces between words


def is_break(kind: str, code: str = "") -> bool:
    """Whether a tag of this type and native code is a line break or tab."""
    return kind.lower() in _BREAK_TYPES or _IS_BREAK.search(code.strip(" ")) is not None


def plain(text: str) -> str:
    """A text without the marks of its tags, and on one line.

    A tag of formatting leaves nothing. A line break leaves a space, as does a placeholder that would otherwise join
    two words. A space is left once where a tag had one on either side.
    """
    if "\n" in text or TAG in text or PLACEHOLDER in text or BREAK in text:
        text = _RUN.sub(_unmarked, text)
    return text.strip(" \t\r\n")


def _unmarked(match: re.Match[str]) -> str:
    run, text = match[0], match.string
    spaces = run.translate(_MARKS)
    if spaces == run:
        return " " if "\n" in run else run
    if spaces or BREAK in run:
        return " "
    before, after = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
    joins = PLACEHOLDER in run and _is_of_word(before) and _is_of_word(after)
    return " " if joins else ""


def _is_of_word(character: str) -> bool:
    return character.isalnum() and character < _FIRST_WITHOUT_SPACES
