"""Loggers of experiment trackers: what they are given is metrics.jsonl, and none of them stops or slows a training."""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.toy.run import config, run, run_until
from transformer_cli.config.run_logger import LOGGERS, LoggedRun, RunLogger
from transformer_cli.config.train import TrainConfig
from transformer_cli.errors import ConfigError, EnvironmentFault
from transformer_cli.training import loggers
from transformer_cli.training.loggers import check_loggers

Point = tuple[int, str, float]


def settings(*names: str, **train: Any) -> TrainConfig:
    return config(loggers=list(names), **{"max_steps": 4, "eval_every": 2, "samples": 0, **train})


def written(folder: Path) -> dict[tuple[int, str], float]:
    """The numbers of metrics.jsonl, by step and name."""
    entries = [json.loads(line) for line in (folder / "metrics.jsonl").read_bytes().split(b"\n")[:-1]]
    return {
        (entry["step"], f"{entry['kind']}/{name}"): value
        for entry in entries
        for name, value in entry.items()
        if name not in ("step", "kind") and isinstance(value, int | float)
    }


def by_step(points: list[Point]) -> dict[tuple[int, str], float]:
    """What comes later holds."""
    return {(step, name): value for step, name, value in points}


# ---- Stand-ins of the packages


class Trackers:
    """What the stand-ins were called with: the runs that were begun, and their points by the id of the run."""

    def __init__(self) -> None:
        self.begun: list[dict[str, Any]] = []
        self.points: dict[str, list[Point]] = {}
        self.ended: list[str] = []

    def wandb(self) -> ModuleType:
        def init(**given: Any) -> SimpleNamespace:
            self.begun.append(given)
            points = self.points.setdefault(given["id"], [])

            def log(values: dict[str, float]) -> None:
                points.extend((int(values["step"]), name, value) for name, value in values.items() if name != "step")

            return SimpleNamespace(
                log=log, define_metric=lambda *_, **__: None, finish=lambda: self.ended.append(given["id"])
            )

        return _module("wandb", init=init, Settings=dict)

    def trackio(self) -> ModuleType:
        def init(**given: Any) -> SimpleNamespace:
            self.begun.append(given)
            points = self.points.setdefault(given["name"], [])
            return SimpleNamespace(
                log=lambda values, *, step: points.extend((step, name, value) for name, value in values.items()),
                finish=lambda: self.ended.append(given["name"]),
            )

        return _module("trackio", init=init)

    def mlflow(self) -> ModuleType:
        tracker = self

        class MlflowClient:
            def get_experiment_by_name(self, name: str) -> None:
                return None

            def create_experiment(self, name: str) -> str:
                return "1"

            def create_run(self, experiment_id: str, run_name: str) -> SimpleNamespace:
                tracker.begun.append({"name": run_name})
                return SimpleNamespace(info=SimpleNamespace(run_id=f"run {len(tracker.begun)}"))

            def update_run(self, run_id: str, status: str) -> None:
                tracker.begun.append({"id": run_id})

            def log_batch(self, run_id: str, metrics: Any = (), params: Any = ()) -> None:
                assert len(params) <= 100
                found = tracker.points.setdefault(run_id, [])
                found.extend((step, name, value) for name, value, _, step in metrics)

            def set_terminated(self, run_id: str) -> None:
                tracker.ended.append(run_id)

        entities = SimpleNamespace(Metric=lambda *values: values, Param=lambda *values: values)
        return _module("mlflow", MlflowClient=MlflowClient, entities=entities)


