"""The moving average of the weights: what it is, that it disturbs nothing, and when it is shipped."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.conftest import slow
from tests.toy.run import assert_same_run, config, metrics, run, run_until
from tests.training.test_diverging import break_loss, states
from tests.training.test_training import score_as
from transformer_cli.config.train import TrainSettings
from transformer_cli.errors import CheckpointError, ConfigError
from transformer_cli.models.file import read_model
from transformer_cli.training.checkpoints import CheckpointStore
from transformer_cli.training.ema import Ema
from transformer_cli.training.main_process import MainProcess
from transformer_cli.training.plan import RunPlan
from transformer_cli.training.result import TrainResult
from transformer_cli.training.state import TrainingState

YES, NO = torch.tensor(True), torch.tensor(False)


def scalar(value: float) -> nn.Module:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, value)
    return model


def test_the_average_is_the_recursion_written_out() -> None:
    model, decay = scalar(5.0), 0.5
    ema, expected = Ema(model, decay), 5.0
    for n in range(1, 12):
        nn.init.constant_(model.weight, float(n * n))
        ema.update(n, changed=YES)
        keep = min(decay, (1 + n) / (10 + n))  # 2/11, 3/12, …, and from update 8 on a half
        expected = keep * expected + (1 - keep) * n * n
        assert ema.weights()["weight"].item() == pytest.approx(expected, rel=1e-5)
    assert decay == (1 + 8) / (10 + 8)


def test_an_update_that_changed_nothing_moves_no_bit() -> None:
    model = scalar(1 / 3)
    ema = Ema(model, 0.9)
    nn.init.constant_(model.weight, 0.7)
    ema.update(1, changed=YES)
    before = ema.weights()["weight"]
    ema.update(2, changed=NO)
    assert torch.equal(ema.weights()["weight"], before)
    ema.update(3, changed=YES)
    assert not torch.equal(ema.weights()["weight"], before)


def test_the_average_is_float32_whatever_the_weights_are() -> None:
    model = scalar(1.0).bfloat16()
    ema = Ema(model, 0.999)
    nn.init.constant_(model.weight, 2.0)
    for n in (100_000, 100_001):
        ema.update(n, changed=YES)
    mean = ema.weights()["weight"]
    assert mean.dtype is torch.float32
    assert mean.item() == pytest.approx(2 - 0.999**2, abs=1e-6)  # bfloat16 has no number between 1 and 1.0078


def test_the_model_has_its_own_weights_again_also_after_an_error() -> None:
    model = scalar(0.1)
    own, ema = model.weight.detach().clone(), Ema(model, 0.9)
    nn.init.constant_(model.weight, 0.3)
    changed = model.weight.detach().clone()
    with pytest.raises(ZeroDivisionError), ema.in_place():
        assert torch.equal(model.weight, own)
        raise ZeroDivisionError
    assert torch.equal(model.weight, changed)


def test_B11_a_skipped_update_leaves_the_average_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    break_loss(monkeypatch, lambda step: step == 3)
    _, second, third, fourth = states(config(ema=0.9), 4)
    averaged = [name for name in second if name.startswith("ema/")]
    assert len(averaged) == sum(name.startswith("exp_avg/") for name in second)
    assert all(torch.equal(third[name], second[name]) for name in averaged)
    assert not any(torch.equal(fourth[name], third[name]) for name in averaged)


@pytest.fixture(scope="module")
def averaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("averaged")
    run(folder, config(ema=0.9))
    return folder


@pytest.mark.parametrize("stopped_before", [slow(2), 7, slow(12)])
def test_A17_the_average_is_resumed_to_the_last_bit(tmp_path: Path, averaged: Path, stopped_before: int) -> None:
    run_until(stopped_before, tmp_path, config(ema=0.9))
    run(tmp_path, config(ema=0.9))
    assert_same_run(tmp_path, averaged)


def test_nothing_else_is_learnt_with_an_average_than_without(tmp_path: Path, averaged: Path) -> None:
    run(tmp_path)
    without = [entry for entry in metrics(tmp_path) if entry["kind"] != "final"]
    beside = [{key: value for key, value in e.items() if key != "ema_nll"} for e in metrics(averaged)]
    assert without == [entry for entry in beside if entry["kind"] != "final"]
    one, other = (CheckpointStore(folder).load_model(12).weights for folder in (tmp_path, averaged))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_dev_nll_of_the_average_is_told_at_every_evaluation(averaged: Path) -> None:
    logged = {entry["step"]: entry["ema_nll"] for entry in metrics(averaged) if entry["kind"] == "dev"}
    assert list(logged) == [4, 8, 12]
    outcome = json.loads((averaged / "result.json").read_bytes())
    assert outcome["ema"]["decay"] == 0.9
    assert outcome["ema"]["dev_nll"] == logged[12]
    assert len(set(logged.values())) == 3


@pytest.mark.parametrize(
    ("ema", "average", "shipped"),
    [
        (9.0, 2.0, "the moving average of all updates, decay 0.9"),
        (3.0, 9.0, "the average of 2 checkpoints, steps 10, 12"),
        (0.5, 0.4, "the checkpoint of step 4"),
    ],
)
def test_the_best_of_all_is_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ema: float, average: float, shipped: str
) -> None:
    score_as(monkeypatch, 1.0, 1.0, 1.0, ema, average)
    result = run(tmp_path, config(ema=0.9))
    outcome = json.loads((tmp_path / "result.json").read_bytes())
    assert outcome["shipped"] == shipped
    assert result.dev_score == max(1.0, ema, average)
    if ema == 9.0:
        weights = read_model(result.model_path).weights
        state = CheckpointStore(tmp_path).load(12).optimizer
        assert all(torch.equal(weights[name], state[f"ema/{name}"]) for name in weights)


def test_an_average_that_is_no_number_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ema, "is_sound", lambda self: False)
    run(tmp_path, config(ema=0.9, best_metric="nll"))
    assert "ema" not in json.loads((tmp_path / "result.json").read_bytes())
    assert not any("ema_nll" in entry for entry in metrics(tmp_path))


def test_a_run_that_had_none_begins_with_the_weights_of_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, config(max_steps=6))
    found = []

    def noting(self: MainProcess, run: TrainingState, plan: RunPlan) -> bool:
        found.append(run.trainer.ema.weights())
        self.result = TrainResult(tmp_path, 0.0, 8, "bleu")
        return False

    with monkeypatch.context() as patch:
        patch.setattr(MainProcess, "begin", noting)
        run(tmp_path, config(max_steps=8, ema=0.9))
    weights = CheckpointStore(tmp_path).load_model(6).weights
    assert all(torch.equal(found[0][name], weights[name]) for name in weights)
    assert run(tmp_path, config(max_steps=8, ema=0.9)).step == 8
    assert run(tmp_path, config(max_steps=10)).step == 10  # and may do without it again


def test_the_average_of_another_model_is_refused() -> None:
    tensors = Ema(nn.Linear(2, 2), 0.9).tensors()
    with pytest.raises(CheckpointError, match=r"optimizer state 'ema/bias': \[2\] of float32, but .* asks for nothing"):
        Ema(scalar(1.0), 0.9).restore(tensors)


@pytest.mark.parametrize("decay", [1.0, -0.1, math.nan])
def test_E2_a_decay_out_of_range_is_refused(decay: float) -> None:
    with pytest.raises(ConfigError, match=r"train\.ema=.*: out of range"):
        replace(TrainSettings(), ema=decay)
