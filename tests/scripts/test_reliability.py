"""The table that scripts/reliability prints: it passes only for what was measured and is as promised."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, slow

GOOD = {
    "kills at random instants, 1 rank": "703 of 703 kills: 0 unusable, 0 saves lost, 0 diverged",
    "kills at random instants, 2 ranks": "300 of 300 kills: 0 unusable, 0 saves lost, 0 diverged",
    "deaths at file events, saving": "296 of 296 recover: 37 events",
    "deaths at file events, training": "2,128 of 2,128 recover: 266 events",
    "names published in order, by strace": "9 of 9 renames",
    "failing file events, saving": "120 of 120 lose nothing",
    "failing file events, training": "900 of 900 lose nothing",
    "full disks": "60 of 60 lose nothing",
    "resume points, fp32": "180 of 180 equal to the last bit",
    "resume points, bf16": "180 of 180 equal to the last bit",
    "invariance fp32, greedy": "0 of 200,000 line-translations differ; scores by at most 1e-6",
    "invariance fp32, beam": "0 of 20,000 line-translations differ; scores by at most 1e-6",
    "hostile files with mutations": "4,000 read, 0 executed",
    "flipped bytes": "10,000 of 10,000 refused",
}


def table(tmp_path: Path, figures: list[tuple[str, str]], *arguments: str) -> tuple[int, str]:
    file = tmp_path / "figures"
    file.write_text("".join(json.dumps({"name": n, "value": v}) + "\n" for n, v in figures), encoding="utf-8")
    command = [sys.executable, "scripts/reliability_table.py", *arguments, str(file)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.stderr == ""
    return result.returncode, result.stdout


def test_a_table_of_kept_promises_passes(tmp_path: Path) -> None:
    status, text = table(tmp_path, [*GOOD.items(), ("flipped bytes", "150 of 150 refused"), ("rows", "3")])
    assert (status, text.count("| pass |")) == (0, len(GOOD))
    assert "10,000 of 10,000 refused" in text
    assert "- rows: 3" in text


@pytest.mark.parametrize("name", [*list(GOOD)[:3], *map(slow, list(GOOD)[3:])])
def test_a_figure_that_is_missing_or_missed_fails_the_table(tmp_path: Path, name: str) -> None:
    others = [(other, value) for other, value in GOOD.items() if other != name]
    spoilt = {"0 executed": "1 executed", "0 of 2": "1 of 2"}
    worse = next((GOOD[name].replace(*pair) for pair in spoilt.items() if pair[0] in GOOD[name]), f"2 of {GOOD[name]}")
    missing_status, missing = table(tmp_path, others)
    missed_status, missed = table(tmp_path, [*others, (name, worse)])
    assert (missing_status, missed_status) == (1, 1)
    assert "| nothing | MISSING |" in missing
    assert f"| {worse} | MISS |" in missed
