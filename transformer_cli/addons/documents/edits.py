"""Replacements in a text, and where the characters around them are afterwards."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """Characters of a text to replace, or a place to insert at."""

    start: int
    end: int
    new: str


class Edited:
    """A text with `edits`, which are in order and do not overlap; `spans` is where each of them is in it."""

    def __init__(self, text: str, edits: Sequence[Edit]) -> None:
        parts: list[str] = []
        self.spans: list[tuple[int, int]] = []
        position = length = 0
        for edit in edits:
            before = text[position : edit.start]
            parts += [before, edit.new]
            start = length + len(before)
            length, position = start + len(edit.new), edit.end
            self.spans.append((start, length))
        self.text = "".join([*parts, text[position:]])
        self._starts, self._ends = [edit.start for edit in edits], [edit.end for edit in edits]

    def span(self, span: tuple[int, int]) -> tuple[int, int]:
        """The stretch of the edited text that was `span`, with the whole of every edit that overlaps it."""
        return self._start(span[0]), self._end(span[1])

    def _start(self, offset: int) -> int:
        at = bisect_right(self._ends, offset)
        if at < len(self._starts) and self._starts[at] <= offset:
            return self.spans[at][0]
        return offset + (self.spans[at - 1][1] - self._ends[at - 1] if at else 0)

    def _end(self, offset: int) -> int:
        at = bisect_left(self._starts, offset)
        if not at:
            return offset
        return self.spans[at - 1][1] + max(0, offset - self._ends[at - 1])
