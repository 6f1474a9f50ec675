"""Inline tags in a text as CAT tools number them: `<1>` and `</1>` around words, `<2/>` for one that stands alone."""

import re
from collections import Counter

_NUMBER = r"[1-9][0-9]{0,3}"
NUMBERED_TAG = re.compile(rf"<(?:/?{_NUMBER}|{_NUMBER}/)>")
_IN_TAG = re.compile(rf"(?<=<){_NUMBER}(?=/?>)|(?<=</){_NUMBER}(?=>)")


def counted_tags(text: str) -> Counter[str]:
    """How often each tag stands in a text."""
    return Counter(NUMBERED_TAG.findall(text))


def without_tags(text: str) -> str:
    """The text without its tags, but with the spaces beside them."""
    return NUMBERED_TAG.sub("", text) if "<" in text else text


def highest_number(text: str) -> int:
    """The highest number of a tag; 0 where there is none."""
    return max(map(int, _IN_TAG.findall(text)), default=0)


def numbered_from(text: str, first: int) -> str:
    """The text with numbers that go on behind `first`, so that it can follow a text which has these."""
    return _IN_TAG.sub(lambda match: str(first + int(match[0])), text) if first else text
