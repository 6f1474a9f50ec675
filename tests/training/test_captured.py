"""Passes replayed as CUDA graphs are the passes without them: on a CPU, where a replay is the same work done anew."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.toy.run import CPU, MODEL, config, tokenizers
from tests.training.test_compiled import LONGEST, OF_TORCH, batches, uncompiled
from transformer_cli.config.train import Compile, Precision
from transformer_cli.data.fixed_size import FixedSizeBatch
from transformer_cli.models.kernel_choice import Gpu
from transformer_cli.training import captured, compiled
from transformer_cli.training.captured import Captured, CapturedPasses
from transformer_cli.training.compiled import chosen_ways
from transformer_cli.training.consistency import rdrop_loss
from transformer_cli.training.loss import smoothed_nll
from transformer_cli.training.trainer import Trainer


class SameWork:
    """A graph that does what was captured once more, on the tensors that it was given."""

    def __init__(self, work: Any, batch: FixedSizeBatch) -> None:
        self.work, self.sizes, self.n_replays = work, batch.sizes, 0
        self.memory, self.n_tokens, self.sums = batch.memory.clone(), torch.ones(()), torch.zeros(2)

    def replay(self) -> None:
        self.n_replays += 1
        self.sums.copy_(self.work(self.memory, self.sizes, self.n_tokens))


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[SameWork]:
    """What has been captured; graphs are allowed on a CPU."""
    found: list[SameWork] = []

    def capture(self: CapturedPasses, batch: FixedSizeBatch) -> Captured:
        found.append(SameWork(self._work, batch))
        return Captured(found[-1].memory, found[-1].n_tokens, found[-1].sums, found[-1])

    monkeypatch.setattr(CapturedPasses, "_capture", capture)
    monkeypatch.setattr(compiled, "_reason_against_graphs", lambda *args, **kwargs: None)
    uncompiled(monkeypatch)
    return found


def trained(
    compile: Compile, *, n_updates: int = 8, dropout: float = 0.1, rdrop: float = 0.0
) -> tuple[Trainer, list[float]]:
    settings = config(model=replace(MODEL, dropout=dropout), compile=compile, rdrop=rdrop)
    one, losses = Trainer(settings, tokenizers(), CPU), []
    one.expect(batches(), longest=LONGEST)
    for step in range(1, n_updates + 1):
        ready = one.ready(batches(seed=step)[:2])  # two in an update: gradients are added up
        losses.append(one.train_step(ready, step=step, lr=0.001).loss.item())
    return one, losses


@OF_TORCH
def test_replays_train_as_the_same_passes_without_them(graphs: list[SameWork], monkeypatch: pytest.MonkeyPatch) -> None:
    replayed, losses = trained(Compile.graphs)
    assert graphs, "nothing was captured"
    assert sum(graph.n_replays for graph in graphs) > 8
    monkeypatch.setattr(captured, "_FIRST", 10**6)  # never captured: as what a resumed run begins with
    eager, expected = trained(Compile.graphs)
    assert losses == expected
    for one, other in zip(replayed.model.parameters(), eager.model.parameters(), strict=True):
        assert torch.equal(one, other)


@OF_TORCH
def test_a_graph_that_cannot_be_made_is_done_without(
    graphs: list[SameWork], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _, expected = trained(Compile.graphs)

    def too_small(self: CapturedPasses, batch: FixedSizeBatch) -> Captured:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(CapturedPasses, "_capture", too_small)
    caplog.clear()
    _, losses = trained(Compile.graphs)
    assert losses == expected
    said = [record.getMessage() for record in caplog.records]
    assert said == ["training goes on without CUDA graphs, as capturing one fails (the memory is too small)"]


@OF_TORCH
@pytest.mark.parametrize("rdrop", [0.0, 3.0])
def test_what_is_not_compiled_is_replayed_with_the_same_numbers(
    rdrop: float, graphs: list[SameWork], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short run: padded batches through layers as they are written, and the loss that knows of padding."""
    monkeypatch.setattr(compiled, "chosen_ways", lambda *args, **kwargs: compiled.Ways(compiles=False, captures=True))
    _, losses = trained(Compile.graphs, dropout=0.0, rdrop=rdrop)
    assert graphs
    _, expected = trained(Compile.none, dropout=0.0, rdrop=rdrop)
    assert losses == pytest.approx(expected, rel=1e-5)


