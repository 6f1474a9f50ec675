"""`tfm attention --positions`: its numbers against the paper's formulas worked out here, its files, and its errors."""

import cmath
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import slow
from tests.support.contract import refused, run
from tests.toy.models import random_file
from tests.toy.run import MODEL, model_file, packed, tokenizers
from transformer_cli.addons.attention_maps.positions.encodings import compute_encodings, modules_of_config
from transformer_cli.addons.attention_maps.positions.page import render
from transformer_cli.addons.attention_maps.positions.pictures import draw_figure, render_picture
from transformer_cli.config.model import ModelConfig, Positions
from transformer_cli.models.file import ModelFile
from transformer_cli.models.layouts import PaddedLayout

KINDS = [Positions.sinusoidal, Positions.sinusoidal_concat, Positions.sinusoidal_tensor2tensor, Positions.rotary]


def drawn(folder: Path, *arguments: str) -> dict[str, Any]:
    """What --output a.json has."""
    ran = run(["attention", "--output", "a.json", "--overwrite", *arguments], folder)
    assert (ran.code, ran.err) == (0, b"")
    held: dict[str, Any] = json.loads((folder / "a.json").read_bytes())
    return held


def maps_of(held: dict[str, Any]) -> dict[str, np.ndarray]:
    return {one["name"]: np.array(one["values"]) for one in held["maps"]}


def paper(position: int, dimension: int, d_model: int) -> float:
    """Section 3.5: PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos(of the same)."""
    angle = position / 10_000 ** ((dimension - dimension % 2) / d_model)
    return math.cos(angle) if dimension % 2 else math.sin(angle)


# ---- Numbers


def test_interleaved_values_are_those_of_the_paper_s_formula(tmp_path: Path) -> None:
    held = drawn(tmp_path, "--positions", "20", "model.d_model=512")
    expected = [[paper(p, d, 512) for d in range(512)] for p in range(20)]
    np.testing.assert_allclose(maps_of(held)["interleaved"], expected, atol=1e-6)
    assert held["positions"] == list(range(20))
    # "The wavelengths form a geometric progression from 2π to 10000 · 2π."
    assert held["wavelengths"][:4] == pytest.approx([2 * math.pi] * 2 + [2 * math.pi * 10_000 ** (2 / 512)] * 2)
    assert held["wavelengths"][511] == pytest.approx(2 * math.pi * 10_000 ** (510 / 512))


@pytest.mark.parametrize("kind", ["sinusoidal", "sinusoidal_concat"])
def test_concatenated_values_are_the_same_with_all_sines_first(tmp_path: Path, kind: str) -> None:
    held = drawn(tmp_path, "--positions", "7", "model.d_model=10", f"model.positions={kind}")
    expected = [[paper(p, d, 10) for d in (*range(0, 10, 2), *range(1, 10, 2))] for p in range(7)]
    np.testing.assert_allclose(maps_of(held)["concatenated"], expected, atol=1e-6)
    assert {one["name"] for one in held["maps"] if one["used"]} == {
        "concatenated" if kind == "sinusoidal_concat" else "interleaved"
    }


@pytest.mark.parametrize("kind", KINDS[:3])
def test_each_column_names_the_model_s_dimension_that_has_its_values(kind: Positions) -> None:
    config = ModelConfig(d_model=12, n_heads=1, positions=kind)
    found = compute_encodings(modules_of_config(config), config, 9, title="")
    (used,) = [one for one in found.maps if one.used]
    for one in found.maps:
        torch.testing.assert_close(one.values_LC, used.values_LC[:, one.dimensions], rtol=0, atol=0)
        for column, (function, dimension) in enumerate(zip(one.functions, one.dimensions, strict=True)):
            angle = 2 * math.pi / found.wavelengths[dimension]  # at position 1
            assert one.values_LC[1, column].item() == pytest.approx(getattr(math, function)(angle), abs=1e-6)


def test_tensor2tensor_s_frequencies_end_at_one_ten_thousandth(tmp_path: Path) -> None:
    held = drawn(tmp_path, "--positions", "3", "model.d_model=6", "model.positions=sinusoidal_tensor2tensor")
    assert held["wavelengths"] == pytest.approx([2 * math.pi * 100**i for i in (0, 1, 2, 0, 1, 2)])
    assert maps_of(held)["concatenated"][2] == pytest.approx(
        [*(math.sin(2 / 100**i) for i in range(3)), *(math.cos(2 / 100**i) for i in range(3))], abs=1e-6
    )


def test_a_first_position_moves_the_rows_and_their_numbers(tmp_path: Path) -> None:
    held = drawn(tmp_path, "--positions", "4", "model.d_model=8", "model.first_position=2")
    assert held["positions"] == [2, 3, 4, 5]
    np.testing.assert_allclose(
        maps_of(held)["interleaved"], [[paper(p, d, 8) for d in range(8)] for p in range(2, 6)], atol=1e-6
    )


