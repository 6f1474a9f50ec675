"""Batches padded to fixed sizes: all tokens are kept, and the padding is sentences without loss."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_cli.addons.benchmarks.workload import random_sentences
from transformer_cli.data.batching import Batch, BatchPlan, Run
from transformer_cli.data.fixed_size import (
    IGNORE_INDEX,
    MOST_SIZES,
    PaddedTensors,
    Side,
    Sizes,
    constant_sizes,
    padded,
    size_for,
)

LONGEST = 40
runs = st.lists(
    st.builds(Run, st.integers(1, 20), st.integers(1, LONGEST), st.integers(1, LONGEST)), min_size=1, max_size=12
)


def batch(of: list[Run]) -> Batch:
    """A batch whose ids are their positions."""
    n_source, n_target = (sum(run.n_pairs * run[side] for run in of) for side in (1, 2))
    target_T = torch.arange(n_target) + 10
    return Batch(torch.arange(n_source) + 10, target_T.roll(1), target_T, of)


def lengths(side: Side) -> list[int]:
    return side.starts.diff().tolist()


@settings(deadline=None)
@given(of=runs, longest=st.integers(1, 300))
def test_padding_keeps_the_batch_and_consists_of_whole_sentences(of: list[Run], longest: int) -> None:
    one = batch(of)
    sizes = Sizes.around([Sizes.of(one)], longest=longest)
    found = PaddedTensors.of(padded(one, sizes), sizes)
    pairs = [(run.source_length, run.target_length) for run in of for _ in range(run.n_pairs)]
    for tokens, real, side, number in (
        (found.source_S, one.source_S, found.source, 0),
        (found.target_in_T, one.target_in_T, found.target, 1),
        (found.target_out_T, one.target_out_T, found.target, 1),
    ):
        assert tokens[: len(real)].tolist() == real.tolist()
        assert lengths(side)[: len(pairs)] == [pair[number] for pair in pairs]
        assert side.starts[0] == 0
        assert side.starts[-1] == len(tokens) == len(side.positions)  # every token is in a sentence
        assert max(lengths(side)) <= sizes.longest
        assert side.positions.tolist() == [n for length in lengths(side) for n in range(length)]
    assert set(found.target_out_T[len(one.target_out_T) :].tolist()) <= {IGNORE_INDEX}
    assert found.source_S.min() >= 0  # ids that an embedding has
    assert found.target_in_T.min() >= 0
    assert len(lengths(found.source)) == len(lengths(found.target)) == sizes.n_pairs
    assert all(
        (source == 0) == (target == 0)
        for source, target in zip(*map(lengths, (found.source, found.target)), strict=True)
    )


@settings(deadline=None)
@given(many=st.lists(runs, min_size=1, max_size=20), other=runs)
def test_every_batch_finds_a_size_and_those_expected_a_constant_one(many: list[list[Run]], other: list[Run]) -> None:
    expected = [batch(of) for of in many]
    constant = constant_sizes(map(Sizes.of, expected), longest=LONGEST)
    assert len(constant) <= MOST_SIZES + 1
    for one in [*expected, batch(other)]:
        assert size_for(one, constant).hold(Sizes.of(one))
    for one in expected:
        assert any(sizes.hold(Sizes.of(one)) for sizes in constant)


def test_half_a_batch_gets_a_smaller_size() -> None:
    whole = batch([Run(200, 20, 20)])
    constant = constant_sizes([Sizes.of(whole)], longest=LONGEST)
    half, _ = whole.halves()
    quarter, _ = half.halves()
    n_tokens = [size_for(one, constant).n_tokens for one in (whole, half, quarter)]
    assert n_tokens == sorted(n_tokens, reverse=True)
    assert n_tokens[2] < 0.5 * n_tokens[0]


def test_updates_of_similar_size_share_one_fixed_size() -> None:
    random = np.random.default_rng(0)
    expected = [Sizes(*random.integers(24_800, 25_200, 2).tolist(), 850, 60) for _ in range(50)]
    constant = constant_sizes(expected, longest=128)
    assert len(constant) == 2  # with the one for what is larger than expected
    assert sum(sizes.n_tokens for sizes in expected) > 0.98 * len(expected) * constant[0].n_tokens


def test_updates_of_different_sizes_get_several() -> None:
    expected = [Sizes(source, 25_000, 850, 60) for source in range(20_000, 31_000, 200)]
    constant = constant_sizes(expected, longest=128)
    assert len(constant) == MOST_SIZES + 1
    n_padded = sum(next(one for one in constant if one.hold(sizes)).n_tokens for sizes in expected)
    assert sum(sizes.n_tokens for sizes in expected) > 0.96 * n_padded


def test_large_updates_of_one_size_have_two_percent_padding() -> None:
    corpus = random_sentences(8000, longest=256, seed=1)  # as long as those of WMT
    plan = BatchPlan(corpus.source_lengths, corpus.target_lengths, tokens_per_update=25_000, seed=1)
    taken = []
    for step in range(150):
        update = plan.update(step)
        sides = corpus.source_lengths[update], corpus.target_lengths[update]
        source, target = (int(side.sum()) for side in sides)
        taken.append(Sizes(source, target, len(update), max(int(side.max()) for side in sides)))
    expected, later = taken[:50], taken[50:]
    first, _ = constant_sizes(expected, longest=256)
    held = [sizes for sizes in later if first.hold(sizes)]
    assert len(held) >= 98
    assert sum(sizes.n_tokens for sizes in held) / (len(held) * first.n_tokens) >= 0.98
