"""What messages of gettext hold beside text: variables, by the flags of a message and the origin of its catalogue."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from transformer_cli.addons.documents.inline_tags import INLINE_TAG, tag_item
from transformer_cli.addons.documents.restructured_text import MARKUP, markup_items
from transformer_cli.addons.documents.units import Item
from transformer_cli.data.placeholders import VARIABLE

# No pattern here backtracks far: what is repeated is possessive or bounded.
_LENGTH = r"(?:hh|h|ll|l|L|q|j|z|t)?"
_NUMBER = r"(?:\*(?:\d{1,3}\$)?|\d{1,6})?"
_END = rf"{_NUMBER}(?:\.{_NUMBER})?{_LENGTH}[diouxXeEfFgGaAcsCSpnmr@]"
# With a space it is no part of a word: `100 % sure` is text.
_C = (
    rf"%(?:\d{{1,3}}\$)?[-+#0'I]{{0,6}}{_END}|%(?:\d{{1,3}}\$)?[-+ #0'I]{{1,6}}{_END}(?!\w)|%%"
    r"|%(?:\d{1,3}\$)?[-+ #0'I]{0,6}\d{0,6}<PRI[a-zA-Z0-9]{1,12}>"
)
_PYTHON = rf"%\([^()\n]{{1,100}}\)[-+ #0]{{0,5}}{_END}|{_C}"
_GROUP = r"\{[^{}\n]{0,200}\}"
_GROUPS = rf"\{{(?:[^{{}}\n]{{0,200}}(?:\{{(?:[^{{}}\n]{{0,200}}{_GROUP})*+[^{{}}\n]{{0,200}}\}})?)*+\}}"
_BRACES = rf"\{{\{{|\}}\}}|{_GROUP}"
# Variables of plural forms, and the number of one of them, in .stringsdict and .xcstrings of Apple.
_APPLE = rf"%(?:\d{{1,3}}\$)?#@[^@\s]{{1,100}}@|%(?:\d{{1,3}}\$)?arg(?!\w)|{_C}"
# Links and inflected words of Apple's Markdown: [text](address), ^[%lld files](inflect: true).
_LINK = re.compile(r"(?P<opens>\^?\[(?=[^\[\]\n]{1,300}\]\([^()\n]{1,300}\)))|\]\([^()\n]{1,300}\)")
_QT = r"%L?(?:\d{1,2}|n)|%%"
_OF_FLAGS = {
    **dict.fromkeys(("c", "javascript", "java-printf", "perl", "tcl", "awk", "lua", "object-pascal", "d"), _C),
    **dict.fromkeys(("php", "gfc-internal", "gcc-internal", "sh-printf", "go", "modula2"), _C),
    "objc": _APPLE,
    "python": _PYTHON,
    **dict.fromkeys(("python-brace", "csharp", "rust", "c++"), _BRACES),
    **dict.fromkeys(("java", "icu"), _GROUPS),
    "perl-brace": _GROUP,
    "ruby": rf"%\{{[^{{}}\n]{{1,100}}\}}|%<\w{{1,100}}>|{_C}",
    **dict.fromkeys(("qt", "qt-plural", "kde", "kde-kuit", "ycp", "smalltalk"), _QT),
    "boost": rf"%\d{{1,3}}%|%\|[^|\n]{{1,50}}\||{_C}",
    "rails": r"%\{[^{}\n]{1,100}\}|%[-_0^#]?\d{0,3}[a-zA-Z](?!\w)|%%",  # and the parts of dates
    "i18next": r"\$t\([^()\n]{0,200}\)|@(?:\.\w{1,20})?:[\w.]{1,100}|%\{[^{}\n]{1,100}\}",
    "quoted": r"'[{}][^'\n]{0,100}'",  # braces that are text, in ICU and MessageFormat
    "chrome": r"\$\w{1,50}\$|\$\d{1,2}(?!\w)",
    "#": "#",  # the number, in a choice of ICU
    "sh": r"\$\{\w{1,100}\}|\$\w{1,100}",
    **dict.fromkeys(
        ("lisp", "scheme", "elisp"), r"~[\d,:@']{0,10}[a-zA-Z%~&|(){}\[\];^*]|%[-+ #0]{0,4}\d{0,4}[sSdoxXcefg]"
    ),
}
# A message of ICU with a choice holds texts, but also keywords: it is kept as a whole, whatever the flags are.
_CHOICE = re.compile(r"(?=\{\s{0,5}\w{1,50}\s{0,5},\s{0,5}(?:plural|select|selectordinal)\s{0,5},)" + _GROUPS)
_PATTERNS = {kind: re.compile(pattern) for kind, pattern in _OF_FLAGS.items()}
_QT_HEADER = re.compile(r"^(?:X-Qt-Contexts:|X-Generator: *Lokalize|X-Source-Language-Team: *KDE)", re.MULTILINE)
_RST_FILE = re.compile(r"\.(?:rst|rest)(?::|\s|$)|docstring of ", re.MULTILINE)
RST = "rst"


def origin_of(header: str, references: Iterable[str]) -> frozenset[str]:
    """The kinds of variables that messages of a catalogue have without flags, by its header and what it refers to."""
    found = set()
    if _QT_HEADER.search(header):
        found.add("qt")
    if any(_RST_FILE.search(one) for one in references):
        found.add(RST)
    return frozenset(found)


def kinds_of(flags: set[str], references: str, origin: frozenset[str]) -> frozenset[str]:
    """The kinds of variables that a message has."""
    formats = {flag.removesuffix("-format") for flag in flags if flag.endswith("-format")}
    found = {one.removeprefix("possible-") for one in formats if one.removeprefix("possible-") in _PATTERNS}
    if not found:
        found = set(origin) if not references or RST not in origin else set(origin - {RST})
    if _RST_FILE.search(references):
        found.add(RST)
    return frozenset(found)


def inline_items(text: str, start: int, end: int, *, kinds: frozenset[str]) -> list[Item]:
    """The items of a stretch of a message."""
    found: list[Item] = []
    position = start
    for match, kind in _matches(text, start, end, kinds):
        if match.start() < position:
            continue
        if match.start() > position:
            found.append(Item(position, match.start(), text[position : match.start()]))
        items = _ITEMS.get(kind, _variable)(match)
        found += items
        position = items[-1].end
    if position < end:
        found.append(Item(position, end, text[position:end]))
    return found


def _variable(match: re.Match[str]) -> list[Item]:
    return [Item(*match.span(), match[0], is_protected=True)]


def _link(match: re.Match[str]) -> list[Item]:
    opens = match["opens"] is not None
    return [Item(*match.span(), name="[", is_tag=True, opens=opens, closes=not opens)]


_ITEMS = {"": lambda match: [tag_item(match)], RST: markup_items, "link": _link}


def _matches(text: str, start: int, end: int, kinds: frozenset[str]) -> Iterator[tuple[re.Match[str], str]]:
    """Matches of what is not text, in order; of overlapping ones only the first and longest."""
    found = [(match, "") for match in INLINE_TAG.finditer(text, start, end)]
    found += [(match, RST) for match in MARKUP[RST in kinds].finditer(text, start, end)]
    found += [(match, "icu") for match in _CHOICE.finditer(text, start, end)]
    if "objc" in kinds:
        found += [(match, "link") for match in _LINK.finditer(text, start, end)]
    for kind in sorted(kinds - {RST}):
        found += [(match, kind) for match in _PATTERNS[kind].finditer(text, start, end)]
    found.sort(key=lambda item: (item[0].start(), -item[0].end()))
    position = start
    for match, kind in found:
        if match.start() >= position:
            yield match, kind
            position = match.end()


def same_placeholders(singular: str, plural: str, kinds: frozenset[str]) -> bool:
    """Whether both texts of a message have the same variables."""
    patterns = [_PATTERNS[kind] for kind in sorted(kinds - {RST})] or [VARIABLE]
    one, other = (
        Counter(match[0] for pattern in patterns for match in pattern.finditer(text)) for text in (singular, plural)
    )
    return one == other
