"""What has the form of a placeholder in a text: variables, URLs and e-mail addresses, which a translation must keep."""

import re
from dataclasses import dataclass

# No pattern here backtracks far: the lengths are bounded, or what is repeated is possessive.
_VARIABLE = (
    r"\{%[^{}%]{0,100}%\}|\{\{[^{}\n]{1,100}\}\}|[$#]\{[^{}\s]{1,100}\}|\{[\w.:,!<>=+\-#%^|/ ]{0,100}\}"
    r"|%%|%\([^()\s]{1,100}\)[#0+-]{0,5}[0-9]{0,6}(?:\.[0-9]{1,6})?[a-zA-Z](?!\w)"
    r"|%(?:[0-9]{1,3}\$)?[#0+-]{0,5}[0-9]{0,6}(?:\.[0-9]{1,6})?(?:hh|h|ll|l|L|z|j|t)?[diouxXeEfFgGcrsapn@](?!\w)"
)
_URL = r"(?:https?|ftp)://[^\s<>\"]++|\bwww\.[^\s<>\"]++"
_EMAIL = r"(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)++"
VARIABLE = re.compile(_VARIABLE)
_PATTERN = re.compile(rf"(?P<url>{_URL})|(?P<email>{_EMAIL})|(?P<variable>{_VARIABLE})")
_AFTER_URL = ".,;:!?'\"»”’)]}>…。、"


@dataclass(frozen=True)
class Placeholder:
    start: int  # in the text
    end: int
    text: str
    is_protected: bool = False  # given as such, and not recognised by its form


def placeholders_in(text: str) -> list[Placeholder]:
    """Those that have the form of one."""
    found = []
    for match in _PATTERN.finditer(text):
        start, end = match.span()
        if match["url"]:
            after = _AFTER_URL.replace(")", "") if "(" in match[0] else _AFTER_URL
            end = start + len(match[0].rstrip(after))
        found.append(Placeholder(start, end, text[start:end]))
    return found
