"""A batch that the memory is too small for."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import ROOT
from tests.toy_run import CPU, MODEL, config, metrics, prepared, run, tokenizers
from transformer_cli.data.batching import Batch, BatchPlan, micro_batches
from transformer_cli.errors import EnvironmentFault
from transformer_cli.training.learner import Learner, is_out_of_memory

PLAIN = config(model=replace(MODEL, dropout=0.0), tokens_per_batch=100)


def shrink_memory(monkeypatch: pytest.MonkeyPatch, n_rows: int, error: BaseException | None = None) -> list[int]:
    """Let the backward pass of a batch of more pairs fail when it has left half of its gradient; the rows tried."""
    learn_from, tried = Learner.learn_from, []

    def small(self: Learner, batch: Batch, **kwargs: Any) -> Any:
        tried.append(batch.n_pairs)
        sums = learn_from(self, batch, **kwargs)
        if batch.n_pairs > n_rows:
            raise error or torch.OutOfMemoryError("CUDA out of memory.")
        return sums

    monkeypatch.setattr(Learner, "learn_from", small)
    return tried


def updated(max_cells: int = 100) -> tuple[Learner, Any]:
    corpus, learner = prepared().train, Learner(PLAIN, tokenizers(), CPU)
    learner.model.double()
    plan = BatchPlan(corpus.source_lengths, corpus.target_lengths, tokens_per_update=40, seed=1)
    batches = micro_batches(corpus, plan.update(0), tokenizers(), max_tokens=max_cells)
    return learner, learner.update(batches, step=1, rate=0.01)


@pytest.mark.parametrize("n_rows", [1, 2, 4])
def test_B8_a_batch_too_large_is_cut_in_two_until_it_fits_and_teaches_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, n_rows: int
) -> None:
    expected, stats = updated()
    tried = shrink_memory(monkeypatch, n_rows)
    learner, again = updated()
    assert max(tried) > n_rows >= tried[-1]
    assert learner.n_splits == len(caplog.messages) > 0
    assert "it is cut in two and tried again (1 times so far). Lower train.tokens_per_batch" in caplog.messages[0]
    assert again.loss.item() == pytest.approx(stats.loss.item(), rel=1e-6)
    assert again.grad_norm.item() == pytest.approx(stats.grad_norm.item(), rel=1e-6)
    for name, weight in expected.model.state_dict().items():
        torch.testing.assert_close(learner.model.state_dict()[name], weight, rtol=1e-6, atol=1e-8)


def test_B8_a_single_pair_that_does_not_fit_names_the_keys_to_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink_memory(monkeypatch, 0)
    with pytest.raises(EnvironmentFault) as refused:
        updated()
    assert str(refused.value).startswith("step 1: out of memory with a single pair of ")
    assert str(refused.value).endswith("Lower data.max_length, or choose a smaller model")


def test_B8_splits_are_counted_in_the_metrics_and_the_run_ends_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink_memory(monkeypatch, 2)
    assert run(tmp_path, replace(PLAIN, train=replace(PLAIN.train, max_steps=4))).step == 4
    train = [entry for entry in metrics(tmp_path) if entry["kind"] == "train"]
    assert train[-1]["split"] > train[0]["split"] > 0


def test_B8_the_second_try_is_the_same_in_every_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink_memory(monkeypatch, 2)
    settings = config(tokens_per_batch=100, max_steps=4)  # dropout on
    for name in ("first", "second"):
        run(tmp_path / name, settings)
    assert metrics(tmp_path / "first") == metrics(tmp_path / "second")


def test_an_error_that_is_not_about_memory_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = shrink_memory(monkeypatch, 1, RuntimeError("shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="shapes"):
        updated()
    assert len(tried) == 1


REAL = """
import resource, sys, torch
from transformer_cli.training.learner import is_out_of_memory
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
try:
    torch.zeros(1 << 33)
except BaseException as error:
    sys.exit(0 if is_out_of_memory(error) else repr(error))
"""


def test_B8_what_torch_raises_on_a_cpu_without_memory_is_recognised() -> None:
    result = subprocess.run([sys.executable, "-c", REAL], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("shapes cannot be multiplied"))
