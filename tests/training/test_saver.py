"""Saving while training goes on."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.toy.run import CPU, assert_same_run, config, metrics, run
from tests.training.test_checkpoints import checkpoint
from transformer_cli.config.model import ModelConfig
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.errors import EnvironmentFault
from transformer_cli.training.checkpoints import Checkpoint, CheckpointStore
from transformer_cli.training.saver import Saver
from transformer_cli.training.trainer import Trainer


def store_in(folder: Path) -> CheckpointStore:
    store = CheckpointStore(folder)
    store.sweep()
    return store


def nothing() -> None:
    pass


def test_what_is_saved_is_what_the_tensors_were_when_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write, save = threading.Event(), CheckpointStore.save

    def waiting(self: CheckpointStore, checkpoint: Checkpoint) -> Path:
        assert may_write.wait(10)
        return save(self, checkpoint)

    monkeypatch.setattr(CheckpointStore, "save", waiting)
    store, wanted = store_in(tmp_path), checkpoint(5)
    expected = {name: weight.clone() for name, weight in wanted.model.weights.items()}
    with Saver(store, CPU) as saver:
        saver.save(wanted, nothing)
        assert store.steps() == []  # training goes on before anything is written
        for weight in wanted.model.weights.values():
            weight.zero_()
        may_write.set()
        saver.wait()
    saved = store.load(5)
    assert all(torch.equal(saved.model.weights[name], weight) for name, weight in expected.items())
    assert saved.optimizer["exp_avg/x"][0, 0].item() == pytest.approx(5 / 3)


def test_saves_are_published_in_order_and_what_follows_comes_after_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[Any] = []
    save = CheckpointStore.save

    def slow(self: CheckpointStore, checkpoint: Checkpoint) -> Path:
        time.sleep(0.05)
        happened.append(checkpoint.step)
        return save(self, checkpoint)

    monkeypatch.setattr(CheckpointStore, "save", slow)
    store = store_in(tmp_path)
    with Saver(store, CPU) as saver:
        for step in (1, 2, 3):
            saver.save(checkpoint(step), lambda: happened.append(store.steps()))
    assert happened == [1, [1], 2, [1, 2], 3, [1, 2, 3]]


def test_the_pause_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="tfm"), Saver(store_in(tmp_path), CPU) as saver:
        saver.save(checkpoint(7), nothing)
    assert caplog.messages[0].startswith("step 7: saved in ")
    assert caplog.messages[0].endswith(" ms")


def fill_disk(monkeypatch: pytest.MonkeyPatch, at_steps: tuple[int, ...]) -> None:
    save = CheckpointStore.save

    def full(self: CheckpointStore, checkpoint: Checkpoint) -> Path:
        if checkpoint.step not in at_steps:
            return save(self, checkpoint)
        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", no_space)
            return save(self, checkpoint)

    monkeypatch.setattr(CheckpointStore, "save", full)


def no_space(descriptor: int) -> None:
    raise OSError(28, "No space left on device")


def test_B1_a_failed_save_is_told_and_the_next_one_is_tried(
    tmp_path: Path, unbroken: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fill_disk(monkeypatch, (4, 6))
    run(tmp_path / "full")
    logged = [message for message in caplog.messages if "is not saved" in message]
    assert [message.split(":")[0] for message in logged] == [
        "step 4 is not saved (failure 1 of 3 in a row)",
        "step 6 is not saved (failure 2 of 3 in a row)",
    ]
    assert all("bytes (" in message and "are free): No space left on device" in message for message in logged)
    assert CheckpointStore(tmp_path / "full").steps() == CheckpointStore(unbroken).steps()
    assert [e for e in metrics(tmp_path / "full") if e["kind"] == "train"] == [
        e for e in metrics(unbroken) if e["kind"] == "train"
    ]


def test_B1_the_third_failure_in_a_row_ends_the_run_and_what_was_saved_is_used(
    tmp_path: Path, unbroken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        fill_disk(patch, (4, 6, 8))
        with pytest.raises(EnvironmentFault, match=r"step-00000008: cannot save [0-9,]+ bytes \([0-9,]+ are free\)"):
            run(tmp_path / "full")
    assert CheckpointStore(tmp_path / "full").steps() == [2]
    run(tmp_path / "full")  # room again
    assert_same_run(tmp_path / "full", unbroken)


def test_B5_a_failed_last_save_is_never_reported_as_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_disk(monkeypatch, (12,))
    with pytest.raises(EnvironmentFault, match="step-00000012: cannot save"):
        run(tmp_path, config())
    assert not (tmp_path / "model.safetensors").exists()


def test_a_bug_in_the_thread_is_not_swallowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: CheckpointStore, checkpoint: Checkpoint) -> Path:
        raise ZeroDivisionError

    monkeypatch.setattr(CheckpointStore, "save", broken)
    with Saver(store_in(tmp_path), CPU) as saver:
        saver.save(checkpoint(1), nothing)
        with pytest.raises(ZeroDivisionError):
            saver.wait()


class NoTokenizer:
    """A tokenizer of the paper's vocabulary, as far as a model needs it to be built."""

    pad_id, bos_id, eos_id = 0, 2, 3

    def __len__(self) -> int:
        return 37_000

    def without_tags(self) -> "NoTokenizer":
        return self


@pytest.mark.nightly
def test_the_pause_of_a_save_of_the_base_model(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, figures: Callable[[str, str], None]
) -> None:
    """63 M parameters, each with two moments: 757 MB. What it takes is published; that it is no write is asserted."""
    torch.set_num_threads(2)
    ids = Tokenizers(NoTokenizer(), NoTokenizer())  # type: ignore[arg-type]
    trainer = Trainer(config(model=ModelConfig()), ids, CPU)
    for parameter in trainer.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    trainer.optimizer.step()
    weights, state = trainer.model.state_dict(), trainer.optimizer_state()
    assert sum(tensor.nbytes for tensor in (*weights.values(), *state.values())) > 750e6
    small = checkpoint(1)
    pauses_ms = []
    with caplog.at_level(logging.INFO, logger="tfm"), Saver(store_in(tmp_path), CPU) as saver:
        saver.reserve(weights, state)
        for step in range(1, 6):
            start = time.perf_counter()
            assert trainer.is_sound()
            wanted = replace(small, step=step, model=replace(small.model, weights=weights), optimizer=state)
            saver.save(wanted, nothing)
            pauses_ms.append(1000 * (time.perf_counter() - start))
            assert step not in saver.store.steps()
            saver.wait()
            saver.store.prune({step})
    torch.set_num_threads(1)
    low, middle, high = min(pauses_ms), sorted(pauses_ms)[2], max(pauses_ms)
    figures("pause of a save", f"{middle:.0f} ms ({low:.0f} to {high:.0f}, 5 saves of 757 MB)")
