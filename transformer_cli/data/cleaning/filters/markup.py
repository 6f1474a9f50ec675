"""Markup of HTML on one side of a pair only, and lines of program text."""

import html
import re
from collections import Counter

import numpy as np

from transformer_cli.data.cleaning.base import FILTERS, Filter, PairTexts, Verdict
from transformer_cli.data.moses import tokenized_lines
from transformer_cli.data.normalization import has_letters
from transformer_cli.data.numbered_tags import without_tags

_TAG = re.compile(r"</?[A-Za-z][A-Za-z0-9:-]*(?:\s[^<>]*)?/?>|<!--.*?-->|<!DOCTYPE[^<>]*>", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:[A-Za-z][A-Za-z0-9]{1,30}|#\d{1,7}|#[xX][0-9A-Fa-f]{1,6});")
_NOT_MOSES = re.compile(rf"(?!&(?:amp|lt|gt|apos|quot|#91|#93|#124);){_ENTITY.pattern}")
_BLOCK = re.compile(r"</?(?:p|div|br|li|ul|ol|td|tr|th|table|h[1-6]|hr|option)\b", re.IGNORECASE)
_SYMBOLS = re.compile(r"[{}<>=;_|\\#$^*/@]")
_MANY_SYMBOLS = 0.25  # of the characters that are no blanks


@FILTERS.register("markup")
class Markup(Filter):
    """Removes tags and entities of HTML that one side has and the other has not; drops what is no text without them.

    Markup that both sides have alike stays: the text is about it, or is translated with it.
    """

    what = "of markup or program text"
    repair = "without markup that only one side had"
    blemish = "with markup that only one side has"
    is_auto = True

    def learn(self, text: PairTexts) -> None:
        """Leave the escapes of Moses to data.detokenize where the text is tokenized by it."""
        lines = [*text.sources, *text.targets]
        self._entity = _NOT_MOSES if tokenized_lines(lines) else _ENTITY

    def apply(self, text: PairTexts) -> Verdict:
        verdict = Verdict(np.zeros(len(text), np.bool_))
        for index, pair in enumerate(text.each()):
            source, target = pair
            if not ("<" in source or "&" in source or "<" in target or "&" in target):
                plain = pair
            else:
                plain = _without_markup(source, target, self._entity)
            if self._is_code(plain[0]) != self._is_code(plain[1]) or (
                plain != pair and not all(map(has_letters, plain))
            ):
                verdict.dropped[index] = True
            elif plain != pair:
                verdict.repaired[index] = plain
        return verdict

    def _is_code(self, side: str) -> bool:
        side = _TAG.sub("", without_tags(side) if self.keeps_tags else side)
        n_symbols = len(_SYMBOLS.findall(side))
        return n_symbols >= 5 and n_symbols > _MANY_SYMBOLS * len(side.replace(" ", ""))


def _without_markup(source: str, target: str, entity: re.Pattern[str]) -> tuple[str, str]:
    sides = [source, target]
    if _found(entity, source) != _found(entity, target):
        sides = [entity.sub(lambda match: html.unescape(match[0]), side) for side in sides]
    if _found(_TAG, sides[0]) != _found(_TAG, sides[1]):
        sides = [_plain(side) for side in sides]
    return sides[0], sides[1]


def _found(pattern: re.Pattern[str], side: str) -> Counter[str]:
    return Counter(match.split()[0].rstrip(">") for match in pattern.findall(side))


def _plain(side: str) -> str:
    """A line without tags: those that divide blocks of text become blanks."""
    if not _TAG.search(side):
        return side
    return " ".join(_TAG.sub(lambda match: " " if _BLOCK.match(match[0]) else "", side).split())
