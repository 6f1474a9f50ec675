"""Numbers, URLs and e-mail addresses of a text, which its translation must contain, in whatever format."""

import re
import unicodedata
from collections import Counter

# A group of up to three digits, and groups of three after one and the same separator: 1,000,000 or 1.000 or 12 500.
# Or as in India: 12,34,567. `\d` are the decimal digits of every script.
_GROUPED = re.compile(
    r"(?<![\dA-Za-z])(?:\d{1,3}([.,'’٬．， \u00a0\u2009\u202f])\d{3}(?:\1\d{3})*|\d{1,2}(?:,\d{2})+,\d{3})(?!\d)|\d+"
)
# ASCII alone, so that both end where Chinese text goes on without a blank.
_LINK = re.compile(
    r"(?:(?:https?|ftp)://|www\.)[!#-;=?-~]+|(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+",
    re.IGNORECASE,
)
_AFTER_LINK = ".,;:!?'*()[]{}"  # may belong to the sentence; left out on both sides


def numbers(text: str) -> Counter[str]:
    """The numbers of `text` outside of URLs and e-mail addresses, by their digits in ASCII without leading zeros.

    Separators of thousands are left out. Any other sign separates two numbers: 1,000.5 and 1.000,5 and 1 000,5 are 1000
    and 5; 10:30 and 10.30 are 10 and 30. Nothing is known of numbers in words.
    """
    return Counter(_digits(found[0]) for found in _GROUPED.finditer(_LINK.sub(" ", text)))


def links(text: str) -> Counter[str]:
    """The URLs (with http, https, ftp or www.) and e-mail addresses of `text`, without punctuation at their end."""
    return Counter(found[0].rstrip(_AFTER_LINK) for found in _LINK.finditer(text))


def without_number(text: str, number: str) -> str:
    """`text` without the first occurrence of `number`, however its digits are grouped; as it is if there is none."""
    wanted = _digits(number)
    for found in _GROUPED.finditer(text):
        if _digits(found[0]) == wanted:
            return text[: found.start()] + text[found.end() :]
    return text


def _digits(number: str) -> str:
    return "".join(str(unicodedata.decimal(sign)) for sign in number if sign.isdecimal()).lstrip("0") or "0"