def test_dot_products_are_sums_of_cosines_and_know_only_the_distance(tmp_path: Path) -> None:
    (similarity,) = drawn(tmp_path, "--positions", "15", "model.d_model=32")["similarities"]
    for p in range(15):
        for q in range(15):
            expected = sum(math.cos((p - q) / 10_000 ** (2 * i / 32)) for i in range(16))
            assert similarity["dot"][p][q] == pytest.approx(expected, abs=1e-4)
            assert similarity["cosine"][p][q] == pytest.approx(expected / 16, abs=1e-6)


def test_rotary_angles_and_what_equal_queries_and_keys_give(tmp_path: Path) -> None:
    held = drawn(tmp_path, "--positions", "30", "model.positions=rotary", "model.d_model=48", "model.n_heads=6")
    # Su et al. 2021, section 3.3: θ_i = 10000^(-2i/d). The product of (1, 1, …) with itself, as complex numbers.
    theta = [10_000 ** (-2 * i / 8) for i in range(4)]
    turned = np.array([[cmath.exp(1j * p * t) for t in theta] for p in range(30)])
    maps = maps_of(held)
    np.testing.assert_allclose(maps["cos"] + 1j * maps["sin"], turned, atol=1e-6)
    np.testing.assert_allclose(np.exp(1j * maps["angle"]), turned, atol=1e-6)
    assert maps["angle"].min() >= 0
    assert maps["angle"].max() <= 2 * math.pi + 1e-6
    (similarity,) = held["similarities"]
    np.testing.assert_allclose(similarity["cosine"], (turned @ turned.conj().T).real / 4, atol=1e-6)
    assert "dot" not in similarity
    assert held["wavelengths"] == pytest.approx([2 * math.pi / t for t in theta])


# ---- Trained models


def file_of(name: str, **changes: Any) -> ModelFile:
    """A translator, a classifier or a language model with drawn weights."""
    labels = ("a", "b") if name == "classifier" else ()
    return random_file(replace(MODEL, name=name, **changes), replace(tokenizers(), labels=labels))


@pytest.mark.parametrize(
    ("name", "stacks"), [("transformer", ["encoder", "decoder"]), ("classifier", ["encoder"]), ("decoder", ["decoder"])]
)
def test_learned_positions_are_the_tables_of_the_model_file(tmp_path: Path, name: str, stacks: list[str]) -> None:
    file = file_of(name, positions=Positions.learned, max_positions=9)
    (tmp_path / "m").write_bytes(packed(file))
    held = drawn(tmp_path, "--positions", "9", "--checkpoint", "m")
    assert held["title"] == "m: learned, d_model 16"
    assert [one["name"] for one in held["maps"]] == [one["name"] for one in held["similarities"]] == stacks
    for values, similarity in zip(maps_of(held).items(), held["similarities"], strict=True):
        table = file.weights[f"{values[0]}.positions.weight"].double().numpy()
        np.testing.assert_allclose(values[1], table, rtol=1e-6)
        np.testing.assert_allclose(similarity["dot"], np.einsum("pd,qd->pq", table, table), atol=1e-6)
        lengths = np.sqrt((table**2).sum(-1))
        np.testing.assert_allclose(
            np.array(similarity["cosine"]), table @ table.T / np.outer(lengths, lengths), atol=1e-6
        )


@pytest.mark.parametrize("kind", Positions)
def test_the_values_are_those_that_the_model_adds_or_turns_by(tmp_path: Path, kind: Positions) -> None:
    changes = {} if kind in (Positions.learned, Positions.rotary) else {"first_position": 2}
    file = model_file(positions=kind, **changes)
    (tmp_path / "m").write_bytes(packed(file))
    held = drawn(tmp_path, "--positions", "5", "--checkpoint", "m")
    added, rotation = file.build(torch.device("cpu")).encoder.embed_positions(torch.zeros(1, 5, 16), PaddedLayout(5))
    if kind is Positions.rotary:
        assert rotation is not None
        cos, sin = (np.float32(maps_of(held)[name]) for name in ("cos", "sin"))
        np.testing.assert_array_equal(np.hstack([cos, cos]), rotation.cos_L1E.squeeze().numpy())
        np.testing.assert_array_equal(np.hstack([-sin, sin]), rotation.sin_L1E.squeeze().numpy())
    else:
        values = next(one["values"] for one in held["maps"] if one["used"])
        np.testing.assert_array_equal(np.float32(values), added[0].detach().numpy())


# ---- Files


def test_without_an_output_it_writes_a_page_of_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "attention.html").write_text("another page")
    ran = run(["attention", "--positions", "6", "model.d_model=8"], tmp_path)
    assert (ran.code, ran.out, ran.err) == (0, b"positions.html: 6 positions, sinusoidal, d_model 8\n", b"")
    page = (tmp_path / "positions.html").read_text(encoding="utf-8")
    # Nothing is loaded from elsewhere.
    assert not re.search(r"https?:|//[a-z]|@import|url\(|\bfetch\b|XMLHttp", re.sub(r'"numbers">[^<]*', "", page))
    assert (tmp_path / "attention.html").read_text() == "another page"
    refused(["attention", "--positions", "6"], tmp_path, code=2, says=["positions.html: exists already"])


