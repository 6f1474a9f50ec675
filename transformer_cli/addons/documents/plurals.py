"""Plural forms of gettext: which of them is that of one."""

import gettext
import re
from collections.abc import Callable

_HEADER = re.compile(r"^Plural-Forms:.*?\bplural\s*=([^;\n]+)", re.MULTILINE | re.IGNORECASE)
_ENGLISH = "n != 1"
_NUMBERS = range(1001)  # for which a rule is tried
_OFTEN = 5  # of these numbers: a form for more of them needs the number in its text


def form_of(header: str) -> Callable[[int], int]:
    """The rule that the header of a catalogue has; that of English where it has none, or a wrong one."""
    match = _HEADER.search(header)
    try:
        rule = gettext.c2py(match[1].strip() if match else _ENGLISH)
        max(map(rule, _NUMBERS))  # some divide by zero
    except (ValueError, ZeroDivisionError):
        return gettext.c2py(_ENGLISH)
    return rule


def is_often(form: int, rule: Callable[[int], int]) -> bool:
    """Whether a form is that of many numbers, as the one of 1, 21 and 31 in Russian is."""
    numbers = [n for n in _NUMBERS if rule(n) == form]
    return len(numbers) > _OFTEN
