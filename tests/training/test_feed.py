"""Batches that are made while others are learnt: the same run, and no thread that outlives it."""

import os
import signal
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.data.test_prefetch import eventually
from tests.toy.run import CPU, config, metrics, prepared, run, run_until, sha256, train
from transformer_cli.data.batching import Batch
from transformer_cli.data.feed import Feed
from transformer_cli.errors import DataError, Stopped
from transformer_cli.training import loop
from transformer_cli.training.ranks import Ranks
from transformer_cli.training.signals import stop_signals
from transformer_cli.training.trainer import Trainer

BATCHES = Feed.batches


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "prefetch"]


class InPlace:
    """What the Prefetcher is without its thread."""

    def __init__(self, make: Callable[[int], list[Batch]], first_step: int) -> None:
        self.take = make

    def __enter__(self) -> "InPlace":
        return self

    def __exit__(self, *error: object) -> None:
        pass


def test_a_run_learns_the_same_as_without_the_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / "ahead")
    monkeypatch.setattr(loop, "Prefetcher", InPlace)
    run(tmp_path / "in_place")
    assert metrics(tmp_path / "ahead") == metrics(tmp_path / "in_place")
    assert sha256(tmp_path / "ahead/model.safetensors") == sha256(tmp_path / "in_place/model.safetensors")


def test_the_next_batches_are_made_while_an_update_is_learnt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[int, str] = {}

    def batches(self: Feed, step: int) -> list[Batch]:
        made.setdefault(step, threading.current_thread().name)
        return BATCHES(self, step)

    def update(self: Trainer, given: Any, *, step: int, lr: float) -> Any:
        assert eventually(lambda: step + 1 in made)
        return original(self, given, step=step, lr=lr)

    original = Trainer.train_step
    monkeypatch.setattr(Feed, "batches", batches)
    monkeypatch.setattr(Trainer, "train_step", update)
    run(tmp_path, config(max_steps=4))
    assert {made[step] for step in range(2, 5)} == {"prefetch"}
    assert not threads()


def test_no_thread_is_left_after_an_error(tmp_path: Path) -> None:
    run_until(3, tmp_path)
    assert not threads()


@pytest.mark.parametrize(
    "error", [DataError("corpus: is gone. Restore it"), OSError(5, "Input/output error"), MemoryError()]
)
def test_what_goes_wrong_in_the_thread_ends_the_run_at_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def batches(self: Feed, step: int) -> list[Batch]:
        if step == 5:
            raise error
        return BATCHES(self, step)

    monkeypatch.setattr(Feed, "batches", batches)
    with pytest.raises(type(error)) as raised:
        run(tmp_path)
    assert raised.value is error
    assert [entry["step"] for entry in metrics(tmp_path) if entry["kind"] == "train"] == [1, 2, 3, 4]
    assert not threads()


def test_no_thread_is_left_after_a_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Trainer.train_step

    def update(self: Trainer, given: Any, *, step: int, lr: float) -> Any:
        if step == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, given, step=step, lr=lr)

    monkeypatch.setattr(Trainer, "train_step", update)
    with stop_signals() as request, pytest.raises(Stopped, match="step 3 is the newest"):
        train(config(), prepared(), tmp_path, device=CPU, ranks=Ranks(request))
    assert not threads()


def test_the_pairs_of_an_update_are_those_of_its_batches() -> None:
    feed = Feed(config(), prepared())
    for step in (1, 7, 30):
        pairs = feed.pairs(step)
        bounds = pairs.source_offsets.tolist()
        expected = sorted(pairs.source_ids[a:b].tolist() for a, b in pairwise(bounds))
        assert sorted(source for batch in feed.batches(step) for source, _ in batch.pairs()) == expected
