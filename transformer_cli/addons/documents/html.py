"""HTML: what is text in it, and which tags are within text.

A run of text and inline tags between block tags is a unit, and so are the attributes that are shown as text.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from html import unescape
from html.entities import html5

from transformer_cli.addons.documents.tags import QUOTED, TEMPLATE, Kind, Token, tokens
from transformer_cli.addons.documents.units import WHITE_SPACE, Builder, Document, Item, Protected, Unit, add_run
from transformer_cli.data.normalization import has_letters
from transformer_cli.data.placeholders import VARIABLE


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_INLINE = _names(
    "a abbr acronym b bdi bdo big br button cite code data del dfn em font i img input ins kbd label mark math meter"
    " nobr noscript object output picture progress q rb rp rt rtc ruby s samp script small source span strike strong"
    " style sub sup svg time tt u var video audio canvas wbr"
)
_VOID = _names("area base br col embed frame hr img input link meta param source track wbr")
CODE = _names("code kbd pre samp tt var")  # kept, and shown to the model where they are within text
OPAQUE = _names("script style svg math textarea object iframe canvas video audio xmp")  # kept
RUBY = _names("rp rt rtc")  # how a word is read: kept beside it
_ATTRIBUTES = ("alt", "title", "placeholder", "aria-label")
_ATTRIBUTE = re.compile(rf"([^\s=/>\"']++)\s*+=\s*+({QUOTED}|[^\s>\"']++)")
_MAY_MATTER = re.compile(r"\b(?:alt|title|placeholder|aria-label|translate|class)\b", re.IGNORECASE)
_LINE = re.compile(r"\n\s*|[^\n]+")  # white space before a line, which may be the mark of a quote; or a line
_END_OF_LINE = re.compile(r"[ \t]*\n")
_REFERENCE = re.compile(r"&(?:#[xX]?[0-9a-fA-F]++;?|([a-zA-Z][a-zA-Z0-9]*+;?)(?P<assigned>(?==))?)")
_PRINTED = ("<%=", "<?=")  # code of a template that stands for a word, as {{ x }} does
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
        Token(token.kind, token.start + first, token.end + first, token.name)
        for token in builder.watched(tokens(shown, is_xml=False))
    ]
    closing = _closings(builder.watched(found))
    run: list[Item] = []
    i = 0
    for _ in builder.watched(found):  # at least one at each step
        if i == len(found):
            break
        if is_block and len(run) == 1 and run[0].start == first and _END_OF_LINE.match(shown, run[0].end - first):
            _finish(builder, run)
        token = found[i]
        is_inline = token.name in _INLINE or "-" in token.name
        until = _kept_until(source, token, closing.get(i)) if token.kind is Kind.opening else None
        if until is not None:
            n_inner = len(builder.inner)
            _add_attributes(builder, token)
            if is_inline:
                run += _kept(source, found[i : until + 1], has_units=len(builder.inner) > n_inner)
            else:
                _finish(builder, run)
            i = until + 1
            continue
        i += 1
        if token.kind in (Kind.opening, Kind.empty):
            _add_attributes(builder, token)
        if token.kind is Kind.text:
            for start, end, is_code in _pieces(shown, token.start - first, token.end - first):
                if is_code:
                    run.append(_code(source, start + first, end + first))
                    continue
                for line in _LINE.finditer(shown, start, end):
                    run.append(Item(line.start() + first, line.end() + first, decoded(line[0])))
        elif token.kind is Kind.comment:
            run.append(_code(source, token.start, token.end))
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


def _pieces(text: str, start: int, end: int) -> Iterator[tuple[int, int, bool]]:
    """The parts of a text, and whether each is code of a template that must stay as it is written.

    A variable that is written in text as it is in code needs no care: it is found as a placeholder.
    """
    for match in TEMPLATE.finditer(text, start, end):
        code = match[0]
        if (
            VARIABLE.fullmatch(code)
            and escape_text(code) == decoded(code) == " ".join(code.split())
            and '"' not in code
        ):
            continue
        if start < match.start():
            yield start, match.start(), False
        yield *match.span(), True
        start = match.end()
    if start < end:
        yield start, end, False


def _code(source: str, start: int, end: int) -> Item:
    """A comment, or code of a template, which the model sees if it is short and stands for a word."""
    is_shown = source[start] == "{" and source[start + 1] != "#"
    is_shown = is_shown or source.startswith(_PRINTED, start)
    if is_shown and end - start <= _LONGEST_PROTECTED:
        return Item(start, end, source[start:end], is_protected=True)
    return Item(start, end, name="!--", is_tag=True)


def decoded(text: str) -> str:
    """`text` with its entities decoded, also those of control characters and noncharacters, which Python drops."""
    return unescape(_NUMBERED.sub(lambda match: match[0] if unescape(match[0]) else _character(match), text))


def _character(match: re.Match[str]) -> str:
    return chr(int(match[1], 16) if match[1] else int(match[2]))


def decoded_attribute(text: str) -> str:
    """The value of an attribute with its entities decoded, but for parts of a URL: `&copy=2` and `&copyx` stay."""
    return _REFERENCE.sub(_character_of_attribute, text)


def _character_of_attribute(match: re.Match[str]) -> str:
    if match[1] is None:
        return decoded(match[0])
    is_part = match["assigned"] is not None and not match[1].endswith(";")
    return match[0] if is_part else html5.get(match[1], match[0])


def escape_text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def escape_attribute(text: str, *, quote: str, add_quotes: bool = False) -> str:
    escaped = escape_text(text).replace(quote, "&quot;" if quote == '"' else "&#39;")
    return f"{quote}{escaped}{quote}" if add_quotes else escaped


def _closings(found: Iterable[Token]) -> dict[int, int]:
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
    is_kept = token.name in CODE or token.name in OPAQUE or token.name in RUBY or _is_off(source, token)
    return closing if is_kept else None


def _is_off(source: str, token: Token) -> bool:
    """Whether an element says that it is not to be translated."""
    if not _MAY_MATTER.search(source, token.start, token.end):
        return False
    attributes = {name.lower(): value for name, value, _ in _attributes(source, token)}
    return attributes.get("translate", "").lower() == "no" or "notranslate" in attributes.get("class", "").split()


def _kept(source: str, element: Sequence[Token], *, has_units: bool) -> list[Item]:
    """An element that is not translated, within text: shown to the model if it is short, as the word that it is.

    If its tag has units, as a title is one, the tags are a pair around what is kept.
    """
    token, inner, last = element[0], element[1:-1], element[-1]
    text = decoded("".join(source[one.start : one.end] for one in inner if one.kind is Kind.text))
    is_shown = token.name not in OPAQUE | RUBY and text.strip() != "" and len(text) <= _LONGEST_PROTECTED
    if not is_shown:
        return [Item(token.start, last.end, name=token.name, is_tag=True)]
    if not has_units:
        return [Item(token.start, last.end, text, is_protected=True)]
    return [
        Item(token.start, token.end, name=token.name, is_tag=True, opens=True),
        Item(token.end, last.start, text, is_protected=True),
        Item(last.start, last.end, name=token.name, is_tag=True, closes=True),
    ]


def _attributes(source: str, token: Token) -> list[tuple[str, str, tuple[int, int]]]:
    """Name, value and place of each attribute; places are without quotes where there are any."""
    start = token.start + 1 + len(token.name)
    found = []
    for match in _ATTRIBUTE.finditer(source, start, token.end - 1):
        is_quoted = match[2][0] in "\"'"
        span = (match.start(2) + is_quoted, match.end(2) - is_quoted)
        found.append((match[1], decoded_attribute(source[slice(*span)]), span))
    return found


def _add_attributes(builder: Builder, token: Token) -> None:
    source = builder.source
    if not _MAY_MATTER.search(source, token.start, token.end) or _is_off(source, token):
        return
    for name, _, (start, end) in _attributes(source, token):
        if name.lower() in _ATTRIBUTES:
            before = source[start - 1]
            escape: Callable[[str], str] = partial(escape_attribute, quote=before)
            if before not in "\"'":
                escape = partial(escape_attribute, quote='"', add_quotes=True)
            if TEMPLATE.search(source, start, end):
                _add_with_code(builder, start, end, escape)
            else:
                builder.add_inner(start, end, escape, decoded_attribute)


def _add_with_code(builder: Builder, start: int, end: int, escape: Callable[[str], str]) -> None:
    """The unit of an attribute that holds code of a template."""
    source = builder.source
    text, words = "", ""
    protected: list[Protected] = []
    for first, last, is_code in _pieces(source, start, end):
        raw = source[first:last]
        if is_code:
            new = " ".join(raw.split())
            protected.append(Protected(len(text), len(text) + len(new), raw))
        else:
            new = WHITE_SPACE.sub(" ", decoded_attribute(raw))
            new = new.lstrip() if not text else new
            words += new
        text += new
    if has_letters(VARIABLE.sub("", words)):
        builder.on_unit(len(builder.units) + 1)
        builder.inner.append((start, end, len(builder.units)))
        builder.units.append(Unit(text.rstrip(), (source[start:end],), (), tuple(protected), escape))


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
