"""The labels of lines."""

from collections.abc import Iterable, Sequence

from transformer_cli.data.corpus import ParallelText
from transformer_cli.errors import DataError, quoted
from transformer_cli.registry import did_you_mean

_SHOWN = 10


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


def without_blank(text: ParallelText, labels: Sequence[str], *, where: str) -> ParallelText:
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
    """The indices, from 0, of the lines that have a text and a label."""
    return [i for i, (source, label) in enumerate(text.each()) if label and source.strip()]
