"""The lexicon against IBM model 1 written out, and the scores of pairs by its definition."""

import math

import numpy as np
import pytest

from tests.data.cleaning.noise import sound_pairs, texts
from transformer_cli.data.cleaning.lexicon import _BACKOFF, _DISCOUNT, _ITERATIONS, estimated

PAIRS = [
    ("the house", "das haus"),
    ("the book", "das buch"),
    ("a book", "ein buch"),
    ("a house", "ein haus"),
    ("the small house", "das kleine haus"),
    ("a small book", "ein kleine buch"),
] * 3


def model_1(pairs: list[tuple[list[str], list[str]]]) -> dict[tuple[str, str], float]:
    """The discounted probabilities t(target | source) of Brown et al. 1993, section 4.1, without the empty word."""
    links = {(s, t) for source, target in pairs for s in source for t in target}
    probability = dict.fromkeys(links, 1.0)
    for _ in range(_ITERATIONS):
        counts = dict.fromkeys(links, 0.0)
        for source, target in pairs:
            for t in target:
                total = sum(probability[s, t] for s in source)
                for s in source:
                    counts[s, t] += probability[s, t] / total
        totals = {s: sum(n for (other, _), n in counts.items() if other == s) for s, _ in links}
        probability = {(s, t): counts[s, t] / totals[s] for s, t in links}
    return {(s, t): max(counts[s, t] - _DISCOUNT, 0) / max(totals[s] - _DISCOUNT, _DISCOUNT) for s, t in links}


def test_scores_are_those_of_model_1_in_both_directions() -> None:
    split = [(source.split(), target.split()) for source, target in PAIRS]
    forward, backward = model_1(split), model_1([(target, source) for source, target in split])
    counts = [{}, {}]  # type: list[dict[str, int]]
    for pair in split:
        for side, found in zip(pair, counts, strict=True):
            for word in set(side):
                found[word] = found.get(word, 0) + 1
    size = 1 << 16
    frequency = [
        {word: (n + 0.5) / (sum(found.values()) + 0.5 * size) for word, n in found.items()} for found in counts
    ]

    def score(source: list[str], target: list[str]) -> float:
        total = 0.0
        for ours, theirs, table, known in ((target, source, forward, 1), (source, target, backward, 0)):
            gains = [
                math.log(_BACKOFF + (1 - _BACKOFF) * max(table.get((o, w), 0.0) for o in theirs) / frequency[known][w])
                for w in ours
            ]
            total += sum(gains) / len(gains)
        return total

    lexicon = estimated(texts(PAIRS))[0]
    others = [*PAIRS[:6], ("the house", "ein buch"), ("small book", "haus")]
    expected = [score(source.split(), target.split()) for source, target in others]
    np.testing.assert_allclose(lexicon.scores(*lexicon.words(texts(others))), expected, rtol=1e-9)


def test_a_pair_without_a_known_word_has_no_score() -> None:
    lexicon = estimated(texts(PAIRS))[0]
    assert np.isnan(lexicon.scores(*lexicon.words(texts([("unknown", "haus"), ("house", "...")])))).all()


def test_a_pair_is_no_evidence_for_itself() -> None:
    """Words that meet in one pair only translate nothing, however well they would explain each other."""
    once = ("zebra zebra lion", "zebra löwe")
    lexicon = estimated(
        texts([*PAIRS, once, ("zebra", "haus"), ("lion", "buch"), ("house", "zebra"), ("book", "löwe")])
    )[0]
    of_once, of_known = lexicon.scores(*lexicon.words(texts([once, ("the house", "das haus")])))
    assert of_once == pytest.approx(2 * math.log(_BACKOFF))
    assert of_known > 0


def test_translations_score_above_unrelated_lines() -> None:
    pairs = list(sound_pairs(2000))
    lexicon = estimated(texts(pairs))[0]
    own = lexicon.scores(*lexicon.words(texts(pairs)))
    shuffled = [(source, pairs[(index + 500) % 2000][1]) for index, (source, _) in enumerate(pairs)]
    other = lexicon.scores(*lexicon.words(texts(shuffled)))
    assert np.quantile(own, 0.01) > np.quantile(other, 0.95)
