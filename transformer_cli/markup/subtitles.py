"""SubRip subtitles (.srt): what one speaker says in a cue is one text.

A line begins with another speaker where it begins with a dash, `>>`, or a name and a colon, which all stay as they are.
"""

import re

from transformer_cli.markup.inline_tags import add_lines
from transformer_cli.markup.units import Builder, Document

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_TIME = re.compile(r"\s*\d+:\d\d:\d\d[,.]\d{1,3}\s*-->\s*\d+:\d\d:\d\d[,.]\d{1,3}[^\n]*\s*")
_NUMBER = re.compile(r"\ufeff?\s*\d+\s*")
_TAGS = r"(?:<[^<>\n]{0,100}>|\{[^{}\n]{0,100}\})*+"
_DASH = re.compile(rf"\s*{_TAGS}\s*(?:[-–—‐]|>>>?|&gt;&gt;)\s*")
_NAME = re.compile(
    rf"\s*{_TAGS}\s*(?P<name>[^\W\d_][^:：<>{{}}()!?…\n]{{0,30}}(?:\([^():\n]{{1,20}}\))?)\s?(?::(?={_TAGS}(?:\s|$))|：){_TAGS}\s*"
)
_MOST_NAMES = 3  # words of a name
_SENTENCE_END = re.compile(rf"[.!?…。！？♪\])\"'”’»]{_TAGS}\s*\Z")


def parse_srt(text: str) -> Document:
    builder = Builder(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    spans = [match.span() for match in _LINE.finditer(text)]
    is_time = [_TIME.fullmatch(text, start, end) is not None for start, end in spans]
    cue: list[tuple[int, int]] = []
    in_cue = False
    for i, (start, end) in enumerate(spans):
        is_number = i + 1 < len(spans) and is_time[i + 1] and _NUMBER.fullmatch(text, start, end) is not None
        stop = start + len(text[start:end].rstrip())
        if in_cue and not is_time[i] and not is_number and stop > start:
            cue.append((start, stop))
            continue
        _add(builder, cue, newline)
        cue = []
        in_cue = (in_cue or is_time[i]) and not is_number
    _add(builder, cue, newline)
    return builder.document()


def _add(builder: Builder, cue: list[tuple[int, int]], newline: str) -> None:
    def escape(text: str) -> str:
        return text.replace("\n", newline)

    for lines in _by_speaker(builder.source, cue):
        add_lines(builder, lines, escape)


def _by_speaker(text: str, cue: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """The lines of each speaker, without what says who it is."""
    dashes = [_DASH.match(text, *line) for line in cue]
    names = [_name_of(text, *line) for line in cue]
    has_names = sum(name is not None for name in names) > 1
    has_dashes = sum(dash is not None for dash in dashes) > 1
    found: list[list[tuple[int, int]]] = []
    for i, ((start, end), dash, name) in enumerate(zip(cue, dashes, names, strict=True)):
        is_name = name is not None and (has_names or name["name"].isupper())
        # One who answers has a dash, and the first speaker often has none.
        is_answer = i > 0 and _SENTENCE_END.search(text[slice(*cue[i - 1])]) is not None
        is_other = is_name or (dash is not None and (has_dashes or is_answer))
        label = name if is_name else dash if is_other or i == 0 else None
        line = (start if label is None else label.end(), end)
        if is_other or i == 0:
            found.append([line])
        else:
            found[-1].append(line)
    return found


def _name_of(text: str, start: int, end: int) -> re.Match[str] | None:
    """Up to the colon after the name of a speaker, whose words all begin with capitals."""
    match = _NAME.match(text, start, end)
    if match is None:
        return None
    words = match["name"].partition("(")[0].split()
    return match if len(words) <= _MOST_NAMES and all(not word[0].islower() for word in words) else None
