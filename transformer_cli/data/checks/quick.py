"""Checks of training text that are cheap enough for every preparation: shifted lines, exchanged, copied, foreign pairs.

They are those of `tfm doctor`, with its limits or wider ones, on the lengths of all pairs and the text of a sample.
They drop nothing.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from transformer_cli.config.data import DataConfig
from transformer_cli.data.cache import Array
from transformer_cli.data.checks.lengths import WINDOW, alignment_slips, shown_lag
from transformer_cli.data.checks.profiles import MIN_PROFILE, SEPARABLE, cross_scores
from transformer_cli.data.corpus import ParallelText
from transformer_cli.data.normalization import canonical

MANY_COPIES = 0.05  # pairs with equal sides; 0.6 % in sound text
_MANY_SWAPPED = 0.01  # pairs of a sample whose sides are each classified as the other; none at all
MANY_FOREIGN = 0.02  # lines that are clearly in the other language; 0.8 %
CLEARLY = 0.3  # nats a trigram
MANY_BY_CHANCE = 2  # pairs: whatever their share, so few say nothing of a corpus

_ALL = "`tfm doctor` names them"


@dataclass
class TrainingPairs:
    """Counts, taken while the training text passes by: lengths in characters, and pairs with equal sides."""

    source_lengths: "array[int]" = field(default_factory=lambda: array("i"))
    target_lengths: "array[int]" = field(default_factory=lambda: array("i"))
    n_copies: int = 0

    def count(self, source: str, target: str) -> None:
        self.source_lengths.append(len(source))
        self.target_lengths.append(len(target))
        self.n_copies += source == target or canonical(source) == canonical(target)

    def faults(self, sample: ParallelText, config: DataConfig) -> Iterator[str]:
        """A sentence, with the numbers, for each fault that many pairs have; `sample` has no tags."""
        n = len(self.source_lengths)
        if self.n_copies > max(MANY_BY_CHANCE, MANY_COPIES * n):
            share = percent(self.n_copies / n)
            yield (
                f"data.train: source and target are equal in {share} of the pairs ({self.n_copies:,} of {n:,}); is one"
                " file named twice? Translate them, or drop them"
            )
        if not config.truncate_source:  # the lengths of summaries do not follow from those of their sources
            yield from self._slips()
        if config.source_lang != config.target_lang and not config.all_tags:  # which may mix languages on a side
            yield from _languages(sample)

    def _slips(self) -> Iterator[str]:
        slips = alignment_slips(*(np.array(side, np.int32) for side in (self.source_lengths, self.target_lengths)))
        if not slips:
            return
        (start, lag), n = slips[0], len(self.source_lengths)
        how = "the lengths of the sides have nothing to do with each other"
        if lag:
            how = shown_lag(lag)
        yield (
            f"data.train: the sides of about {min(n, WINDOW * len(slips)):,} of {n:,} pairs are not aligned, first near"
            f" pair {start + 1:,}: {how}. Find a line that is missing or doubled on one side shortly before"
        )


def _languages(sample: ParallelText) -> Iterator[str]:
    """Pairs whose sides are exchanged or not translated, by the trigrams of the two sides of the sample."""
    pairs = [pair for pair in sample.each() if pair[0] != pair[1]]
    n = len(pairs)
    if n < MIN_PROFILE:
        return
    source_scores, target_scores = cross_scores([source for source, _ in pairs], [target for _, target in pairs])
    apart = float((source_scores * target_scores < 0).mean())
    if apart < SEPARABLE:
        yield (
            f"data.train: in only {percent(apart)} of {n:,} sampled pairs the sides are classified as two languages. Is"
            " one language on both sides, or are both on each?"
        )
        return
    for what, found, limit, todo in (
        ("pairs have their sides exchanged", (source_scores < 0) & (target_scores > 0), _MANY_SWAPPED, "Exchange them"),
        *(
            (f"{side} lines are in the {other} language", foreign, MANY_FOREIGN, "Drop the pairs")
            for side, other, foreign in foreign_lines(source_scores, target_scores)
        ),
    ):
        n_found = int(found.sum())
        if n_found > max(MANY_BY_CHANCE, limit * n):
            yield f"data.train: {n_found:,} of {n:,} sampled {what} ({percent(n_found / n)}). {todo}; {_ALL}"


def foreign_lines(source_scores: Array, target_scores: Array) -> Iterator[tuple[str, str, Array]]:
    """The name of each side, that of the other, and which of its lines are clearly in the language of the other."""
    yield "source", "target", (source_scores < -CLEARLY) & (target_scores <= 0)
    yield "target", "source", (target_scores > CLEARLY) & (source_scores >= 0)


def percent(share: float) -> str:
    """`share` of one, with as many digits as it takes not to show a small one as none."""
    return f"{share:.0%}" if share >= 0.1 or share == 0 else f"{share:.1%}" if share >= 0.001 else "under 0.1%"
