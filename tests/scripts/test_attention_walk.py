"""docs/attention.md has the output of scripts/attention_walk.py, and its text agrees with its numbers."""

import importlib.util
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.conftest import ROOT
from transformer_cli.config.compose import load_config
from transformer_cli.data.prepare import prepare
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.models.file import read_model
from transformer_cli.models.header import MODEL_FILE

torch.set_num_threads(1)

PAGE = (ROOT / "docs" / "attention.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.]|\.\d)")
FREE = ("heads", "cross", "logits", "search", "weighted-sum")  # their words depend on the model
UNTRAINED = ("scaling", "first-gradients")  # the same on every machine, up to rounding


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("attention_walk", ROOT / "scripts" / "attention_walk.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["attention_walk"] = module  # where dataclasses resolve their types
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tokenizers(script: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Tokenizers:
    cache = f"data.cache={tmp_path_factory.mktemp('data')}"
    return prepare(load_config("train", [script.CORPUS, script.WHOLE_WORDS, cache]).data).tokenizers


@pytest.fixture(scope="module")
def walk(script: ModuleType, tokenizers: Tokenizers) -> Any:
    """The walk through an untrained model of the page's sizes."""
    config = load_config("train", script.RUNS["walk"]).model
    return script.Walk(script.untrained(config, tokenizers), tokenizers)


@pytest.fixture(scope="module")
def page(script: ModuleType) -> dict[str, str]:
    blocks: dict[str, str] = script.blocks_of(PAGE)
    return blocks


def numbers(text: str) -> list[float]:
    return [float(found) for found in NUMBER.findall(text)]


def form(text: str) -> list[str]:
    """The words of each line, with their numbers left out and however many blanks between them."""
    return [" ".join(NUMBER.sub("#", line).split()) for line in text.split("\n")]


def rows(text: str, *, skip: int = 0) -> Iterator[tuple[str, list[float]]]:
    """What a line begins with, and the numbers that follow."""
    for line in text.split("\n")[skip:-1]:
        label = line.split("  ")[0]
        yield label, numbers(line[len(label) :])


def close(one: str, other: str, *, relative: float) -> bool:
    """Whether two blocks have the same words, and numbers within `relative` and one unit of the last digit."""
    if form(one) != form(other):
        return False
    pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
    return all(abs(float(a) - float(b)) <= relative * abs(float(b)) + 1.01 * last_digit(b) for a, b in pairs)


def last_digit(written: str) -> float:
    return float(10 ** -len(written.partition(".")[2]))


def test_the_page_has_the_printed_blocks_and_no_others(script: ModuleType, page: dict[str, str]) -> None:
    assert list(page) == list(dict.fromkeys(page)), "a block stands twice"
    printed = [*script.OF_THE_SENTENCE, *script.OF_RUNS, *UNTRAINED, "unscaled", "machine"]
    assert sorted(page) == sorted(printed)
    with pytest.raises(SystemExit, match="other blocks than are printed: \\['queries'\\]"):
        script.fill_blocks(PAGE, {name: text for name, text in page.items() if name != "queries"})


def test_a_page_that_is_filled_with_its_own_blocks_is_itself(script: ModuleType, page: dict[str, str]) -> None:
    assert script.fill_blocks(PAGE, page) == PAGE
    other = script.fill_blocks(PAGE, page | {"pieces": "something else\n"})
    assert script.blocks_of(other) == page | {"pieces": "something else\n"}
    assert other.replace("something else\n", page["pieces"]) == PAGE


@pytest.mark.slow
def test_blocks_have_the_form_that_any_model_gives_them(script: ModuleType, walk: Any, page: dict[str, str]) -> None:
    for name, text in script.of_the_sentence(walk).items():
        if name == "search":  # whose texts may hold anything
            assert len(text.split("\n")) == len(page[name].split("\n"))
        elif name in FREE:
            assert [len(found) for _, found in rows(text)] == [len(found) for _, found in rows(page[name])], name
        else:
            assert form(text) == form(page[name]), name


def test_blocks_that_do_not_depend_on_training_equal_the_page(
    script: ModuleType, walk: Any, page: dict[str, str]
) -> None:
    printed = script.of_the_sentence(walk)
    assert printed["pieces"] == page["pieces"]
    assert printed["positions"].split("\n")[:6] == page["positions"].split("\n")[:6]


def test_blocks_that_depend_on_seeds_only_equal_the_page(
    script: ModuleType, tokenizers: Tokenizers, page: dict[str, str]
) -> None:
    printed = script.of_seeds(tokenizers)
    assert set(printed) == set(UNTRAINED)
    for name, text in printed.items():
        assert close(page[name], text, relative=0.01), f"{name}:\n{text}"


def test_a_page_that_differs_is_found(page: dict[str, str]) -> None:
    text = page["first-gradients"]
    written = NUMBER.findall(text.split("\n")[2])[1]
    assert close(text, text, relative=0.01)
    assert not close(text.replace(written, f"{1.05 * float(written):.4f}"), text, relative=0.01)
    assert not close(text.replace("decoder", "encoder"), text, relative=0.01)


# ---- The numbers of the page agree with its text


def test_embeddings_on_the_page_are_rows_times_the_root(page: dict[str, str]) -> None:
    found = dict(rows(page["embedding"], skip=1))
    (row,) = (numbers_of for label, numbers_of in found.items() if label.startswith("row"))
    for small, large in zip(row[-6:], found["▁it"], strict=True):
        assert abs(8 * small - large) <= 8 * 0.0051 + 0.0051


def test_positions_on_the_page_are_sines_and_cosines_and_are_added(page: dict[str, str]) -> None:
    lines = page["positions"].split("\n")
    for position, line in enumerate(lines[1:5]):
        angles = [position / 10_000 ** (2 * i / 64) for i in range(3)]
        expected = [wave(angle) for angle in angles for wave in (math.sin, math.cos)]
        assert numbers(line)[1:] == pytest.approx(expected, abs=0.0051)
    embedded, wave_7, both = (numbers(line)[-6:] for line in lines[6:9])
    assert [a + b for a, b in zip(embedded, wave_7, strict=True)] == pytest.approx(both, abs=0.0151)


def test_scores_on_the_page_obey_equation_1(page: dict[str, str]) -> None:
    found = [each for _, each in rows(page["scores"], skip=1)]
    raw, divided, weights = zip(*found, strict=True)
    assert divided == pytest.approx([x / 4 for x in raw], abs=0.0076)
    powers = [math.exp(x) for x in divided]
    assert weights == pytest.approx([x / sum(powers) for x in powers], abs=0.0115)
    assert sum(weights) == pytest.approx(1, abs=0.0005 * len(weights))


def test_equation_1_by_hand_is_the_fast_path_on_the_page_and_now(
    script: ModuleType, walk: Any, page: dict[str, str]
) -> None:
    found = dict(rows(page["weighted-sum"]))
    assert found["by hand"] == found["the fast path"]
    assert page["weighted-sum"].endswith(": yes\n")
    with torch.no_grad():
        output_LD = walk.calls["encoder.layers.0.self_attention"][0].output
        torch.testing.assert_close(script.by_hand(walk), output_LD, rtol=0, atol=1e-5)


def test_residuals_on_the_page_are_sums_and_norms_have_mean_0_and_variance_1(page: dict[str, str]) -> None:
    for name in ("residual", "feed-forward"):
        x, sublayer, both, _ = (found[2:6] for _, found in list(rows(page[name]))[-4:])
        assert [a + b for a, b in zip(x, sublayer, strict=True)] == pytest.approx(both, abs=0.0151)


def test_decoder_self_attention_on_the_page_is_causal(page: dict[str, str]) -> None:
    lines = page["mask"].split("\n")
    for i, line in enumerate(lines[2:8]):
        weights = numbers(line)
        assert weights[i + 1 :] == [0.0] * (5 - i)
        assert sum(weights) == pytest.approx(1, abs=0.003)
    before, own = numbers(lines[8])[-2:]
    assert before == 0
    assert own > 1


def test_the_pronoun_on_the_page_attends_to_its_noun(page: dict[str, str]) -> None:
    weights = {label: found[-1] for label, found in rows(page["scores"], skip=1)}
    assert max(weights, key=weights.__getitem__) == "▁chair"


def test_the_search_on_the_page_finds_the_right_translation(script: ModuleType, page: dict[str, str]) -> None:
    at_the_end = page["search"].split("at the end\n")[1].split("\n")
    assert at_the_end[0].split("  ")[-1] == script.TRANSLATION
    scores = [numbers(line)[0] for line in at_the_end[:-1]]
    assert scores == sorted(scores, reverse=True)


def test_the_text_on_the_runs_agrees_with_their_numbers(page: dict[str, str]) -> None:
    dev = {label: found[-1] for label, found in rows(page["warm-up"], skip=1)}
    assert dev["post-LN, without"] > dev["frequencies alone"] > dev["post-LN, with warm-up"] > dev["pre-LN, without"]
    post, pre = zip(*((found[1], found[3]) for _, found in rows(page["first-gradients"], skip=2)), strict=True)
    assert post[-1] > 4 * post[0]  # of the decoders, by layer: it grows towards the output
    assert max(pre) < 1.25 * min(pre)
    with_it, without = (found[-1] for _, found in rows(page["unscaled"], skip=1))
    assert with_it < without
    smooth = {label: found[-2:] for label, found in rows(page["smoothing"], skip=1)}
    for better_without in ("NLL of dev, nats a token", "dev: calibration error, %"):
        assert smooth[better_without][0] < smooth[better_without][1]
    assert smooth["dev: BLEU, beam 4"][0] < smooth["dev: BLEU, beam 4"][1]
    beams = {label: found[-2:] for label, found in rows(page["beams"], skip=1)}
    for better_by_beam in ("BLEU", "log-probability, mean"):
        assert beams[better_by_beam][0] < beams[better_by_beam][1]


# ---- Runs


def test_a_run_of_the_page_is_what_tfm_train_takes(script: ModuleType) -> None:
    for overrides in script.RUNS.values():
        load_config("train", overrides)
    line, _ = re.findall(r"^tfm train (.*)$", PAGE.replace("\\\n", ""), re.MULTILINE)  # the other is of a deep model
    assert sorted(line.split()) == sorted(script.RUNS["walk"])


def test_longer_queries_are_scores_that_nothing_divides(script: ModuleType, tokenizers: Tokenizers) -> None:
    config = load_config("train", ["model.d_model=16", "model.d_ff=16", "model.n_heads=1"]).model
    model = script.untrained(config, tokenizers)
    attention = model.encoder.layers[0].self_attention
    x_BLD = torch.randn(1, 5, 16, generator=script.seeded())
    q_BLHE, k_BLHE, _ = attention.project(x_BLD, None)
    plain = (q_BLHE[0, :, 0] @ k_BLHE[0, :, 0].T).softmax(dim=-1)
    script.lengthen_queries(model, math.sqrt(16))
    q_BLHE, k_BLHE, _ = attention.project(x_BLD, None)
    found = script.attention_weights(q_BLHE.transpose(1, 2), k_BLHE.transpose(1, 2))[0, 0]
    torch.testing.assert_close(found, plain)


def test_calibration_error_is_the_gap_between_sure_and_right(script: ModuleType) -> None:
    confidence_K = torch.tensor([0.95, 0.95, 0.95, 0.95, 0.55, 0.55]).double()
    right_K = torch.tensor([1, 1, 1, 0, 1, 0]).double()
    # |0.95 - 0.75| for four tokens, |0.55 - 0.5| for two
    assert script.calibration_error(confidence_K, right_K) == pytest.approx((4 * 0.2 + 2 * 0.05) / 6)


def test_pictures_are_small_and_on_the_page(script: ModuleType, walk: Any) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("transformer_cli.addons.attention_maps.heatmaps")
    for name, picture in script.pictures(walk).items():
        assert f"(pictures/{name})" in PAGE
        assert (ROOT / "docs" / "pictures" / name).stat().st_size < 150_000
        assert picture.startswith(b"<?xml")


@pytest.mark.slow
def test_the_model_of_the_page_trained_anew_prints_the_page(
    script: ModuleType, tmp_path: Path, page: dict[str, str]
) -> None:
    script.train("walk", tmp_path)
    file = read_model(tmp_path / "walk" / MODEL_FILE)
    printed = script.of_the_sentence(script.Walk(file.build(script.CPU), file.tokenizers))
    assert printed["search"].split("at the end")[1].split("\n")[1].endswith(script.TRANSLATION)
    if script.machine() == page["machine"]:  # elsewhere rounding differs, and the difference grows during training
        for name, text in printed.items():
            assert close(page[name], text, relative=0.02), f"{name}:\n{text}"
