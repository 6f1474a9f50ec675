"""scripts/bench_dual_cross_entropy.py: the text that it writes, and what it counts of it."""

import re
import sys
from pathlib import Path

import pytest

from tests.addons.dual_cross_entropy.test_dual_cross_entropy import model
from tests.conftest import ROOT
from tests.data.cleaning.noise import sound_pairs

sys.path.insert(0, str(ROOT / "scripts"))
import bench_dual_cross_entropy


def test_every_pair_that_is_left_is_counted_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("tatoeba_en_fr/train.en", "tatoeba_en_fr/train.fr", "tatoeba_en_de/train.de"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        lines = [pair[not name.endswith("en")] for pair in sound_pairs(500)]
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    pairs = ["--pairs", "400"]
    bench_dual_cross_entropy.main(["write", str(tmp_path), str(tmp_path / "noisy"), *pairs])
    text = bench_dual_cross_entropy.noisy(tmp_path, 400, seed=1)
    sides = [(tmp_path / f"noisy.{side}").read_text(encoding="utf-8").split("\n")[:-1] for side in ("en", "fr")]
    assert list(zip(*sides, strict=True)) == text.pairs
    models = [model(tmp_path, "en-fr"), model(tmp_path, "fr-en", seed=2)]
    bench_dual_cross_entropy.main(["measure", str(tmp_path), *models, *pairs])
    first, _, _, _, *rows = capsys.readouterr().out.strip().split("\n")
    left = int(first.split()[0])
    assert 200 < left < 400
    assert len(rows) == len(bench_dual_cross_entropy.SHARES)
    for row in rows:
        threshold, *found = re.findall(r"[\d.]+", row)
        dropped, of = [int(n) for n in found[:8:2]], [int(n) for n in found[1:8:2]]
        assert sum(of) <= left - int(found[8])
        precision = sum(dropped) / max(1, sum(dropped) + int(found[8]))
        assert float(found[10]) == pytest.approx(precision, abs=0.006)
        assert (sum(dropped) + int(found[8])) / left == pytest.approx(float(threshold), abs=0.15)
