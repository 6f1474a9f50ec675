"""Markdown: CommonMark with tables, footnotes, task lists and front matter, as far as text must be told from the rest.

Code, link targets, HTML tags and the marks of blocks are kept. A translated paragraph is on one line.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from html import unescape

from transformer_cli.data.placeholders import VARIABLE
from transformer_cli.markup.html import CODE, OPAQUE, add_html
from transformer_cli.markup.tags import Kind, markup_at
from transformer_cli.markup.units import Builder, Document, Item, add_run

_FENCE = re.compile(r"(`{3,}|~{3,})([^\n]*)")
_QUOTE = re.compile(r" {0,3}> ?")
_LIST_ITEM = re.compile(r"[ \t]*(?:[-*+]|([0-9]{1,9})[.)])(?:[ \t]+|(?=\r?$))")
_TASK = re.compile(r"\[[ xX]\][ \t]+")
_BREAK = re.compile(r"[ \t]*(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})\r?$")
_UNDERLINE = re.compile(r"[ \t]*(?:=+|-+)[ \t]*\r?$")
_HEADING = re.compile(r"[ \t]*#{1,6}(?:[ \t]+|(?=\r?$))")
_HEADING_END = re.compile(r"(?:^|[ \t])#+[ \t]*$")
_DEFINITION = re.compile(r" {0,3}\[(?!\^)((?:[^\[\]\\]|\\.){1,999})\]:")
_FOOTNOTE = re.compile(r" {0,3}\[\^[^\[\]\s]{1,100}\]:[ \t]*")
_TABLE_RULE = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*+\|?[ \t]*\r?$")
_HTML_BLOCK = re.compile(
    r" {0,3}<(?:[?!]|(?P<raw>script|pre|style|textarea)\b"
    r"|/?(?:address|article|aside|base|basefont|blockquote|body|caption"
    r"|center|col|colgroup|dd|details|dialog|dir|div|dl|dt|fieldset|figcaption|figure|footer|form|frame|frameset"
    r"|h[1-6]|head|header|hr|html|iframe|legend|li|link|main|menu|menuitem|nav|noframes|ol|optgroup|option|p|param"
    r"|search|section|summary|table|tbody|td|tfoot|th|thead|title|tr|track|ul)(?=[\s/>]|$)"
    r"|/?[a-zA-Z][a-zA-Z0-9-]*(?:[ \t][^<>]*+)?>[ \t]*\r?$)",
    re.IGNORECASE,
)
_RAW_END = (("<!--", "-->"), ("<?", "?>"), ("<!", ">"))
_CELL_END = re.compile(r"\\.|`++|\|")
_TAB = 4
_MAX_NESTING = 50  # containers in one line, and brackets within each other


def parse_markdown(text: str) -> Document:
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.builder = text, Builder(text)
        self.lines = _line_spans(text)
        matches = (_DEFINITION.match(text, start, end) for start, end in self.lines)
        self.labels = {_label(match[1]) for match in matches if match}
        self.indents: list[int] = []  # columns at which the text of the open list items begins
        self.paragraph: list[tuple[int, int]] = []
        self.after_blank, self.in_quote = True, False

    def parse(self) -> Document:
        i = self._front_matter()
        while i < len(self.lines):
            i = self._line(i)
        self._finish()
        return self.builder.document()

    def _front_matter(self) -> int:
        if self.lines and self.text[slice(*self.lines[0])].rstrip() in ("---", "+++"):
            mark = self.text[:3]
            for i, (start, end) in enumerate(self.lines[1:], 1):
                if self.text[start:end].rstrip() == mark:
                    return i + 1
        return 0

    def _line(self, i: int) -> int:
        """Read the block that begins with line `i`, or add it to the paragraph; return the next line."""
        start, end = self.lines[i]
        if not self.text[start:end].strip(" \t\r>"):
            self._finish()
            self.after_blank = True
            return i + 1
        is_open = bool(self.paragraph)
        if is_open and _UNDERLINE.match(self.text, _after_quotes(self.text, start, end), end):
            self._finish()
            return i + 1
        content, begins, is_quoted = self._containers(start, end, is_open=is_open)
        if begins or (is_quoted and not self.in_quote):
            self._finish()
            is_open = False
        self.in_quote = is_quoted or (self.in_quote and is_open)  # a paragraph goes on without the mark
        rest = content - _spaces_before(self.text, start, content)
        self.after_blank, after_blank = False, self.after_blank
        if not is_open and not begins and after_blank and self._is_code(start, content, is_quoted=is_quoted):
            self.after_blank = True
            return i + 1
        fence = _FENCE.match(self.text, content, end)
        if fence and (fence[1][0] == "~" or "`" not in fence[2]):
            self._finish()
            return self._fenced(i, fence[1])
        if self.text.startswith("$$", content) and self.text.find("$$", content + 2) >= 0:
            self._finish()
            return self._until("$$", content + 2)
        if _BREAK.match(self.text, content, end):
            self._finish()
            return i + 1
        if heading := _HEADING.match(self.text, content, end):
            self._finish()
            stop = _HEADING_END.search(self.text[heading.end() : end].rstrip())
            stop_at = end if stop is None else heading.end() + stop.start()
            self._run([(heading.end(), stop_at)])
            return i + 1
        if not is_open and _DEFINITION.match(self.text, rest, end):
            return i + 1
        if footnote := _FOOTNOTE.match(self.text, rest, end):
            self._finish()
            self.paragraph = [(footnote.end(), end)]
            return i + 1
        if not is_quoted and not is_open and (html := _HTML_BLOCK.match(self.text, rest, end)):
            return self._html(i, rest, html)
        if not is_open and i + 1 < len(self.lines) and "|" in self.text[content:end] and self._is_rule(i + 1):
            return self._table(i)
        self.paragraph.append((content, end))
        return i + 1

    def _containers(self, start: int, end: int, *, is_open: bool) -> tuple[int, bool, bool]:
        """Where the text of a line begins, whether a list item begins there, and whether it is quoted."""
        position, begins, is_quoted = start, False, False
        for _ in range(_MAX_NESTING):
            if match := _QUOTE.match(self.text, position, end):
                position, is_quoted = match.end(), True
                continue
            match = _LIST_ITEM.match(self.text, position, end)
            if match is None or _BREAK.match(self.text, position, end):
                break
            column = _column(self.text, start, position + _leading_spaces(self.text, position, end))
            if not begins and self._is_no_item(match, column, is_open=is_open):
                break
            position, begins = match.end(), True
            if task := _TASK.match(self.text, position, end):
                position = task.end()
            while self.indents and self.indents[-1] > column:
                self.indents.pop()
            self.indents.append(_column(self.text, start, match.end()))
        position += _leading_spaces(self.text, position, end)
        if not begins and self.after_blank:
            while self.indents and self.indents[-1] > _column(self.text, start, position):
                self.indents.pop()
        return position, begins, is_quoted

    def _is_no_item(self, match: re.Match[str], column: int, *, is_open: bool) -> bool:
        """Whether what resembles a list item is indented code, or goes on with a paragraph."""
        base = self.indents[-1] if self.indents else 0
        if column - base >= _TAB and (not is_open or not self.indents):
            return True
        return is_open and not self.indents and match[1] not in (None, "1")

    def _is_code(self, start: int, content: int, *, is_quoted: bool) -> bool:
        base = self.indents[-1] if self.indents else 0
        return not is_quoted and _column(self.text, start, content) - base >= _TAB

    def _fenced(self, i: int, fence: str) -> int:
        closing = re.compile(rf"[ \t>]*{re.escape(fence[0])}{{{len(fence)},}}[ \t]*\r?$")
        for j in range(i + 1, len(self.lines)):
            if closing.match(self.text, *self.lines[j]):
                return j + 1
        return len(self.lines)

    def _until(self, mark: str, position: int) -> int:
        """The line after the one with `mark`."""
        found = self.text.find(mark, position)
        if found < 0:
            return len(self.lines)
        return bisect_right(self.lines, (found, 1 << 62))

    def _html(self, i: int, content: int, match: re.Match[str]) -> int:
        """Up to a blank line, or to the end of a comment, a script and the like."""
        text = self.text
        at = text.index("<", content)
        end_mark = next((end for begin, end in _RAW_END if text.startswith(begin, at)), None)
        if match["raw"] is not None:
            end_mark = f"</{match['raw']}"
        if end_mark is not None:
            j = self._until(end_mark, content)
        else:
            j = i
            while j < len(self.lines) and text[slice(*self.lines[j])].strip():
                j += 1
        last = self.lines[j - 1][1]
        add_html(self.builder, content, last)
        self.after_blank = True
        return j

    def _is_rule(self, i: int) -> bool:
        start, end = self.lines[i]
        start = _after_quotes(self.text, start, end)
        return "|" in self.text[start:end] and _TABLE_RULE.match(self.text, start, end) is not None

    def _table(self, i: int) -> int:
        rule = i + 1
        while i < len(self.lines) and self.text[slice(*self.lines[i])].strip(" \t\r>"):
            start, end = self.lines[i]
            if i != rule:
                for cell in _cells(self.text, _after_quotes(self.text, start, end), end):
                    self._run([cell], in_table=True)
            i += 1
        return i

    def _finish(self) -> None:
        if self.paragraph:
            self._run(self.paragraph)
        self.paragraph = []

    def _run(self, lines: Sequence[tuple[int, int]], *, in_table: bool = False) -> None:
        text = self.text
        trimmed = [(start, start + len(text[start:end].rstrip("\r"))) for start, end in lines]
        _Inlines(self.builder, trimmed, self.labels, in_table=in_table).add()


# ---- Lines


def _line_spans(text: str) -> list[tuple[int, int]]:
    """Without their ends, \\n."""
    found = []
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        found.append((start, end))
        start = end + 1
    return found


def _leading_spaces(text: str, start: int, end: int) -> int:
    line = text[start:end]
    return len(line) - len(line.lstrip(" \t"))


def _spaces_before(text: str, start: int, end: int) -> int:
    """How many of up to three spaces stand before `end`."""
    n = 0
    while n < 3 and end - n > start and text[end - n - 1] == " ":
        n += 1
    return n


def _column(text: str, start: int, end: int) -> int:
    column = 0
    for character in text[start:end]:
        column += _TAB - column % _TAB if character == "\t" else 1
    return column


def _after_quotes(text: str, start: int, end: int) -> int:
    while match := _QUOTE.match(text, start, end):
        start = match.end()
    return start


def _cells(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """The cells of a row; a | in code or after a backslash divides none."""
    line = text[start:end]
    ticks = _ticks(line)
    found = []
    first = position = 0
    while match := _CELL_END.search(line, position):
        position = match.end()
        if match[0] == "|":
            found.append((start + first, start + match.start()))
            first = position
        elif match[0][0] == "`":
            places = ticks[len(match[0])]
            at = bisect_right(places, match.start())
            position = places[at] + len(match[0]) if at < len(places) else position
    return [*found, (start + first, end)]


def _label(text: str) -> str:
    return " ".join(text.split()).casefold()


# ---- Inlines

_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
_AUTOLINK = re.compile(r"<([a-zA-Z][a-zA-Z0-9+.-]{1,31}:[^\s<>]*+|[\w.+-]{1,64}@[\w.-]{1,255})>")
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});")
_URL = re.compile(r"(?:https?|ftp)://(?:[^\s<>\"\[\]()*`\\]|\([^\s()<>\[\]]*\))++")
_TARGET = re.compile(
    r"\(\s*+(?:<[^<>\n]*+>|(?:[^\s()<>\\]|\\.|\((?:[^\s()\\]|\\.)*+\))*+)"
    r"(?:\s++(?:\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'|\((?:[^()\\]|\\.)*+\)))?\s*+\)"
)
_REFERENCE = re.compile(r"\[((?:[^\[\]\\]|\\.){0,999})\]")
_HARD_BREAK = re.compile(r"(?: {2,}+|\\)\n")
_SPECIAL = re.compile(r"[\\`<&!\[\]*_~{%$#\n]|(?<! ) {2,}+(?=\n)|(?:https?|ftp)://")
_BLOCK_END = "\\"  # the name of a hard break that divides texts
_TRAILING = ".,;:!?'\""
# What would be read as mark-up. `_` is none within a word, nor is `*` between spaces.
_TO_ESCAPE = re.compile(
    r"\\(?=[!-/:-@\[-`{-~])|`|\[|\*(?!\s)|(?<=\S)\*|(?<!\w)_|_(?!\w)|<(?=[a-zA-Z/!?])|~~|&(?=#?\w+;)"
)
_TO_ESCAPE_FIRST = re.compile(r"(?:(>|[#+=-](?=[#=-]*(?:\s|$)))|([0-9]+)([.)])(?=\s|$))")


def escape_markdown(text: str, *, in_table: bool = False) -> str:
    escaped = _TO_ESCAPE.sub(lambda match: "\\" + match[0], text)
    if in_table:
        escaped = escaped.replace("|", "\\|")
    if first := _TO_ESCAPE_FIRST.match(escaped):
        at = first.start(1) if first[1] else first.start(3)
        escaped = f"{escaped[:at]}\\{escaped[at:]}"
    return escaped


@dataclass
class _Run:
    """A run of * or _ or ~, parts of which open or close emphasis."""

    item: int  # index of its item
    character: str
    left: int  # characters that are not in a pair
    can_open: bool
    can_close: bool
    closing: list[tuple[int, str]] = field(default_factory=list)  # length and name, from the left
    opening: list[tuple[int, str]] = field(default_factory=list)  # from the right


class _Inlines:
    """The text and the mark-up of a paragraph, whose lines are stretches of the builder's source."""

    def __init__(self, builder: Builder, lines: Sequence[tuple[int, int]], labels: set[str], *, in_table: bool) -> None:
        self.builder, self.labels = builder, labels
        self.escape = partial(escape_markdown, in_table=in_table)
        source = builder.source
        self.text = "\n".join(source[start:end] for start, end in lines)
        self.starts: list[int] = []  # of the lines, in self.text
        self.shifts: list[int] = []
        position = 0
        for start, end in lines:
            self.starts.append(position)
            self.shifts.append(start - position)
            position += end - start + 1
        self.items: list[Item] = []  # with places in self.text
        self.runs: list[_Run] = []
        self.brackets: list[tuple[int, bool]] = []  # item, whether of an image
        self.ticks = _ticks(self.text)
        self.has_tags = True  # until one is found that has no end
        self.unclosed: set[str] = set()  # names of elements of which no other one ends
        self.n_pairs = 0

    def add(self) -> None:
        position = 0
        while position < len(self.text):
            match = _SPECIAL.search(self.text, position)
            at = len(self.text) if match is None else match.start()
            if at > position:
                self._text(position, at)
            position = at if match is None else self._special(at)
        self._emphasis(0)
        self._finish()

    def _text(self, start: int, end: int, text: str | None = None) -> int:
        self.items.append(Item(start, end, self.text[start:end] if text is None else text))
        return end

    def _special(self, at: int) -> int:
        """Add the item that begins with a special character; return its end."""
        text, character = self.text, self.text[at]
        if match := _HARD_BREAK.match(text, at):
            goes_on = text[match.end() : match.end() + 1].islower()
            self.items.append(Item(at, match.end(), is_tag=True, name="" if goes_on else _BLOCK_END))
            return self._text(match.end(), match.end(), " ")
        if character == "\n":
            return self._text(at, at + 1, " ")
        if match := _ESCAPE.match(text, at):
            return self._text(at, match.end(), match[1])
        if character == "`":
            return self._code(at)
        if match := _URL.match(text, at):
            end = at + len(match[0].rstrip(_TRAILING))
            self.items.append(Item(at, end, text[at:end], is_protected=True))
            return end
        if character in "{%$#" and (match := VARIABLE.match(text, at)):
            self.items.append(Item(at, match.end(), match[0], is_protected=True))
            return match.end()
        if character == "<":
            return self._angle(at)
        if match := _ENTITY.match(text, at):
            return self._text(at, match.end(), unescape(match[0]))
        if (character == "[" or text.startswith("![", at)) and len(self.brackets) < _MAX_NESTING:
            end = at + 1 + (character == "!")
            self.brackets.append((len(self.items), character == "!"))
            return self._text(at, end)
        if character == "]" and self.brackets:
            return self._bracket(at)
        if character in "*_~":
            return self._delimiters(at)
        return self._text(at, at + 1)

    def _code(self, at: int) -> int:
        end = at
        while end < len(self.text) and self.text[end] == "`":
            end += 1
        places = self.ticks[end - at]
        next_one = bisect_right(places, at)
        if next_one == len(places):
            return self._text(at, end)
        stop = places[next_one] + end - at
        self.items.append(Item(at, stop, self.text[end : places[next_one]], is_protected=True))
        if not self.items[-1].has_text:
            self.items[-1] = Item(at, stop, is_tag=True)
        return stop

    def _angle(self, at: int) -> int:
        text = self.text
        if match := _AUTOLINK.match(text, at):
            self.items.append(Item(at, match.end(), match[1], is_protected=True))
            return match.end()
        token = markup_at(text, at, is_xml=False) if self.has_tags else None
        if token is None or token.kind in (Kind.text, Kind.rest):
            self.has_tags = self.has_tags and (token is None or token.kind is not Kind.rest)
            return self._text(at, at + 1)
        is_kept = token.name in CODE or token.name in OPAQUE
        if token.kind is Kind.opening and is_kept and token.name not in self.unclosed:
            end = text.find(f"</{token.name}>", token.end)
            if end < 0:
                self.unclosed.add(token.name)
            else:
                content, end = text[token.end : end], end + len(token.name) + 3
                is_shown = token.name in CODE and content.strip() != "" and len(content) <= 100
                self.items.append(
                    Item(at, end, content if is_shown else "", is_tag=not is_shown, is_protected=is_shown)
                )
                return end
        opens, closes = (token.kind is kind for kind in (Kind.opening, Kind.closing))
        self.items.append(Item(at, token.end, name=f"<{token.name}", is_tag=True, opens=opens, closes=closes))
        return token.end

    def _bracket(self, at: int) -> int:
        """A ] that ends a link or an image, or is text."""
        text = self.text
        opening, is_image = self.brackets.pop()
        content = text[self.items[opening].end : at]
        label = _label(content) if len(content) < 1000 else ""
        markup: str | None = None
        if match := _TARGET.match(text, at + 1):
            end = match.end()
        elif (match := _REFERENCE.match(text, at + 1)) and (_label(match[1]) or label) in self.labels:
            end = match.end()
            markup = None if match[1] else f"][{content}]"
        elif label in self.labels or content.startswith("^"):
            end, markup = at + 1, f"][{content}]"
        else:
            return self._text(at, at + 1)
        if content.startswith("^") or is_image:
            self._alone(opening, at, end, is_image=is_image)
            return end
        self.n_pairs += 1
        name, first = f"[{self.n_pairs}", self.items[opening]
        self._emphasis(opening)
        self.items[opening] = Item(first.start, first.end, name=name, is_tag=True, opens=True)
        self.items.append(Item(at, end, name=name, is_tag=True, closes=True, markup=markup))
        self.brackets = [one for one in self.brackets if one[1]]  # there is no link within a link
        return end

    def _alone(self, opening: int, at: int, end: int, *, is_image: bool) -> None:
        """An image, whose text is a unit of its own, or a footnote's mark."""
        first = self.items[opening]
        del self.items[opening:]
        del self.runs[bisect_left(self.runs, opening, key=lambda run: run.item) :]
        self.items.append(Item(first.start, end, is_tag=True))
        start, stop = self._place(first.end), self._place(at)
        has_image = bool(self.builder.inner) and self.builder.inner[-1][1] > start
        if is_image and not has_image:
            self.builder.add_inner(start, stop, self.escape, _plain)

    def _delimiters(self, at: int) -> int:
        text, character = self.text, self.text[at]
        end = at
        while end < len(text) and text[end] == character:
            end += 1
        before, after = text[at - 1 : at] or " ", text[end : end + 1] or " "
        left = not after.isspace() and (after.isalnum() or before.isspace() or not before.isalnum())
        right = not before.isspace() and (before.isalnum() or after.isspace() or not after.isalnum())
        if character == "_":
            left, right = left and (not right or not before.isalnum()), right and (not left or not after.isalnum())
        if (left or right) and (character != "~" or end - at == 2):
            self.runs.append(_Run(len(self.items), character, end - at, left, right))
        return self._text(at, end)

    def _emphasis(self, first_item: int) -> None:
        """Pair the delimiters from an item on; those without a partner are text."""
        stack: list[_Run] = []
        by_character: dict[str, list[int]] = {}  # places in the stack
        runs = self.runs[bisect_left(self.runs, first_item, key=lambda run: run.item) :]
        for run in runs:
            while run.can_close and run.left and by_character.get(run.character):
                place = by_character[run.character][-1]
                while len(stack) > place + 1:
                    by_character[stack.pop().character].pop()
                opener = stack[place]
                length = 2 if min(opener.left, run.left) >= 2 else 1
                self.n_pairs += 1
                name = f"{run.character}{self.n_pairs}"
                opener.opening.append((length, name))
                run.closing.append((length, name))
                opener.left -= length
                run.left -= length
                if not opener.left:
                    by_character[stack.pop().character].pop()
            if run.can_open and run.left:
                by_character.setdefault(run.character, []).append(len(stack))
                stack.append(run)
        for run in runs:
            run.can_open = run.can_close = False

    def _finish(self) -> None:
        """Cut runs into their tags, and make a unit of what stands between hard breaks."""
        by_item = {run.item: run for run in self.runs}
        found: list[Item] = []
        for i, item in enumerate(self.items):
            if item.is_tag and item.name == _BLOCK_END:
                self._add(found)
                found = []
            elif i in by_item:
                found += _tags_of(by_item[i], item)
            else:
                found.append(item)
        self._add(found)

    def _add(self, items: Sequence[Item]) -> None:
        placed = []
        for item in items:
            item.start, item.end = self._place(item.start), self._place(item.end)
            placed.append(item)
        add_run(self.builder, placed, self.escape)

    def _place(self, offset: int) -> int:
        """In the source. What ends with a line's end ends where the text of the next line begins."""
        line = bisect_right(self.starts, offset) - 1
        return offset + self.shifts[line]


def _tags_of(run: _Run, item: Item) -> list[Item]:
    found: list[Item] = []
    position = item.start
    for length, name in run.closing:
        found.append(Item(position, position + length, name=name, is_tag=True, closes=True, needs_text=True))
        position += length
    if run.left:
        found.append(Item(position, position + run.left, run.character * run.left))
        position += run.left
    for length, name in reversed(run.opening):
        found.append(Item(position, position + length, name=name, is_tag=True, opens=True, needs_text=True))
        position += length
    return found


def _ticks(text: str) -> dict[int, list[int]]:
    """Where the runs of backticks are, by their length."""
    found: dict[int, list[int]] = {}
    for match in re.finditer("`+", text):
        found.setdefault(len(match[0]), []).append(match.start())
    return found


def _plain(text: str) -> str:
    """The text of an image, without escapes."""
    return unescape(_ESCAPE.sub(r"\1", text))
