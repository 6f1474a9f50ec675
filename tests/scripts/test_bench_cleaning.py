"""scripts/bench_cleaning.py: faults that are put into the built-in corpus, and what is counted of them."""

import json
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.data.cleaning.noise import sound_pairs

sys.path.insert(0, str(ROOT / "scripts"))
import bench_cleaning

FOREIGN = ["El señor no ha comprado nunca un coche nuevo.", "Mañana vamos todos juntos a la playa."]


def test_each_kind_of_fault_is_in_its_share_of_the_pairs() -> None:
    sound = list(sound_pairs(2000))
    text = bench_cleaning.broken(sound, FOREIGN, ("en", "fr"), seed=1)
    counts = {kind: text.kinds.count(kind) for kind in set(text.kinds)}
    assert counts.pop("") == 2000 - sum(counts.values())
    assert set(counts.values()) == {100}
    assert len(counts) == 8
    for pair, was, kind in zip(text.pairs, text.sound, text.kinds, strict=True):
        assert (pair == was) == (kind == "")
    again = bench_cleaning.broken(sound, FOREIGN, ("en", "fr"), seed=1)
    assert again.pairs == text.pairs
    assert bench_cleaning.broken(sound, FOREIGN, ("en", "fr"), seed=2).pairs != text.pairs


def write_corpora(folder: Path) -> None:
    for name, other in (("multi30k", "de"), ("tatoeba_en_de", "de"), ("tatoeba_en_fr", "fr")):
        (folder / name).mkdir()
        for side, language in enumerate(("en", "fr", other)):
            lines = [pair[min(side, 1)] for pair in sound_pairs(1500)]
            (folder / name / f"train.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def test_filters_are_counted_by_what_they_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_corpora(tmp_path)
    monkeypatch.setitem(bench_cleaning.BOILERPLATE, "de", bench_cleaning.BOILERPLATE["fr"])
    printed = list(bench_cleaning.noise(tmp_path, [1]))
    copied = [line for line in printed if line.startswith("| copied")]
    assert copied == ["| copied | 75 | 75 | 0 | 0 | 1.000 |"] * 2
    assert sum(line.startswith("| word_alignment") for line in printed) == 2


@pytest.mark.slow
def test_preparation_is_timed_with_and_without_cleaning(tmp_path: Path) -> None:
    write_corpora(tmp_path)
    [printed] = bench_cleaning.speed(tmp_path, 2000, 1)
    found = json.loads(printed)
    assert found["pairs"] == 2000
    assert len(found["ratios"]) == 1
