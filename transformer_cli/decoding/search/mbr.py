"""Minimum Bayes risk: of many samples the one that is most like all the others (Kumar and Byrne 2004).

What is likely to be meant is said again and again, in other words; what went wrong is said once. Likeness is chrF
(Popović 2015), with the settings and to the last bit the value of sacrebleu's sentence score.

Shapes: U texts that differ, G n-grams in any of them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformer_cli.config.decode import SearchKind
from transformer_cli.decoding.search.greedy import sample
from transformer_cli.decoding.search.request import Hypothesis, Search, Task

CHAR_ORDER, BETA = 6, 2  # sacrebleu's: n-grams of up to so many characters, and how much more recall counts


def consensus(decode: Callable[[Sequence[int]], str]) -> Search:
    """A search that draws `config.n_samples` translations of each sentence and ranks them by what they have in common.

    Score: the mean chrF of a sample's text as a translation whose references are the other samples, in percent. Of
    equals the one goes first that `sample` ranks first: finished before cut, then the likelier. Every text is listed
    once, so that there may be fewer than `config.n_best`.
    """

    def search(task: Task[Any]) -> list[list[Hypothesis]]:
        drawing = replace(task.config, search=SearchKind.sample, n_best=task.config.n_samples)
        drawn = sample(replace(task, config=drawing))
        return [_ranked(hypotheses, decode)[: task.config.n_best] for hypotheses in drawn]

    return search


def _ranked(hypotheses: Sequence[Hypothesis], decode: Callable[[Sequence[int]], str]) -> list[Hypothesis]:
    texts = [decode(hypothesis.ids) for hypothesis in hypotheses]
    scored: dict[str, Hypothesis] = {}
    for text, one, value in zip(texts, hypotheses, mean_chrf(texts), strict=True):
        # Equal samples make a ranking by likelihood a close call, which matters to nobody here.
        scored.setdefault(text, replace(one, score=value, is_close=False))
    return sorted(scored.values(), key=lambda hypothesis: -hypothesis.score)


def mean_chrf(texts: Sequence[str]) -> list[float]:
    """Of each text the mean chrF against all others as references, in percent; one that stands twice counts twice.

    The sum of a mean is exact, so that the order of the texts cannot turn a tie.
    """
    assert len(texts) > 1, "nothing to compare with"
    place = {text: u for u, text in enumerate(dict.fromkeys(texts))}
    chrf_UU = chrf_of_all(list(place)).tolist()
    which = [place[text] for text in texts]
    means = []
    for first in (which.index(u) for u in range(len(place))):
        others = which[:first] + which[first + 1 :]
        means.append(math.fsum(chrf_UU[which[first]][other] for other in others) / len(others))
    return [means[u] for u in which]


def chrf_of_all(texts: Sequence[str]) -> NDArray[np.float64]:
    """chrF of each text (row) with each as its reference (column); each is taken apart once."""
    squeezed = ["".join(text.split()) for text in texts]
    shape = (len(texts), len(texts))
    precision, recall, n_orders = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for order in range(1, CHAR_ORDER + 1):
        counts_UG = _ngram_counts(squeezed, order)
        matches = np.stack([np.minimum(counts_UG, row_G).sum(axis=1) for row_G in counts_UG])
        totals = counts_UG.sum(axis=1)
        both = (totals[:, None] > 0) & (totals[None, :] > 0)  # an order that is too long for a text is left out
        precision += np.divide(matches, totals[:, None], where=both, out=np.zeros(shape))
        recall += np.divide(matches, totals[None, :], where=both, out=np.zeros(shape))
        n_orders += both
    n_orders = np.maximum(n_orders, 1)
    precision, recall = precision / n_orders, recall / n_orders
    nothing = precision + recall == 0
    weighted = BETA**2 * precision + recall
    return 100 * ((1 + BETA**2) * precision * recall / np.where(nothing, 1, weighted))


def _ngram_counts(texts: Sequence[str], order: int) -> NDArray[np.int32]:
    """How often each n-gram of any of the texts is in each of them, [U, G]."""
    columns: dict[str, int] = {}
    cells = [
        (row, columns.setdefault(text[i : i + order], len(columns)))
        for row, text in enumerate(texts)
        for i in range(len(text) - order + 1)
    ]
    counts_UG = np.zeros((len(texts), len(columns)), np.int32)
    if cells:
        np.add.at(counts_UG, tuple(np.array(cells).T), 1)
    return counts_UG
