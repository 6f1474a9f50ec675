"""Precision, recall and F1 of named entities, as conlleval (Tjong Kim Sang and De Meulder 2003) and seqeval find them.

An entity is a type and the words that it consists of, and is right if both are. It begins at B-X, and also at an I-X
that follows O or another type: so labels of IOB1, where B-X only divides adjacent entities of one type, count as well.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from transformer_cli.addons.classification.scores import ConfidenceInterval, Counts, confidence_interval, resampled_sums
from transformer_cli.logs import LOGGER

OUTSIDE = "O"
_N_SHOWN = 5  # labels in a message
Entity = tuple[str, int, int]  # type, first word, last word


def are_bio(labels: Iterable[str]) -> bool:
    """Whether labels are B-X, I-X and O, at least one of them no O, with a few others at most.

    Others are mistyped labels in a corpus, and count as O. If they are more than those of B-X and I-X, or E-X or S-X
    of a type X (as in BIOES), the labels are of another scheme.
    """
    known = set(labels)
    inside = {label for label in known if _is_inside(label)}
    others = not_bio(known)
    types = {label[2:] for label in inside}
    has_another_scheme = any(label[1:2] == "-" and label[2:] in types for label in others)
    return bool(inside) and len(others) <= len(inside) and not has_another_scheme


def not_bio(labels: Iterable[str]) -> list[str]:
    """The labels that are neither B-X, I-X nor O, each once, in order."""
    return sorted({label for label in labels if label != OUTSIDE and not _is_inside(label)})


def warn_not_bio(labels: Iterable[str], where: str) -> None:
    """One warning, if any label of BIO ones is another."""
    if others := not_bio(labels):
        LOGGER.warning("%s: entity F1 counts labels that are not B-X, I-X or O as O: %s", where, first_few(others))


def first_few(labels: Sequence[str]) -> str:
    """Labels in a message."""
    return ", ".join(labels[:_N_SHOWN]) + (f" and {len(labels) - _N_SHOWN:,} more" if len(labels) > _N_SHOWN else "")


def _is_inside(label: str) -> bool:
    return label[:2] in ("B-", "I-") and len(label) > 2


def entities(labels: Sequence[str]) -> list[Entity]:
    """The entities of one sentence, in order. A label that is not BIO counts as O."""
    found: list[Entity] = []
    begin, kind = 0, ""  # of the entity that goes on; none if empty
    for i, label in enumerate([*(label if _is_inside(label) else OUTSIDE for label in labels), OUTSIDE]):
        goes_on = label.startswith("I-") and label[2:] == kind
        if kind and not goes_on:
            found.append((kind, begin, i - 1))
        if not goes_on:
            begin, kind = i, label[2:]
    return found


@dataclass(frozen=True)
class EntityScore:
    """The scores of one type, or of all (micro), in percent. A share of nothing is 0."""

    type: str
    precision: float
    recall: float
    f1: float
    n_entities: int  # that are wanted


@dataclass(frozen=True)
class EntityReport:
    f1: ConfidenceInterval  # micro
    micro: EntityScore
    types: list[EntityScore]


def entity_f1(predicted: Sequence[Sequence[str]], wanted: Sequence[Sequence[str]]) -> float:
    """Micro-F1 of sentences, in percent."""
    return _score("", *_counts(predicted, wanted).sum(axis=0).tolist()).f1


def entity_report(predicted: Sequence[Sequence[str]], wanted: Sequence[Sequence[str]], *, seed: int) -> EntityReport:
    """The confidence interval is that of sentences drawn with replacement."""
    counts_N3 = _counts(predicted, wanted)
    micro = _score("all", *counts_N3.sum(axis=0).tolist())
    right, n_predicted, n_wanted = Counter[str](), Counter[str](), Counter[str]()
    for ours, theirs in zip(predicted, wanted, strict=True):
        ours_set, theirs_set = set(entities(ours)), set(entities(theirs))
        right.update(kind for kind, _, _ in ours_set & theirs_set)
        n_predicted.update(kind for kind, _, _ in ours_set)
        n_wanted.update(kind for kind, _, _ in theirs_set)
    types = [_score(k, right[k], n_predicted[k], n_wanted[k]) for k in sorted({*n_predicted, *n_wanted})]
    right_R, predicted_R, wanted_R = resampled_sums(counts_N3, seed=seed).T
    f1_R = 200 * right_R / np.maximum(predicted_R + wanted_R, 1)
    return EntityReport(confidence_interval(micro.f1, f1_R), micro, types)


def _counts(predicted: Sequence[Sequence[str]], wanted: Sequence[Sequence[str]]) -> Counts:
    """Entities of each sentence: right, predicted and wanted, [N, 3]."""
    rows = []
    for ours, theirs in zip(predicted, wanted, strict=True):
        assert len(ours) == len(theirs)
        ours_set, theirs_set = set(entities(ours)), set(entities(theirs))
        rows.append((len(ours_set & theirs_set), len(ours_set), len(theirs_set)))
    return np.array(rows, np.int64)


def _score(kind: str, right: int, n_predicted: int, n_wanted: int) -> EntityScore:
    return EntityScore(
        kind,
        precision=100 * right / max(n_predicted, 1),
        recall=100 * right / max(n_wanted, 1),
        f1=200 * right / max(n_predicted + n_wanted, 1),
        n_entities=n_wanted,
    )
