"""The batches that a dry run tries: none of a corpus is larger, and all of their tokens are real."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.toy import run as toy_run
from transformer_cli.data.batching import micro_batches
from transformer_cli.data.cache import EncodedCorpus
from transformer_cli.training.dry_run import BatchShape, batch_of, worst_shapes


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=80), st.integers(1, 300))
@settings(max_examples=100, deadline=None)
def test_no_batch_of_any_corpus_is_larger_than_the_worst_shapes(
    lengths: list[tuple[int, int]], max_tokens: int
) -> None:
    sides = [np.array(side) for side in zip(*lengths, strict=True)]
    corpus = EncodedCorpus.of(*([np.full(length, 5) for length in side] for side in sides))
    longest = int(max(side.max() for side in sides))
    most = max(shape.tokens for shape in worst_shapes(longest, max_tokens))
    for batch in micro_batches(corpus, np.arange(len(lengths)), toy_run.tokenizers(), max_tokens=max_tokens):
        for side in (batch.source_S, batch.target_in_T):
            assert side.numel() <= 1.1 * most + 1


def test_a_batch_of_a_shape_is_full_of_real_tokens_on_both_sides() -> None:
    corpus, tokenizers = toy_run.prepared().train, toy_run.tokenizers()
    batch = batch_of(BatchShape(rows=90, length=13), corpus, tokenizers)
    assert batch.runs == [(90, 13, 13)]
    assert batch.n_target_tokens == 90 * 13
    assert {target[-1] for _, target in batch.pairs()} == {tokenizers.target.eos_id}
