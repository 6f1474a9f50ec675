"""Inline tags of TMX and XLIFF: what is left of a text without them, or with numbers for them.

Tags become marks, which are characters that XML forbids, while a text is collected.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from transformer_cli.data.numbered_tags import counted_tags, spaced
from transformer_cli.logs import LOGGER

TAG, PLACEHOLDER, BREAK = "\x01", "\x02", "\x03"  # of formatting; of what stands in a text; of a line or a tab
# Marks of a tag that is kept, each followed by the key by which the sides of a pair share it, and an end.
_OPENING, _CLOSING, _ALONE, _END = "\x04", "\x05", "\x06", "\x07"

_RUN = re.compile(r"[ \t\r\n\x01-\x03]+")
_MARKS = dict.fromkeys(map(ord, (TAG, PLACEHOLDER, BREAK)))
_IS_BREAK = re.compile(r"<(?:w:)?(?:br|tab|p|cr)\b|\\(?:line|par|tab)\b|\\[nrt]\Z|[\t\n\r]", re.IGNORECASE)
_BREAK_TYPES = {"lb", "x-br", "br", "x-tab", "tab", "linebreak", "fmt:br", "xlf:lb", "pb"}
_KEPT = re.compile(f"([{_OPENING}-{_ALONE}])([^{_END}]*){_END}")
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


def opening(key: str) -> str:
    return f"{_OPENING}{key}{_END}"


def closing(key: str) -> str:
    return f"{_CLOSING}{key}{_END}"


def alone(key: str) -> str:
    return f"{_ALONE}{key}{_END}"


def numbered(*texts: str) -> list[str]:
    """Translations of each other with `<1>`, `</1>` and `<2/>` for the tags that were kept.

    Tags are numbered from 1 in the order of the first text. A tag has the number of the one with the same key before
    it, and a tag that the texts before have not, the next one. All stand apart from their words (`spaced`).
    """
    numbers: dict[str, int] = {}
    return [_numbered(text, numbers) if _END in text else text for text in texts]


def with_numbered_tags(pairs: Iterable[Sequence[str]], name: str) -> Iterator[Sequence[str]]:
    """The pairs of a file with numbers for their tags; how many pairs have tags, and other ones on the two sides, is
    logged."""
    n_tagged = n_apart = 0
    for source, target in pairs:
        if _END in source or _END in target:
            source, target = numbered(source, target)
            n_tagged += 1
            n_apart += counted_tags(source) != counted_tags(target)
        yield source, target
    LOGGER.info(
        "%s: %s pairs have inline tags, %s of these not the same ones on both sides",
        *(name, f"{n_tagged:,}", f"{n_apart:,}"),
    )


def _numbered(text: str, numbers: dict[str, int]) -> str:
    """An opening tag without a closing one of the same key behind it, and the other way round, stands alone."""
    are_alone: set[int] = set()
    open_tags: dict[str, list[int]] = {}
    for match in _KEPT.finditer(text):
        its_open = open_tags.setdefault(match[2], [])
        if match[1] == _OPENING:
            its_open.append(match.start())
        elif match[1] == _ALONE or not its_open:
            are_alone.add(match.start())
        else:
            its_open.pop()
    are_alone.update(*open_tags.values())

    def tag(match: re.Match[str]) -> str:
        number = numbers.setdefault(match[2], len(numbers) + 1)
        if match.start() in are_alone:
            return f"<{number}/>"
        return f"<{number}>" if match[1] == _OPENING else f"</{number}>"

    return spaced(_KEPT.sub(tag, text))


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
