"""A loss spike: told from noise, logged, and answered by going back to a checkpoint and skipping batches."""

import json
import math
import random
import re
from collections.abc import Container, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.toy.run import CPU, Died, assert_same_run, config, metrics, run, run_until, sha256
from tests.training.test_diverging import break_loss
from transformer_cli.config.train import OnSpike, TrainConfig
from transformer_cli.errors import DivergedError
from transformer_cli.training import nonfinite, rollback, spikes, state
from transformer_cli.training import trainer as learning
from transformer_cli.training.nonfinite import NonFiniteTracker
from transformer_cli.training.spikes import Skip, Spike, SpikeDetector, batch_number, with_skip
from transformer_cli.training.state import TrainingState
from transformer_cli.training.writers import Recorder

SETTINGS = {"max_steps": 24, "save_every": 5, "eval_every": 24, "keep_last": 4, "samples": 0}
BAD = range(17, 21)  # batches


def settings(on_spike: str = "rollback", **train: Any) -> TrainConfig:
    return config(**{**SETTINGS, "on_spike": OnSpike[on_spike], **train})


def spoil(monkeypatch: pytest.MonkeyPatch, bad: Container[int] = BAD) -> None:
    """The loss of these batches, by their numbers, and its gradient are ten times what they are."""
    update, smoothed_nll, now = TrainingState.train_step, learning.smoothed_nll, 0

    def updating(self: TrainingState, *args: Any) -> Any:
        nonlocal now
        now = batch_number(self.progress.step + 1, self.progress.skips)
        return update(self, *args)

    def spoilt(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        loss, nll = smoothed_nll(*args, **kwargs)
        return (loss * 10 if now in bad else loss), nll

    monkeypatch.setattr(TrainingState, "train_step", updating)
    monkeypatch.setattr(learning, "smoothed_nll", spoilt)


def small(patch: pytest.MonkeyPatch) -> None:
    """Statistics and margins for runs of 24 updates."""
    patch.setattr(spikes, "LEAST_UPDATES", 8)
    patch.setattr(spikes, "BEFORE", 4)
    patch.setattr(rollback, "BEFORE", 4)
    patch.setattr(spikes, "SKIPPED", 10)


@pytest.fixture
def spiking(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    spoil(monkeypatch)


@pytest.fixture(scope="module")
def went_back(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that went back once, and that nothing has stopped. No test trains it further."""
    folder = tmp_path_factory.mktemp("went_back")
    with pytest.MonkeyPatch.context() as patch:
        small(patch)
        spoil(patch)
        run(folder, settings())
    return folder


def losses(folder: Path) -> dict[int, float]:
    return {entry["step"]: entry["loss"] for entry in metrics(folder) if entry["kind"] == "train"}


def of_kind(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [entry for entry in metrics(folder) if entry["kind"] == kind]


# ---- What a spike is


def fed(losses: Iterable[float], detector: SpikeDetector | None = None) -> list[tuple[int, int]]:
    """The first and the last update of each spike."""
    detector = detector or SpikeDetector()
    found = (detector.add(step, loss, 1.0) for step, loss in enumerate(losses, start=1))
    return [(spike.first, spike.last) for spike in found if spike is not None]


def noise(n: int, *, seed: int = 1, level: float = 4.0, deviation: float = 0.1) -> list[float]:
    draw = random.Random(seed)
    return [draw.gauss(level, deviation) for _ in range(n)]


def test_three_updates_seven_deviations_above_the_mean_are_a_spike_and_two_are_not() -> None:
    assert fed([*noise(200), 5.0, 5.0, *noise(50)]) == []
    assert fed([*noise(200), 5.0, 5.0, 5.0, *noise(50)]) == [(201, 203)]
    assert fed([*noise(200), 4.5, 4.5, 4.5, *noise(50)]) == []


def test_noise_is_no_spike_however_long_it_lasts() -> None:
    assert fed(noise(20_000)) == []
    draw = random.Random(2)
    assert fed(4 + draw.expovariate(3.0) for _ in range(20_000)) == []  # a heavy tail
    outliers = [9.0 if draw.random() < 0.02 else loss for loss in noise(20_000)]
    assert fed(outliers) == []


def test_the_fall_of_the_loss_at_the_start_hides_no_jump_above_where_it_began() -> None:
    falling = [3 + 6 * math.exp(-step / 150) + loss - 4 for step, loss in enumerate(noise(1500))]
    assert fed(falling) == []
    assert fed([*falling[:600], 10.0, 10.0, 10.0]) == [(601, 603)]
    assert fed([*falling[:50], 30.0, 30.0, 30.0]) == []  # too few to know what is usual


def test_a_loss_that_hardly_varies_may_rise_by_a_tenth_of_a_nat() -> None:
    assert fed([*[0.01] * 300, *[0.1] * 5]) == []
    assert fed([*[0.01] * 300, *[0.12] * 5]) == [(301, 303)]


def test_a_spike_is_told_once_and_the_next_one_again() -> None:
    level = [*noise(200), *noise(300, level=8.0), *noise(10, level=14.0)]
    assert fed(level) == [(201, 203), (501, 503)]


def test_what_is_told_of_a_spike_is_what_was_before_it() -> None:
    detector, found = SpikeDetector(), None
    for step, (loss, norm) in enumerate([(2.0, 1.0), (4.0, 3.0)] * 100 + [(20.0, 9.0), (30.0, 40.0), (25.0, 2.0)], 1):
        found = detector.add(step, loss, norm) or found
    assert found is not None
    assert (found.first, found.last, found.loss, found.grad_norm) == (201, 203, 30.0, 40.0)
    assert found.mean == pytest.approx(3.0, abs=0.01)
    assert found.mean_grad_norm == pytest.approx(2.0, abs=0.01)
    assert found.deviation == pytest.approx(1.0, abs=0.01)


def test_the_statistics_are_the_same_after_a_resume_at_any_update() -> None:
    level = [*noise(120), *noise(6, level=8.0)]
    for cut in (0, 60, 121, 122):
        detector = SpikeDetector()
        fed(level[:cut], detector)
        again = SpikeDetector.from_state(json.loads(json.dumps(detector.state())))
        assert again == detector
        whole = SpikeDetector()
        fed(level, whole)
        fed(level[cut:], again)
        assert again == replace(whole, high=again.high)


def test_a_gradient_that_overflows_in_fp16_is_no_number_of_the_statistics() -> None:
    detector = SpikeDetector()
    fed(noise(200), detector)
    norm = detector.mean_grad_norm
    detector.add(201, 4.0, math.inf)
    detector.add(202, 9.0, math.inf)
    assert detector.mean_grad_norm == norm
    json.dumps(detector.state(), allow_nan=False)


# ---- Which batches are skipped


def spike(first: int, last: int) -> Spike:
    return Spike(first, last, 9.0, 4.0, 0.1, 5.0, 1.0)


def test_a_hundred_updates_before_the_spike_two_hundred_batches_are_skipped_as_in_palm() -> None:
    skips = with_skip((), spike(1501, 1503), since=1000)
    assert skips == (Skip(1401, 200),)
    assert [batch_number(step, skips) for step in (1, 1400, 1401, 1503)] == [1, 1400, 1601, 1703]
    near = with_skip((), spike(1050, 1052), since=1000)  # no older checkpoint
    assert near == (Skip(1001, 200),)


def test_no_batch_that_is_skipped_comes_back_and_none_is_used_twice() -> None:
    skips = with_skip((), spike(1501, 1503), since=1000)
    skips = with_skip(skips, spike(1450, 1452), since=1000)  # in what follows from the first rollback
    used = [batch_number(step, skips) for step in range(1, 3000)]
    assert used == sorted(set(used))
    assert not set(used) & {*range(1401, 1601), *range(1650, 1653)}
    assert used[1348:1351] == [1349, 1750, 1751]


# ---- Runs


def test_a_spike_is_one_line_with_its_loss_its_gradient_norm_and_its_batches(
    tmp_path: Path, spiking: None, caplog: pytest.LogCaptureFixture
) -> None:
    run(tmp_path, settings("warn", max_steps=20))
    (line,) = [message for message in caplog.messages if "loss spike" in message]
    assert re.fullmatch(
        r"step 19: loss spike: 2\d\.\d{3} in steps 17 to 19,"
        r" [23]\.\d{3} ± 0\.\d{3} before; gradient norm"
        r" \d+\.\d\d, 0\.\d\d before; batches 17 to 19, epoch 1\.70\. train\.clip_norm=1 or a lower rate may avoid"
        r" it, and train\.on_spike=rollback goes back and skips batches",
        line,
    )
    (entry,) = of_kind(tmp_path, "spike")
    assert (entry["step"], entry["first"], entry["first_batch"], entry["last_batch"]) == (19, 17, 17, 19)
    assert entry["loss"] == max(losses(tmp_path)[step] for step in (17, 18, 19))


def test_a_rollback_trains_on_other_batches_from_before_the_spike(
    went_back: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (entry,) = of_kind(went_back, "rollback")
    assert of_kind(went_back, "spike") == []  # it is in what was dropped
    shown = {key: entry[key] for key in ("step", "to", "reached", "first", "last", "skipped_from", "skipped")}
    assert shown == {
        **{"step": 10, "to": 10, "reached": 19, "first": 17, "last": 19},
        **{"skipped_from": 13, "skipped": 10},
    }
    found = losses(went_back)
    assert list(found) == list(range(1, 25))
    monkeypatch.setattr(state, "batch_number", lambda step, skips: batch_number(step, [Skip(13, 10)]))
    without = tmp_path / "without"  # a run that never had the other batches
    run(without, settings())
    assert losses(without) == found


@pytest.mark.parametrize("stopped_before", [19, 21])  # in the spike, and after the rollback
def test_a_run_that_went_back_resumes_to_the_last_bit(
    tmp_path: Path, went_back: Path, spiking: None, stopped_before: int
) -> None:
    run_until(stopped_before, tmp_path, settings())
    run(tmp_path, settings())
    assert_same_run(tmp_path, went_back)


@pytest.mark.parametrize("method", ["go_back", "_forget_after"])
def test_a_run_that_is_killed_as_it_goes_back_resumes_to_the_last_bit(
    tmp_path: Path, went_back: Path, spiking: None, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    with monkeypatch.context() as patch:
        original = getattr(Recorder, method)

        def dying(self: Recorder, step: int, *args: Any) -> Any:
            if step:
                raise Died
            return original(self, step, *args)

        patch.setattr(Recorder, method, dying)
        with pytest.raises(Died):
            run(tmp_path, settings())
    run(tmp_path, settings())
    assert_same_run(tmp_path, went_back)


def test_warning_costs_no_bit_of_the_result(tmp_path: Path) -> None:
    for kind in ("ignore", "warn", "rollback"):
        run(tmp_path / kind, config(on_spike=OnSpike[kind]))
    assert metrics(tmp_path / "ignore") == metrics(tmp_path / "warn") == metrics(tmp_path / "rollback")
    assert len({sha256(tmp_path / kind / "model.safetensors") for kind in ("ignore", "warn", "rollback")}) == 1


def test_without_a_checkpoint_before_the_spike_training_goes_on(
    tmp_path: Path, spiking: None, caplog: pytest.LogCaptureFixture
) -> None:
    run(tmp_path, settings(save_every=100, eval_every=100, max_steps=20))
    assert "step 19: not rolled back: no checkpoint is older than the spike" in caplog.messages
    assert list(losses(tmp_path)) == list(range(1, 21))
    assert [entry["step"] for entry in of_kind(tmp_path, "spike")] == [19]


def test_the_number_of_rollbacks_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    small(monkeypatch)
    spoil(monkeypatch, range(17, 200))
    run(tmp_path, settings(max_rollbacks=2))
    assert "step 11: not rolled back: train.max_rollbacks=2 of them are done" in caplog.messages
    assert [entry["skipped_from"] for entry in of_kind(tmp_path, "rollback")] == [13, 9]
    assert list(losses(tmp_path)) == list(range(1, 25))


def test_a_loss_that_stays_not_finite_goes_back_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    break_loss(monkeypatch, lambda step: step in range(6, 9) and not of_kind(tmp_path, "rollback"))
    assert run(tmp_path, config(on_spike=OnSpike.rollback, max_nonfinite_steps=3)).step == 12
    (entry,) = of_kind(tmp_path, "rollback")
    assert {key: entry[key] for key in ("to", "reached", "first", "last")} == {
        **{"to": 4, "reached": 8},
        **{"first": 6, "last": 8},
    }
    assert list(losses(tmp_path)) == list(range(1, 13))


def test_a_loss_that_is_never_finite_ends_the_run_after_the_last_rollback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_loss(monkeypatch, lambda step: step >= 6)
    with pytest.raises(DivergedError):
        run(tmp_path, config(on_spike=OnSpike.rollback, max_nonfinite_steps=3, max_rollbacks=2))
    assert len(of_kind(tmp_path, "rollback")) == 2
    assert (tmp_path / "checkpoints/step-00000004").is_dir()


def test_a_gpu_reads_an_update_late_and_a_resume_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Event:
        def __init__(self, device: torch.device) -> None: ...
        def synchronize(self) -> None: ...
        def record(self) -> None: ...

    monkeypatch.setattr(nonfinite, "copies_asynchronously", lambda device: True)
    monkeypatch.setattr(torch, "Event", Event)
    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *args, pin_memory=False, **kwargs: zeros(*args, **kwargs))

    def polled(tracker: NonFiniteTracker, step: int) -> tuple[int, float]:
        tracker.add(torch.tensor(True), step, loss=torch.tensor(step / 2), grad_norm=torch.tensor(1.0))
        found = tracker.poll()
        return found.step, found.loss

    tracker = NonFiniteTracker(CPU, limit=3)
    assert [polled(tracker, step) for step in (1, 2, 3)] == [(0, 0.0), (1, 0.5), (2, 1.0)]
    again = NonFiniteTracker(CPU, limit=3)
    again.restore(tracker.counts(), tracker.unread())
    assert again.unread() == tracker.unread() == [3, 1.5, 1.0]
    assert polled(again, 4) == polled(tracker, 4) == (3, 1.5)
    tracker.add(torch.tensor(True), 5, loss=torch.tensor(2.5), grad_norm=torch.tensor(math.inf))
    again.restore(tracker.counts(), json.loads(json.dumps(tracker.unread(), allow_nan=False)))
    assert again.poll() == (0, 0, 5, 2.5, math.inf)
