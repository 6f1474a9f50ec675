"""The labels of lines, and faults of those of words, too."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from transformer_cli.data.corpus import ParallelText
from transformer_cli.data.normalization import canonical
from transformer_cli.errors import DataError, quoted
from transformer_cli.registry import did_you_mean

_SHOWN = 10
_ENOUGH_LINES = 100  # of classes, among which one with a single line is no sample of a few


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


def label_faults(counts: Counter[str], *, of_lines: bool) -> Iterator[str]:
    """One sentence for labels that are the same but for what hardly shows, and one for classes of a single line.

    They are labels all the same: a tagger may tell B from b, and a class may be rare.
    """
    alike: dict[str, list[str]] = {}
    for label in sorted(counts):
        alike.setdefault(canonical(label).casefold(), []).append(label)
    what = "classes" if of_lines else "labels"
    for labels in alike.values():
        if len(labels) > 1:
            # In ASCII: two that look alike would not show what differs.
            named = " and ".join(f"{label!a} ({counts[label]:,})" for label in labels[:_SHOWN])
            yield (
                f"data.train: {what} that differ in capitals, white space, composition or invisible characters alone"
                f" are separate {what}: {named}. Write one of them everywhere, if they are the same"
            )
    single = [label for label, count in counts.items() if count == 1]
    if of_lines and single and counts.total() > _ENOUGH_LINES:
        named = ", ".join(map(quoted, single[:_SHOWN])) + (", …" if len(single) > _SHOWN else "")
        yield f"data.train: classes with a single line: {named}. Check that none is misspelt, or the title of a column"


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
