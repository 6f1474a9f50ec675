"""Lines of web pages and programs that stand beside many unrelated lines."""

from collections import Counter
from itertools import combinations

from transformer_cli.data.cleaning.base import FILTERS, Filter, PairTexts, Verdict, drop
from transformer_cli.data.normalization import canonical

_PARTNERS = 24  # of a line that are compared
_ALIKE = 0.12  # mean share of words that two translations of a line have in common; 0.2 and more in sound text
_SHORTEST = 12  # characters: shorter lines have many meanings
_MAIN = 0.2  # of the pairs of a line: a partner that it has so often is its translation


@FILTERS.register("boilerplate")
class Boilerplate(Filter):
    """The threshold is the number of different partners in the sample from which a line is examined."""

    what = "with a line that stands beside many unrelated ones"
    threshold, low = 8, 3
    is_auto = True

    def learn(self, text: PairTexts) -> None:
        sources, targets = list(map(canonical, text.sources)), list(map(canonical, text.targets))
        self._of_source = self._found(sources, targets)
        self._of_target = self._found(targets, sources)

    def apply(self, text: PairTexts) -> Verdict:
        if not self._of_source and not self._of_target:
            return drop([False] * len(text))
        return drop([self._is_boilerplate(canonical(source), canonical(target)) for source, target in text.each()])

    def _is_boilerplate(self, source: str, target: str) -> bool:
        of_source, of_target = self._of_source.get(source), self._of_target.get(target)
        return (of_source is not None and target not in of_source) or (
            of_target is not None and source not in of_target
        )

    def _found(self, lines: list[str], others: list[str]) -> dict[str, set[str]]:
        """The lines of one side that are boilerplate, each with its translations."""
        assert self.limit is not None
        counts = Counter(lines)
        partners: dict[str, Counter[str]] = {
            line: Counter() for line, n in counts.items() if n >= self.limit and len(line) >= _SHORTEST
        }
        for line, other in zip(lines, others, strict=True):
            if line in partners:
                partners[line][other] += 1
        return {
            line: {other for other, n in found.items() if n > _MAIN * counts[line]}
            for line, found in partners.items()
            if len(found) >= self.limit and _alike(list(found)[:_PARTNERS]) < _ALIKE
        }


def _alike(lines: list[str]) -> float:
    """The mean share of words, or else of characters, that two of these lines have in common."""
    words = [set(line.casefold().split()) for line in lines]
    pairs = list(combinations(words, 2))
    return sum(len(one & other) / max(1, min(len(one), len(other))) for one, other in pairs) / max(1, len(pairs))
