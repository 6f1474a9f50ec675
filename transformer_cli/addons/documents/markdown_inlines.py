"""The text and the mark-up within a block of Markdown, with places: markdown-it-py finds it, and its rules are wrapped.

Variables, URLs, footnote marks and formulas are found by a rule of their own, before all others.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.common.utils import normalizeReference
from markdown_it.rules_inline import (
    StateInline,
    autolink,
    backtick,
    emphasis,
    entity,
    escape,
    html_inline,
    image,
    link,
    newline,
    strikethrough,
)
from markdown_it.token import Token

from transformer_cli.addons.documents.html import OPAQUE, RUBY, is_kept
from transformer_cli.addons.documents.markdown_blocks import MAX_NESTING, check_deadline
from transformer_cli.addons.documents.markdown_templates import (
    MaskedMarkdown,
    end_of_attributes,
    mask_tags,
    masked_tags,
)
from transformer_cli.addons.documents.tags import Kind, markup_at
from transformer_cli.addons.documents.tags import Token as Tag
from transformer_cli.addons.documents.units import Item
from transformer_cli.data.placeholders import VARIABLE

Rule = Callable[[StateInline, bool], bool]
PlacedToken = tuple[Token, tuple[int, int]]
_SCHEME = re.compile(r"(?<![\w\\])(?:https?|ftp)$")
_URL = re.compile(r"://(?:[^\s<>\"\[\]()*`\\]|\([^\s()<>\[\]]*\))++")
_AFTER_URL = ".,;:!?'\"*_~"
_FORMULA = re.compile(r"\$\$[^$`]{1,500}\$\$|\$(?![\s$])[^$`]{1,500}(?<![\s\\])\$(?!\w)")
_FOOTNOTE = re.compile(r"\[\^[^\[\]\s]{1,100}\]")
# A word in lower case is text after ! and before a colon, as in an example of CommonMark's specification.
_WIKI_LINK = re.compile(r"(?<![!\[])(?!!\[\[[a-z]++\]\]|\[\[[a-z]++\]\]:)!?\[\[([^\[\]\n]{1,200})\]\](?![(\[\]])")
_EMOJI = re.compile(r"(?<![\w:]):(?:[a-zA-Z][\w+-]{0,50}|[+-]1|100|1234):(?![\w:])")
_LONGEST_SHOWN = 100  # characters of an element with code that the model sees as a word
_NOTE = "^-"  # the name of a note, which is apart from the words around it as a custom element of HTML is
BREAK = "\\"  # the name of a hard break after which another text begins


@dataclass
class Alt:
    """The text of an image: where it is written, and what must follow it."""

    start: int
    end: int
    text: str
    suffix: str = ""


@dataclass
class Inlines:
    items: list[Item]
    inner: list[Alt | Tag]  # what has texts of its own: images, and tags of HTML with their attributes; in order


def markdown_inlines(text: str, env: dict[str, Any]) -> Inlines:
    """The items of a text whose lines end with \\n; their places are in this text."""
    found = Inlines([], [])
    masked = mask_tags(text)
    tokens = _tokens(masked.text, env)
    position = n_pairs = 0
    ends = _ends_of_elements(tokens)
    opened: list[tuple[str, int, int]] = []  # open pairs: name, start and end of their first mark
    for token, (start, end) in tokens:
        if start < position or token.type == "text":
            continue  # within what is kept, or a delimiter that is text
        found.items += _text(text, masked, position, start)
        position = end
        if token.nesting > 0 and token.info != "auto":
            n_pairs += 1
            name = _NOTE if token.type == "note_open" else text[start]
            opened.append((f"{name}{n_pairs}", start, end))
            needs_text = token.type not in ("link_open", "note_open")
            item = Item(start, end, name=opened[-1][0], is_tag=True, opens=True, needs_text=needs_text)
        elif token.nesting < 0 and opened:
            name, _, first = opened.pop()
            needs_text = token.type not in ("link_close", "note_close")
            item = Item(start, end, name=name, is_tag=True, closes=True, needs_text=needs_text)
            if text[start:end] in ("]", "][]") and token.type == "link_close":
                item.markup = f"][{_one_line(text[first:start])}]"
        else:
            item = _alone(token, text, masked, start, end, is_within=bool(opened))
            if token.type == "html_inline":
                tag = markup_at(token.content, 0, is_xml=False)
                if start in ends and is_kept(token.content, tag):
                    position = ends[start]
                    item = _kept_element(text, start, position, end, tag.name)
                elif tag.kind in (Kind.opening, Kind.empty):
                    found.inner.append(replace(tag, start=start, end=end))
            if token.type == "image":
                found.inner.append(_alt(token, masked, start, end))
        if token.nesting < 0 or token.type in ("image", "code_inline") or token.info == "auto":
            position = end_of_attributes(text, end)
            item.markup = item.markup and item.markup + text[end:position]
            item.end = position
        found.items.append(item)
        if token.type == "hardbreak":
            found.items.append(Item(end, end, " "))
    found.items += _text(text, masked, position, len(text))
    return found


def _text(text: str, masked: MaskedMarkdown, start: int, end: int) -> Iterator[Item]:
    """A text between tokens, and the template tags in it."""
    for first, last in masked_tags(masked.text, start, end):
        if first > start:
            yield Item(start, first, text[start:first])
        yield Item(first, last, text[first:last], is_protected=True)
        start = last
    if start < end:
        yield Item(start, end, text[start:end])


def _alone(token: Token, text: str, masked: MaskedMarkdown, start: int, end: int, *, is_within: bool) -> Item:
    """The item of a token that is not one of a pair."""
    raw = text[start:end]
    if token.type == "text_special":
        return Item(start, end, token.content)
    if token.type == "softbreak":
        return Item(start, end, " ")
    if token.type == "hardbreak":
        divides = not is_within and not text[end : end + 1].islower()
        return Item(start, end, is_tag=True, name=BREAK if divides else "")
    if token.type == "kept" and not raw.startswith("[^"):
        return Item(start, end, raw, is_protected=True)
    if token.info == "auto":
        return Item(start, end, raw[1:-1], is_protected=True)
    if token.type == "code_inline" and token.content.strip():
        return Item(start, end, masked.shown(token.content), is_protected=True)
    if token.type == "html_inline":
        html = markup_at(token.content, 0, is_xml=False)
        opens, closes = (html.kind is kind for kind in (Kind.opening, Kind.closing))
        return Item(start, end, name=f"<{html.name}", is_tag=True, opens=opens, closes=closes)
    return Item(start, end, is_tag=True)


def _one_line(label: str) -> str:
    return " ".join(label.split())


# ---- Images


def _alt(token: Token, masked: MaskedMarkdown, start: int, end: int) -> Alt:
    first = start + 2
    content = " ".join(masked.shown(_shown(token.children or ())).split())
    after = first + len(token.content)
    if masked.text[after:end] in ("]", "][]"):
        return Alt(first, end, content, f"][{_one_line(masked.shown(token.content))}]")
    return Alt(first, after, content)


def _shown(tokens: Sequence[Token]) -> str:
    """What of an image's text is its alternative text."""
    parts = []
    for token in tokens:
        if token.type == "image":
            parts.append(_shown(token.children or ()))
        elif token.type in ("softbreak", "hardbreak"):
            parts.append(" ")
        else:
            parts.append(token.content)
    return "".join(parts)


