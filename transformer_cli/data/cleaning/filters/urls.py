"""Pairs with another URL or mail address on one side than on the other."""

import re

from transformer_cli.data.cleaning.base import FILTERS, Filter, PairTexts, Verdict, drop

_ADDRESS = re.compile(r"(?:https?://|www\.)[^\s<>\"'()]+|[\w.+-]+@[\w-]+\.[\w.-]+")


@FILTERS.register("urls")
class Urls(Filter):
    what = "with a URL or mail address on one side only"

    def apply(self, text: PairTexts) -> Verdict:
        return drop([_addresses(source) != _addresses(target) for source, target in text.each()])


def _addresses(side: str) -> set[str]:
    if "www." not in side and "://" not in side and "@" not in side:
        return set()
    return {address.rstrip(".,;:!?").casefold() for address in _ADDRESS.findall(side)}
