"""The scripts that run benchmarks: what counts as slower."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.conftest import ROOT
from transformer_cli.config.compose import load_config


@pytest.fixture
def regress() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_regress", ROOT / "scripts" / "bench_regress.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def spread(low: float, median: float, high: float) -> dict[str, Any]:
    return {"low": low, "median": median, "high": high, "command": "tfm bench x"}


@pytest.mark.parametrize(
    ("median", "is_slower"),
    [(2.0, False), (1.68, False), (1.66, True), (0.5, True)],  # 7 % below 1.8 is 1.674
)
def test_a_ratio_is_slower_when_it_is_a_tolerance_below_the_spread(
    regress: ModuleType, median: float, is_slower: bool
) -> None:
    lines = regress.losses({"a": spread(1.8, 2.0, 2.2)}, {"a": spread(median, median, median)})
    assert len(lines) == is_slower
    assert all(line.startswith(f"a: {median:.3f}, was 2.000") and line.endswith("tfm bench x") for line in lines)


def test_one_measurement_written_alone_keeps_the_others(
    regress: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ratios.json").write_text(json.dumps({"a: x": 1, "b: x": 2}), encoding="utf-8")
    monkeypatch.setattr(regress, "FILE", tmp_path / "ratios.json")
    monkeypatch.setattr(regress, "MEASUREMENTS", {"a": "tfm bench a", "b": "tfm bench b"})
    monkeypatch.setattr(regress, "measured", lambda command: {"y": {"low": 1, "median": 1, "high": 1}})
    assert run(regress, "--only", "a", "--update") == 0
    assert set(json.loads((tmp_path / "ratios.json").read_text())) == {"a: y", "b: x"}


def test_a_ratio_that_is_no_longer_measured_is_named(regress: ModuleType) -> None:
    new, gone = regress.losses({"a": spread(1, 1, 1)}, {"b": spread(1, 1, 1)})
    assert new.startswith("b: not on file")
    assert gone.startswith("a: no longer measured")


def run(regress: ModuleType, *arguments: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["bench_regress", *arguments])
        status: int = regress.main()
        return status


def test_update_writes_what_a_later_run_is_held_against(
    regress: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = {"tfm to x": {"low": 1.9, "median": 2.0, "high": 2.1}}
    monkeypatch.setattr(regress, "FILE", tmp_path / "ratios.json")
    monkeypatch.setattr(regress, "MEASUREMENTS", {"toy": "tfm bench toy"})
    monkeypatch.setattr(regress, "measured", lambda command: now)
    assert run(regress, "--update") == 0
    assert json.loads((tmp_path / "ratios.json").read_text()) == {
        "toy: tfm to x": {**now["tfm to x"], "command": "tfm bench toy"}
    }
    assert run(regress) == 0
    now["tfm to x"] = {"low": 1.5, "median": 1.6, "high": 1.7}
    assert run(regress) == 1
    assert "slower: toy: tfm to x: 1.600" in capsys.readouterr().err


def test_what_is_on_file_is_what_is_measured(regress: ModuleType) -> None:
    on_file = json.loads((ROOT / "benchmarks" / "ratios.json").read_text(encoding="utf-8"))
    assert {name.partition(":")[0] for name in on_file} == set(regress.MEASUREMENTS)
    for name, one in on_file.items():
        assert 0 < one["low"] <= one["median"] <= one["high"], name
        assert one["command"] == regress.MEASUREMENTS[name.partition(":")[0]]
    for command in regress.MEASUREMENTS.values():
        tfm, bench, subject, *overrides = command.split()
        assert (tfm, bench) == ("tfm", "bench")
        load_config("bench", [f"subject={subject}", *overrides])
