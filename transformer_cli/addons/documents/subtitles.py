"""Subtitles of SubRip (.srt) and WebVTT (.vtt): what one speaker says in a cue is one text.

Another speaker begins with a dash, `>>`, or a name before a colon or in brackets, and a song with a note or `#`, which
all stay as they are.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from transformer_cli.addons.documents.inline_tags import InlineItems, add_lines
from transformer_cli.addons.documents.units import Builder, Document
from transformer_cli.data.normalization import has_letters

_Span = tuple[int, int]

_NEWLINE = re.compile(r"\r\n?|\n")
_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
_ARROW = r"\s*(?:[-–—=]{1,3}\s?(?:>|&gt;)|→)\s*"
_EXACT = r"(?:\d+:)?\d\d:\d\d[,.]\d{1,3}"
_CLOCK = r"\d{1,4}(?:(?:\s*[:.,;]\s*|\s)\d{1,4}){1,4}"  # as people mistype it
_SETTINGS = r"(?:\s+[a-zA-Z]\w{0,20}:[^\s:]+)*+"
# A line that is meant as a time must not become text, whatever is wrong with it; one of the times may be missing.
_TIME = re.compile(
    rf"\s*{_EXACT}\s*-->\s*{_EXACT}.*+|\s*{_CLOCK}{_ARROW}{_CLOCK}{_SETTINGS}\s*|[\d\s:.,;]*+{_ARROW}[\d\s:.,;]*+",
    re.DOTALL,
)
_NUMBER = re.compile(r"\ufeff?\s*\d+\s*")
_WEBVTT = re.compile(r"\ufeff?WEBVTT(?!\S)")
_NO_CUE = re.compile(r"(?:STYLE|REGION)\s*|NOTE(?:\s.*+)?", re.DOTALL)  # the first line of such a block of WebVTT
_TAGS = r"(?:<[^<>\n]{0,100}>|\{[^{}\n]{0,100}\})*+"
_DASH = re.compile(rf"\s*{_TAGS}\s*(?:[-–—‐]|>>>?|&gt;&gt;)\s*")
_NAME = re.compile(
    rf"\s*{_TAGS}\s*(?P<name>[^\W\d_][^:：<>{{}}()!?…\n]{{0,30}}(?:\([^():\n]{{1,20}}\))?)\s?(?::(?={_TAGS}(?:\s|$))|：){_TAGS}\s*"
)
_BRACKET = re.compile(
    rf"\s*{_TAGS}\s*(?P<bracket>\[(?P<square>[^\[\]()\n]{{2,40}})\]|\((?P<round>[^\[\]()\n]{{2,40}})\)){_TAGS}\s+(?=\S)"
)
# What is sung is between notes, or between number signs, which stay.
_SUNG = re.compile(rf"\s*{_TAGS}\s*(?:[♪♫♩♬]+|#(?=\s)){_TAGS}\s*")
_SUNG_END = re.compile(rf"(?<!\s)\s*+(?:[♪♫♩♬]+|(?<=\s)#){_TAGS}\s*\Z")
_MOST_NAMES = 3  # words of a name
_ENDS = r"[.!?…。！？♪\])\"'”’»]"
_SENTENCE_END = re.compile(rf"{_ENDS}{_TAGS}\s*\Z")
_BROKEN_OFF = re.compile(rf"[-–—]{_TAGS}\s*\Z")
_DASH_WITHIN = re.compile(rf"{_ENDS}{_TAGS}(?P<cut>)\s+{_TAGS}[-–—‐]\s*{_TAGS}(?P<first>\S)")


def parse_srt(text: str) -> Document:
    builder = Builder(text)
    first_end = _NEWLINE.search(text)
    newline = "\n" if first_end is None else first_end[0]
    spans = [match.span() for match in _LINE.finditer(text)]
    is_time = [_TIME.fullmatch(text, *span) is not None for span in builder.watched(spans)]
    cue: list[_Span] = []
    in_cue = False
    for i, is_kept in enumerate(builder.watched(_kept_lines(text, spans, is_time))):
        start = spans[i][0]
        stop = start + len(text[slice(*spans[i])].rstrip())
        if in_cue and not is_kept and stop > start:
            cue.append((start, stop))
            continue
        add_cue(builder, cue, newline)
        cue = []
        in_cue = in_cue or is_time[i]
    add_cue(builder, cue, newline)
    return builder.document()


def _kept_lines(text: str, spans: list[_Span], is_time: list[bool]) -> list[bool]:
    """Whether each line is kept as it is: times, what is right before them, and blocks of WebVTT that are no cues."""
    is_webvtt = _WEBVTT.match(text) is not None
    kept = list(is_time)
    in_block, after_blank = False, True
    for i, span in enumerate(spans):
        is_blank = not text[slice(*span)].strip()
        if not is_blank and i + 1 < len(spans) and is_time[i + 1]:
            is_name = is_webvtt and after_blank
            kept[i] |= is_name or _NUMBER.fullmatch(text, *span) is not None
        begins = is_webvtt and after_blank and _NO_CUE.fullmatch(text, *span) is not None
        in_block = (in_block or begins) and not is_blank and not is_time[i]
        kept[i] |= in_block
        after_blank = is_blank
    return kept


def add_cue(builder: Builder, cue: list[_Span], newline: str, inline: InlineItems | None = None) -> None:
    """Add the lines of a cue, which are texts by their speakers."""

    def escape(text: str) -> str:
        return text.replace("\n", newline)

    for lines in _by_speaker(builder.source, builder.watched(cue)):
        add_lines(builder, lines, escape, inline)


# ---- Speakers


@dataclass(frozen=True)
class _Line:
    """A line of a cue, or a part of one with a dash, and what it begins with."""

    start: int
    end: int
    dash: re.Match[str] | None
    name: re.Match[str] | None  # before a colon
    bracket: re.Match[str] | None

    @property
    def text_start(self) -> int:
        return self.dash.end() if self.dash is not None else self.start

    @property
    def has_name_in_bracket(self) -> bool:
        return self.bracket is not None and _is_name(self.bracket["square"] or self.bracket["round"])

    def label(self, *, has_names: bool, has_brackets: bool) -> re.Match[str] | None:
        """What names the speaker; the arguments say whether names that could be other words are names."""
        if self.name is not None and (has_names or self.name["name"].isupper()):
            return self.name
        return self.bracket if has_brackets and self.has_name_in_bracket else None


def _by_speaker(text: str, cue: Iterable[_Span]) -> list[list[_Span]]:
    """The lines of each text, without what says whose it is."""
    lines = [_line(text, start, end) for line in cue for start, end in _parts(text, *line)]
    has_names = sum(line.name is not None for line in lines) > 1
    has_brackets = sum(line.has_name_in_bracket for line in lines) > 1
    has_dashes = sum(line.dash is not None for line in lines) > 1
    # `Place: Rome` is no speech; where people speak, a sentence ends.
    is_speech = any(_SENTENCE_END.search(text[line.start : line.end]) for line in lines)
    found: list[list[_Span]] = []
    for i, line in enumerate(lines):
        before = text[lines[i - 1].start : lines[i - 1].end] if i else ""
        is_new = i == 0 or _is_answer(before, text[line.text_start : line.end])
        label = line.label(has_names=has_names and is_speech, has_brackets=has_brackets)
        # One who answers has a dash, and the first speaker often has none.
        is_dialogue = line.dash is not None and (has_dashes or is_new)
        is_other = i == 0 or is_dialogue or label is not None or (line.name is not None and has_names)
        start = line.start if not is_other else line.text_start if label is None else label.end()
        sung, end = _SUNG.match(text, start, line.end), line.end
        if sung is not None or _SUNG_END.search(before) is not None:
            start, is_other = start if sung is None else sung.end(), True
        if (sung_end := _SUNG_END.search(text[start:end])) is not None:
            end = start + sung_end.start()
        if label is None and line.bracket is not None and is_new and _is_sound(text, line.bracket):
            found.append([line.bracket.span("bracket")])
            start, is_other = line.bracket.end(), True
        if is_other:
            found.append([(start, end)])
        else:
            found[-1].append((start, end))
    return found


def _parts(text: str, start: int, end: int) -> list[_Span]:
    """A line that begins with a dash, cut before each dash that follows a sentence and begins another."""
    if _DASH.match(text, start, end) is None:
        return [(start, end)]
    matches = _DASH_WITHIN.finditer(text, start, end)
    cuts = [match.start("cut") for match in matches if not match["first"].islower()]
    return list(zip([start, *cuts], [*cuts, end], strict=True))


def _line(text: str, start: int, end: int) -> _Line:
    dash = _DASH.match(text, start, end)
    after = start if dash is None else dash.end()
    bracket = _BRACKET.match(text, after, end)
    if bracket is not None and not has_letters(bracket["bracket"]):
        bracket = None
    return _Line(start, end, dash, _name_of(text, after, end), bracket)


def _is_answer(before: str, text: str) -> bool:
    """Whether a line after a sentence, or after one that is broken off, may be what another speaker says."""
    if _SENTENCE_END.search(before) is not None:
        return True
    return _BROKEN_OFF.search(before) is not None and not text.lstrip()[:1].islower()


def _name_of(text: str, start: int, end: int) -> re.Match[str] | None:
    """The match of a speaker's name, up to the colon."""
    match = _NAME.match(text, start, end)
    return match if match is not None and _is_name(match["name"].partition("(")[0]) else None


def _is_name(text: str) -> bool:
    """Whether it may be one, all of whose words begin with capitals."""
    words = text.split()
    return len(words) <= _MOST_NAMES and all(not word[0].islower() for word in words)


def _is_sound(text: str, match: re.Match[str]) -> bool:
    """Whether a bracket is a text of its own, as `[SIGHS]` is; a round one may be a part of the sentence."""
    is_said = match["square"] is not None or match["round"].isupper()
    return is_said and not text[match.end() : match.end() + 1].islower()
