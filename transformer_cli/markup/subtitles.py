"""SubRip subtitles (.srt): the lines of a cue are one text, unless each is of another speaker."""

import re

from transformer_cli.markup.inline_tags import add_lines
from transformer_cli.markup.units import Builder, Document

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_TIME = re.compile(r"\s*\d+:\d\d:\d\d[,.]\d{1,3}\s*-->\s*\d+:\d\d:\d\d[,.]\d{1,3}[^\n]*\s*")
_NUMBER = re.compile(r"\ufeff?\s*\d+\s*")
_DASH = re.compile(r"\s*[-–—‐]\s*")
_SPEAKER = re.compile(r"(?:<[^<>\n]{0,100}>|\{[^{}\n]{0,100}\})*\s*[-–—‐]")


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

    speakers = sum(_SPEAKER.match(builder.source, *line) is not None for line in cue)
    for lines in [[line] for line in cue] if speakers > 1 else [cue] if cue else []:
        start, end = lines[0]
        dash = _DASH.match(builder.source, start, end)
        add_lines(builder, [(start if dash is None else dash.end(), end), *lines[1:]], escape)
