"""The blocks of Markdown: CommonMark by markdown-it-py, and rules for what other programs add to it.

Added are tables, task lists, footnotes, definition lists, `!!!` admonitions, `===` tabs, `:::` containers, `$$`
formulas, abbreviations, and lines without text: template tags, code of MDX, snippets, and where a table of contents is.
What is between the texts is kept as it is, so a rule only has to find which lines are text.
"""

import re
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.ruler import RuleOptionsType
from markdown_it.rules_block import StateBlock
from markdown_it.token import Token

from transformer_cli.addons.documents.markdown_templates import is_only_tags, mask_tags
from transformer_cli.addons.documents.units import accept_units

MAX_NESTING = 50  # blocks within each other, and brackets; deeper text is kept
ON_PLACE = "on_place"  # the key of what `check_deadline` calls, beside the link definitions
_TEXT, _ROW, _HTML = "inline", "table_row", "html_block"  # types of tokens
_LINE_END = re.compile(r"\r\n?|\n")
# What begins and what ends it, and its first line that is neither empty nor a comment.
_FRONT_MATTER = {
    "---": (("---", "..."), re.compile(r"(?:[ \t]*+(?:#[^\n]*+)?\n)*+[\w\"'.-][^\n]*?:(?:\s|$)")),
    "+++": (("+++",), re.compile(r"(?:[ \t]*+(?:#[^\n]*+)?\n)*+[ \t]*+(?:\[|[\w\"'.-]++[ \t]*+=)")),
}
_CONTAINER = re.compile(r":{3,}(?:[ \t]*[\w{\[.].*)?[ \t]*$")
# The title after the name of a container, which may be in brackets; not an attribute or an option such as key:value.
_CONTAINER_TITLE = re.compile(
    r":{3,}[ \t]*+[\w-]++(?:(?P<bracket>\[)(?P<label>(?:[^\[\]\\]|\\.)++)\]"
    r"|[ \t]++(?P<title>(?![^\s:=]++[:=]\S)(?:[^={}]|(?<=\s)=(?=\s))++))(?:\{[^{}]*+\})?[ \t]*+$"
)
_ADMONITION = re.compile(
    r"(?:(?:!!!|\?\?\?\+?)[ \t]+(?=[\w\"-])[\w \t-]*+|===[!+]{0,2}[ \t]+(?=\"))(?:\"(?P<title>[^\"]*+)\")?[ \t]*+$"
)
_ABBREVIATION = re.compile(r"\*\[[^\[\]]++\]:[ \t]*+(?P<title>[^\s*][^*]*+)$")
_CONTENTS = re.compile(r"(?:\[TOC\]|\[\[_?TOC_?\]\])[ \t]*+$", re.IGNORECASE)
_SNIPPET = re.compile(r"-++8<-++[ \t]*+(?P<name>\"[^\"]*+\"[ \t]*+)?$")
_MODULE = re.compile(
    r"import[ \t]+(?:(?:[\w$]+(?:[ \t]*,[ \t]*[*{][^'\"]*)?|[*{][^'\"]*)[ \t]*\bfrom[ \t]*)?['\"]"
    r"|import[ \t]+[\w$, \t]*\{[^}'\"]*$"
    r"|export[ \t]+(?:(?:const|let|var|class)[ \t]+[\w$]+[ \t]*[=;:{]|(?:async[ \t]+)?function\b[^(]*\(|[{*]"
    r"|default[ \t]+(?:async|function|class|[({\[]|[\w$.]+[ \t]*(?:[(;]|$)))"
)
_UNDERLINE = re.compile(r"(?:=++|-++)[ \t]*+$")
_STRING = re.compile(r"'[^']*+'|\"[^\"]*+\"|`[^`]*+`")
_DEFINITION = re.compile(r":[ \t]+(?=\S)")
_FOOTNOTE = re.compile(r"\[\^[^\[\]\s]{1,100}\]:[ \t]*")
_TABLE_RULE = re.compile(r"\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*+\|?[ \t]*$")
_INDENT = 4
# The blocks that end before one that needs no empty line before it.
_INTERRUPTS: RuleOptionsType = {"alt": ["paragraph", "reference", "blockquote", "list"]}


