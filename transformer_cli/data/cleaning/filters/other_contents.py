"""Pairs with something on one side that the other has not: inline tags, numbers, URLs and mail addresses."""

import re

from transformer_cli.data.cleaning.base import FILTERS, Filter, PairTexts, Verdict, drop
from transformer_cli.data.numbered_tags import counted_tags

_NUMBER = re.compile(r"\d+(?:[.,'\u00a0\u202f ]\d{3}(?!\d))*(?:[.,]\d+)?")
_ADDRESS = re.compile(r"(?:https?://|www\.)[^\s<>\"'()]+|[\w.+-]+@[\w-]+\.[\w.-]+")


@FILTERS.register("inline_tags")
class InlineTagsDiffer(Filter):
    """Compares the tags that a file of TMX or XLIFF has, as data.inline_tags=keep numbers them."""

    what = "with other inline tags on the two sides"

    def apply(self, text: PairTexts) -> Verdict:
        return drop([counted_tags(source) != counted_tags(target) for source, target in text.each()])


@FILTERS.register("numbers")
class Numbers(Filter):
    """The threshold is the share of the numbers of both sides that may be on one side only.

    Good translations write numbers out and reckon units, so auto does without it.
    """

    what = "with other numbers on the two sides"
    threshold, high = 0.5, 1.0

    def apply(self, text: PairTexts) -> Verdict:
        assert self.limit is not None
        return drop([_share_apart(source, target) > self.limit for source, target in self.words_of(text).each()])


def _share_apart(source: str, target: str) -> float:
    """The share of the numbers that only one side has; 0 where a side has none, which may have written them out."""
    sides = [{re.sub(r"\D", "", number) for number in _NUMBER.findall(side)} for side in (source, target)]
    if not all(sides):
        return 0.0
    return 1 - len(sides[0] & sides[1]) / len(sides[0] | sides[1])


@FILTERS.register("urls")
class Urls(Filter):
    what = "with a URL or mail address on one side only"

    def apply(self, text: PairTexts) -> Verdict:
        return drop([_addresses(source) != _addresses(target) for source, target in text.each()])


def _addresses(side: str) -> set[str]:
    if "www." not in side and "://" not in side and "@" not in side:
        return set()
    return {address.rstrip(".,;:!?").casefold() for address in _ADDRESS.findall(side)}
