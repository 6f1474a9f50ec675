"""Length buckets: padded attention in a few calls gives what a call for each length gives."""

from itertools import combinations, pairwise

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.support.each import each
from transformer_cli.data.batching import Batch, Run
from transformer_cli.data.length_buckets import MOST_BUCKETS, MULTIPLE, NEARLY_LEAST, bucketed, length_buckets
from transformer_cli.models.attention import attend
from transformer_cli.models.kernel_choice import PackedKernel
from transformer_cli.models.layouts import PackedLayout
from transformer_cli.training.forward import inputs

CPU, META = torch.device("cpu"), torch.device("meta")
RUNS = st.lists(st.builds(Run, st.integers(1, 5), st.integers(1, 90), st.integers(1, 90)), min_size=1, max_size=100)


def batch_of(runs: list[Run]) -> Batch:
    """Token ids that say which pair they are of."""
    sides = [[n for run in runs for n in [run[side]] * run.n_pairs] for side in (1, 2)]
    source_S, target_T = (torch.arange(len(side)).repeat_interleave(torch.tensor(side)) for side in sides)
    return Batch(source_S, target_T, target_T, runs)


def padded_tokens(buckets: list[Run]) -> int:
    return sum(bucket.n_pairs * (bucket.source_length + bucket.target_length) for bucket in buckets)


@given(RUNS)
def test_buckets_are_few_and_hold_all_pairs_in_order(runs: list[Run]) -> None:
    buckets = length_buckets(runs)
    assert len(buckets) <= MOST_BUCKETS
    pairs = [run for run in runs for _ in range(run.n_pairs)]
    places = [bucket for bucket in buckets for _ in range(bucket.n_pairs)]
    for pair, bucket in zip(pairs, places, strict=True):
        assert pair.source_length <= bucket.source_length
        assert pair.target_length <= bucket.target_length
        assert not bucket.source_length % MULTIPLE


@given(st.lists(st.builds(Run, st.integers(1, 5), st.integers(1, 90), st.integers(1, 90)), min_size=1, max_size=9))
def test_no_other_bounds_need_less_padding(runs: list[Run]) -> None:
    """Compared with all ways to cut, and more buckets would hardly help."""

    def up(n: int) -> int:
        return -(-n // MULTIPLE) * MULTIPLE

    def bucket(part: list[Run]) -> Run:
        lengths = (up(max(run[side] for run in part)) for side in (1, 2))
        return Run(sum(run.n_pairs for run in part), *lengths)

    buckets = length_buckets(runs)
    least = [
        min(
            padded_tokens([bucket(runs[start:end]) for start, end in pairwise((0, *cuts, len(runs)))])
            for cuts in combinations(range(1, len(runs)), n_buckets - 1)
        )
        for n_buckets in range(1, min(MOST_BUCKETS, len(runs)) + 1)
    ]
    assert padded_tokens(buckets) == least[len(buckets) - 1] <= NEARLY_LEAST * least[-1]
    assert all(more > NEARLY_LEAST * least[-1] for more in least[: len(buckets) - 1])


def test_lengths_of_a_corpus_fill_their_buckets() -> None:
    random = np.random.default_rng(0)
    sources = np.clip(random.lognormal(3.2, 0.6, 860), 1, 128).astype(int)
    targets = np.clip(sources * random.uniform(0.9, 1.2, 860), 1, 128).astype(int)
    runs = sorted(Run(1, int(source), int(target)) for source, target in zip(sources, targets, strict=True))
    assert (sources.sum() + targets.sum()) / padded_tokens(length_buckets(runs)) > 0.75


def layouts(runs: list[Run], kernel: PackedKernel, device: torch.device = CPU) -> tuple[PackedLayout, PackedLayout]:
    found = inputs(batch_of(runs), device, kernel)
    return found.source, found.target


MIXED = [Run(2, 3, 4), Run(1, 5, 1), Run(3, 30, 25), Run(1, 90, 60)]


@each("kernel", [PackedKernel.buckets, PackedKernel.varlen])
@each("way", ["encoder", "decoder", "cross"])
def test_every_kernel_gives_the_attention_of_one_call_for_each_length(kernel: PackedKernel, way: str) -> None:
    torch.manual_seed(0)
    side = {"encoder": (0, 0), "decoder": (1, 1), "cross": (1, 0)}[way]
    n_tokens = [sum(run.n_pairs * run[1 + one] for run in MIXED) for one in (side[0], side[1], side[1])]
    qkv = [torch.randn(n, 2, 8, dtype=torch.float64) for n in n_tokens]

    def attended(kernel: PackedKernel) -> list[Tensor]:
        leaves = [x.clone().requires_grad_() for x in qkv]
        both = layouts(MIXED, kernel)
        y = attend(*leaves, both[side[0]], both[side[1]], causal=way == "decoder")
        weights = torch.arange(y.numel(), dtype=y.dtype).view_as(y).cos()
        return [y.detach(), *torch.autograd.grad((y * weights).sum(), leaves)]

    for one, other in zip(attended(kernel), attended(PackedKernel.per_length), strict=True):
        torch.testing.assert_close(one, other)


def test_a_batch_with_buckets_keeps_its_tokens() -> None:
    batch = bucketed(batch_of(MIXED))
    found = inputs(batch, CPU, PackedKernel.buckets)
    assert torch.equal(found.source_S.long(), batch.source_S)
    assert torch.equal(found.target_out_T, batch.target_out_T)
    buckets = found.source.buckets
    assert buckets is not None
    rows = torch.cat(
        [x_NHLE[:, 0, :, 0].flatten() for x_NHLE in buckets.pad(batch.source_S[:, None, None].float() + 1)]
    )
    assert int((rows > 0).sum()) == len(batch.source_S)
    for mask_N11L, x_NHLE in zip(
        buckets.masks_N11L(), buckets.pad(batch.source_S[:, None, None].float() + 1), strict=True
    ):
        assert torch.equal(mask_N11L[:, 0, 0], x_NHLE[:, 0, :, 0] > 0)
        for row_L, mask_L in zip(x_NHLE[:, 0, :, 0], mask_N11L[:, 0, 0], strict=True):
            assert len(row_L[mask_L].unique()) == 1  # the tokens of one sentence


def test_dropout_of_attention_drops_in_each_bucket() -> None:
    torch.manual_seed(0)
    source, _ = layouts(MIXED, PackedKernel.buckets)
    q = torch.randn(int(source.positions.numel()), 2, 8)
    one, again, without = (attend(q, q, q, source, source, dropout=p) for p in (0.5, 0.5, 0.0))
    for start, end in ((0, 11), (11, 101), (101, 191)):
        assert not torch.allclose(one[start:end], again[start:end])
        assert not torch.allclose(one[start:end], without[start:end])
