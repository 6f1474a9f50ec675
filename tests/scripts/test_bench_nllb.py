"""scripts/bench_nllb.py at toy size: what it makes is the same in all three programs."""

import re
import sys

import pytest

from tests.conftest import ROOT

pytest.importorskip("transformers")
pytest.importorskip("ctranslate2")
sys.path.insert(0, str(ROOT / "scripts"))
import bench_nllb


@pytest.mark.slow
def test_small_models_of_both_kinds_are_the_same_in_all_programs(capsys: pytest.CaptureFixture[str]) -> None:
    bench_nllb.main(["--lines", "6", "--steps", "2"])
    out = capsys.readouterr().out
    for name in ("nllb", "nllb-fast", "m2m100"):
        assert f"{name}: tfm and transformers" in out
        assert f"{name}: tfm and CTranslate2" in out
    tensors = re.findall(r"(\d+) of (\d+) tensors are equal", out)
    assert len(tensors) == 3
    assert all(same == every for same, every in tensors)


def test_words_are_of_the_script_of_their_language() -> None:
    codes = bench_nllb.CODES["nllb"]
    assert len(codes) == 20
    for number, code in enumerate(codes):
        letters = set(bench_nllb.SCRIPTS[code.rpartition("_")[2]])
        assert {letter for word in bench_nllb.words(code, number) for letter in word} <= letters
