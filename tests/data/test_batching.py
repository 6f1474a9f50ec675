"""Batches: every pair once an epoch, in an order that only seed and step decide, up to so many tokens."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from itertools import groupby

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ROOT, slow
from tests.support.each import each
from tests.toy.run import append
from transformer_cli.config.data import TokenizerConfig
from transformer_cli.data.batching import Batch, BatchPlan, micro_batches
from transformer_cli.data.cache import CorpusWriter, EncodedCorpus
from transformer_cli.data.tokenizer import Tokenizers, train_tokenizer

VOCAB_SIZE = 40


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    lines = ["the cat drank the milk", "le chat a bu le lait", "a bird sat down in the chair"] * 3
    source, target = (train_tokenizer(side, TokenizerConfig(vocab_size=VOCAB_SIZE), seed=1) for side in (lines, lines))
    return Tokenizers(source, target)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, tokenizers: Tokenizers) -> EncodedCorpus:
    """300 pairs of 2 to 30 tokens a side with ids from 4 up and EOS at the end."""
    random = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("corpus")

    def side(eos_id: int) -> list[list[int]]:
        return [[*random.integers(4, VOCAB_SIZE, random.integers(1, 30)).tolist(), eos_id] for _ in range(300)]

    with CorpusWriter(folder, source_vocab_size=VOCAB_SIZE, target_vocab_size=VOCAB_SIZE) as writer:
        append(writer, side(tokenizers.source.eos_id), side(tokenizers.target.eos_id))
    return EncodedCorpus.open(folder, source_vocab_size=VOCAB_SIZE, target_vocab_size=VOCAB_SIZE)


lengths = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=300)
seeds = st.integers(0, 2**31 - 1)


windows = st.sampled_from([1, 7, 50, 1 << 17])  # pairs in each, at most


def plan(pairs: list[tuple[int, int]], *, tokens_per_update: int, seed: int = 1, window: int = 1 << 17) -> BatchPlan:
    source, target = np.array(pairs, np.int32).T
    return BatchPlan(source, target, tokens_per_update=tokens_per_update, seed=seed, pairs_per_window=window)


def epoch(of: BatchPlan, n: int = 0) -> list[list[int]]:
    first = n * of.updates_per_epoch
    return [of.update(step).tolist() for step in range(first, first + of.updates_per_epoch)]


# ---- Which pairs


@settings(deadline=None)
@given(pairs=lengths, budget=st.integers(40, 2000), seed=seeds, n=st.integers(0, 5), window=windows)
def test_every_pair_comes_exactly_once_an_epoch(
    pairs: list[tuple[int, int]], budget: int, seed: int, n: int, window: int
) -> None:
    updates = epoch(plan(pairs, tokens_per_update=budget, seed=seed, window=window), n)
    assert all(updates)
    assert sorted(index for update in updates for index in update) == list(range(len(pairs)))


@settings(deadline=None)
@given(pairs=lengths, budget=st.integers(40, 2000))
def test_every_update_has_about_the_same_number_of_tokens(pairs: list[tuple[int, int]], budget: int) -> None:
    batches = plan(pairs, tokens_per_update=budget)
    tokens = [sum(pairs[index][1] for index in update) for update in epoch(batches)]
    mean = sum(target for _, target in pairs) / batches.updates_per_epoch
    longest = max(target for _, target in pairs)
    as_many_as_there_can_be = batches.updates_per_epoch == sum(tokens) // longest
    assert mean <= 1.5 * budget or as_many_as_there_can_be
    assert mean >= 0.75 * budget or batches.updates_per_epoch == 1
    # Each of the groups that an update is made of misses its share by less than one sentence.
    assert all(abs(n - mean) < 8 * longest for n in tokens)
    assert max(tokens) < 2 * mean


@each("n_pairs, n_updates", [(10, 1), (14, 1), (16, 2), (19, 2), (24, 2), (26, 3), (104, 10), (106, 11)])
def test_updates_are_as_near_to_their_size_as_the_corpus_allows(n_pairs: int, n_updates: int) -> None:
    batches = plan([(5, 10)] * n_pairs, tokens_per_update=100)
    assert batches.updates_per_epoch == n_updates
    assert {len(update) for update in epoch(batches)} <= {n_pairs // n_updates, -(-n_pairs // n_updates)}


def test_there_are_no_more_updates_than_parts_with_room_for_the_longest_sentence() -> None:
    batches = plan([(5, 100), (5, 60)], tokens_per_update=100)
    assert batches.updates_per_epoch == 1


@settings(deadline=None)
@given(pairs=lengths, seed=seeds, steps=st.lists(st.integers(0, 200), max_size=8), window=windows)
def test_an_update_depends_on_seed_and_step_alone(
    pairs: list[tuple[int, int]], seed: int, steps: list[int], window: int
) -> None:
    asked_before = plan(pairs, tokens_per_update=100, seed=seed, window=window)
    for step in steps:
        fresh = plan(pairs, tokens_per_update=100, seed=seed, window=window)
        assert asked_before.update(step).tolist() == fresh.update(step).tolist()


def test_epochs_and_seeds_differ_in_order() -> None:
    pairs = [(1 + i % 20, 1 + i % 20) for i in range(500)]
    orders = [
        [index for update in epoch(plan(pairs, tokens_per_update=200, seed=seed), n) for index in update]
        for seed, n in ((1, 0), (1, 1), (2, 0))
    ]
    assert orders[0] != orders[1] != orders[2] != orders[0]


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (1 << 17, [[4, 1], [2, 0], [6, 8], [9, 5, 3, 7], [4, 1], [2, 0], [9, 5, 3, 7], [6, 8]]),
        (5, [[1, 5, 7], [6, 8], [2, 0], [4, 9, 3], [4, 5, 7], [6, 2], [8, 0], [1, 9, 3]]),
    ],
)
def test_the_order_is_that_of_version_0_1_0_so_that_its_runs_can_go_on(window: int, expected: list[list[int]]) -> None:
    lengths = [3, 5, 2, 7, 4, 6, 1, 8, 2, 5]
    of = plan(list(zip(lengths, reversed(lengths), strict=True)), tokens_per_update=12, seed=7, window=window)
    assert epoch(of, 0) + epoch(of, 1) == expected


def test_an_update_mixes_short_and_long_sentences() -> None:
    pairs = [(1 + i % 40, 1 + i % 40) for i in range(8000)]
    means = [np.mean([pairs[i][1] for i in update]) for update in epoch(plan(pairs, tokens_per_update=16_000))]
    # An update of one length each would range from 1 to 40; mixed ones stay nearer to the corpus's mean.
    assert min(means) > 4
    assert max(means) < 37


def test_in_a_corpus_of_many_windows_updates_stay_near_their_size() -> None:
    random = np.random.default_rng(0)
    pairs = [(int(n), int(n)) for n in random.gamma(2.0, 12.0, 40_000).clip(1, 200)]
    batches = plan(pairs, tokens_per_update=4000, window=4000)
    tokens = np.array([sum(pairs[i][1] for i in update) for update in epoch(batches)])
    assert abs(batches.updates_per_epoch - sum(n for _, n in pairs) / 4000) < 1
    # 4,000 lengths that differ by 17 make 24 each, and a window 96,000 ± 1,075 tokens.
    assert tokens.min() > 0.9 * 4000
    assert tokens.max() < 1.1 * 4000


def test_windows_hold_other_sentences_in_every_epoch_and_from_all_over_the_corpus() -> None:
    batches = plan([(5, 10)] * 10_000, tokens_per_update=100, window=1000)
    first, again = (
        [index for step in range(n * 1000, n * 1000 + 100) for index in batches.update(step)] for n in (0, 1)
    )
    assert 50 < len(set(first) & set(again)) < 200  # 100, if they are drawn at random
    assert np.histogram(first, bins=10, range=(0, 10_000))[0].min() > 50
    assert len(set(np.diff(sorted(first)))) > 20  # an affine shuffle would leave regular gaps


@pytest.mark.parametrize("n_pairs", [slow(1_000_000), pytest.param(100_000_000, marks=pytest.mark.nightly)])
def test_a_step_of_a_huge_corpus_is_found_within_a_second_in_little_memory(
    figures: Callable[[str, str], None], n_pairs: int
) -> None:
    command = [sys.executable, "scripts/bench_data.py", "plan", str(n_pairs)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = json.loads(subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=environment).stdout)
    assert found["n_pairs"] == n_pairs
    assert found["pairs_in_update"] > 500
    assert found["peak_gib"] < 2
    assert found["seek_s"] < 1
    seen = f"{found['peak_gib']:.2f} GiB of a process, any step found in {found['seek_s']:.2f} s"
    figures(f"plan of {n_pairs:,} pairs", seen)


@pytest.mark.parametrize("n_pairs", [1, 2, 3])
def test_C21_a_batch_bigger_than_the_corpus_is_the_corpus(n_pairs: int) -> None:
    batches = plan([(5, 7)] * n_pairs, tokens_per_update=25_000)
    assert batches.updates_per_epoch == 1
    assert [sorted(batches.update(step)) for step in range(3)] == [list(range(n_pairs))] * 3


def test_a_sentence_longer_than_an_update_is_refused() -> None:
    with pytest.raises(AssertionError, match="a target of 41 tokens in updates of 40"):
        plan([(3, 41)], tokens_per_update=40)


def test_a_sentence_of_exactly_an_update_is_an_update() -> None:
    updates = epoch(plan([(3, 40), (3, 40), (3, 1)], tokens_per_update=40))
    assert sorted(map(len, updates)) == [1, 2]
    assert all(len({0, 1} & set(update)) == 1 for update in updates)


# ---- How they stand in tensors


@settings(deadline=None, max_examples=60)
@given(indices=st.lists(st.integers(0, 299), min_size=1, max_size=80, unique=True), max_tokens=st.integers(1, 3000))
def test_the_batches_hold_the_sentences_and_keep_to_the_budget(
    corpus: EncodedCorpus, tokenizers: Tokenizers, indices: list[int], max_tokens: int
) -> None:
    batches = micro_batches(corpus, np.array(indices), tokenizers, max_tokens=max_tokens)
    sides = ((corpus.source_ids, corpus.source_offsets), (corpus.target_ids, corpus.target_offsets))
    pairs = sorted(tuple(ids[offsets[i] : offsets[i + 1]].tolist() for ids, offsets in sides) for i in indices)
    assert sorted(pair for batch in batches for pair in checked(batch, tokenizers)) == pairs
    for batch in batches:
        assert max(len(batch.source_S), batch.n_target_tokens) <= max_tokens or batch.n_pairs == 1
    assert len(batches) == n_greedy([pair for batch in batches for pair in batch.pairs()], max_tokens)


def n_greedy(pairs: list[tuple[list[int], list[int]]], max_tokens: int) -> int:
    """How many batches these pairs make when each takes all that it has room for."""
    n, source, target = 1, 0, 0
    for pair in pairs:
        source, target = source + len(pair[0]), target + len(pair[1])
        if max(source, target) > max_tokens and (source, target) != (len(pair[0]), len(pair[1])):
            n, source, target = n + 1, len(pair[0]), len(pair[1])
    return n


@each("max_tokens", [100, 300, 1000, 2000, 4000])
def test_batches_are_so_equally_large_that_smaller_ones_would_be_more(
    corpus: EncodedCorpus, tokenizers: Tokenizers, max_tokens: int
) -> None:
    batches = micro_batches(corpus, np.arange(300), tokenizers, max_tokens=max_tokens)
    largest = max(max(len(batch.source_S), batch.n_target_tokens) for batch in batches)
    pairs = [pair for batch in batches for pair in batch.pairs()]
    assert n_greedy(pairs, int(0.98 * largest) - 2) > len(batches) > 1


@each(
    "lengths, max_tokens, n_pairs",
    [
        ([(10, 10)] * 10, 50, [5, 5]),
        ([(10, 10)] * 10, 49, [4, 4, 2]),
        ([(10, 3)] * 4, 20, [2, 2]),  # the source alone is full
        ([(3, 10)] * 4, 20, [2, 2]),
        ([(50, 50)] * 2, 50, [1, 1]),
        ([(50, 50)] * 2, 49, [1, 1]),  # a pair is never cut
    ],
)
def test_a_batch_may_have_exactly_max_tokens(
    tokenizers: Tokenizers, lengths: list[tuple[int, int]], max_tokens: int, n_pairs: list[int]
) -> None:
    sides = [
        [[5] * (length - 1) + [tokenizers.source.eos_id] for length in side] for side in zip(*lengths, strict=True)
    ]
    batches = micro_batches(EncodedCorpus.of(*sides), np.arange(len(lengths)), tokenizers, max_tokens=max_tokens)
    assert [batch.n_pairs for batch in batches] == n_pairs


def checked(batch: Batch, tokenizers: Tokenizers) -> list[tuple[list[int], list[int]]]:
    """The pairs of a batch, with everything that it says of them checked on the way."""
    pairs = list(batch.pairs())
    assert batch.source_S.tolist() == [id for source, _ in pairs for id in source]
    assert batch.target_out_T.tolist() == [id for _, target in pairs for id in target]
    assert batch.target_in_T.tolist() == [id for _, target in pairs for id in [tokenizers.target.bos_id, *target[:-1]]]
    assert {source[-1] for source, _ in pairs} == {tokenizers.source.eos_id}
    lengths = [(len(source), len(target)) for source, target in pairs]
    assert [(len(list(same)), *key) for key, same in groupby(lengths)] == batch.runs
    assert lengths == sorted(lengths)
    assert batch.n_pairs == len(pairs)
    assert batch.n_tokens == sum(map(sum, lengths))
    return pairs


@settings(deadline=None, max_examples=60)
@given(indices=st.lists(st.integers(0, 299), min_size=2, max_size=80, unique=True))
def test_the_halves_of_a_batch_hold_its_pairs(
    corpus: EncodedCorpus, tokenizers: Tokenizers, indices: list[int]
) -> None:
    (batch,) = micro_batches(corpus, np.array(indices), tokenizers, max_tokens=10_000)
    first, second = batch.halves()
    assert checked(first, tokenizers) + checked(second, tokenizers) == list(batch.pairs())
    assert first.n_pairs == len(indices) // 2


def test_the_tensors_are_what_the_model_takes(corpus: EncodedCorpus, tokenizers: Tokenizers) -> None:
    (batch,) = micro_batches(corpus, np.arange(5), tokenizers, max_tokens=1000)
    assert {batch.source_S.dtype, batch.target_in_T.dtype, batch.target_out_T.dtype} == {torch.long}


NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])])
def test_a_batch_moves_to_a_device_unchanged(corpus: EncodedCorpus, tokenizers: Tokenizers, device: str) -> None:
    (batch,) = micro_batches(corpus, np.arange(5), tokenizers, max_tokens=1000)
    moved = batch.to(torch.device(device))
    for field in fields(Batch):
        before, after = getattr(batch, field.name), getattr(moved, field.name)
        if isinstance(before, torch.Tensor):
            assert after.device.type == device
            before, after = before.tolist(), after.tolist()
        assert before == after
