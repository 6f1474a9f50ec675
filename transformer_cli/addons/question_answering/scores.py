"""Exact match and F1 of answers, as SQuAD defines them (evaluate-v2.0.py of Rajpurkar et al. 2018).

Answers are compared in small letters, without punctuation, articles and superfluous white space. Of several right ones
the best counts. A question without an answer is right if none is given.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from transformer_cli.addons.classification.scores import (
    LEVEL,
    RESAMPLES,
    ConfidenceInterval,
    columns,
    confidence_interval,
    resampled_sums,
)

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized_answer(text: str) -> str:
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def exact_match(predicted: str, wanted: Sequence[str]) -> float:
    """1 if the answer is one of those that are wanted, else 0; none are wanted of a question without an answer."""
    ours = normalized_answer(predicted)
    return float(any(ours == normalized_answer(one) for one in _golds(wanted)))


def f1(predicted: str, wanted: Sequence[str]) -> float:
    """The F1 of the words of the answer, 0 to 1, with the one that is wanted that has most in common with it."""
    return max(_word_f1(normalized_answer(predicted).split(), normalized_answer(one).split()) for one in _golds(wanted))


def _golds(wanted: Sequence[str]) -> Sequence[str]:
    return [one for one in wanted if normalized_answer(one)] or [""]


def _word_f1(ours: Sequence[str], theirs: Sequence[str]) -> float:
    if not ours or not theirs:
        return float(ours == theirs)
    n_same = (Counter(ours) & Counter(theirs)).total()
    if n_same == 0:
        return 0.0
    precision, recall = n_same / len(ours), n_same / len(theirs)
    return 2 * precision * recall / (precision + recall)


def mean_scores(predicted: Sequence[str], wanted: Sequence[Sequence[str]]) -> tuple[float, float]:
    """The means of exact match and F1 over all questions, in percent."""
    rows = list(zip(predicted, wanted, strict=True))
    n = max(1, len(rows))
    return 100 * sum(exact_match(*row) for row in rows) / n, 100 * sum(f1(*row) for row in rows) / n


@dataclass(frozen=True)
class PartScore:
    """The scores of the questions with an answer, or of those without, in percent."""

    part: str
    exact_match: float
    f1: float
    n_questions: int


@dataclass(frozen=True)
class AnswerReport:
    exact_match: ConfidenceInterval
    f1: ConfidenceInterval
    parts: list[PartScore]  # where there are questions of both kinds
    n_questions: int
    seed: int

    @property
    def signature(self) -> str:
        return f"bootstrap of questions, {LEVEL:.0%} percentile, {RESAMPLES:,} resamples, seed {self.seed}"

    def as_dict(self, **facts: object) -> dict[str, Any]:
        found = asdict(self)
        return {**facts, "questions": found.pop("n_questions"), **found, "interval": self.signature}

    def lines(self) -> list[str]:
        """The report for people."""
        scores = {"exact match": self.exact_match, "F1": self.f1}
        found = [f"{name:<11}  {s.score:6.2f}  [{s.low:.2f}, {s.high:.2f}]" for name, s in scores.items()]
        found[0] += f"  of {self.n_questions:,} questions; {self.signature}"
        if self.parts:
            rows = [["questions", "exact match", "F1", "number"]]
            rows += [[p.part, f"{p.exact_match:.2f}", f"{p.f1:.2f}", f"{p.n_questions:,}"] for p in self.parts]
            found += ["", *columns(rows)]
        return found


def answer_report(predicted: Sequence[str], wanted: Sequence[Sequence[str]], *, seed: int) -> AnswerReport:
    rows = list(zip(predicted, wanted, strict=True))
    scores_N2 = 100 * np.array([[exact_match(*row), f1(*row)] for row in rows])
    means_R2 = resampled_sums(scores_N2, seed=seed) / len(rows)
    em, word_f1 = (confidence_interval(float(scores_N2[:, i].mean()), means_R2[:, i]) for i in (0, 1))
    has_answer_N = np.array([bool(one) for one in wanted])
    parts = []
    if not has_answer_N.all() and has_answer_N.any():
        for name, chosen_N in (("with an answer", has_answer_N), ("without", ~has_answer_N)):
            mean_2 = scores_N2[chosen_N].mean(axis=0)
            parts.append(PartScore(name, float(mean_2[0]), float(mean_2[1]), int(chosen_N.sum())))
    return AnswerReport(em, word_f1, parts, len(rows), seed)
