"""scripts/bench_students.py measures each system that it is given, and bench_early_stopping.py each length penalty."""

import json
import subprocess
import sys
from pathlib import Path

from tests.addons.interop.test_export_firefox import exported, student
from tests.toy.translator import sentences
from transformer_cli.models.file import write_model

SCRIPTS = Path(__file__).parents[2] / "scripts"


def test_bench_students_measures_torch_and_firefox(tmp_path: Path) -> None:
    model = student()
    write_model(tmp_path / "m.safetensors", model)
    (tmp_path / "fx").mkdir()
    exported(tmp_path / "fx", model)
    for name, seed in (("s", 1), ("t", 2)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in sentences(5, seed=seed)), encoding="utf-8")
    systems = ["greedy=torch:m.safetensors,search=greedy,beam_size=1", "beam=torch:m.safetensors", "browser=firefox:fx"]
    ran = subprocess.run(
        [
            sys.executable,
            str(SCRIPTS / "bench_students.py"),
            "s",
            "t",
            *systems,
            "--rounds=1",
            "--json=found.json",
        ],
        cwd=tmp_path,
        capture_output=True,
        check=True,
        text=True,
    )
    rows = ran.stdout.splitlines()
    assert [row.split(" | ")[0] for row in rows[2:]] == ["| greedy", "| beam", "| browser"]
    assert all(row.count("|") == rows[0].count("|") for row in rows)
    found = json.loads((tmp_path / "found.json").read_bytes())
    assert [one["n_tokens"] for one in found] == [found[0]["n_tokens"]] * 3
    assert all(len(one["seconds"]) == 1 and len(one["single_ms"]) == 5 for one in found)


def test_bench_early_stopping_has_a_row_for_each_search(tmp_path: Path) -> None:
    write_model(tmp_path / "m.safetensors", student())
    (tmp_path / "s").write_text("".join(f"{line}\n" for line in sentences(5, seed=1)), encoding="utf-8")
    command = [sys.executable, str(SCRIPTS / "bench_early_stopping.py"), "m.safetensors", "s", "s", "--rounds=1"]
    ran = subprocess.run([*command, "--alphas=0,1"], cwd=tmp_path, capture_output=True, check=True, text=True)
    rows = [row.split(" | ")[:2] for row in ran.stdout.splitlines()[2:]]
    assert rows == [["| 0", "false"], ["| 0", "true"], ["| 1", "false"], ["| 1", "true"]]
