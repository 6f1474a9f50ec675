"""Inline tags in a text as CAT tools number them: `<1>` and `</1>` around words, `<2/>` for one that stands alone."""

import re
from collections import Counter

_NUMBER = r"[1-9][0-9]{0,3}"
NUMBERED_TAG = re.compile(rf"<(?:/?{_NUMBER}|{_NUMBER}/)>")
# Where a tag would cut a word from the space before it, with which it is another piece of a vocabulary.
_OPENS = re.compile(rf"(?<!\w)(<{_NUMBER}>(?=\S)|<{_NUMBER}/>(?=[\w<]))")
_CLOSES = re.compile(rf"(?<=\S)(</{_NUMBER}>)(?!\w)")
_SPACED = re.compile(rf"(?<!\w)(<{_NUMBER}>) | (</{_NUMBER}>)(?!\w)")
_IN_TAG = re.compile(rf"(?<=<){_NUMBER}(?=/?>)|(?<=</){_NUMBER}(?=>)")


def counted_tags(text: str) -> Counter[str]:
    """How often each tag stands in a text."""
    return Counter(NUMBERED_TAG.findall(text))


def spaced(text: str) -> str:
    """The text with a space between each pair of tags and what is in it, but where a tag is within a word."""
    return _CLOSES.sub(r" \1", _OPENS.sub(r"\1 ", text))


def without_tags(text: str) -> str:
    """The text without its tags and the spaces of `spaced`, but with the spaces around them."""
    return NUMBERED_TAG.sub("", _SPACED.sub(r"\1\2", text)) if "<" in text else text


def highest_number(text: str) -> int:
    """The highest number of a tag; 0 where there is none."""
    return max(map(int, _IN_TAG.findall(text)), default=0)


def numbered_from(text: str, first: int) -> str:
    """The text with numbers that go on behind `first`, so that it can follow a text which has these."""
    return _IN_TAG.sub(lambda match: str(first + int(match[0])), text) if first else text
