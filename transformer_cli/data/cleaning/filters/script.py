"""Pairs with a side in another script than that of its language."""

import re
from collections import Counter

from transformer_cli.data.checks.languages import SCRIPTS
from transformer_cli.data.cleaning.base import FILTERS, Filter, PairTexts, Verdict, drop

_SAMPLE = 5_000  # pairs that the scripts of a side are found by
_MANY = 0.1  # of the letters of a line, and of the lines of a side: a script that its language is written in
_LETTERS = 5  # at least, in a line that is judged


@FILTERS.register("script")
class Script(Filter):
    """The scripts of a side are those in which many of its lines are written; the threshold is the share of foreign
    letters in a line."""

    what = "in another script than that of the language"
    threshold, high = 0.6, 1.0
    is_auto = True

    def learn(self, text: PairTexts) -> None:
        every = 1 + len(text) // _SAMPLE
        self._foreign = [_foreign(side[::every]) for side in (text.sources, text.targets)]

    def apply(self, text: PairTexts) -> Verdict:
        of_source, of_target = self._foreign
        return drop([self._is_foreign(s, of_source) or self._is_foreign(t, of_target) for s, t in text.each()])

    def _is_foreign(self, line: str, foreign: re.Pattern[str] | None) -> bool:
        if foreign is None or (line.isascii() and not foreign.match("a")):
            return False
        found = foreign.findall(line)
        if len(found) < _LETTERS:
            return False
        assert self.limit is not None
        return len(found) > self.limit * sum(map(str.isalpha, line))


def _foreign(lines: list[str]) -> re.Pattern[str] | None:
    """What finds the letters of the scripts that a side is not written in; None where no line has letters.

    A line counts once for each script that has many of its letters, so that a few long lines weigh no more.
    """
    counts: Counter[str] = Counter()
    for line in lines:
        letters = {name: len(letters.findall(line)) for name, letters in _PATTERNS.items()}
        counts.update(name for name, n in letters.items() if n > _MANY * sum(letters.values()))
    own = {name for name, n in counts.items() if n > _MANY * len(lines)}
    others = [letters for name, letters in SCRIPTS.items() if name not in own]
    return re.compile(f"[{''.join(others)}]") if own and others else None


_PATTERNS = {name: re.compile(f"[{letters}]") for name, letters in SCRIPTS.items()}
