"""scripts/bench_memory.py at toy size: each way of fine-tuning is measured, and a pruned model is a small one."""

import json
import sys

import pytest

from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import bench_memory


@pytest.mark.slow
def test_the_memory_of_fine_tuning_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--pieces", "20000", "--width", "32", "--layers", "1"]
    bench_memory.main(["LoRA and pruned, 16 bits", "full", *sizes, "train.eval_every=1"])
    _, pruned, full = capsys.readouterr().out.splitlines()
    found = [json.loads(line) for line in (pruned, full)]
    assert [one["way"] for one in found] == ["LoRA and pruned, 16 bits", "full"]
    assert found[0]["model GB"] < found[1]["model GB"] / 2
    assert all(one["peak GB"] > 0.05 and one["s an update"] > 0 for one in found)
