"""scripts/bench_loop.py: the text is drawn without overlap, and the loop gets it."""

import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import bench_loop


def lines_of(path: Path) -> list[str]:
    return path.read_text().split("\n")[:-1]


def test_the_texts_of_a_loop_do_not_overlap(tmp_path: Path) -> None:
    for split, numbers in {"train": [1, 2, 3, 3, 4, 5, 6, 7, 8], "valid": [2], "test": [9]}.items():
        for language in ("en", "fr"):
            (tmp_path / f"{split}.{language}").write_text("".join(f"{language} {n}\n" for n in numbers))
    words = [str(tmp_path), "--real", "2", "--monolingual", "2", "--output", str(tmp_path / "o"), "--rounds", "1"]
    line = bench_loop.arguments_of(*bench_loop.options_of(words))
    text = tmp_path / "o-text"
    found = [lines_of(text / name) for name in ("train.en", "train.fr", "mono.en", "mono.fr")]
    assert found == [["en 1", "en 3"], ["fr 1", "fr 3"], ["en 4", "en 5"], ["fr 6", "fr 7"]]
    assert line[:3] == ["augment", "loop", "data=files"]
    assert line[-2:] == ["--rounds", "1"]
    assert f"data.dev=[{text}/dev.en,{text}/dev.fr]" in line
    with pytest.raises(SystemExit, match="has 7 pairs without overlap, fewer than are asked for"):
        bench_loop.arguments_of(*bench_loop.options_of([*words, "--real", "9"]))
