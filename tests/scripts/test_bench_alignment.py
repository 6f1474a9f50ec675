"""scripts/bench_alignment.py: the alignment error rate, symmetrised links and placed tags, by hand."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import ROOT

TAGS = ROOT / "benchmarks" / "alignment" / "tags_en_fr.tsv"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_alignment", ROOT / "scripts" / "bench_alignment.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look for their types
    spec.loader.exec_module(module)
    return module


def test_the_error_rate_is_that_of_och_and_ney(bench: ModuleType) -> None:
    found, sure, possible = [{(0, 0), (1, 1), (2, 2)}], [{(0, 0), (3, 3)}], [{(1, 1)}]
    # A and S have one link in common, A and P two: 1 - (1 + 2) / (3 + 2); precision 2 of 3, recall 1 of 2.
    assert bench.error_rate(found, sure, possible).row() == "66.7 % | 50.0 % | 40.0 %"
    assert bench.error_rate(sure, sure, possible).row() == "100.0 % | 100.0 % | 0.0 %"


def test_gold_links_are_sure_or_possible_and_count_from_one(bench: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "gold").write_text("1-1 2p3\n\n")
    assert bench.read_gold(tmp_path / "gold", 1) == ([{(0, 0)}, set()], [{(1, 2)}, set()])


def test_links_grow_from_those_of_both_directions(bench: ModuleType) -> None:
    assert bench.symmetrised({(0, 0), (1, 1), (3, 5)}, {(0, 0), (2, 1)}) == {(0, 0), (1, 1), (2, 1), (3, 5)}
    assert bench.symmetrised({(0, 0), (0, 2)}, {(0, 0)}) == {(0, 0)}


def test_tags_are_compared_by_the_letters_before_and_within(bench: ModuleType) -> None:
    row = ("pair", "a <b>red</b> car<img>.", "une voiture <b>rouge</b> <img>.")
    for placed, right in (("une voiture<b> rouge</b><img> .", 2), ("une <b>voiture</b> rouge<img>.", 1)):
        total, found, wrong = bench.score([row], [placed])
        assert (total["pair"], found["pair"], wrong) == (2, right, [0] * (right < 2))


def test_both_sides_of_the_tagged_sentences_have_the_same_tags(bench: ModuleType) -> None:
    rows = bench.read_rows(TAGS)
    assert len(rows) == 150
    for _, source, target in rows:
        assert bench.tags_of(source).spans.keys() == bench.tags_of(target).spans.keys(), source


def test_every_aligner_has_a_row(bench: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    bench.main(["tags", str(TAGS)])
    rows = {
        row.split(" | ")[0]: float(row.split(" | ")[1].split()[0]) for row in capsys.readouterr().out.split("\n")[2:-1]
    }
    assert list(rows) == ["| position", "| tfm align"]
    assert rows["| position"] < rows["| tfm align"]
