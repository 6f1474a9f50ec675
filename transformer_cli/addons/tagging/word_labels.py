"""Scores of labels of words: accuracy, F1 of each label, of BIO labels the entities, and the usual baseline.

Shapes: N sentences, C labels, R resamples. A confusion matrix is [wanted, predicted].
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from transformer_cli.addons.classification.scores import (
    LEVEL,
    RESAMPLES,
    ClassReport,
    Scores,
    accuracies,
    class_scores,
    columns,
    confidence_interval,
    confusion,
    macro_f1s,
    resampled_sums,
)
from transformer_cli.addons.tagging.entities import EntityReport, entity_report
from transformer_cli.data.cache import EncodedCorpus

Labels = Sequence[Sequence[str]]  # of each word of each sentence

MOST_COLUMNS = 20  # of a confusion matrix for people; of one with more labels, the most frequent confusions are shown
MOST_CONFUSIONS = 20


@dataclass(frozen=True)
class WordReport:
    """The confidence intervals are those of sentences drawn with replacement: words of a sentence are not
    independent."""

    labels: ClassReport  # its lines are words
    entities: EntityReport | None  # of BIO labels
    baseline: float | None  # accuracy in percent of each word's most frequent label in training; None: not known
    n_sentences: int

    @property
    def signature(self) -> str:
        return f"bootstrap of sentences, {LEVEL:.0%} percentile, {RESAMPLES:,} resamples, seed {self.labels.seed}"

    @property
    def n_words(self) -> int:
        return sum(map(sum, self.labels.confusion))

    def scores(self) -> dict[str, float]:
        found = {"accuracy": self.labels.accuracy.score, "macro-F1": self.labels.macro_f1.score}
        return found | ({} if self.entities is None else {"entity F1": self.entities.f1.score})

    def as_dict(self, **facts: object) -> dict[str, Any]:
        more = {"sentences": self.n_sentences, "words": self.n_words, "baseline_accuracy": self.baseline}
        entities = {} if self.entities is None else {"entities": asdict(self.entities)}
        return {**facts, **more, **asdict(self.labels), **entities, "interval": self.signature}

    def lines(self) -> list[str]:
        """The report for people: the scores, the baseline, entities, each label, and the confusions."""
        intervals = {"accuracy": self.labels.accuracy, "macro-F1": self.labels.macro_f1}
        if self.entities is not None:
            intervals["entity F1"] = self.entities.f1
        width = max(map(len, intervals))
        found = [f"{name:<{width}}  {s.score:6.2f}  [{s.low:.2f}, {s.high:.2f}]" for name, s in intervals.items()]
        found[0] += f"  of {self.n_words:,} words; {self.signature}"
        if self.baseline is not None:
            found.append(f"{'baseline':<{width}}  {self.baseline:6.2f}  accuracy of each word's most frequent label")
        if self.entities is not None:
            rows = [["entity", "precision", "recall", "F1", "entities"]]
            for e in [*self.entities.types, self.entities.micro]:
                rows.append([e.type, f"{e.precision:.2f}", f"{e.recall:.2f}", f"{e.f1:.2f}", f"{e.n_entities:,}"])
            found += ["", *columns(rows)]
        rows = [["label", "precision", "recall", "F1", "words"]]
        for c in self.labels.classes:
            rows.append([c.label, f"{c.precision:.2f}", f"{c.recall:.2f}", f"{c.f1:.2f}", f"{c.n_lines:,}"])
        return [*found, "", *columns(rows), "", *columns(self._confusions())]

    def _confusions(self) -> list[list[str]]:
        names, table = [c.label for c in self.labels.classes], self.labels.confusion
        if len(names) <= MOST_COLUMNS:
            rows = [[name, *map(str, row)] for name, row in zip(names, table, strict=True)]
            return [["wanted \\ predicted", *names], *rows]
        wrong = [(n, w, p) for w, row in enumerate(table) for p, n in enumerate(row) if n and w != p]
        wrong.sort(key=lambda cell: (-cell[0], cell[1:]))
        rows = [[names[w], names[p], f"{n:,}"] for n, w, p in wrong[:MOST_CONFUSIONS]]
        return [["wanted", "predicted", "words"], *rows]


def word_report(
    predicted: Labels,
    wanted: Labels,
    labels: Sequence[str],
    *,
    seed: int,
    has_entities: bool,
    baseline: float | None = None,
) -> WordReport:
    """`labels` are those of the model, in its order, and all others that are predicted or wanted.

    `has_entities` says that they are BIO (see `are_bio`), so entities are scored too.
    """
    ours, theirs = ([label for one in sentences for label in one] for sentences in (predicted, wanted))
    table_CC = confusion(ours, theirs, labels)
    numbers = {label: i for i, label in enumerate(labels)}
    counts_N3C = np.zeros((len(wanted), 3, len(labels)), np.int64)  # right, predicted, wanted
    for n, (one, other) in enumerate(zip(predicted, wanted, strict=True)):
        for p, w in zip(one, other, strict=True):
            counts_N3C[n, 0, numbers[w]] += p == w
            counts_N3C[n, 1, numbers[p]] += 1
            counts_N3C[n, 2, numbers[w]] += 1
    right_RC, predicted_RC, wanted_RC = resampled_sums(counts_N3C, seed=seed).transpose(1, 0, 2)
    n_RC = predicted_RC + wanted_RC
    f1_RC: Scores = 200 * right_RC / np.where(n_RC > 0, n_RC, np.nan)
    found = ClassReport(
        accuracy=confidence_interval(float(accuracies(table_CC)), 100 * right_RC.sum(1) / wanted_RC.sum(1)),
        macro_f1=confidence_interval(float(macro_f1s(table_CC)), np.nanmean(f1_RC, axis=1)),
        classes=class_scores(table_CC, labels),
        confusion=table_CC.tolist(),
        seed=seed,
    )
    entities = entity_report(predicted, wanted, seed=seed) if has_entities else None
    return WordReport(found, entities, baseline, len(wanted))


class MostFrequent:
    """The baseline: each word gets its most frequent label in training, an unseen one the most frequent of all.

    Words are the same if their token ids are.
    """

    def __init__(self, train: EncodedCorpus, labels: Sequence[str]) -> None:
        assert train.word_ends is not None
        counts: defaultdict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        ids, ends, targets = train.source_ids, train.word_ends, train.target_ids
        for s, (first, end) in enumerate(pairwise(train.target_offsets.tolist())):
            start = int(train.source_offsets[s])
            its_ids = ids[start : start + int(train.source_lengths[s])].tolist()
            bounds = [0, *(last + 1 for last in ends[first:end].tolist())]
            for (a, b), label in zip(pairwise(bounds), targets[first:end].tolist(), strict=True):
                counts[tuple(its_ids[a:b])][label] += 1
        self.labels = labels
        # Of equally frequent ones, the first in the order of the labels.
        self._most = {word: min(its, key=lambda one: (-its[one], one)) for word, its in counts.items()}
        whole = Counter(targets.tolist())
        self._other = min(whole, key=lambda one: (-whole[one], one))

    def predict(self, sentences: Sequence[Sequence[Sequence[int]]]) -> list[list[str]]:
        """Labels of the words of sentences, each word given by its ids."""
        return [[self.labels[self._most.get(tuple(ids), self._other)] for ids in words] for words in sentences]


def word_accuracy(predicted: Labels, wanted: Labels) -> float:
    """Share of words with the right label, in percent."""
    pairs = [pair for one, other in zip(predicted, wanted, strict=True) for pair in zip(one, other, strict=True)]
    return 100 * sum(p == w for p, w in pairs) / max(1, len(pairs))