# ---- Elements of HTML that are not translated


def _ends_of_elements(tokens: Sequence[PlacedToken]) -> dict[int, int]:
    """The end of each element by its start, if both of its tags are within the same pair of marks."""
    found: dict[int, int] = {}
    elements: dict[str, list[tuple[int, int]]] = {}  # by name, those that are open: start, opening of the pair
    opened = [-1]
    for token, (start, end) in tokens:
        if token.nesting > 0 and token.info != "auto":
            opened.append(start)
        elif token.nesting < 0:
            opened.pop()
        elif token.type == "html_inline":
            tag = markup_at(token.content, 0, is_xml=False)
            stack = elements.setdefault(tag.name, [])
            if tag.kind is Kind.opening:
                stack.append((start, opened[-1]))
            elif tag.kind is Kind.closing and stack:
                first, pair = stack.pop()
                if pair == opened[-1]:
                    found[first] = end
    return found


def _kept_element(text: str, start: int, end: int, content_start: int, name: str) -> Item:
    content = text[content_start : text.rindex("<", start, end)]
    if name not in OPAQUE | RUBY and content.strip() and len(content) <= _LONGEST_SHOWN:
        return Item(start, end, content, is_protected=True)
    return Item(start, end, name=f"<{name}", is_tag=True)


# ---- Tokens with places


def _tokens(text: str, env: dict[str, Any]) -> list[PlacedToken]:
    found = []
    for token in _parser().inline.parse(text, _parser(), env, []):
        span = token.meta.get("span")
        if span is None or (token.type == "text" and token.content == ""):
            continue  # text between tokens, or half of the ** beside it
        start, end = span
        if token.type == "strong_open":
            start -= 1
        elif token.type == "strong_close":
            end += 1
        found.append((token, (start, end)))
    return found


