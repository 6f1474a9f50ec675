"""What a translation must keep as it is, by its form: variables, URLs, e-mail addresses, and the tags of markup."""

import re
from dataclasses import dataclass

from transformer_cli.data.numbered_tags import NUMBERED_TAG

# No pattern here backtracks far: the lengths are bounded, or what is repeated is possessive.
_VARIABLE = (
    r"\{%[^{}%]{0,100}%\}|\{\{[^{}\n]{1,100}\}\}|[$#]\{[^{}\s]{1,100}\}|\{[\w.:,!<>=+\-#%^|/ ]{0,100}\}"
    r"|%%|%\([^()\s]{1,100}\)[#0+-]{0,5}[0-9]{0,6}(?:\.[0-9]{1,6})?[a-zA-Z](?!\w)"
    r"|%(?:[0-9]{1,3}\$)?[#0+-]{0,5}[0-9]{0,6}(?:\.[0-9]{1,6})?(?:hh|h|ll|l|L|z|j|t)?[diouxXeEfFgGcrsapn@](?!\w)"
)
# Scripts that put no space after a URL, Hangul with its particles among them. Their letters are part of a URL in a
# segment that begins with one of them, since in `…/page查看` the sentence goes on; their punctuation never is.
SOLID = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
_NOT_IN_URL = r"\s<>\"\u3000-\u3004\u3008-\u303f\uff00-\uffef"
_BETWEEN = r"/=_.:?&#+%(@~\-"  # segments of a URL
_IN_URL = rf"(?:[^{_NOT_IN_URL}{SOLID}]|(?<=[{_BETWEEN}])[{SOLID}][^{_NOT_IN_URL}{_BETWEEN})]*+)++"
_URL = rf"(?:https?|ftp)://{_IN_URL}|\bwww\.{_IN_URL}"
_EMAIL = r"(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)++"
VARIABLE = re.compile(_VARIABLE)
_PATTERN = re.compile(rf"(?P<url>{_URL})|(?P<email>{_EMAIL})|(?P<variable>{_VARIABLE})")
_AFTER_URL = ".,;:!?'»”’)]}…"
_MARKUP = re.compile(r"</?[^\W\d_][^<>]{0,200}>|&#?\w{1,32};")  # tags and entities of HTML and XML


@dataclass(frozen=True)
class Placeholder:
    start: int  # in the text
    end: int
    text: str
    is_protected: bool = False  # given as such, and not recognised by its form


def placeholders_in(text: str) -> list[Placeholder]:
    """The parts of a text that have the form of a placeholder."""
    found = []
    for match in _PATTERN.finditer(text):
        start, end = match.span()
        if match["url"]:
            end = start + _length_of_url(match[0])
        found.append(Placeholder(start, end, text[start:end]))
    return found


def spans_to_keep(text: str, symbols: re.Pattern[str] | None = None) -> list[tuple[int, int]]:
    """The spans of the text's placeholders, tags and `symbols`, in order; overlapping ones are one span."""
    found = [(one.start, one.end) for one in placeholders_in(text)]
    for pattern in (_MARKUP, NUMBERED_TAG, symbols):
        found += [match.span() for match in pattern.finditer(text)] if pattern else []
    spans: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if spans and start < spans[-1][1]:
            spans[-1] = spans[-1][0], max(end, spans[-1][1])
        else:
            spans.append((start, end))
    return spans


def _length_of_url(text: str) -> int:
    """The length of a URL without the punctuation behind it; a bracket that the URL itself opens is part of it."""
    unopened = {closing: text.count(closing) - text.count(opening) for opening, closing in ("()", "[]", "{}")}
    end = len(text)
    while end and text[end - 1] in _AFTER_URL:
        last = text[end - 1]
        if last in unopened:
            if unopened[last] <= 0:
                break
            unopened[last] -= 1
        end -= 1
    return end
