"""Scores by a property of lines or words: the length of the reference, and how frequent a word is.

As compare-mt has them (Neubig et al. 2019): a corpus score of the lines of each length, and the F1 of words of each
frequency.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from transformer_cli.addons.comparison.results import Breakdown, Bucket
from transformer_cli.evaluation.significance import Statistics

LENGTHS = (1, 11, 21, 31, 41, 51)  # first of each bucket, in words
FREQUENCIES = (0, 1, 2, 3, 4, 5, 10, 100, 1000)

Tokenize = Callable[[str], list[str]]  # a line → its words


@dataclass(frozen=True)
class Frequencies:
    """How often words occur in some text."""

    counts: Mapping[str, int]
    text: str  # "the training text"


def by_length(statistics: Statistics, lengths: Sequence[int]) -> Breakdown:
    """The corpus score of the lines whose references have so many words; `lengths` has the number of each line."""
    lines_of: dict[int, list[int]] = {}
    for line, length in enumerate(lengths):
        lines_of.setdefault(_bucket(length, LENGTHS), []).append(line)
    systems = range(len(statistics.rows))
    buckets = [
        Bucket(
            _label(number, LENGTHS) if number >= 0 else "0",
            len(lines),
            [statistics.score(system, lines) for system in systems],
        )
        for number, lines in sorted(lines_of.items())
    ]
    return Breakdown(f"{statistics.name} by length of the reference", "lines", "words of the reference", buckets)


def by_frequency(
    systems: Sequence[Sequence[Counter[str]]], references: Sequence[Counter[str]], of: Frequencies
) -> Breakdown:
    """F1 in percent of the words of each frequency. All hold the words of each line, with their counts.

    A word of a translation is right as often as it stands in the reference of the same line, too.
    """
    numbers: dict[str, int] = {}

    def totals(lines: Iterable[Mapping[str, int]]) -> Counter[int]:
        found: Counter[int] = Counter()
        for line in lines:
            for word, count in line.items():
                if word not in numbers:
                    numbers[word] = _bucket(of.counts.get(word, 0), FREQUENCIES)
                found[numbers[word]] += count
        return found

    wanted = totals(references)
    scores: list[dict[int, float]] = []
    for lines in systems:
        written = totals(lines)
        right = totals(line & reference for line, reference in zip(lines, references, strict=True))
        # 2PR / (P + R), where P is right / written and R is right / wanted
        scores.append({number: 200 * right[number] / (written[number] + wanted[number]) for number in wanted})
    buckets = [
        Bucket(_label(number, FREQUENCIES), wanted[number], [by_number[number] for by_number in scores])
        for number in sorted(wanted)
    ]
    return Breakdown("F1 of words by frequency", "words", f"occurrences in {of.text}", buckets)


def word_counts(lines: Iterable[str], tokenize: Tokenize) -> list[Counter[str]]:
    return [Counter(tokenize(line)) for line in lines]


def count_words(lines: Iterable[str], tokenize: Tokenize, wanted: Iterable[str]) -> dict[str, int]:
    """How often each of `wanted` occurs."""
    counts = dict.fromkeys(wanted, 0)
    for line in lines:
        for word in tokenize(line):
            if word in counts:
                counts[word] += 1
    return counts


def _bucket(value: int, firsts: Sequence[int]) -> int:
    """-1 for a value below all."""
    return bisect_right(firsts, value) - 1


def _label(number: int, firsts: Sequence[int]) -> str:
    if number == len(firsts) - 1:
        return f"{firsts[number]}+"
    last = firsts[number + 1] - 1
    return str(last) if last == firsts[number] else f"{firsts[number]}-{last}"
