"""Metrics of classification: accuracy and F1 with bootstrap confidence intervals, and the confusion matrix.

Shapes: C classes, R resamples. A confusion matrix is [wanted, predicted].
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1000
LEVEL = 0.95

Counts = NDArray[np.int64]
Scores = NDArray[np.float64]


def accuracy(predicted: Sequence[str], wanted: Sequence[str]) -> float:
    """Share of sentences whose predicted class is right, in percent."""
    return float(accuracies(confusion(predicted, wanted, sorted({*predicted, *wanted}))))


def macro_f1(predicted: Sequence[str], wanted: Sequence[str]) -> float:
    """The mean of the classes' F1, in percent: of every class that is wanted or predicted, as scikit-learn has it."""
    return float(macro_f1s(confusion(predicted, wanted, sorted({*predicted, *wanted}))))


def confusion(predicted: Sequence[str], wanted: Sequence[str], labels: Sequence[str]) -> Counts:
    """How often each class was predicted for each that was wanted, [C, C]."""
    numbers = {label: i for i, label in enumerate(labels)}
    table_CC = np.zeros((len(labels), len(labels)), np.int64)
    for p, w in zip(predicted, wanted, strict=True):
        table_CC[numbers[w], numbers[p]] += 1
    return table_CC


def accuracies(tables_CC: Counts) -> Scores:
    """The accuracy, in percent, of each of many tables [..., C, C]."""
    return np.asarray(100 * np.trace(tables_CC, axis1=-2, axis2=-1) / tables_CC.sum((-2, -1)))


def f1s(tables_CC: Counts) -> Scores:
    """2 · right / (predicted + wanted) of each class, in percent, [..., C]; NaN where it is neither."""
    right_C = np.diagonal(tables_CC, axis1=-2, axis2=-1)
    n_C = tables_CC.sum(-2) + tables_CC.sum(-1)
    return 200 * right_C / np.where(n_C, n_C, np.nan)


def macro_f1s(tables_CC: Counts) -> Scores:
    return np.asarray(np.nanmean(f1s(tables_CC), axis=-1))


@dataclass(frozen=True)
class ConfidenceInterval:
    """A score in percent, and the range of 95 % of its bootstrap resamples."""

    score: float
    low: float
    high: float


@dataclass(frozen=True)
class ClassScore:
    """The scores of one class, in percent. A share of nothing is 0, as in scikit-learn."""

    label: str
    precision: float
    recall: float
    f1: float
    n_lines: int  # that are of the class


@dataclass(frozen=True)
class ClassReport:
    accuracy: ConfidenceInterval
    macro_f1: ConfidenceInterval
    classes: list[ClassScore]
    confusion: list[list[int]]  # [wanted][predicted], in the order of `classes`
    seed: int

    @property
    def signature(self) -> str:
        return f"bootstrap, {LEVEL:.0%} percentile, {RESAMPLES:,} resamples, seed {self.seed}"

    def as_dict(self, **facts: object) -> dict[str, Any]:
        return {**facts, **asdict(self), "interval": self.signature}

    def lines(self) -> list[str]:
        """The report for people: the scores, each class, and the confusions."""
        scores = {"accuracy": self.accuracy, "macro-F1": self.macro_f1}
        summary = [f"{name}  {s.score:6.2f}  [{s.low:.2f}, {s.high:.2f}]" for name, s in scores.items()]
        each = [["class", "precision", "recall", "F1", "lines"]]
        each += [
            [c.label, f"{c.precision:.2f}", f"{c.recall:.2f}", f"{c.f1:.2f}", f"{c.n_lines:,}"] for c in self.classes
        ]
        labels = [c.label for c in self.classes]
        rows = [[label, *map(str, row)] for label, row in zip(labels, self.confusion, strict=True)]
        table = [["wanted \\ predicted", *labels], *rows]
        return [f"{summary[0]}  {self.signature}", summary[1], "", *columns(each), "", *columns(table)]


def class_report(predicted: Sequence[str], wanted: Sequence[str], labels: Sequence[str], *, seed: int) -> ClassReport:
    """`labels` are the classes of the model, in its order."""
    table_CC = confusion(predicted, wanted, labels)
    found_RCC = resampled(table_CC, seed=seed)
    return ClassReport(
        accuracy=confidence_interval(float(accuracies(table_CC)), accuracies(found_RCC)),
        macro_f1=confidence_interval(float(macro_f1s(table_CC)), macro_f1s(found_RCC)),
        classes=class_scores(table_CC, labels),
        confusion=table_CC.tolist(),
        seed=seed,
    )


def class_scores(table_CC: Counts, labels: Sequence[str]) -> list[ClassScore]:
    right_C, f1_C = np.diagonal(table_CC), np.nan_to_num(f1s(table_CC))
    n_predicted_C, n_wanted_C = table_CC.sum(0), table_CC.sum(1)
    precision_C, recall_C = (100 * right_C / np.maximum(n_C, 1) for n_C in (n_predicted_C, n_wanted_C))
    numbers = zip(labels, precision_C.tolist(), recall_C.tolist(), f1_C.tolist(), n_wanted_C.tolist(), strict=True)
    return [ClassScore(*row) for row in numbers]


def resampled(table_CC: Counts, *, seed: int) -> Counts:
    """Tables of as many sentences, drawn from these with replacement, [R, C, C].

    Sentences of one cell of the table are alike, so counts of cells are drawn from a multinomial distribution.
    """
    n = int(table_CC.sum())
    drawn = np.random.default_rng(seed).multinomial(n, table_CC.ravel() / n, size=RESAMPLES)
    return drawn.reshape(RESAMPLES, *table_CC.shape)


def resampled_sums(counts: Counts, *, seed: int) -> Scores:
    """The sums of counts [N, …] over N sentences that are drawn with replacement, [R, …]."""
    n, random = len(counts), np.random.default_rng(seed)
    flat = counts.reshape(n, -1).astype(np.float64)
    sums = [np.bincount(random.integers(n, size=n), minlength=n) @ flat for _ in range(RESAMPLES)]
    return np.stack(sums).reshape(RESAMPLES, *counts.shape[1:])


def confidence_interval(score: float, resamples_R: Scores) -> ConfidenceInterval:
    low, high = np.quantile(resamples_R, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return ConfidenceInterval(score, float(low), float(high))


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of text: the first column to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