class BlockKind(Enum):
    paragraph = auto()  # or a heading with a line below
    heading = auto()
    title = auto()  # between quotation marks
    label = auto()  # between brackets
    row = auto()  # of a table
    html = auto()


_BETWEEN = {'"': BlockKind.title, "[": BlockKind.label}


@dataclass(frozen=True)
class Block:
    """A part of a document that has text in it."""

    kind: BlockKind
    content: str  # its masked lines without the marks of the blocks around it
    first: int  # line
    is_quoted: bool
    follows: bool  # comes right after a definition, whose title it must not become


def check_deadline(env: MutableMapping[str, Any]) -> None:
    """Call what may end the reading of a document, which rules do at each of their places: one block may be long."""
    env.get(ON_PLACE, accept_units)(0)


def line_spans(text: str) -> list[tuple[int, int]]:
    """The start and end of each line, line ends excluded."""
    found, start = [], 0
    for match in _LINE_END.finditer(text):
        found.append((start, match.start()))
        start = match.end()
    return [*found, (start, len(text))] if start < len(text) else found


def markdown_blocks(text: str, env: dict[str, Any]) -> Iterator[Block]:
    """The blocks that have text, in order, of a masked text. `env` gets the link definitions of the document."""
    normalised = _LINE_END.sub("\n", text).replace("\x00", "\ufffd")
    n_skipped = _front_matter(normalised)
    body = normalised.split("\n", n_skipped)[-1] if n_skipped else normalised
    lines = body.split("\n")
    depth = end = 0
    is_paragraph = False
    for token in _parser().parse(body, env):
        depth += token.nesting if token.type.startswith("blockquote") else 0
        if token.type not in (_TEXT, _ROW, _HTML):
            is_heading = token.type == "heading_open"
            end = max(end, token.map[1]) if token.map and (token.nesting == 0 or is_heading) else end
            is_paragraph = token.type == "paragraph_open" or (is_heading and token.markup in ("=", "-"))
            continue
        assert token.map is not None
        first = token.map[0]
        kind = BlockKind.paragraph if is_paragraph else BlockKind.heading
        kind = {_ROW: BlockKind.row, _HTML: BlockKind.html}.get(token.type, _BETWEEN.get(token.markup, kind))
        follows = first > end and lines[first - 1].strip(" \t>") != ""
        yield Block(kind, token.content, first + n_skipped, depth > 0, follows)
        end = max(end, token.map[1])


def is_one_paragraph(text: str) -> bool:
    """Whether a text alone is a paragraph, and nothing else."""
    masked = mask_tags(text, keep_lines=True).text
    tokens = _parser().parse(masked, {})
    return len(tokens) == 3 and tokens[0].type == "paragraph_open" and tokens[1].content == masked


def _front_matter(text: str) -> int:
    """The number of lines of YAML or TOML at the beginning; a text between two rules is neither."""
    lines = text.split("\n")
    ends, first_line = _FRONT_MATTER.get(lines[0].rstrip(), ((), None))
    if first_line is not None and first_line.match(text, len(lines[0]) + 1):
        return next((i + 1 for i, line in enumerate(lines) if i and line.rstrip() in ends), 0)
    return 0


