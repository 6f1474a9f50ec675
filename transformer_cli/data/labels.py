"""The labels of sentences or words; the index of a label is its class."""

from collections import Counter
from collections.abc import Iterable

from transformer_cli.data.corpus import ParallelText
from transformer_cli.data.words import split_words
from transformer_cli.errors import DataError, quoted
from transformer_cli.registry import did_you_mean

_SHOWN = 10
MOST_LABELS = 100  # of words in a small text; more than one for twenty words are none


def find_labels(labels: Iterable[str]) -> list[str]:
    """The different labels, sorted by code points. Raises DataError if there is one label only, or far too many.

    A column with nearly as many values as lines holds no labels.
    """
    found: set[str] = set()
    n_lines = 0
    for label in labels:
        n_lines += 1
        found.add(label)
    if len(found) == 1:
        raise DataError(
            f"data.train: has the one label {quoted(min(found))}, so there is nothing to learn. Add another class"
        )
    if len(found) > max(20, n_lines // 2):
        raise DataError(
            f"data.train: {len(found):,} different labels in {n_lines:,} lines, as {quoted(min(found))}."
            " Write label<TAB>text, the label first"
        )
    return sorted(found)


def find_word_labels(sentences: Iterable[str]) -> list[str]:
    """The different labels of words, sorted by code points. Raises DataError like `find_labels`."""
    counts = Counter(label for labels in sentences for label in split_words(labels))
    if len(counts) == 1:
        raise DataError(
            f"data.train: every word has the label {quoted(min(counts))}, so there is nothing to learn. Select the"
            " column of the labels with data.columns, as [0,3]"
        )
    if len(counts) > max(MOST_LABELS, counts.total() // 20):
        raise DataError(
            f"data.train: {len(counts):,} different labels of {counts.total():,} words, as {quoted(min(counts))}."
            " Select the column of the labels with data.columns, as [0,3]"
        )
    return sorted(counts)


def without_blank(text: ParallelText, labels: list[str], *, where: str) -> ParallelText:
    """The lines of dev or test that are not blank. Raises DataError, with its place, for a class unseen in training."""
    known = set(labels)
    for index, label in enumerate(text.targets):
        if label and label not in known:
            named = ", ".join(labels[:_SHOWN]) + (", …" if len(labels) > _SHOWN else "")
            raise DataError(
                f"{where}:{index + 1}: class {quoted(label)} is not in the training text"
                f"{did_you_mean(label, labels)} (classes: {named}). Correct the label, or train with it"
            )
    real = text.pick(real_lines(text))
    if not real.sources:
        raise DataError(f"{where}: holds no sentence with a class. Write label<TAB>text")
    return real


def real_lines(text: ParallelText) -> list[int]:
    """Which lines have a text and a label, by index from 0."""
    return [i for i, (source, label) in enumerate(text.each()) if label and source.strip()]
