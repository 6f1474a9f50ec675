"""How well sentences get their classes."""

from collections import Counter
from collections.abc import Sequence


def accuracy(predicted: Sequence[str], wanted: Sequence[str]) -> float:
    """Sentences with the class that is wanted, in percent."""
    return 100 * sum(p == w for p, w in zip(predicted, wanted, strict=True)) / len(wanted)


def macro_f1(predicted: Sequence[str], wanted: Sequence[str]) -> float:
    """The mean of the classes' F1, in percent: of every class that is wanted or predicted, as scikit-learn has it.

    F1 of a class is 2 · right / (predicted + wanted).
    """
    right = Counter(p for p, w in zip(predicted, wanted, strict=True) if p == w)
    n_predicted, n_wanted = Counter(predicted), Counter(wanted)
    classes = n_predicted | n_wanted
    return 100 * sum(2 * right[label] / (n_predicted[label] + n_wanted[label]) for label in classes) / len(classes)