@cache
def _parser() -> MarkdownIt:
    """Finds blocks, and leaves the text in them alone."""
    md = MarkdownIt("commonmark", {"maxNesting": MAX_NESTING, "tasklists": True})
    md.core.ruler.enableOnly(["block"])
    ruler = md.block.ruler
    ruler.after("list", "table_rows", _table, {"alt": ["paragraph", "reference"]})
    ruler.before("code", "module", _module)
    ruler.before("fence", "template", _template, _INTERRUPTS)
    ruler.before("fence", "kept_lines", _kept_lines, _INTERRUPTS)
    ruler.before("fence", "abbreviation", _abbreviation, _INTERRUPTS)
    ruler.before("fence", "container", _container, _INTERRUPTS)
    ruler.before("fence", "formula", _formula, _INTERRUPTS)
    ruler.before("fence", "admonition", _admonition, _INTERRUPTS)
    ruler.before("reference", "footnote", _footnote, {"alt": ["paragraph", "reference"]})
    ruler.before("reference", "definition", _definition, {"alt": ["paragraph"]})
    return md


# ---- Rules: whether a block begins with line `start`. Unless `silent`, it is read, and the state moves to the next.


def _line(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]


def _add(state: StateBlock, kind: str, content: str, line: int) -> Token:
    token = state.push(kind, "", 0)
    token.content, token.map = content, [line, line + 1]
    return token


def _table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """A line with `|` and one of `|---|`, and what follows up to an empty line or another block.

    Rows may have any number of cells: they are kept as rows in any case.
    """
    rule = start + 1
    if rule >= end or state.sCount[rule] < state.blkIndent or state.is_code_block(start) or state.is_code_block(rule):
        return False
    text = _line(state, rule)
    if "|" not in text or "|" not in _line(state, start) or not _TABLE_RULE.match(text):
        return False
    if silent:
        return True
    others = state.md.block.ruler.getRules("blockquote")
    _add(state, _ROW, _line(state, start), start)
    line = rule + 1
    while line < end and not state.isEmpty(line) and state.sCount[line] >= state.blkIndent:
        if not _template(state, line, end, True):  # as of a loop over rows
            if state.is_code_block(line) or any(other(state, line, end, True) for other in others):
                break
            _add(state, _ROW, _line(state, line), line)
        line += 1
    state.line = line
    return True


