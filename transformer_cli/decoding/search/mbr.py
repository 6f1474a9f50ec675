"""Minimum Bayes risk (MBR) decoding: of many samples the one most similar to the others (Kumar and Byrne 2004).

Probable meanings are sampled repeatedly in different words, errors once. The similarity is chrF (Popović 2015), with
the settings of sacrebleu's sentence score and equal to it to the last bit.

Shapes: U distinct texts, G n-grams in any of them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformer_cli.decoding.search.registry import SAMPLING_OPTIONS, SearchMethod, register_search
from transformer_cli.decoding.search.request import Hypothesis, SearchRequest
from transformer_cli.decoding.search.sampling import sample

CHAR_ORDER, BETA = 6, 2  # sacrebleu's: the longest n-gram, and how much more recall counts than precision


def mbr_search(request: SearchRequest[Any]) -> list[list[Hypothesis]]:
    """Draw `config.n_samples` translations of each sentence and rank them by their mean similarity to the others.

    Score: the mean chrF of a sample's text with the other samples as references, in percent. Ties keep the order of
    `sample`: finished before truncated, then by likelihood. Every text is listed once, so that there may be fewer than
    `config.n_best`.
    """
    to_text, config = request.to_text, request.config
    assert to_text is not None
    drawing = replace(config, search="sample", n_best=config.n_samples)
    samples = sample(replace(request, config=drawing))
    return [_ranked(hypotheses, to_text)[: config.n_best] for hypotheses in samples]


register_search(
    SearchMethod(
        "mbr",
        mbr_search,
        rows_key="n_samples",
        options=frozenset({*SAMPLING_OPTIONS, "n_samples"}),
        draws=True,
        scores_are_likelihoods=False,
        compares_texts=True,
    )
)


def _ranked(hypotheses: Sequence[Hypothesis], to_text: Callable[[Sequence[int]], str]) -> list[Hypothesis]:
    texts = [to_text(hypothesis.ids) for hypothesis in hypotheses]
    scored: dict[str, Hypothesis] = {}
    for text, one, value in zip(texts, hypotheses, mean_chrf(texts), strict=True):
        # Equal samples are near ties of a ranking by likelihood, which is not used here.
        scored.setdefault(text, replace(one, score=value, is_near_tie=False))
    return sorted(scored.values(), key=lambda hypothesis: -hypothesis.score)


def mean_chrf(texts: Sequence[str]) -> list[float]:
    """The mean chrF of each text against all others as references, in percent; duplicates count.

    The sum of a mean is exact, so that ties do not depend on the order of the texts.
    """
    assert len(texts) > 1, "a single text has no others to compare with"
    index_of = {text: u for u, text in enumerate(dict.fromkeys(texts))}
    chrf_UU = chrf_of_all(list(index_of)).tolist()
    which = [index_of[text] for text in texts]
    means = []
    for first in (which.index(u) for u in range(len(index_of))):
        others = which[:first] + which[first + 1 :]
        means.append(math.fsum(chrf_UU[which[first]][other] for other in others) / len(others))
    return [means[u] for u in which]


def chrf_of_all(texts: Sequence[str]) -> NDArray[np.float64]:
    """chrF of each text (row) with each as its reference (column); n-grams are counted once."""
    squeezed = ["".join(text.split()) for text in texts]
    shape = (len(texts), len(texts))
    precision, recall, n_orders = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for order in range(1, CHAR_ORDER + 1):
        counts_UG = _ngram_counts(squeezed, order)
        matches = np.stack([np.minimum(counts_UG, row_G).sum(axis=1) for row_G in counts_UG])
        totals = counts_UG.sum(axis=1)
        both = (totals[:, None] > 0) & (totals[None, :] > 0)  # an order longer than a text is left out
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
    entries = [
        (row, columns.setdefault(text[i : i + order], len(columns)))
        for row, text in enumerate(texts)
        for i in range(len(text) - order + 1)
    ]
    counts_UG = np.zeros((len(texts), len(columns)), np.int32)
    if entries:
        np.add.at(counts_UG, tuple(np.array(entries).T), 1)
    return counts_UG
