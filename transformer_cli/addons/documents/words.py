"""Words in a text, by the letters and digits beside each other, in scripts that separate words by spaces."""

import re
from collections.abc import Iterator

from transformer_cli.data.placeholders import SOLID

IN_WORD = rf"[^\W{SOLID}]"
_IS_IN_WORD = re.compile(IN_WORD)
_RUN = re.compile(rf"{IN_WORD}*+")


def is_in_word(text: str, offset: int) -> bool:
    """Whether a character is a letter or a digit of such a script."""
    return 0 <= offset < len(text) and _IS_IN_WORD.match(text, offset) is not None


def word_end(text: str, end: int) -> int:
    """The end of the word that a stretch with this `end` reaches into."""
    match = _RUN.match(text, end) if is_in_word(text, end - 1) else None
    return end if match is None else match.end()


def word_start(text: str, start: int, lowest: int = 0) -> int:
    """The start of the word that a stretch with this `start` begins in, not before `lowest`."""
    if is_in_word(text, start):
        while start > lowest and is_in_word(text, start - 1):
            start -= 1
    return start


def bounds(text: str, start: int, end: int) -> tuple[str, str]:
    """What a pattern has before and after a stretch of a text, to end words where the stretch does."""
    begins = is_in_word(text, start) and not is_in_word(text, start - 1)
    ends = is_in_word(text, end - 1) and not is_in_word(text, end)
    return rf"(?<!{IN_WORD})" if begins else "", rf"(?!{IN_WORD})" if ends else ""


def places(text: str, source: str, span: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Occurrences in a text of a stretch of a source, which end words where the stretch ends words of its source."""
    stretch = source[slice(*span)]
    before, after = (bound != "" for bound in bounds(source, *span))
    start = text.find(stretch)
    while start >= 0:
        end = start + len(stretch)
        if not (before and is_in_word(text, start - 1)) and not (after and is_in_word(text, end)):
            yield start, end
            start = text.find(stretch, end)
        else:
            start = text.find(stretch, start + 1)


def bounded(text: str, start: int, end: int) -> str:
    """A pattern for a stretch of a text, which ends words of a translation where it ends words of its text."""
    before, after = bounds(text, start, end)
    return before + re.escape(text[start:end]) + after
