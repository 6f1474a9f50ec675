"""The examples of docs/python.md run, in their order, in one program."""

import re
from pathlib import Path

from tests.conftest import ROOT
from tests.forked import run
from tests.toy_run import model_file, packed
from tests.toy_translator import sentences

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_example_runs(tmp_path: Path) -> None:
    blocks = BLOCK.findall((ROOT / "docs" / "python.md").read_text(encoding="utf-8"))
    assert len(blocks) > 5
    (tmp_path / "model.safetensors").write_bytes(packed(model_file()))
    for name in ("text.en", "text.fr"):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in sentences(200, seed=1)), encoding="utf-8")
    ran = run([], tmp_path, program="\n".join(blocks))
    assert ran.code == 0, ran.err.decode()
    assert b"BLEU 100" in ran.out
    assert b"nowhere: " in ran.out, "the message of a TfmError"
