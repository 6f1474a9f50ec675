"""scripts/bench_alignment_cost.py: the ways take turns, and each has a row."""

import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.toy.run import model_file, packed, sentences
from transformer_cli.models.file import ModelFile

sys.path.insert(0, str(ROOT / "scripts"))
import bench_alignment_cost as cost


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_text("".join(f"{line}\n" for line in sentences(200, seed=1)), encoding="utf-8")
    return path


def written(folder: Path, head: tuple[int, int] | None) -> str:
    file: ModelFile = model_file(n_decoder_layers=2)
    path = folder / "m.safetensors"
    path.write_bytes(packed(cost.replace(file, alignment_head=head)))
    return str(path)


def test_each_round_begins_with_another_way() -> None:
    order: list[tuple[str, int]] = []

    def way(name: str) -> float:
        order.append((name, len(order)))
        return float(len(order))

    found = cost.in_turn(2, {name: lambda _, name=name: way(name) for name in "abc"})
    assert [name for name, _ in order] == ["a", "b", "c", "b", "c", "a"]
    assert found == {"a": [1, 6], "b": [2, 4], "c": [3, 5]}


def test_ratios_are_those_within_a_round() -> None:
    found = {"a": [1.0, 2.0, 4.0], "b": [2.0, 3.0, 4.0]}
    assert list(cost.table(found, ["a", "b"]))[2:] == [
        "| a | 2.0 | 1.00 | 1.00 to 1.00 |",
        "| b | 3.0 | 1.50 | 1.00 to 2.00 |",
    ]
    assert list(cost.table(found, ["a", "b"], [10, 10, 10]))[2:] == [
        "| a | 5 | 1.00 | 1.00 to 1.00 |",
        "| b | 3 | 1.50 | 1.00 to 2.00 |",
    ]


def test_a_model_without_a_taught_head_is_refused(tmp_path: Path, text: Path) -> None:
    with pytest.raises(SystemExit, match=r"has no head that is taught\. Train it with train\.guided_alignment"):
        cost.main([written(tmp_path, None), str(text), str(text)])


def test_too_little_text_is_refused(tmp_path: Path, text: Path) -> None:
    with pytest.raises(SystemExit, match=r"--rounds 7: the text has 0 updates of 4,096 tokens\. Give more text"):
        cost.main([written(tmp_path, (0, 0)), str(text), str(text)])


@pytest.mark.slow
def test_each_way_has_a_row(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cost, "TOKENS", 256)
    cost.main([written(tmp_path, (0, 0)), str(text), str(text), "--rounds", "1", "--lines", "3"])
    rows = [row.split(" | ")[0] for row in capsys.readouterr().out.splitlines()]
    assert [row for row in rows if row.startswith("| ")] == [
        "| without",
        "| guided",
        "| guided, full context",
        "| without --alignments",
        "| --alignments",
        "| --alignments, full context",
    ]
