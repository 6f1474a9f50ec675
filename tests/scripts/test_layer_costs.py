"""`scripts/layer_costs`: correct layers, fitted exponents, and the report."""

import json
import math
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from scripts.layer_costs import kinds
from scripts.layer_costs import report as reporting
from scripts.layer_costs.__main__ import main
from scripts.layer_costs.costs import Costs, LayerSize
from scripts.layer_costs.exponents import crossover, exponent, upper
from scripts.layer_costs.kinds import (
    ALONE,
    AT_ONCE,
    KINDS,
    TABLE_1,
    AttentionBy,
    Windowed,
    fused,
    layers_on,
    written_out,
)
from scripts.layer_costs.plot import draw
from scripts.layer_costs.report import BOTH, CLOCKS, WAYS, report
from scripts.layer_costs.settings import Settings, parsed
from tests.support.each import each
from transformer_cli.addons.benchmarks.report import WIDTH
from transformer_cli.addons.benchmarks.timing import in_turn
from transformer_cli.models.attention import SelfAttention
from transformer_cli.models.layouts import PaddedLayout

CPU = torch.device("cpu")
TOY = ["--n", "8", "16", "--d", "16", "32", "--head", "8", "--rounds", "2", "--device", "cpu"]


@pytest.fixture(autouse=True)
def _briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "MIN_S", 0.0)


def settings() -> Settings:
    return parsed(TOY)


# ---- Restricted attention


