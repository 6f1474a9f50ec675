"""A trace of a few updates: it can be opened, it lists what is costly, and it changes nothing."""

import gzip
import json
import logging
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.toy.run import CPU, config, metrics, run, sha256
from transformer_cli.training import profile
from transformer_cli.training.profile import N_COSTLIEST, TRACED, WAIT, WARM_UP, Trace

LAST = WAIT + WARM_UP + TRACED
FILE = Path("profile") / f"step-{LAST:08d}.pt.trace.json.gz"


def events(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    return found


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profiled")
    logger = logging.getLogger("tfm")
    level = logger.level
    logger.setLevel(logging.INFO)  # as a command does
    run(folder, config(profile=True))
    logger.setLevel(level)
    return folder


def test_a_profiled_run_learns_the_same_to_the_last_bit(profiled: Path, unbroken: Path) -> None:
    assert metrics(profiled) == metrics(unbroken)
    for file in ("model.safetensors", "checkpoints/step-00000012/optimizer.safetensors"):
        assert sha256(profiled / file) == sha256(unbroken / file)
    assert not (unbroken / "profile").exists()


def test_the_trace_is_the_json_of_chrome_with_the_updates_after_warm_up(profiled: Path) -> None:
    assert [file.name for file in (profiled / "profile").iterdir()] == [FILE.name]
    found = events(profiled / FILE)
    complete = [event for event in found if event["ph"] == "X"]
    assert all(event["dur"] >= 0 and "ts" in event and "pid" in event and "tid" in event for event in complete)
    updates = {event["name"] for event in complete if event["name"].startswith("ProfilerStep")}
    assert updates == {f"ProfilerStep#{n}" for n in range(WAIT + WARM_UP, LAST)}
    n_calls = {name: sum(event["name"] == name for event in complete) for name in ("aten::addmm", "aten::_fused_adam_")}
    assert n_calls["aten::addmm"] > TRACED
    assert n_calls["aten::_fused_adam_"] == 2 * TRACED  # the optimizer has two groups


def own_ms(found: list[dict[str, Any]]) -> Counter[str]:
    """Time of each operation on its thread without what it called."""
    spent: Counter[str] = Counter()
    for thread in {event["tid"] for event in found}:
        caller: list[dict[str, Any]] = []
        for event in sorted((e for e in found if e["tid"] == thread), key=lambda e: (e["ts"], -e["dur"])):
            while caller and caller[-1]["ts"] + caller[-1]["dur"] <= event["ts"]:
                caller.pop()
            if caller:
                spent[caller[-1]["name"]] -= event["dur"] / 1000
            spent[event["name"]] += event["dur"] / 1000
            caller.append(event)
    return spent


def test_the_log_has_the_costliest_operations(profiled: Path) -> None:
    lines = (profiled / "tfm.log").read_text(encoding="utf-8").split("\n")
    (logged,) = (i for i, line in enumerate(lines) if f"{profiled / FILE}: open it in https://ui.perfetto.dev" in line)
    header, *rows = [line.partition(" INFO ")[2] for line in lines[logged + 1 : logged + 2 + N_COSTLIEST]]
    assert header.split() == ["operation", "calls", "ms", "share", "an", "update"]
    matches = [re.fullmatch(r"(\S.*\S) +([\d,]+) +([\d.]+) +([\d.]+)%", row) for row in rows]
    parsed = [(match[1].strip(), float(match[3]), float(match[4])) for match in matches if match]
    assert len(parsed) == N_COSTLIEST
    assert [ms for _, ms, _ in parsed] == sorted((ms for _, ms, _ in parsed), reverse=True)
    assert 0 < sum(share for *_, share in parsed) <= 100.1
    ops = [e for e in events(profiled / FILE) if e["ph"] == "X" and e["cat"] in ("cpu_op", "user_annotation")]
    expected = own_ms(ops)
    for name, ms, _ in parsed:
        assert ms == pytest.approx(expected[name] / TRACED, rel=0.1, abs=0.02)


@pytest.mark.slow
def test_a_run_that_ends_before_is_traced_as_far_as_it_came(tmp_path: Path) -> None:
    run(tmp_path / "some", config(profile=True, max_steps=LAST - 1))
    updates = {e["name"] for e in events(tmp_path / f"some/profile/step-{LAST - 1:08d}.pt.trace.json.gz")}
    assert f"ProfilerStep#{LAST - 2}" in updates
    for last in (WAIT, WAIT + WARM_UP):  # torch records, but nothing is counted
        run(tmp_path / f"none{last}", config(profile=True, max_steps=last))
        assert not (tmp_path / f"none{last}/profile").exists()


@pytest.mark.slow
def test_a_full_disk_under_the_trace_is_told_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device", "there")

    monkeypatch.setattr(profile, "make_folder", full)
    assert run(tmp_path, config(profile=True)).step == 12
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "there: No space left on device. Training goes on without it"
    ]


def test_nothing_is_traced_unless_asked(tmp_path: Path) -> None:
    with Trace(tmp_path, CPU, enabled=False) as trace:
        for step in range(1, LAST + 2):
            trace.advance(step)
    assert list(tmp_path.iterdir()) == []