@pytest.mark.parametrize(("name", "magic"), [("a.png", b"\x89PNG"), ("a.SVG", b"<?xml"), ("a.pdf", b"%PDF-")])
@pytest.mark.parametrize("length", ["1", slow("12")])
def test_pictures_are_png_svg_or_pdf(tmp_path: Path, name: str, magic: bytes, length: str) -> None:
    assert run(["attention", "--positions", length, "model.d_model=8", "--output", name], tmp_path).code == 0
    assert (tmp_path / name).read_bytes().startswith(magic)


@pytest.mark.parametrize("kind", [KINDS[0], *map(slow, KINDS[1:])])
def test_equal_encodings_give_equal_files_which_show_the_values(kind: Positions) -> None:
    config = ModelConfig(d_model=16, n_heads=2, positions=kind)
    first, second = (compute_encodings(modules_of_config(config), config, 6, title="") for _ in range(2))
    assert render(first) == render(second)
    for form in ("svg", "pdf"):
        assert render_picture(first, form) == render_picture(second, form)
    images = [axes.images[0] for axes in draw_figure(first).axes if axes.images]
    shown = [*(one.values_LC for one in first.maps), first.similarities[0].cosine_LL]
    for image, values in zip(images, shown, strict=False):
        np.testing.assert_array_equal(image.get_array(), values)


def test_a_model_s_name_can_not_break_the_page() -> None:
    config = ModelConfig(d_model=8, n_heads=1)
    page = render(compute_encodings(modules_of_config(config), config, 2, title="</script><script>bad()</script>$how"))
    assert "<script>bad" not in page
    assert "&lt;script&gt;bad()&lt;/script&gt;$how" in page


# ---- Errors


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--positions", "0"], ["positions=0", "at least 1 and at most 512"]),
        slow(["--positions", "-3"], ["positions=-3", "at least 1"]),
        (["--positions", "513"], ["positions=513", "at most 512"]),
        slow(["--positions", "x"], ["--positions", "must be a whole number", "'x'"]),
        (["--positions", "20", "model.d_model=65536"], ["--positions 20", "1,310,720 values", "Choose 4 or fewer"]),
        (["--positions", "1", "model.d_model=999998"], ["--positions 1", "Choose another model"]),
        (["--positions", "9", "model.d_model=7"], ["model.d_model=7", "odd", "Choose 6 or 8"]),
        slow(["--positions", "9", "model.d_model=0"], ["model.d_model=0", "at least 1"]),
        (["--positions", "9", "model.positions=rotary", "model.d_k=3"], ["model.d_k=3", "odd", "Choose model.d_k=4"]),
        (["--positions", "9", "model.positions=rotary", "model.d_model=12"], ["n_heads=8", "does not divide"]),
        (
            ["--positions", "9", "model.positions=rotary", "model.first_position=2"],
            ["model.first_position=2", "only of"],
        ),
        (["--positions", "9", "model.positions=learned"], ["model.positions=learned", "--checkpoint"]),
        (["--positions", "9", "model=base"], ["'model=base'", "takes no file for model", "model.d_model"]),
        (["--positions", "9", "model.n_heads=4"], ["model.n_heads=4", "only rotary"]),
        slow(["--positions", "9", "model.dropout=0.2"], ["model.dropout", "unknown key"]),
        (["--positions", "9", "a sentence"], ["sentence", "--positions 9", "Leave one of them out"]),
        slow(["--positions", "9", "--translation", "a"], ["translation", "--positions 9"]),
        (["--positions", "9", "--input", "a"], ["input", "--positions 9"]),
        (["--positions", "9", "--layer", "1"], ["layer", "--positions 9"]),
        slow(["--positions", "9", "--head", "1", "--output", "a.png"], ["head", "--positions 9"]),
        slow(["--positions", "9", "--mean"], ["mean", "--positions 9"]),
        slow(["--positions", "9", "--words"], ["words", "--positions 9"]),
        (["--positions", "9", "--beam", "3"], ["decode.beam_size", "--positions 9"]),
        slow(["--positions", "9", "--output", "a.eps"], ["--output a.eps", ".html, .png, .svg, .pdf, .json"]),
        (["a sentence", "model.d_model=8"], ["model.d_model=8", "only with --positions"]),
        (["--positions", "9", "--checkpoint", "m", "model.d_model=16"], ["model.d_model=16", "--checkpoint"]),
        (["--positions", "9", "--checkpoint", "m", "--checkpoint", "n"], ["--checkpoint", "names several"]),
        (["--positions", "9", "--checkpoint", "m"], ["--positions 9", "encoder has 8 rows", "Choose 8 or fewer"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_a_wrong_command_line_is_refused_in_one_line(tmp_path: Path, arguments: list[str], says: list[str]) -> None:
    (tmp_path / "m").write_bytes(packed(model_file(positions=Positions.learned, max_positions=8)))
    refused(["attention", *arguments], tmp_path, code=2, says=says)
