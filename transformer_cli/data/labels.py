"""Probable faults in the labels of sentences or words."""

from collections import Counter
from collections.abc import Iterator

from transformer_cli.data.normalization import canonical
from transformer_cli.errors import quoted

_SHOWN = 10
_ENOUGH_LINES = 100  # of classes, among which one with a single line is no sample of a few


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
