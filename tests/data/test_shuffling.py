"""Mixtures of corpora, in permutations with random access."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.each import each
from transformer_cli.data.batching import BatchPlan
from transformer_cli.data.shuffling import Mixture, Part, permutation_at, times_per_epoch

seeds = st.integers(0, 2**31 - 1)


# ---- The shuffle


@given(n=st.integers(1, 3000), seed=seeds)
def test_positions_found_one_by_one_form_a_permutation(n: int, seed: int) -> None:
    def shuffled(positions: list[int]) -> list[int]:
        random = np.random.Philox(key=np.array([seed, 0], np.uint64))
        return permutation_at(np.array(positions), n, random).tolist()

    every = shuffled(list(range(n)))
    assert sorted(every) == list(range(n))
    assert shuffled([n // 2]) == [every[n // 2]]


def test_permutations_are_uniform() -> None:
    hits = np.zeros((20, 20))
    for seed in range(4000):
        random = np.random.Philox(key=np.array([seed, 0], np.uint64))
        hits[np.arange(20), permutation_at(np.arange(20), 20, random)] += 1
    # χ² of 400 bins with 361 degrees of freedom: 361 ± 27 for an even shuffle; 5 σ are allowed.
    assert ((hits - 200) ** 2 / 200).sum() < 361 + 5 * 27


# ---- The mixture


def plan(parts: list[Part], *, seed: int = 1, window: int = 1000, tokens_per_update: int = 200) -> BatchPlan:
    """The plan of batches for sentences of 1 to 20 tokens."""
    lengths = np.random.default_rng(0).integers(1, 21, sum(part.n_pairs for part in parts)).astype(np.int32)
    sizes = {"tokens_per_update": tokens_per_update, "pairs_per_window": window}
    return BatchPlan(lengths, lengths, seed=seed, parts=parts, **sizes)


def epoch(of: BatchPlan, n: int) -> list[int]:
    first = n * of.updates_per_epoch
    return [index for step in range(first, first + of.updates_per_epoch) for index in of.update(step).tolist()]


parts = st.lists(st.builds(Part, st.integers(0, 60), st.sampled_from([1, 2, 3, 7])), min_size=1, max_size=4)


@settings(deadline=None)
@given(parts.filter(lambda parts: any(part.n_pairs for part in parts)), st.sampled_from([5, 1000]), st.integers(0, 3))
def test_an_epoch_repeats_each_corpus_by_its_times(parts: list[Part], window: int, n: int) -> None:
    times = Counter(epoch(plan(parts, window=window), n))
    expected = [part.times for part in parts for _ in range(part.n_pairs)]
    assert [times[index] for index in range(len(expected))] == expected


@each("times, n_epochs", [(0.5, 2), (0.25, 4), (1.5, 2), (2.2, 5)])
def test_sentences_that_one_epoch_omits_are_in_the_next_ones(times: float, n_epochs: int) -> None:
    batches = plan([Part(300, 1), Part(100, times)])
    seen = [Counter(epoch(batches, n)) for n in range(n_epochs)]
    for counts in seen:
        assert all(counts[index] == 1 for index in range(300))
        assert sum(counts[index] for index in range(300, 400)) == round(100 * times)
    assert {sum(counts[index] for counts in seen) for index in range(300, 400)} == {round(times * n_epochs)}


def test_updates_have_the_proportions_of_the_epoch() -> None:
    batches = plan([Part(9000, 1), Part(1000, 9)], tokens_per_update=2000)
    shares = [np.mean(batches.update(step) >= 9000) for step in range(batches.updates_per_epoch)]
    # 190 sentences of which each is from the second corpus half of the time: 0.5 ± 0.036.
    assert 0.49 < np.mean(shares) < 0.51
    assert np.std(shares) < 0.06


@settings(deadline=None, max_examples=30)
@given(seeds, st.lists(st.integers(0, 400), max_size=6))
def test_an_update_of_a_mixture_depends_on_seed_and_step_alone(seed: int, steps: list[int]) -> None:
    mixture = [Part(50, 1), Part(30, 2.5), Part(20, 0.3)]
    asked_before = plan(mixture, seed=seed, window=40)
    for step in steps:
        assert asked_before.update(step).tolist() == plan(mixture, seed=seed, window=40).update(step).tolist()


def test_the_order_of_a_mixture_stays_what_it_was_so_that_runs_can_go_on() -> None:
    mixture = Mixture([Part(7, 1.0), Part(5, 1.5), Part(3, 0.5)], seed=3)
    assert [mixture.sentences(np.arange(mixture.n_pairs), epoch).tolist() for epoch in range(3)] == [
        [3, 4, 1, 6, 5, 0, 2, 7, 9, 8, 11, 10, 7, 9, 8, 13, 14],
        [3, 4, 1, 6, 5, 0, 2, 11, 10, 7, 9, 8, 11, 10, 7, 12, 13],
        [3, 4, 1, 6, 5, 0, 2, 9, 8, 11, 10, 7, 9, 8, 11, 14, 12],
    ]
    assert mixture.total(np.arange(1, 16)) == 28 + 80 + 28  # lengths 1 to 7, 8 to 12, 13 to 15


def test_the_orders_in_which_corpora_repeat_differ_with_the_seed() -> None:
    first_half = [{i for i in epoch(plan([Part(10, 1), Part(90, 0.5)], seed=seed), 0) if i >= 10} for seed in (1, 2)]
    assert first_half[0] != first_half[1]


# ---- Weights and temperature


def test_without_a_temperature_weights_are_times_an_epoch() -> None:
    assert times_per_epoch([1000, 10], [1.0, 2.5], 1.0) == [1.0, 2.5]


@pytest.mark.parametrize(
    ("temperature", "shares"),
    [
        (1.0, [0.9, 0.1]),
        (2.0, [0.75, 0.25]),  # √900 : √100 = 3 : 1
        (1000.0, [0.5, 0.5]),
    ],
)
def test_a_temperature_makes_shares_of_tokens_more_equal(temperature: float, shares: list[float]) -> None:
    tokens = [900, 100]
    times = times_per_epoch(tokens, [1.0, 1.0], temperature)
    found = [n * each for n, each in zip(tokens, times, strict=True)]
    assert sum(found) == pytest.approx(1000)
    assert [n / 1000 for n in found] == pytest.approx(shares, abs=2e-3)


def test_weights_shift_the_shares_of_a_temperature() -> None:
    times = times_per_epoch([900, 100], [1.0, 3.0], 2.0)
    assert 900 * times[0] == pytest.approx(100 * times[1])  # 3 : 1 × 3


def test_a_corpus_of_which_nothing_is_left_takes_no_part() -> None:
    assert times_per_epoch([900, 0], [1.0, 1.0], 2.0) == [1.0, 0.0]