def band(n: int, window: int) -> Tensor:
    """True for keys at most half a window away, written as a loop."""
    return torch.tensor([[abs(query - key) <= window // 2 for key in range(n)] for query in range(n)])


@each("length", [1, 2, 7, 31, 32, 33, 64, 65, 100])
@each("window", [1, 2, 3, 16, 63, 70, 300])
def test_restricted_attention_is_full_attention_with_a_band(length: int, window: int) -> None:
    torch.manual_seed(length)
    n_sentences, n_heads, width = 2, 3, 8
    leaves = [torch.randn(n_sentences, length, n_heads, width, requires_grad=True) for _ in range(3)]
    grad = torch.randn(n_sentences, length, n_heads, width)
    q_BLHE, k_BLHE, v_BLHE = leaves
    found = Windowed(length, window, CPU)(q_BLHE, k_BLHE, v_BLHE)
    q, k, v = (leaf.transpose(1, 2) for leaf in leaves)
    wanted = F.scaled_dot_product_attention(q, k, v, band(length, window)).transpose(1, 2)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    for one, other in zip(
        torch.autograd.grad(found, leaves, grad), torch.autograd.grad(wanted, leaves, grad), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


def test_a_layer_of_restricted_attention_equals_self_attention_with_a_band_mask() -> None:
    torch.manual_seed(0)
    layer = SelfAttention(32, 4, d_k=8, d_v=8, dropout=0.0, bias=True)
    x = torch.randn(1, 45, 32, requires_grad=True)
    grad = torch.randn(1, 45, 32)
    leaves = [x, *layer.parameters()]
    found = AttentionBy(layer, Windowed(45, 10, CPU))(x)
    wanted = layer(x, PaddedLayout(45, band(45, 10)[None, None]))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    for one, other in zip(
        torch.autograd.grad(found, leaves, grad), torch.autograd.grad(wanted, leaves, grad), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_attention_written_out_is_that_of_the_fused_kernel() -> None:
    torch.manual_seed(0)
    q_BLHE, k_BLHE, v_BLHE = torch.randn(3, 2, 19, 3, 8)
    torch.testing.assert_close(written_out(q_BLHE, k_BLHE, v_BLHE), fused(q_BLHE, k_BLHE, v_BLHE), rtol=0, atol=1e-5)


def test_a_wrong_attention_is_not_timed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(kinds, "attention_weights", lambda q, k: (q @ k.transpose(-1, -2)).softmax(-1))
    assert main(TOY) == 5
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("layer_costs: error: the gradient of written out is ")
    assert captured.err.count("\n") == 1


# ---- What is held


def held(n: int) -> dict[str, int]:
    return {name: layer.bytes_held(CPU) for name, layer in layers_on(n, 16, settings(), CPU).items()}


def test_what_is_held_grows_as_the_tensors_do() -> None:
    shorter, longer = held(128), held(256)
    by = {name: longer[name] / shorter[name] for name in KINDS}
    n_floats = 2 * 256 * 256  # the weights of two heads
    assert longer["written out" + ALONE] >= 4 * n_floats
    assert shorter["self-attention" + ALONE] == 4 * 128 * (4 * 16 + 2)  # q, k, v, output, and a sum for each softmax
    assert by["written out" + ALONE] > 3.5
    for name in ("self-attention", "restricted", "LSTM", "GRU", "convolution"):
        assert 1.8 < by[name] < 2.1, name  # oneDNN has some memory of its own for an LSTM


def test_what_convolution_holds_is_its_input() -> None:
    assert held(100)["convolution"] == 4 * 100 * 16


# ---- Exponents


@pytest.mark.parametrize("power", [0, 0.5, 1, 2])
def test_the_exponent_of_a_power_law_is_found(power: float) -> None:
    sizes = [100, 200, 400, 1000]
    assert exponent(sizes, [3e-6 * n**power for n in sizes]) == pytest.approx(power, abs=1e-12)


def test_the_exponent_is_that_of_least_squares() -> None:
    # By hand: logarithms to base 2 are (0, 0), (1, 3), (2, 3): slope 3/2.
    assert exponent([1, 2, 4], [1, 8, 8]) == pytest.approx(1.5)


def test_the_larger_half_is_fitted() -> None:
    assert upper([64, 512, 128, 256]) == [256, 512]
    assert upper([1, 2, 3]) == [2, 3]
    assert upper([5, 4]) == [4, 5]


def test_one_cost_overtakes_another_where_they_are_equal() -> None:
    sizes = [1, 10, 100, 1000, 10_000]
    assert crossover(sizes, [n**2 for n in sizes], [300 * n for n in sizes]) == pytest.approx(300)
    assert crossover(sizes, sizes, [n / 2 for n in sizes]) == 0
    assert crossover(sizes, sizes, [2 * n for n in sizes]) == math.inf


def test_a_crossing_that_is_taken_back_does_not_count() -> None:
    assert crossover([1, 2, 4, 8], [2, 1, 1, 4], [1, 2, 2, 2]) == pytest.approx(4 * math.sqrt(2))


# ---- The report


def exact() -> Costs:
    """Self-attention n²·d nanoseconds, all else 100·n·d², in 3 rounds of a machine that is ever slower."""
    n, d = [64, 128, 256, 512, 1024, 4096], [64, 128, 256]
    sizes_of = {LayerSize(*one): one for one in product(KINDS, n, d)}
    seconds = {
        size: [
            slow * 1e-9 * (n * n * d if KINDS[name] == "self-attention" else (1 if AT_ONCE in name else 10) * n * d * d)
            for slow in (1, 2, 4)
        ]
        for size, (name, n, d) in sizes_of.items()
    }
    return Costs(n, d, dict.fromkeys(WAYS, seconds), {size: 4 * n * d for size, (_, n, d) in sizes_of.items()})


def test_the_report_finds_what_was_put_into_it() -> None:
    found = report(exact(), settings(), CPU)
    rows = {name: rest for name, *rest in found.rows}
    assert rows["self-attention"][3:] == ["2.00 ± 0.00", "2.00 ± 0.00", "1.00 ± 0.00"]
    assert rows["LSTM"][3:] == ["1.00 ± 0.00", "1.00 ± 0.00", "2.00 ± 0.00"]
    # n²·d = 10·n·d² at n = 10·d
    slower = found.figures["self-attention is slower from n"][BOTH]["GRU"]
    assert slower == {"64": pytest.approx(640), "128": pytest.approx(1280), "256": pytest.approx(2560)}
    for ratio in found.ratios.values():
        assert (ratio.low, ratio.median, ratio.high) == pytest.approx((10, 10, 10))
    assert found.figures["exponents in d"]["forward"]["GRU"]["4096"]["median"] == pytest.approx(2)


def test_the_report_fits_a_terminal() -> None:
    text = report(exact(), settings(), CPU).text(CPU)
    assert max(map(len, text.split("\n"))) <= WIDTH


def test_table_1_is_that_of_the_paper() -> None:
    # Vaswani et al. 2017, table 1.
    assert {name: tuple(row) for name, row in TABLE_1.items()} == {
        "self-attention": ("O(n²·d)", "O(1)", "O(1)"),
        "recurrent": ("O(n·d²)", "O(n)", "O(n)"),
        "convolution": ("O(k·n·d²)", "O(1)", "O(log_k n)"),
        "restricted": ("O(r·n·d)", "O(1)", "O(n/r)"),
    }
    rows = {name: rest for name, *rest in report(exact(), settings(), CPU).rows}
    assert rows["self-attention" + ALONE][:3] == ["O(n²·d)", "O(1)", "O(1)"]
    assert rows["LSTM"][:3] == rows["GRU"][:3] == ["O(n·d²)", "O(n)", "O(n)"]
    assert rows["restricted"][:3] == ["O(r·n·d)", "O(1)", "O(n/r)"]
    assert rows["convolution"][:3] == ["O(k·n·d²)", "O(1)", "O(log_k n)"]


# ---- The command


def test_the_command_prints_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "layers.svg"
    assert main([*TOY, "--plot", str(picture)]) == 0
    printed = capsys.readouterr().out
    for name in KINDS:
        assert f"| {name} " in printed
    text = picture.read_text(encoding="utf-8")
    assert "<svg" in text
    assert text.count(">convolution<") == 1  # in the legend, as text
    assert len(text) < 100_000


def test_a_plot_is_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.image import imread

    draw(exact(), str(tmp_path / "layers.png"), CPU)
    height, width, _ = imread(tmp_path / "layers.png").shape
    assert (height, width) == (600, 1650)


@pytest.mark.slow
def test_equal_figures_make_equal_drawings(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("a.svg", "b.svg"):
        draw(exact(), str(tmp_path / name), CPU)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_json_holds_every_round(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", *TOY]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["settings"]["n"] == [8, 16]
    for way in WAYS:
        entries = found["figures"]["seconds"][way]
        assert len(entries) == 2 * 2 * len(KINDS)
        assert all(len(entry["rounds"]) == 2 and min(entry["rounds"]) > 0 for entry in entries)
    assert found["figures"]["table 1"]["recurrent"]["sequential"] == "O(n)"
    assert "LSTM to its products at once, n = 16, d = 16" in found["ratios"]


@pytest.mark.parametrize(
    ("given", "what", "fix"),
    [
        ("--n 64", "an exponent is fitted to two sizes or more", "Give different ones, from 1 up"),
        ("--n 0 8", "an exponent is fitted to two sizes or more", "Give different ones, from 1 up"),
        ("--d 16 16", "an exponent is fitted to two sizes or more", "Give different ones, from 1 up"),
        ("--d 16 20", "not all are multiples of 8, the width of a head", "Choose multiples of 8"),
        ("--head 0", "out of range", "Choose a value of at least 1"),
        ("--window 0", "out of range", "Choose a value of at least 1"),
        ("--kernel 0", "out of range", "Choose a value of at least 1"),
        ("--kernel 4", "even, but a convolution sees as much before a position as after it", "Choose 3 or 5"),
        ("--plot a.pdf", "neither .svg nor .png", "Choose a name that ends in one of them"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    given: str, what: str, fix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*TOY, *given.split()])
    captured = capsys.readouterr()
    assert (ended.value.code, captured.out) == (2, "")
    last = captured.err.split("\n")[-2]
    assert f": error: {given.split()[0]}" in last
    assert what in last
    assert fix in last


def test_a_plot_without_matplotlib_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main([*TOY, "--plot", "a.svg"]) == 5
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("layer_costs: error: --plot: the package matplotlib cannot be imported")
    assert captured.err.endswith("Run `pip install '.[plots]'` in the checkout of tfm\n")
    assert captured.err.count("\n") == 1


def test_a_plot_into_no_folder_is_refused_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    folder = tmp_path / "absent"
    assert main([*TOY, "--plot", f"{folder}/a.svg"]) == 5
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"layer_costs: error: {folder}/a.svg: {folder} is no folder that can be written to. Choose another --plot\n"
    )


def test_time_of_the_processor_does_not_count_waiting() -> None:
    taken = in_turn({"asleep": lambda: time.sleep(0.05)}, rounds=2, device=CPU, min_s=0.0, clock=CLOCKS["processor"])
    assert max(taken["asleep"]) < 0.025


def test_the_report_names_the_processor_clock(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TOY, "--clock", "processor"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Times are those that this process had of the processor, all threads added." in printed
