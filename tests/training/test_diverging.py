"""A loss that is not finite: such updates are skipped, too many end the run, and the update is kept for replay."""

import json
import logging
import math
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.toy.run import (
    CPU,
    MODEL,
    assert_resumes,
    assert_same_run,
    config,
    metrics,
    model_file,
    prepared,
    run,
    sha256,
    tokenizers,
)
from tests.training.test_stopping import stop_at
from transformer_cli.cli import main
from transformer_cli.config.train import Compile, Precision, TrainConfig
from transformer_cli.data.batching import BatchPlan, micro_batches
from transformer_cli.errors import CheckpointError, DivergedError
from transformer_cli.training import trainer as learning
from transformer_cli.training.checkpoints import CheckpointStore
from transformer_cli.training.divergence_dump import read_divergence_dump, write_divergence_dump
from transformer_cli.training.nonfinite import NonFiniteTracker
from transformer_cli.training.trainer import Trainer
from transformer_cli.training.validation import Validator

NAN_AT = "the loss is not a finite number, and the update is skipped"


def break_loss(monkeypatch: pytest.MonkeyPatch, is_broken: Callable[[int], bool], value: float = math.nan) -> None:
    """The loss and its gradient are `value` at these steps."""
    update, smoothed_nll, now = Trainer.train_step, learning.smoothed_nll, 0

    def updating(self: Trainer, *args: Any, **kwargs: Any) -> Any:
        nonlocal now
        now = kwargs["step"]
        return update(self, *args, **kwargs)

    def breaking(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        loss, nll = smoothed_nll(*args, **kwargs)
        return (loss * value if is_broken(now) else loss), nll

    monkeypatch.setattr(Trainer, "train_step", updating)
    monkeypatch.setattr(learning, "smoothed_nll", breaking)


def poison(monkeypatch: pytest.MonkeyPatch, at_step: int) -> None:
    """Makes the weights, from this step on, finite and so large that no loss is."""
    update = Trainer.train_step

    def poisoning(self: Trainer, *args: Any, **kwargs: Any) -> Any:
        if kwargs["step"] == at_step:
            with torch.no_grad():
                next(self.model.parameters()).fill_(3e38)
        return update(self, *args, **kwargs)

    monkeypatch.setattr(Trainer, "train_step", poisoning)


def states(settings: TrainConfig, n_updates: int) -> list[dict[str, Tensor]]:
    """Weights and optimizer after each update."""
    corpus, trainer = prepared().train, Trainer(settings, tokenizers(), CPU)
    plan = BatchPlan(corpus.source_lengths, corpus.target_lengths, tokens_per_update=40, seed=1)
    found = []
    for step in range(1, n_updates + 1):
        batches = micro_batches(corpus, plan.update(step - 1), tokenizers(), max_tokens=16)
        trainer.train_step(batches, step=step, lr=0.01)
        tensors = {**trainer.model.state_dict(), **trainer.optimizer_state()}
        found.append({name: tensor.clone() for name, tensor in tensors.items()})
    return found


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("precision", [Precision.fp32, Precision.bf16])
def test_B11_an_update_without_a_finite_loss_changes_no_bit(
    monkeypatch: pytest.MonkeyPatch, value: float, precision: Precision
) -> None:
    break_loss(monkeypatch, lambda step: step == 3, value)
    _, second, third, fourth = states(config(precision=precision), 4)
    assert all(torch.equal(third[name], second[name]) for name in second)
    assert not any(torch.equal(fourth[name], third[name]) for name in third if name.startswith("exp_avg/"))


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("clip_norm", [None, 1.0])
def test_B11_a_finite_loss_with_a_gradient_that_is_not_changes_no_bit_and_is_counted(
    value: float, clip_norm: float | None
) -> None:
    trainer = Trainer(config(clip_norm=clip_norm), tokenizers(), CPU)
    batches = micro_batches(prepared().train, np.arange(10), tokenizers(), max_tokens=16)
    trainer.train_step(batches, step=1, lr=0.01)
    before = {name: x.clone() for name, x in {**trainer.model.state_dict(), **trainer.optimizer_state()}.items()}
    hook = next(trainer.model.parameters()).register_hook(lambda gradient: gradient * value)
    stats = trainer.train_step(batches, step=2, lr=0.01)
    assert stats.loss.isfinite()
    assert not stats.grad_norm.isfinite()
    assert not stats.finite
    assert trainer.nonfinite.counts() == [1, 1]
    after = {**trainer.model.state_dict(), **trainer.optimizer_state()}
    assert all(torch.equal(x, before[name]) for name, x in after.items())
    hook.remove()
    assert trainer.train_step(batches, step=3, lr=0.01).finite
    assert trainer.nonfinite.counts() == [0, 1]


def test_B11_skipped_updates_are_told_and_counted_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    break_loss(monkeypatch, lambda step: step in (5, 6, 9))
    assert run(tmp_path, config(log_every=2)).step == 12
    logged = [message for message in caplog.messages if NAN_AT in message]
    assert logged == [
        f"step 5: {NAN_AT} (1 in a row, 1 in all)",
        f"step 6: {NAN_AT} (2 in a row, 2 in all)",
        f"step 9: {NAN_AT} (1 in a row, 3 in all)",
    ]
    train = [entry for entry in metrics(tmp_path) if entry["kind"] == "train"]
    assert [(entry["step"], entry.get("skipped", 0)) for entry in train] == [(2, 0), (4, 0), (8, 2), (10, 3), (12, 3)]
    assert all(math.isfinite(entry["loss"]) for entry in train)  # the line of step 6 would have had none
    assert "step 6: not saved: the loss or a weight is not a finite number" in caplog.messages


def test_B11_a_run_with_skipped_updates_resumes_to_the_last_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_loss(monkeypatch, lambda step: step in (3, 9))
    assert_resumes(tmp_path, stopped_before=8)


@pytest.mark.parametrize("first", [1, 5, 9])
def test_B11_too_many_in_a_row_end_the_run_and_no_bad_state_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    poison(monkeypatch, first)
    with pytest.raises(DivergedError) as diverged:
        run(tmp_path, config(max_nonfinite_steps=4, save_every=3))
    assert diverged.value.exit_code == 6
    last = first + 3
    saved = {1: [], 5: [3, 4], 9: [3, 4, 6, 8][-3:]}[first]  # 4 and 8 were evaluated as the best so far
    newest = f"step {saved[-1]} is the newest that is saved" if saved else "no step was sound enough to be saved"
    assert str(diverged.value) == (
        f"step {last}: the loss or a weight is not a finite number (4 in a row), at learning rate 0.01; {newest}."
        f" `tfm replay {tmp_path}/incidents/step-{last:08d}` runs the update again."
        " Lower schedule.lr, or set train.clip_norm"
    )
    assert [step for step in CheckpointStore(tmp_path).steps() if step >= first] == []
    for step in CheckpointStore(tmp_path).steps():
        weights = CheckpointStore(tmp_path).load(step).model.weights
        assert all(weight.isfinite().all() and weight.abs().max() < 1e3 for weight in weights.values())


def test_B11_weights_that_are_no_numbers_are_never_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last finite loss may be the one whose gradient ruins the weights."""
    update = Trainer.train_step

    def ruining(self: Trainer, *args: Any, **kwargs: Any) -> Any:
        stats = update(self, *args, **kwargs)
        if kwargs["step"] == 6:
            with torch.no_grad():
                next(self.model.parameters())[0] = math.nan
        return stats

    monkeypatch.setattr(Trainer, "train_step", ruining)
    with pytest.raises(DivergedError):
        run(tmp_path, config(max_nonfinite_steps=3))
    assert CheckpointStore(tmp_path).steps() == [2, 4]


def test_B11_the_last_step_of_a_run_is_no_exception(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_loss(monkeypatch, lambda step: step == 12)
    assert run(tmp_path).model_path.exists()  # the weights are those of the update before
    assert CheckpointStore(tmp_path).steps()[-1] == 12


def test_B11_a_stop_right_after_a_skipped_update_saves_and_goes_on_counting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    break_loss(monkeypatch, lambda step: step in (5, 6))
    run(tmp_path / "unbroken")
    stopped = stop_at(5, signal.SIGTERM, tmp_path / "stopped")
    assert "step 5 is the newest that is saved" in str(stopped)
    caplog.clear()
    run(tmp_path / "stopped")
    assert f"step 6: {NAN_AT} (2 in a row, 2 in all)" in caplog.messages
    assert_same_run(tmp_path / "stopped", tmp_path / "unbroken")


def test_B13_a_model_that_gives_no_numbers_on_dev_is_never_best_and_uses_up_patience(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    score = Validator.score

    def scoring(self: Validator, model: Any, *args: Any) -> Any:
        if len(tried) in (1, 2):  # the second and third evaluation, but not that of the average
            model.target_embedding.forward = lambda ids: math.nan * torch.ones(*ids.shape, MODEL.d_model)
        tried.append(1)
        try:
            return score(self, model, *args)
        finally:
            model.target_embedding.__dict__.pop("forward", None)

    tried: list[int] = []
    monkeypatch.setattr(Validator, "score", scoring)
    result = run(tmp_path, config(max_steps=40, patience=2, save_every=100))
    assert result.step == 12
    assert json.loads((tmp_path / "result.json").read_bytes())["best"]["step"] == 4
    assert "step 8: no dev scores: the model: its scores are not numbers" in caplog.text


def test_after_the_last_one_that_is_borne_nothing_is_learnt_any_more() -> None:
    """A GPU notices it one update late; the incident must find the weights as they were."""
    skips, finite = NonFiniteTracker(CPU, limit=2), [True, False, False, True, True]
    skipped = []
    for step, is_finite in enumerate(finite):
        skips.add(torch.tensor(is_finite), step, loss=torch.tensor(2.0), grad_norm=torch.tensor(3.0))
        skipped.append(bool(skips.last))
    assert skipped == [False, True, True, True, True]
    assert skips.poll() == (4, 4, 4, 2.0, 3.0)


# The incident


@pytest.fixture
def incident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with monkeypatch.context() as patch:
        poison(patch, 5)
        with pytest.raises(DivergedError):
            run(tmp_path, config(max_nonfinite_steps=2))
    return tmp_path / "incidents/step-00000006"


def test_an_incident_holds_text_ids_norms_and_config(incident: Path) -> None:
    content = json.loads((incident / "incident.json").read_bytes())
    assert content["step"] == 6
    assert content["config"]["train"]["tokens_per_update"] == 40
    corpus = prepared().train
    plan = BatchPlan(corpus.source_lengths, corpus.target_lengths, tokens_per_update=40, seed=1)
    expected = [
        corpus.source_ids[corpus.source_offsets[i] : corpus.source_offsets[i + 1]].tolist() for i in plan.update(5)
    ]
    assert content["source_ids"] == expected
    texts = [source for batch in content["batches"] for source, target in batch["pairs"]]
    assert sorted(texts) == sorted(tokenizers().source.decode(ids) for ids in expected)
    for batch in content["batches"]:
        assert not math.isfinite(float.fromhex(batch["loss"]))
        assert set(batch["grad_norms"]) == {
            name for name, _ in Trainer(config(), tokenizers(), CPU).model.named_parameters()
        }


def test_an_incident_runs_again_to_the_last_bit(incident: Path) -> None:
    kept = read_divergence_dump(incident)
    findings = kept.replay(CPU)
    assert len(findings) > 1
    assert [finding.state() for finding in findings] == kept.recorded
    assert not any(finding.is_finite for finding in findings)


def test_tfm_replay_tells_which_batches_are_bad(incident: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(incident), "--device", "cpu"]) == 0
    out = capsys.readouterr().out.split("\n")
    assert out[0] == f"{incident}: update 6 of files"
    assert out[1].startswith("batch 1: ")
    assert out[1].endswith("<- not finite")
    assert out[-2] == "the same as recorded, to the last bit"


def test_tfm_replay_sees_a_difference(incident: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads((incident / "incident.json").read_bytes())
    content["batches"][0]["loss"] = "0x1.0p+0"
    (incident / "incident.json").write_text(json.dumps(content))
    assert main(["replay", str(incident), "--device", "cpu"]) == 0
    assert capsys.readouterr().out.split("\n")[-2] == "not the same as recorded"


@pytest.mark.parametrize("damage", [None, b"", b"[]", b'{"step": 1}', b'{"step": "x", "config": {}}'])
def test_what_is_no_incident_is_refused(incident: Path, damage: bytes | None) -> None:
    file = incident / "incident.json"
    file.unlink()
    if damage is not None:
        file.write_bytes(damage)
    with pytest.raises(CheckpointError, match=r"incident\.json: "):
        read_divergence_dump(incident)


def test_tfm_replay_without_a_folder_asks_for_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay"]) == 2
    assert capsys.readouterr().err == (
        "tfm: error: `tfm replay`: no incident given."
        " Name the folder that a diverged run has left, as runs/NAME/incidents/step-00001204\n"
    )


def test_a_second_incident_at_the_same_step_takes_the_place_of_the_first(
    incident: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = sha256(incident / "incident.json")
    poison(monkeypatch, 5)
    with caplog.at_level(logging.INFO, logger="tfm"), pytest.raises(DivergedError):
        run(incident.parent.parent, config(max_nonfinite_steps=2))
    assert "resuming from step 4" in caplog.text
    assert sha256(incident / "incident.json") == before


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
def test_an_incident_of_a_compiled_run_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compiling(function: Callable[..., Any], **kwargs: Any) -> Callable[..., Any]:
        """Kernels with a visible difference: the loss is three times as large."""
        if function.__name__ != "_loss_of_states":
            return function
        return lambda *args, **kwargs: tuple(3 * x for x in function(*args, **kwargs))

    monkeypatch.setattr(torch, "compile", compiling)
    settings = config(compile=Compile.default, max_tokens_per_microbatch=200)
    trainer, pairs = Trainer(settings, tokenizers(), CPU), prepared().train.pick(np.arange(60))
    batches = micro_batches(pairs, np.arange(len(pairs)), tokenizers(), max_tokens=200)
    trainer.expect(batches, longest=20)
    model = replace(model_file(), weights=trainer.model.state_dict())
    folder = write_divergence_dump(tmp_path, trainer, model, settings, tokenizers(), step=3, pairs=pairs)
    kept = read_divergence_dump(folder)
    assert [finding.state() for finding in kept.replay(CPU)] == kept.recorded