@cache
def _parser() -> MarkdownIt:
    options = {"maxNesting": MAX_NESTING, "strikethrough_single_tilde": True}
    md = MarkdownIt("commonmark", options).enable("strikethrough")
    md.inline.ruler2.disable("fragments_join")
    md.inline.ruler.after("text", "kept", _kept)
    md.inline.ruler.after("kept", "note", _note)
    md.inline.ruler.at("newline", _with_place_of_break)
    rules: dict[str, Rule] = {
        "escape": escape,
        "backticks": backtick,
        "strikethrough": strikethrough.tokenize,
        "emphasis": emphasis.tokenize,
        "link": link,
        "image": image,
        "autolink": autolink,
        "html_inline": html_inline,
        "entity": entity,
    }
    for name, rule in rules.items():
        md.inline.ruler.at(name, _with_places(rule))
    return md


def _with_places(rule: Rule) -> Rule:
    def placed(state: StateInline, silent: bool) -> bool:
        start, first, has_pending = state.pos, len(state.tokens), bool(state.pending)
        if not rule(state, silent):
            return False
        if not silent:
            _place(state, state.tokens[first + has_pending :], start)
        return True

    return placed


def _place(state: StateInline, tokens: list[Token], start: int) -> None:
    """Note the places of the tokens that a rule has added, from `start` to the state's position."""
    if not tokens:
        return
    if tokens[0].type == "link_open" and tokens[0].info != "auto":
        tokens[0].meta["span"] = start, start + 1
        tokens[-1].meta["span"] = state.md.helpers.parseLinkLabel(state, start, True), state.pos
    elif tokens[0].type == "text":
        for token in tokens:
            token.meta["span"] = start, start + len(token.content)
            start += len(token.content)
    else:
        tokens[0].meta["span"] = start, state.pos


def _with_place_of_break(state: StateInline, silent: bool) -> bool:
    start = state.pos if silent else state.pos - len(state.pending) + len(state.pending.rstrip(" "))
    if not newline(state, silent):
        return False
    if not silent:
        state.tokens[-1].meta["span"] = start, state.pos
    return True


_KEPT = {"$": (VARIABLE, _FORMULA), "[": (_FOOTNOTE, _WIKI_LINK), "!": (_WIKI_LINK,)}


def _is_defined(state: StateInline, label: str) -> bool:
    return normalizeReference(label) in state.env.get("references", ())


def _note(state: StateInline, silent: bool) -> bool:
    """A note within the text, `^[Note]`, unless the brackets are a link."""
    start, end = state.pos, state.posMax
    if not state.src.startswith("^[", start):
        return False
    closing = state.md.helpers.parseLinkLabel(state, start + 1)
    if closing <= start + 2 or state.src[closing + 1 : closing + 2] in ("(", "["):
        return False
    if _is_defined(state, state.src[start + 2 : closing]):
        return False
    if not silent:
        state.push("note_open", "", 1).meta["span"] = start, start + 2
        state.pos, state.posMax = start + 2, closing
        state.md.inline.tokenize(state)
        state.push("note_close", "", -1).meta["span"] = closing, closing + 1
    state.pos, state.posMax = closing + 1, end
    return True


def _kept(state: StateInline, silent: bool) -> bool:
    check_deadline(state.env)
    text, start = state.src, state.pos
    character = text[start]
    if character == ":" and (match := _EMOJI.match(text, start, state.posMax)):
        end = match.end()
    elif character == ":":
        scheme = _SCHEME.search(text, max(start - 6, 0), start)
        match = _URL.match(text, start, state.posMax) if scheme else None
        if scheme is None or match is None:
            return False
        end = start + len(match[0].rstrip(_AFTER_URL))
        if end <= start + 3:
            return False
        start = scheme.start()
    elif character in "{%$#[!":
        found = next(
            (match for one in _KEPT.get(character, (VARIABLE,)) if (match := one.match(text, start, state.posMax))),
            None,
        )
        if found is None or (found.re is _WIKI_LINK and _is_defined(state, found[1])):
            return False
        end = found.end()
    else:
        return False
    if not silent:
        if start < state.pos:
            state.pending = state.pending[: start - state.pos]
        token = state.push("kept", "", 0)
        token.content, token.meta["span"] = text[start:end], (start, end)
    state.pos = end
    return True
