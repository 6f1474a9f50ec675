"""`tfm bench train`: the baselines, and the processes that benchmarks run in."""

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.addons.benchmarks.toy_bench import CPU, config
from tests.conftest import ROOT
from tests.support.each import each
from transformer_cli.addons.benchmarks import baselines, tfm_training
from transformer_cli.addons.benchmarks.baselines import Baseline, check_comparable, sorted_batches
from transformer_cli.addons.benchmarks.worker import BenchmarkWorker
from transformer_cli.addons.benchmarks.workload import random_sentences
from transformer_cli.errors import ConfigError, EnvironmentFault

MATCHED = "nn.Transformer lean"


@pytest.fixture(autouse=True)
def _briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformer_cli.addons.benchmarks.workload.N_PAIRS", 500)


# ---- Baselines


def test_every_sentence_is_in_one_batch_of_the_baselines() -> None:
    corpus = random_sentences(50, longest=60, seed=1)
    batches = sorted_batches(corpus, tokens=300, seed=1)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(corpus)))
    assert max(int(corpus.target_lengths[batch].sum()) for batch in batches) < 300 + 60


def test_random_sentences_end_and_are_as_long_as_those_of_wmt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformer_cli.addons.benchmarks.workload.N_PAIRS", 50_000)
    corpus = random_sentences(1000, longest=256, seed=1)
    assert corpus.target_lengths.mean() == pytest.approx(29.3, rel=0.02)
    assert (corpus.target_ids[corpus.target_offsets[1:] - 1] == 3).all()
    assert np.array_equal(np.diff(corpus.source_offsets), corpus.source_lengths)


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("net", [MATCHED, "Hugging Face Marian"])
def test_baselines_have_the_same_parameters_and_tokens(net: str, norm: str) -> None:
    if net == "Hugging Face Marian":
        pytest.importorskip("transformers")
        if norm == "pre":
            pytest.skip("Marian is post-norm")
    trainer = tfm_training.TfmTraining(config(f"norm={norm}"), CPU)
    baseline = Baseline(net, trainer.config, CPU)
    theirs, mine = (
        sum(p.numel() for p in model.parameters() if p.requires_grad)
        for model in (baseline.net, trainer.run.trainer.model)
    )
    assert theirs == mine
    with closing(trainer.ahead):
        rounds = [one.round() for one in (trainer, trainer, baseline, baseline)]
    for one in rounds:
        assert 450 < one.n_target_tokens < 750
        assert one.n_target_tokens + one.n_source_tokens <= one.n_padded_tokens
    assert all(p.grad is not None for p in baseline.net.parameters() if p.requires_grad)


class Drawn(TorchDispatchMode):
    """Counts dropout masks."""

    def __init__(self) -> None:
        super().__init__()
        self.n = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.n += func.overloadpacket.__name__ == "bernoulli_"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("net", "places"),
    [
        (MATCHED, 2 + 2 + 3),  # both embeddings, and each sub-layer of an encoder's and of a decoder's layer
        ("Hugging Face Marian", 2 + 2 + 3),
        ("nn.Transformer", 2 + 2 + 3 + 3 + 2),  # also the weights of each attention, and inside each feed-forward layer
    ],
)
def test_baselines_have_the_dropout_of_the_paper_and_nn_transformer_more(net: str, places: int) -> None:
    if net == "Hugging Face Marian":
        pytest.importorskip("transformers")
    source_BS, target_BT = torch.tensor([[7, 8, 9, 3]]), torch.tensor([[5, 6, 3]])
    with Drawn() as drawn:
        Baseline(net, config("model.dropout=0.5"), CPU)._loss(source_BS, target_BT)
    assert drawn.n == places


@pytest.mark.parametrize("net", ["nn.Transformer", MATCHED])
def test_padding_does_not_change_the_loss_of_a_baseline(net: str) -> None:
    baseline = Baseline(net, config("model.dropout=0"), CPU)
    source_BS, target_BT = torch.tensor([[7, 8, 9, 3]]), torch.tensor([[5, 6, 3]])
    alone = baseline._loss(source_BS, target_BT)
    padded = baseline._loss(torch.nn.functional.pad(source_BS, (0, 3)), torch.nn.functional.pad(target_BT, (0, 2)))
    assert padded.item() == pytest.approx(alone.item(), rel=1e-5)


@pytest.mark.parametrize("override", ["model.bias=false", "model.activation=gelu", "optimizer=muon"])
def test_settings_that_baselines_lack_are_refused(override: str) -> None:
    with pytest.raises(ConfigError, match=r"the baselines have .*rivals=false"):
        check_comparable(config(override))


def test_a_baseline_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"transformers is not installed.*rivals=false"):
        check_comparable(config())


# ---- Worker processes


@pytest.fixture
def worker(tmp_path: Path) -> Callable[[str], BenchmarkWorker]:
    """A process that runs a program after it has read its first line."""

    def made(program: str) -> BenchmarkWorker:
        (tmp_path / "toy_worker.py").write_text(f"import sys\nsys.stdin.readline()\n{program}\n", encoding="utf-8")
        return BenchmarkWorker("x", "toy_worker", {}, os.environ | {"PYTHONPATH": str(tmp_path)})

    return made


@each(
    "program, error, says",
    [
        ("sys.exit(9)", EnvironmentFault, "x: ended with status 9"),
        ('print(\'{"fault": "ConfigError", "message": "a=1: no"}\')', ConfigError, "x: a=1: no"),
    ],
)
def test_the_end_or_error_of_a_worker_is_raised_in_the_parent(
    worker: Callable[[str], BenchmarkWorker], program: str, error: type[Exception], says: str
) -> None:
    faulty = worker(program)
    with pytest.raises(error, match=says):
        faulty.round()
    faulty.close()


def test_close_kills_the_worker(worker: Callable[[str], BenchmarkWorker]) -> None:
    working = worker("import time; time.sleep(60)")
    working.close()
    assert working._process.returncode is not None
    with pytest.raises(ProcessLookupError):
        os.kill(working._process.pid, 0)


@pytest.mark.slow
def test_the_memory_of_a_worker_excludes_that_of_the_parent(tmp_path: Path) -> None:
    program = """
import torch
from transformer_cli.addons.benchmarks.worker import peak_bytes
print('{"n_target_tokens": 1, "n_source_tokens": 1, "n_padded_tokens": 2, "seconds": 1, "peak_bytes": %d}'
      % peak_bytes(torch.device("cpu")), flush=True)
"""
    (tmp_path / "modest.py").write_text(program, encoding="utf-8")
    mine = torch.ones(2**30, dtype=torch.uint8)
    modest = BenchmarkWorker("x", "modest", {}, os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"})
    assert 10**8 < modest.round().peak_bytes < len(mine)
    modest.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler uses what torch deprecates
def test_a_compiled_baseline_has_the_same_loss() -> None:
    toy = config("model.dropout=0")
    plain, compiled = (Baseline("nn.Transformer", toy, CPU, compiled=compiled) for compiled in (False, True))
    source_BS, target_BT = torch.tensor([[7, 8, 9, 3], [7, 3, 0, 0]]), torch.tensor([[5, 6, 3], [6, 3, 0]])
    assert compiled.loss(source_BS, target_BT).item() == pytest.approx(
        plain.loss(source_BS, target_BT).item(), rel=1e-4
    )