@OF_TORCH
def test_a_batch_that_fits_no_size_passes_twice_as_well(
    graphs: list[SameWork], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "chosen_ways", lambda *args, **kwargs: compiled.Ways(compiles=False, captures=True))
    monkeypatch.setattr(compiled.CompiledLoss, "expect", lambda *args, **kwargs: None)
    _, losses = trained(Compile.graphs, dropout=0.0, rdrop=3.0)
    assert not graphs
    _, expected = trained(Compile.none, dropout=0.0, rdrop=3.0)
    assert losses == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("n_passes", [1, 2])
def test_padding_adds_nothing_to_the_loss_or_its_gradient(n_passes: int) -> None:
    torch.manual_seed(0)
    logits_PKV = torch.randn(n_passes, 7, 11, dtype=torch.float64)
    targets_K = torch.tensor([3, -1, 0, 10, -1, 2, 5])
    is_real_K = targets_K >= 0
    loss_of = partial(rdrop_loss, alpha=3.0) if n_passes == 2 else smoothed_nll

    def of(logits_PKV: Tensor, targets_K: Tensor, **options: Any) -> tuple[float, float, Tensor]:
        leaf = logits_PKV.clone().requires_grad_()
        loss, nll = loss_of(leaf.flatten(0, 1) * 1, targets_K, smoothing=0.1, **options)
        loss.backward()  # type: ignore[no-untyped-call]
        assert leaf.grad is not None
        return loss.item(), nll.item(), leaf.grad

    loss, nll, grad_PKV = of(logits_PKV, targets_K, has_padding=True)
    wanted_loss, wanted_nll, wanted_PKV = of(logits_PKV[:, is_real_K], targets_K[is_real_K])
    assert (loss, nll) == pytest.approx((wanted_loss, wanted_nll))
    torch.testing.assert_close(grad_PKV[:, is_real_K], wanted_PKV)
    assert not grad_PKV[:, ~is_real_K].any()


@pytest.mark.parametrize(
    ("changes", "n_ranks", "compiles", "captures"),
    [
        ({}, 1, True, True),
        ({"max_steps": 500}, 1, False, True),
        ({}, 2, True, False),
        ({"activation_checkpointing": True}, 1, True, False),
        ({"model": replace(MODEL, d_model=64, layer_drop=0.1)}, 1, True, False),
        ({"precision": Precision.fp32}, 1, False, False),
        ({"rdrop": 3.0}, 1, False, True),
        ({"simcut": 3.0}, 1, False, False),
    ],
)
def test_auto_captures_what_a_graph_can_hold(
    changes: dict[str, Any], n_ranks: int, compiles: bool, captures: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Gpu, "of", lambda device: Gpu((9, 0), has_flash=True, has_varlen=True))
    usual = {"max_steps": 5000, "tokens_per_update": 25_000, "max_tokens_per_microbatch": 25_000}
    settings = config(**{**usual, "model": replace(MODEL, d_model=64), **changes})
    dtype = torch.float32 if "precision" in changes else torch.bfloat16
    assert chosen_ways(settings, torch.device("cuda"), dtype, n_ranks=n_ranks) == (compiles, captures)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@OF_TORCH
@pytest.mark.parametrize("max_steps", [500, 5000], ids=["as written", "compiled"])
def test_on_a_gpu_replays_give_the_bits_of_the_passes_without_them(
    max_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lets a run go on elsewhere to the last bit: after it is resumed, the first passes are no replays."""
    model = replace(MODEL, d_model=128, n_heads=2, dropout=0.1)
    monkeypatch.setattr(compiled, "FEWEST_TOKENS", 1000 * 40)
    settings = config(model=model, compile=Compile.auto, precision=Precision.bf16, max_steps=max_steps)

    def run() -> list[Tensor]:
        one = Trainer(settings, tokenizers(), torch.device("cuda"))
        one.expect(batches(), longest=LONGEST)
        for step in range(1, 13):
            one.train_step(one.ready(batches(seed=step)[:2]), step=step, lr=0.001)
        return list(one.model.parameters())

    replayed = run()
    monkeypatch.setattr(captured, "_FIRST", 10**6)
    assert all(map(torch.equal, replayed, run()))
