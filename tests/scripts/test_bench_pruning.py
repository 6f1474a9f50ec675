"""scripts/bench_pruning.py at toy size: what is measured of a model that is imported and pruned."""

import json
import sys

import pytest

from tests.conftest import ROOT

pytest.importorskip("transformers")
sys.path.insert(0, str(ROOT / "scripts"))
import bench_pruning


@pytest.mark.slow
def test_a_model_is_imported_and_pruned(capsys: pytest.CaptureFixture[str]) -> None:
    bench_pruning.main(["--pieces", "20000", "--width", "64", "--updates", "300", "--lines", "24", "--compared", "4"])
    found = {one["what"]: one for one in map(json.loads, capsys.readouterr().out.splitlines())}
    assert next(iter(found)) == "import"
    assert found["import"]["gb"] * found["import"]["times"] == pytest.approx(found["import"]["peak"], rel=0.1)
    for search in ("greedy", "beam 4"):
        assert found[f"{search}, pruned"]["gb"] < found[f"{search}, whole"]["gb"] / 2
        assert found[search]["lines"] == 24
        assert found[search]["identical"] >= 12  # the others have a piece that so little text does not use
        assert found[search]["different_translations"] > 3


def test_an_unknown_step_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench_pruning.main(["export"])
    assert "export: no step. Steps: import, prune" in capsys.readouterr().err


def test_a_command_that_fails_ends_the_script_with_what_it_said() -> None:
    with pytest.raises(SystemExit, match="tfm import: exit code 2: tfm: error: --output: not given"):
        bench_pruning.spent(["import", "huggingface", "nowhere"])


def test_the_memory_of_a_command_is_its_own() -> None:
    """A process that was forked from a large one counts the memory of that one, too."""
    large = b"x" * 300_000_000
    assert 0.005 < bench_pruning.spent(["--version"]).peak < len(large) / 1e9
