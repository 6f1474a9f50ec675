"""The examples of docs/python.md run, in their order, in one program."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.toy_run import model_file, packed
from tests.toy_translator import sentences

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_example_runs(tmp_path: Path) -> None:
    blocks = BLOCK.findall((ROOT / "docs" / "python.md").read_text(encoding="utf-8"))
    assert len(blocks) > 5
    (tmp_path / "model.safetensors").write_bytes(packed(model_file()))
    for name in ("text.en", "text.fr"):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in sentences(200, seed=1)), encoding="utf-8")
    program = "\n".join(blocks)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "BLEU 100" in done.stdout
    assert "nowhere: " in done.stdout, "the message of a TfmError"
