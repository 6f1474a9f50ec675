"""Pairs whose sides have other inline tags, as a file of TMX or XLIFF says and data.inline_tags=keep numbers them."""

from transformer_cli.data.cleaning.base import FILTERS, Filter, PairTexts, Verdict, drop
from transformer_cli.data.numbered_tags import counted_tags


@FILTERS.register("inline_tags")
class InlineTagsDiffer(Filter):
    what = "with other inline tags on the two sides"

    def apply(self, text: PairTexts) -> Verdict:
        return drop([counted_tags(source) != counted_tags(target) for source, target in text.each()])
