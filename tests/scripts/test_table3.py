"""The rows of the paper's table 3: each differs from base in the paper's knob alone, and by the paper's ratio."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.conftest import ROOT, slow
from tests.support.each import each
from transformer_cli.config.yaml_files import choices_of

# Vaswani et al. 2017, table 3: dev perplexity, dev BLEU, millions of parameters. Ours are an eighth as wide as theirs,
# with half their layers: d_k of 16 and 32 becomes 2 and 4, 2, 4 and 8 layers 1, 2 and 4.
ROWS = {
    "base": ({}, ("4.92", "25.8", "65")),
    "a_heads_1": ({"model.n_heads": 1}, ("5.29", "24.9", "")),
    "a_heads_4": ({"model.n_heads": 4}, ("5.00", "25.5", "")),
    "a_heads_16": ({"model.n_heads": 16}, ("4.91", "25.8", "")),
    "a_heads_32": ({"model.n_heads": 32}, ("5.01", "25.4", "")),
    "b_d_k_2": ({"model.d_k": 16 // 8}, ("5.16", "25.1", "58")),
    "b_d_k_4": ({"model.d_k": 32 // 8}, ("5.01", "25.4", "60")),
    "c_layers_1": ({"model.n_encoder_layers": 1, "model.n_decoder_layers": 1}, ("6.11", "23.7", "36")),
    "c_layers_2": ({"model.n_encoder_layers": 2, "model.n_decoder_layers": 2}, ("5.19", "25.3", "50")),
    "c_layers_4": ({"model.n_encoder_layers": 4, "model.n_decoder_layers": 4}, ("4.88", "25.5", "80")),
    "c_d_model_32": ({"model.d_model": 256 // 8}, ("5.75", "24.5", "28")),
    "c_d_model_128": ({"model.d_model": 1024 // 8}, ("4.66", "26.0", "168")),
    "c_d_ff_128": ({"model.d_ff": 1024 // 8}, ("5.12", "25.4", "53")),
    "c_d_ff_512": ({"model.d_ff": 4096 // 8}, ("4.75", "26.2", "90")),
    "d_dropout_0.0": ({"model.dropout": 0.0}, ("5.77", "24.6", "")),
    "d_dropout_0.2": ({"model.dropout": 0.2}, ("4.95", "25.5", "")),
    "d_smoothing_0.0": ({"train.label_smoothing": 0.0}, ("4.67", "25.3", "")),
    "d_smoothing_0.2": ({"train.label_smoothing": 0.2}, ("5.47", "25.7", "")),
    "e_learned_positions": ({"model.positions": "learned"}, ("4.92", "25.7", "")),
}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("table3_table", ROOT / "scripts" / "table3_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["table3_table"] = module  # where its dataclasses look for their types
    spec.loader.exec_module(module)
    return module


def test_every_row_of_the_paper_is_an_experiment() -> None:
    assert {f"table3_{row}" for row in ROWS} == {
        name for name in choices_of("experiment") if name.startswith("table3_")
    }


@pytest.mark.parametrize("row", [row if row.endswith(("_4", "_0.0", "positions")) else slow(row) for row in ROWS])
def test_a_row_differs_from_base_in_the_paper_s_knob_alone(script: ModuleType, row: str) -> None:
    knobs, published = ROWS[row]
    assert {key: new for key, (_, new) in script.differences(row).items()} == knobs
    told = script.published(row)
    assert (told.ppl, told.bleu, told.millions) == published


def test_base_is_an_eighth_as_wide_and_half_as_deep_as_the_paper_s(script: ModuleType) -> None:
    model = script.load_config("train", ["experiment=table3_base"]).model
    assert (8 * model.d_model, 8 * model.d_ff, 8 * model.key_width, 8 * model.value_width) == (512, 2048, 64, 64)
    assert (2 * model.n_encoder_layers, 2 * model.n_decoder_layers, model.n_heads) == (6, 6, 8)


@each(
    "ours, theirs, told",
    [
        ([1.5, 1.6], "5.29", "yes"),  # above base here and there
        ([1.2, 1.1], "5.29", "no"),
        ([1.5, 1.1], "5.29", "with 1 of 2 seeds"),
        ([1.2, 1.1], "4.67", "yes"),
        ([1.3, 1.4], "4.67", "no"),  # as base is no agreement
        ([1.5, 1.6], "4.92", "it does not there"),
    ],
)
def test_a_row_agrees_when_it_moves_to_the_paper_s_side_of_base(
    script: ModuleType, ours: list[float], theirs: str, told: str
) -> None:
    assert script.moves(ours, [1.3, 1.4], theirs, "4.92") == told


def test_the_table_has_the_last_dev_scores_of_every_seed(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, ppl, bleu in [("base-1", 1.5, 70), ("base-2", 1.7, 72), ("a_heads_1-1", 1.8, 60), ("a_heads_1-2", 2, 64)]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").touch()
        entries = [
            {"kind": "dev", "dev_ppl": 9, "dev_bleu": 1},
            {"kind": "train"},
            {"kind": "dev", "dev_ppl": ppl, "dev_bleu": bleu},
        ]
        (tmp_path / name / "metrics.jsonl").write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    three_numbers = SimpleNamespace(
        weights={"a": SimpleNamespace(numel=lambda: 1000), "b": SimpleNamespace(numel=lambda: 234)}
    )
    monkeypatch.setattr(script, "read_model", lambda path: three_numbers)
    assert script.main([str(tmp_path), "--rows", "base", "a_heads_1", "--seeds", "1", "2"]) == 0
    printed = capsys.readouterr().out
    assert "|  | base | 0.001 | 1.600 | 71.0 | 65 | 4.92 | 25.8 |  |  |\n" in printed
    assert "| (A) | n_heads 1 | 0.001 | 1.900 | 62.0 |  | 5.29 | 24.9 | yes | yes |\n" in printed
    assert "| a_heads_1 | 1.800, 2.000 | 60.0, 64.0 |\n" in printed


def test_a_run_that_is_not_finished_is_named(script: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="base-3: is not finished"):
        script.main([str(tmp_path), "--rows", "base", "--seeds", "3"])
