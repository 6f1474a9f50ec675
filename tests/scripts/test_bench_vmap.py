"""scripts/bench_vmap.py has a row for each search and number format, with the four ways beside each other."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.toy.run import model_file, packed, sentences

SCRIPT = Path(__file__).parents[2] / "scripts" / "bench_vmap.py"


def test_each_search_has_a_row(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    (tmp_path / "m.safetensors").write_bytes(packed(model_file()))
    (tmp_path / "s").write_text("".join(f"{line}\n" for line in sentences(6, seed=1)), encoding="utf-8")
    tfm = [sys.executable, "-c", "from transformer_cli.cli import entry_point; entry_point()"]
    pairs = ["--source", "s", "--translation", "s"]
    made = subprocess.run([*tfm, "shortlist", "--checkpoint", "m.safetensors", *pairs], cwd=tmp_path, check=False)
    assert made.returncode == 0
    command = [sys.executable, str(SCRIPT), "m.safetensors", "shortlist.safetensors", "s", "--rounds", "1"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, text=True)
    rows = [row.split(" | ") for row in ran.stdout.splitlines()[1:]]
    assert [row[0] for row in rows] == [f"| {kind}, beam {n}" for kind in ("float32", "int8") for n in (1, 4)]
    assert all(len(row) == 5 for row in rows)
