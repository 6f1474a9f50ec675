"""Pairs with a side of too many characters. Tokens are counted later, by data.max_length."""

from transformer_cli.data.cleaning.base import FILTERS, Filter, PairTexts, Verdict, drop


@FILTERS.register("long_lines")
class LongLines(Filter):
    what = "with a line of too many characters"
    threshold, low = 2000, 10

    def apply(self, text: PairTexts) -> Verdict:
        assert self.limit is not None
        return drop([max(len(source), len(target)) > self.limit for source, target in text.each()])