def _template(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """A line of template tags, or of code between two of them."""
    check_deadline(state.env)
    if state.is_code_block(start) or not is_only_tags(_line(state, start)):
        return False
    if start + 1 < end and _UNDERLINE.match(_line(state, start + 1)):
        return False  # a heading
    if not silent:
        _add(state, "template", "", start)
        state.line = start + 1
    return True


def _module(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Code of MDX up to an empty line that is not between brackets: what begins with `import` or `export`."""
    if state.parentType != "root" or state.sCount[start] or not _MODULE.match(_line(state, start)):
        return False
    depth, line, first_empty = 0, start, end
    while line < end and not (depth <= 0 and state.isEmpty(line)):
        code = _STRING.sub("", _line(state, line))
        depth += sum(code.count(bracket) for bracket in "([{") - sum(code.count(bracket) for bracket in ")]}")
        first_empty = min(first_empty, line) if state.isEmpty(line) else first_empty
        line += 1
    line = first_empty if depth > 0 else line
    _add(state, "module", "", start).map = [start, line]
    state.line = line
    return True


def _kept_lines(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """The place of a table of contents, or of a snippet: `--8<-- "file"`, or names of files between two `--8<--`."""
    snippet = _SNIPPET.match(_line(state, start))
    if state.is_code_block(start) or not (snippet or _CONTENTS.match(_line(state, start))):
        return False
    if silent:
        return True
    state.line = start + 1
    if snippet and snippet["name"] is None:
        others = (line for line in range(start + 1, end) if _SNIPPET.match(_line(state, line)))
        state.line = next(others, start) + 1
    _add(state, "kept_lines", "", start).map = [start, state.line]
    return True


def _abbreviation(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """`*[HTML]: Text`."""
    match = _ABBREVIATION.match(_line(state, start))
    if state.is_code_block(start) or match is None:
        return False
    if not silent:
        _add(state, "abbreviation", "", start)
        _add(state, _TEXT, match["title"], start)
        state.line = start + 1
    return True


def _container(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """The line with which a container begins or ends: `:::tip`, `:::tip Title`, `:::tip[Title]` or `:::`."""
    line = _line(state, start)
    if state.is_code_block(start) or not _CONTAINER.match(line):
        return False
    if not silent:
        _add(state, "container", "", start)
        if title := _CONTAINER_TITLE.match(line):
            content = title["label"] or title["title"].rstrip(" \t")
            _add(state, _TEXT, content, start).markup = title["bracket"] or ""
        state.line = start + 1
    return True


def _formula(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Lines from `$$` to `$$`."""
    text = _line(state, start)
    if state.is_code_block(start) or not text.startswith("$$"):
        return False
    line, rest = start, text[2:]
    while "$$" not in rest:
        line += 1
        if line >= end or state.sCount[line] < state.blkIndent:
            return False
        rest = _line(state, line)
    if line == start and not rest.rstrip().endswith("$$"):
        return False  # a formula within a text
    if not silent:
        after = rest[rest.index("$$") + 2 :].lstrip(" \t")
        _add(state, "formula", "", start).map = [start, line + 1]
        state.line = line + 1
        if after and line > start:  # a text begins there
            state.bMarks[line] = state.eMarks[line] - len(after)
            state.tShift[line], state.sCount[line] = 0, state.blkIndent
            state.line = line
    return True


def _admonition(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """`!!! note "Title"` or `=== "Title"`, with blocks that are indented."""
    match = _ADMONITION.match(_line(state, start))
    if state.is_code_block(start) or match is None:
        return False
    if silent:
        return True
    if match["title"]:
        _add(state, "admonition_title", "", start)
        _add(state, _TEXT, match["title"], start).markup = '"'
    else:
        _add(state, "admonition", "", start)
    before, inside = state.lineMax, state.blkIndent + _INDENT
    lines = range(start + 1, end)
    state.lineMax = next((n for n in lines if not state.isEmpty(n) and state.sCount[n] < inside), end)
    _read_indented(state, start + 1, state.lineMax)
    state.lineMax = before
    return True


def _footnote(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """`[^1]: Text`, with more blocks that are indented."""
    match = _FOOTNOTE.match(_line(state, start))
    if state.is_code_block(start) or match is None:
        return False
    if not silent:
        _read_after_mark(state, start, end, match.end(), _INDENT)
    return True


def _definition(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """`: Text` below a term, with more blocks that are indented."""
    match = _DEFINITION.match(_line(state, start))
    indent = state.blkIndent if state.ddIndent < 0 else min(state.ddIndent, state.blkIndent)
    if state.is_code_block(start) or match is None or state.sCount[start] < indent:
        return False
    if silent and (state.parentType != "paragraph" or _line(state, start - 1).endswith("\\")):
        return False
    if not silent and (not state.tokens or state.tokens[-1].type not in ("paragraph_close", "definition")):
        return False
    if not silent:
        before, state.ddIndent = state.ddIndent, state.blkIndent  # where the next definition may begin
        _read_after_mark(state, start, end, match.end(), min(match.end(), _INDENT))
        state.ddIndent = before
        _add(state, "definition", "", state.line - 1)
    return True


def _read_after_mark(state: StateBlock, start: int, end: int, length: int, indent: int) -> None:
    """Read the blocks that begin after a mark, the others of which are indented."""
    before = state.bMarks[start], state.tShift[start], state.sCount[start]
    state.bMarks[start] += state.tShift[start] + length
    state.tShift[start], state.sCount[start] = 0, state.blkIndent + indent
    _read_indented(state, start, end, indent)
    state.bMarks[start], state.tShift[start], state.sCount[start] = before


def _read_indented(state: StateBlock, start: int, end: int, indent: int = _INDENT) -> None:
    state.line = start
    state.blkIndent += indent
    state.level += 1
    if start < end:
        state.md.block.tokenize(state, start, end)
    state.level -= 1
    state.blkIndent -= indent