def _module(name: str, **content: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(content)
    return module


@pytest.fixture
def trackers(monkeypatch: pytest.MonkeyPatch) -> Trackers:
    made = Trackers()
    for name in ("wandb", "mlflow", "trackio"):
        monkeypatch.setitem(sys.modules, name, getattr(made, name)())
    return made


@pytest.mark.parametrize("name", ["wandb", "mlflow", "trackio"])
def test_a_tracker_has_the_numbers_of_the_metrics_file_and_a_resumed_run_continues_its_run(
    tmp_path: Path, trackers: Trackers, name: str
) -> None:
    run_until(4, tmp_path, settings(name))
    run(tmp_path, settings(name))
    assert len(trackers.begun) == 2
    (points,) = trackers.points.values()  # one run
    assert by_step(points) == written(tmp_path)
    assert len(trackers.ended) == 2
    assert not (tmp_path / "tensorboard").exists()


@pytest.mark.parametrize("name", ["wandb", "mlflow", "trackio"])
def test_a_missing_package_is_one_line_that_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(EnvironmentFault) as missing:
        check_loggers([name])
    assert str(missing.value).startswith(f"train.loggers=[{name}]: the package {name} cannot be imported")
    assert str(missing.value).endswith(f"Run `pip install '.[{name}]'` in the checkout of tfm")


def test_a_logger_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^no logger called `wandbb`; did you mean `wandb`\? \(choices: mlflow, "):
        check_loggers(["tensorboard", "wandbb"])


# ---- Faults


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    LOGGERS.names()
    monkeypatch.setattr(LOGGERS, "_entries", dict(LOGGERS._entries))


def failing(at: str) -> type[RunLogger]:
    class Failing(RunLogger):
        def __init__(self, run: LoggedRun) -> None:
            super().__init__(run)
            self.fail("open")

        def fail(self, now: str) -> None:
            if now == at:
                raise {"open": ConnectionError, "scalars": SystemExit, "close": RuntimeError}[at](f"no {at}")

        def scalars(self, step: int, kind: str, values: Any) -> None:
            self.fail("scalars")

        def close(self) -> None:
            self.fail("close")

    return Failing


@pytest.mark.parametrize(
    ("at", "what"), [("open", "ConnectionError"), ("scalars", "SystemExit"), ("close", "RuntimeError")]
)
def test_a_logger_that_fails_is_off_after_one_warning(
    tmp_path: Path, registered: None, caplog: pytest.LogCaptureFixture, at: str, what: str
) -> None:
    LOGGERS.register("failing")(failing(at))
    assert run(tmp_path, settings("failing")).step == 4
    told = [message for message in caplog.messages if "failing" in message]
    assert told == [f"train.loggers: failing: {what}: no {at}. Training goes on without it"]
    assert len(written(tmp_path)) > 20


def test_a_logger_that_hangs_stops_no_training(
    tmp_path: Path, registered: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    @LOGGERS.register("hanging")
    class Hanging(RunLogger):
        def scalars(self, step: int, kind: str, values: Any) -> None:
            over.wait(60)

    monkeypatch.setattr(loggers, "CLOSE_S", 0.05)
    monkeypatch.setattr(loggers, "QUEUED", 3)
    start = time.monotonic()
    assert run(tmp_path, settings("hanging")).step == 4
    assert time.monotonic() - start < 50
    told = [message for message in caplog.messages if "hanging" in message]
    assert told == ["train.loggers: hanging: is 3 entries behind. Training goes on without it"]
    over.set()


# ---- The packages themselves, where they are installed


def records(file: Path) -> Iterator[bytes]:
    """The records of a file of wandb: a header of 7 bytes, and then a log as LevelDB has it, in blocks of 32 KiB."""
    content, at, begun = file.read_bytes(), 7, b""
    assert content[:4] == b":W&B"
    while at + 7 <= len(content):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        part, at = content[at + 7 : at + 7 + length], at + 7 + length
        begun = part if kind in (1, 2) else begun + part
        if kind in (1, 4):
            yield begun


def test_wandb_reads_back_what_the_metrics_file_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2

    monkeypatch.setenv("WANDB_MODE", "offline")
    run_until(4, tmp_path, settings("wandb"))
    run(tmp_path, settings("wandb"))
    points: list[Point] = []
    ids = set()
    for file in sorted(tmp_path.glob("wandb/offline-run-*/run-*.wandb"), key=lambda file: file.stat().st_mtime):
        for content in records(file):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(content)
            if record.HasField("run"):
                ids.add(record.run.run_id)
            items = {(item.key or item.nested_key[0]): json.loads(item.value_json) for item in record.history.item}
            points += [(items["step"], name, value) for name, value in items.items() if "/" in name]
    assert by_step(points) == written(tmp_path)
    assert len(ids) == 1


def test_mlflow_reads_back_what_the_metrics_file_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    folder = tmp_path / "run"
    run_until(4, folder, settings("mlflow"))
    run(folder, settings("mlflow"))
    client = mlflow.MlflowClient()
    (experiment,) = [one for one in client.search_experiments() if one.name == "tfm"]
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FINISHED"
    assert found.data.params["train.max_steps"] == "4"
    history = [
        (one.step, one.key, one.value)
        for key in found.data.metrics
        for one in client.get_metric_history(found.info.run_id, key)
    ]
    assert by_step(history) == written(folder)


def test_trackio_reads_back_what_the_metrics_file_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "store"))
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    pytest.importorskip("trackio")
    from trackio.sqlite_storage import SQLiteStorage

    folder = tmp_path / "run"
    run_until(4, folder, settings("trackio"))
    run(folder, settings("trackio"))
    logs = SQLiteStorage.get_logs("tfm", "run")
    points = [(log["step"], name, value) for log in logs for name, value in log.items() if "/" in name]
    assert by_step(points) == written(folder)
