"""HTML: what is text in it, and which tags are within text.

A run of text and inline tags between block tags is a unit, and so are the attributes that are shown as text.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from html import unescape

from transformer_cli.markup.tags import Kind, Token, tokens
from transformer_cli.markup.units import Builder, Document, Item, add_run


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_INLINE = _names(
    "a abbr acronym b bdi bdo big br button cite code data del dfn em font i img input ins kbd label mark math meter"
    " nobr noscript object output picture progress q rb rp rt rtc ruby s samp script small source span strike strong"
    " style sub sup svg template time tt u var video audio canvas wbr"
)
_VOID = _names("area base br col embed frame hr img input link meta param source track wbr")
CODE = _names("code kbd pre samp tt var")  # kept, and shown to the model where they are within text
OPAQUE = _names("script style svg math textarea object iframe canvas video audio template xmp")  # kept
RUBY = _names("rp rt rtc")  # how a word is read: kept beside it
_ATTRIBUTES = ("alt", "title", "placeholder", "aria-label")
_ATTRIBUTE = re.compile(r"([^\s=/>\"']++)\s*+=\s*+(\"[^\"]*+\"|'[^']*+'|[^\s>\"']++)")
_MAY_MATTER = re.compile(r"\b(?:alt|title|placeholder|aria-label|translate|class)\b", re.IGNORECASE)
_LINE = re.compile(r"\n\s*|[^\n]+")  # white space before a line, which may be the mark of a quote; or a line
_END_OF_LINE = re.compile(r"[ \t]*\n")
_NUMBERED = re.compile(r"&#(?:[xX]([0-9a-fA-F]{1,6})|([0-9]{1,7}));?")
_LONGEST_PROTECTED = 100  # characters that a code span within a text may have


def parse_html(text: str) -> Document:
    builder = Builder(text)
    add_html(builder, 0, len(text))
    return builder.document()


def add_html(builder: Builder, first: int, last: int, shown: str | None = None) -> None:
    """Add the units of a stretch of the builder's source that is HTML.

    In a format of which HTML is a block, `shown` is what is to be read there; a tag on its first line stays alone.
    """
    source, is_block = builder.source, shown is not None
    shown = source[first:last] if shown is None else shown
    found = [
        Token(token.kind, token.start + first, token.end + first, token.name) for token in tokens(shown, is_xml=False)
    ]
    closing = _closings(found)
    run: list[Item] = []
    i = 0
    while i < len(found):
        if is_block and len(run) == 1 and run[0].start == first and _END_OF_LINE.match(shown, run[0].end - first):
            _finish(builder, run)
        token = found[i]
        is_inline = token.name in _INLINE or "-" in token.name
        until = _kept_until(source, token, closing.get(i)) if token.kind is Kind.opening else None
        if until is not None:
            end = found[until].end
            if is_inline:
                run.append(_kept(source, token, end, found[i + 1 : until]))
            else:
                _finish(builder, run)
            i = until + 1
            continue
        i += 1
        if token.kind in (Kind.opening, Kind.empty):
            _add_attributes(builder, token)
        if token.kind is Kind.text:
            for line in _LINE.finditer(shown, token.start - first, token.end - first):
                run.append(Item(line.start() + first, line.end() + first, decoded(line[0])))
        elif token.kind is Kind.comment:
            run.append(Item(token.start, token.end, name="!--", is_tag=True))
        elif token.name == "br" and not _continues(source, found[i] if i < len(found) else None):
            _finish(builder, run)
        elif is_inline:
            alone = token.kind is Kind.empty or token.name in _VOID
            opens, closes = (not alone and token.kind is kind for kind in (Kind.opening, Kind.closing))
            run.append(Item(token.start, token.end, name=token.name, is_tag=True, opens=opens, closes=closes))
            if token.name == "br":
                run.append(Item(token.end, token.end, " "))
        else:
            _finish(builder, run)
    _finish(builder, run)


def _finish(builder: Builder, run: list[Item]) -> None:
    add_run(builder, run, escape_text)
    run.clear()


def decoded(text: str) -> str:
    """With its entities decoded, those of control characters and noncharacters among them, which Python drops."""
    return unescape(_NUMBERED.sub(lambda match: match[0] if unescape(match[0]) else _character(match), text))


def _character(match: re.Match[str]) -> str:
    return chr(int(match[1], 16) if match[1] else int(match[2]))


def escape_text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def escape_attribute(text: str, *, quote: str, add_quotes: bool = False) -> str:
    escaped = escape_text(text).replace(quote, "&quot;" if quote == '"' else "&#39;")
    return f"{quote}{escaped}{quote}" if add_quotes else escaped


def _closings(found: Sequence[Token]) -> dict[int, int]:
    """The closing tag of each opening tag that has one of its name; a `p` also ends before the next."""
    closing: dict[int, int] = {}
    stacks: dict[str, list[int]] = {}
    for i, token in enumerate(found):
        if token.kind is Kind.opening and token.name not in _VOID:
            stack = stacks.setdefault(token.name, [])
            if token.name == "p" and stack:
                closing[stack.pop()] = i - 1
            stack.append(i)
        elif token.kind is Kind.closing and stacks.get(token.name):
            closing[stacks[token.name].pop()] = i
    return closing


def _kept_until(source: str, token: Token, closing: int | None) -> int | None:
    """The last token of an element that is not translated; None for one that is, or has no end."""
    if closing is None:
        return None
    if token.name in CODE or token.name in OPAQUE or token.name in RUBY:
        return closing
    markup = source[token.start : token.end]
    if not _MAY_MATTER.search(markup):
        return None
    attributes = {name.lower(): value for name, value, _ in _attributes(source, token)}
    is_off = attributes.get("translate", "").lower() == "no" or "notranslate" in attributes.get("class", "").split()
    return closing if is_off else None


def _kept(source: str, token: Token, end: int, inner: Sequence[Token]) -> Item:
    """An element that is not translated, within text: shown to the model if it is short, as the word that it is."""
    text = decoded("".join(source[one.start : one.end] for one in inner if one.kind is Kind.text))
    is_shown = token.name not in OPAQUE | RUBY and text.strip() != "" and len(text) <= _LONGEST_PROTECTED
    if is_shown:
        return Item(token.start, end, text, is_protected=True)
    return Item(token.start, end, name=token.name, is_tag=True)


def _attributes(source: str, token: Token) -> list[tuple[str, str, tuple[int, int]]]:
    """Name, value and place of each attribute; places are without quotes where there are any."""
    start = token.start + 1 + len(token.name)
    found = []
    for match in _ATTRIBUTE.finditer(source, start, token.end - 1):
        is_quoted = match[2][0] in "\"'"
        span = (match.start(2) + is_quoted, match.end(2) - is_quoted)
        found.append((match[1], unescape(source[slice(*span)]), span))
    return found


def _add_attributes(builder: Builder, token: Token) -> None:
    source = builder.source
    if not _MAY_MATTER.search(source, token.start, token.end):
        return
    attributes = _attributes(source, token)
    if any(name.lower() == "translate" and value.lower() == "no" for name, value, _ in attributes):
        return
    for name, _, (start, end) in attributes:
        if name.lower() in _ATTRIBUTES:
            before = source[start - 1]
            escape: Callable[[str], str] = partial(escape_attribute, quote=before)
            if before not in "\"'":
                escape = partial(escape_attribute, quote='"', add_quotes=True)
            builder.add_inner(start, end, escape, unescape)


def _continues(source: str, following: Token | None) -> bool:
    """Whether the text after a line break goes on with the sentence before it, as a lower-case letter shows."""
    if following is None or following.kind is not Kind.text:
        return False
    return source[following.start : following.end].lstrip()[:1].islower()


def is_kept(source: str, token: Token) -> bool:
    """Whether the content of an element with this opening tag is not translated."""
    return _kept_until(source, token, 0) is not None


def add_attributes(builder: Builder, token: Token) -> None:
    """Add the attributes of a tag that are shown as text, as units within the mark-up."""
    _add_attributes(builder, token)
