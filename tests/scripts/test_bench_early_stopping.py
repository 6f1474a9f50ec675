"""scripts/bench_early_stopping.py measures each length penalty, with early stopping and without."""

import subprocess
import sys
from pathlib import Path

from tests.addons.interop.test_export_firefox import student
from tests.toy.translator import sentences
from transformer_cli.models.file import write_model

SCRIPTS = Path(__file__).parents[2] / "scripts"


def test_bench_early_stopping_has_a_row_for_each_search(tmp_path: Path) -> None:
    write_model(tmp_path / "m.safetensors", student())
    (tmp_path / "s").write_text("".join(f"{line}\n" for line in sentences(5, seed=1)), encoding="utf-8")
    command = [sys.executable, str(SCRIPTS / "bench_early_stopping.py"), "m.safetensors", "s", "s", "--rounds=1"]
    ran = subprocess.run([*command, "--alphas=0,1"], cwd=tmp_path, capture_output=True, check=True, text=True)
    rows = [row.split(" | ")[:2] for row in ran.stdout.splitlines()[2:]]
    assert rows == [["| 0", "false"], ["| 0", "true"], ["| 1", "false"], ["| 1", "true"]]
