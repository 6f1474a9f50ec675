"""The best spans of a passage by the logits of their ends, over all windows.

Shapes: P tokens of the passage in a window, A tokens that an answer may have.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_cli.addons.question_answering.questions import END, START
from transformer_cli.addons.question_answering.tokens import PassageTokens

MAX_ANSWER = 30  # tokens, as in BERT's run_squad.py


@dataclass(frozen=True)
class AnswerSpan:
    """An answer: the characters of the passage from `start` on and before `end`, and its score."""

    start: int
    end: int
    text: str
    score: float  # the sum of the logits of both ends
    probability: float  # among all spans of all windows and, for a model that may find none, no answer


@dataclass(frozen=True)
class Prediction:
    """The best answers to a question, best first, and whether there is one."""

    spans: Sequence[AnswerSpan]
    none_score: float | None  # of no answer: the lowest of all windows; None for a model that always answers
    none_probability: float = 0.0
    threshold: float = 0.0

    @property
    def best(self) -> AnswerSpan | None:
        """The answer; None for none, whose score is higher than that of the best span by more than the threshold."""
        if not self.spans:
            return None
        is_none = self.none_score is not None and self.none_score - self.spans[0].score > self.threshold
        return None if is_none else self.spans[0]

    @property
    def text(self) -> str:
        return "" if self.best is None else self.best.text


def predict(
    passage: str,
    tokens: PassageTokens,
    windows: Sequence[range],
    logits: Sequence[Tensor],
    *,
    offset: int,
    may_find_none: bool,
    n_best: int = 1,
    max_answer: int = MAX_ANSWER,
    threshold: float = 0.0,
) -> Prediction:
    """The answers by the logits of each window, [S, 2], in which the passage begins at `offset`."""
    candidates: dict[tuple[int, int], float] = {}
    total, none_scores = torch.tensor(-math.inf, dtype=torch.float64), list[float]()
    for window, logits_S2 in zip(windows, logits, strict=True):
        logits_S2 = logits_S2.double()
        inside_P2 = logits_S2[offset : offset + len(window)]
        scores_PA = span_scores(inside_P2, max_answer)
        total = torch.logaddexp(total, scores_PA.flatten().logsumexp(dim=0))
        none_scores.append(float(logits_S2[0].sum()))
        # Windows overlap, so that one of them may have the best spans of another: n_best of each are enough.
        best, at = scores_PA.flatten().topk(min(n_best, scores_PA.numel()))
        for score, index in zip(best.tolist(), at.tolist(), strict=True):
            first = window.start + index // scores_PA.size(1)
            span = (first, first + index % scores_PA.size(1))
            if math.isfinite(score):
                candidates[span] = max(score, candidates.get(span, -math.inf))
    none_score = min(none_scores) if may_find_none else None
    if none_score is not None:
        total = torch.logaddexp(total, torch.tensor(none_score, dtype=torch.float64))
    ranked = sorted(candidates.items(), key=lambda one: (-one[1], one[0]))[:n_best]
    spans = [
        _span(passage, tokens, first, last, score, math.exp(score - float(total))) for (first, last), score in ranked
    ]
    none_probability = 0.0 if none_score is None else math.exp(none_score - float(total))
    return Prediction(spans, none_score, none_probability, threshold)


def span_scores(logits_P2: Tensor, max_answer: int) -> Tensor:
    """The score of the span from each token with each length, [P, A]; that of a span beyond the end is -inf."""
    longest = min(max_answer, len(logits_P2))
    end_X = torch.nn.functional.pad(logits_P2[:, END], (0, longest - 1), value=-math.inf)
    return logits_P2[:, START, None] + end_X.unfold(0, longest, 1)


def _span(passage: str, tokens: PassageTokens, first: int, last: int, score: float, probability: float) -> AnswerSpan:
    start, end = tokens.starts[first], max(tokens.ends[first : last + 1])
    return AnswerSpan(start, end, passage[start:end], score, probability)
