"""`tfm bench decode`: equal results of all engines, and the check before timing."""

import importlib.util
import json
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.addons.benchmarks.toy_bench import CPU, DECODING, config
from tests.conftest import slow
from tests.toy.models import random_file
from tests.toy.translator import PLAIN, sentences, toy_tokenizer
from transformer_cli.addons.benchmarks import decoders, decoding, startup
from transformer_cli.addons.benchmarks.decoders import (
    BASELINES,
    BATCHES_OF_32,
    CT2,
    CT2_INT8,
    DEFAULT,
    HUGGING_FACE,
    TFM,
    BenchmarkEngine,
    CallTimer,
    RequestHandler,
    TfmEngine,
    batches_by_tokens,
    engine,
    for_search,
    longest_first,
)
from transformer_cli.addons.benchmarks.decoding import check_translations, similarity
from transformer_cli.addons.benchmarks.decoding_rounds import (
    FIXED_LENGTH,
    BenchmarkText,
    MatrixProducts,
    count_likelier,
    group_sizes,
    sample_evenly,
)
from transformer_cli.addons.benchmarks.keys import BenchConfig
from transformer_cli.addons.benchmarks.report import WIDTH
from transformer_cli.addons.benchmarks.startup import translating_overrides
from transformer_cli.addons.benchmarks.workload import random_model
from transformer_cli.cli import main
from transformer_cli.config.compose import from_plain, load_config
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.decoding.torch_engine import TorchEngine, torch_translator
from transformer_cli.errors import EnvironmentFault
from transformer_cli.inference.incremental import incremental_decoder
from transformer_cli.models.file import ModelFile, read_model, write_model

EXTRA = 6
LINES = sentences(40, seed=1)
PACKAGES = {HUGGING_FACE: "transformers", CT2: "ctranslate2", CT2_INT8: "ctranslate2"}
INSTALLED = all(map(importlib.util.find_spec, PACKAGES.values()))
NEEDS_BASELINES = pytest.mark.skipif(not INSTALLED, reason="needs transformers and ctranslate2")
OF_CT2 = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@cache
def toy_model() -> ModelFile:
    """Random weights with which some translations end before the length limit."""
    return random_file(PLAIN, Tokenizers(toy_tokenizer(), toy_tokenizer()), "en-de", gain=2)


def toy_rows() -> list[list[int]]:
    return toy_tokenizer().encode(LINES)


def made(name: str, model: ModelFile | None = None, *, extra: int = EXTRA) -> BenchmarkEngine:
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    return engine(name, model or toy_model(), DecodeConfig(max_extra_length=extra), device=CPU, threads=2)


def tfm_engine(model: ModelFile | None = None) -> TfmEngine:
    found = made(TFM, model)
    assert isinstance(found, TfmEngine)
    return found


class InProcessWorker:
    """A benchmark worker without a process of its own."""

    def __init__(self, name: str, module: str, parameters: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        assert module == decoders.__name__
        config: BenchConfig = from_plain(BenchConfig, parameters["config"])
        model, threads = read_model(Path(parameters["model"])), parameters["threads"]
        self.handler: RequestHandler | None = None
        self.make = lambda: RequestHandler(engine(name, model, config.decode, device=CPU, threads=threads), CPU)

    def request(self, request: str) -> dict[str, Any]:
        self.handler = self.handler or self.make()
        response: dict[str, Any] = json.loads(json.dumps(dict(self.handler(request + "\n"))))
        return response

    def close(self) -> None:
        pass


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "BenchmarkWorker", InProcessWorker)
    monkeypatch.setattr(decoding, "N_RANDOM", 6)


@pytest.fixture
def model_file(tmp_path: Path) -> str:
    write_model(tmp_path / "model.safetensors", toy_model())
    return str(tmp_path / "model.safetensors")


@pytest.fixture
def text_files(tmp_path: Path) -> list[str]:
    for name in ("source", "reference"):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return [f"source={tmp_path / 'source'}", f"reference={tmp_path / 'reference'}"]


# ---- Engines


@pytest.mark.slow
@OF_CT2
@pytest.mark.parametrize("name", [TFM, slow(HUGGING_FACE), CT2])
def test_all_presets_of_all_engines_match_the_reference_search(name: str) -> None:
    rows, one = toy_rows(), made(name)
    expected = tfm_engine().greedy_reference(rows)["found"]
    assert any(len(found) < len(row) + 1 + EXTRA for found, row in zip(expected, rows, strict=True))
    for preset in one.presets:
        found = one.decode(rows, beam_size=1, preset=preset)
        # tfm limits each sentence by its own source; the other engines limit the batch by its longest source.
        cut = [ids[: len(row) + 1 + EXTRA] for ids, row in zip(found, rows, strict=True)]
        assert cut == expected, preset


def test_ids_are_translated_like_text() -> None:
    one = tfm_engine()
    found = one.decode(toy_rows(), beam_size=4, preset=DEFAULT)
    assert list(map(toy_tokenizer().decode, found)) == one.translate(LINES, beam_size=4, preset=DEFAULT)
    assert found == one.decode(toy_rows(), beam_size=4, preset=BATCHES_OF_32)


@OF_CT2
@pytest.mark.parametrize("beam_size", [slow(1), 4])
@pytest.mark.parametrize("name", [TFM, HUGGING_FACE, CT2, slow(CT2_INT8)])
def test_translations_of_a_random_model_are_as_long_as_their_sources(name: str, beam_size: int) -> None:
    model = random_model(config("data.tokenizer.vocab_size=200", subject="decode"))
    rows = np.random.default_rng(1).integers(4, 200, (5, FIXED_LENGTH - 1)).tolist()
    one = made(name, model, extra=0)
    assert [len(ids) for ids in one.decode(rows, beam_size=beam_size, preset=one.presets[-1])] == 5 * [FIXED_LENGTH]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_precision_that_is_asked_for_is_the_one_that_is_timed(dtype: torch.dtype) -> None:
    model = random_model(config("data.tokenizer.vocab_size=200", subject="decode"))
    engine = TfmEngine(model, DecodeConfig(), device=CPU, dtype=dtype)
    assert engine.decode([[5, 6, 7]], beam_size=1, preset=DEFAULT)
    (translator,) = engine.translators.values()
    assert isinstance(translator.engine, TorchEngine)
    assert translator.engine.dtype is dtype


def test_log_probabilities_equal_those_of_the_search() -> None:
    one, rows = tfm_engine(), toy_rows()
    config = for_search(DecodeConfig(max_extra_length=EXTRA), 4)
    results = torch_translator(one.model, one.id_tokenizers, config, device=CPU).translate(
        [" ".join(map(str, r)) for r in rows]
    )
    ended = [(row, result) for row, result in zip(rows, results, strict=True) if not result.hit_limit]
    assert len(ended) > 3
    translations = [[int(word) for word in result.text.split()] for _, result in ended]
    found = one.log_probabilities([row for row, _ in ended], translations)["found"]
    assert found == pytest.approx([result.hypotheses[0][1] for _, result in ended], rel=1e-4)


def test_the_call_timer_measures_parts_and_restores_the_decoder() -> None:
    one, rows = tfm_engine(), toy_rows()
    parts = one.parts(rows, beam_size=2)
    assert sum(parts["encoded"]) >= sum(len(row) + 1 for row in rows)
    assert max(parts["stepped"]) == 2 * len(rows)
    assert all(seconds > 0 for seconds in parts["parts"].values())
    assert sum(parts["parts"].values()) < parts["seconds"]


def test_the_call_timer_restores_the_decoder_after_an_error() -> None:
    decoder = incremental_decoder(tfm_engine().model)
    with pytest.raises(RuntimeError), CallTimer(decoder, CPU).timing_calls():
        assert {"start", "step"} <= vars(decoder).keys()
        raise RuntimeError
    assert not {"start", "step"} & vars(decoder).keys()


def test_batches_by_tokens_hold_every_sentence_once() -> None:
    rows = toy_rows()
    batches = batches_by_tokens(longest_first(rows), rows, 40)
    assert sorted(i for batch in batches for i in batch) == list(range(len(rows)))
    for batch in batches:
        longest = max(len(rows[i]) for i in batch)
        assert len(batch) == 1 or len(batch) * (longest + 1) <= 40
    assert len(batches) < len(rows) / 2


# ---- What is counted


def test_the_products_are_those_of_each_call() -> None:
    parts = {"encoded": [8, 8], "stepped": [4, 4, 2]}
    products = MatrixProducts(config(subject="decode"), toy_model(), parts, CPU)
    (encoder, n_encoded), (small, n_small), (large, n_large) = products.calls
    assert (n_encoded, n_small, n_large) == (2, 1, 2)
    assert ({one.m for one in encoder}, {one.m for one in small}, {one.m for one in large}) == ({8}, {2}, {4})
    layers = PLAIN
    # Encoder: four per layer, and one for each decoder layer's cross-attention. Step: six per layer, and the output.
    assert len(encoder) == 4 * layers.n_encoder_layers + layers.n_decoder_layers
    assert len(small) == len(large) == 6 * layers.n_decoder_layers + 1
    assert products.seconds() > 0


def test_grouped_sizes_keep_their_sum_and_number() -> None:
    sizes = [128, 128, 120, 64, 66, 3, 1]
    found = group_sizes(sizes)
    assert sum(n for _, n in found) == len(sizes)
    assert sum(mean * n for mean, n in found) == pytest.approx(sum(sizes), rel=0.02)


def test_samples_are_at_equal_distances() -> None:
    assert sample_evenly(list(range(10)), 4) == [0, 3, 6, 9]
    assert sample_evenly([1, 2], 10) == [1, 2]


def test_the_likelier_translation_is_counted_only_where_two_differ() -> None:
    class FixedScores(InProcessWorker):
        def __init__(self) -> None:
            pass

        def request(self, request: str) -> dict[str, Any]:
            return {"found": [-float(sum(ids)) for ids in json.loads(request)["translations"]]}

    text = BenchmarkText(["a", "b", "c"], [[1], [2], [3]])
    assert count_likelier(FixedScores(), text, [[5], [6], [7]], [[5], [9], [1]]) == (1, 2)  # type: ignore[arg-type]


# ---- Wrong results are not timed


def check_with(change: Callable[[list[list[int]]], list[list[int]]], *, is_random: bool = False) -> None:
    class Wrong(TfmEngine):
        def decode(self, rows: Any, *, beam_size: int, preset: str) -> list[list[int]]:
            return change(super().decode(rows, beam_size=beam_size, preset=preset))

    class In(InProcessWorker):
        def __init__(self, engine: BenchmarkEngine) -> None:
            self.handler = RequestHandler(engine, CPU)

    right, wrong = (kind(toy_model(), DecodeConfig(max_extra_length=EXTRA), device=CPU) for kind in (TfmEngine, Wrong))
    text = BenchmarkText(LINES, toy_rows(), is_random=is_random)
    check_translations({TFM: In(right), CT2: In(wrong)}, text)  # type: ignore[dict-item]


def test_other_translations_are_not_timed() -> None:
    check_with(lambda found: found)
    with pytest.raises(EnvironmentFault, match=r"CTranslate2: its translations have .* in common with"):
        check_with(lambda found: [ids[::-1] for ids in found])
    with pytest.raises(EnvironmentFault, match="CTranslate2: its translations have"):
        check_with(lambda found: [*found[1:], found[0]])


def test_translations_of_another_length_are_not_timed() -> None:
    with pytest.raises(EnvironmentFault, match=r"tfm: translations of \[.*\] tokens, not 20"):
        check_with(lambda found: found, is_random=True)


def test_similarity_is_one_for_equal_and_zero_for_disjoint_sentences() -> None:
    assert similarity([1, 2, 3], [1, 2, 3]) == 1
    assert similarity([1, 2], [3, 4]) == 0
    assert similarity([1, 2, 3, 4], [1, 2, 9, 9]) == 0.5


# ---- The command


@pytest.mark.slow
@OF_CT2
@NEEDS_BASELINES
def test_a_random_model_is_measured_beside_baselines(in_process: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "decode", "--json", *DECODING]) == 0
    printed = json.loads(capsys.readouterr().out)
    names = {f"{search}: {name}" for search in ("greedy", "beam 4") for name in (TFM, *BASELINES)}
    assert names <= printed["figures"].keys()
    assert {printed["figures"][name]["tokens"] for name in names} == {6 * FIXED_LENGTH}
    for ratio in ("tfm to Hugging Face", "tfm to CTranslate2", "tfm to CTranslate2 int8"):
        assert printed["ratios"][f"greedy: {ratio}"]["median"] > 0
    assert printed["ratios"]["beam 4, alone: tfm to CTranslate2"]["median"] > 0
    assert 0 < printed["ratios"]["beam 4: matrix products alone to tfm"]["median"] < 1
    assert len(printed["figures"]["versions"]) == 2


@OF_CT2
@NEEDS_BASELINES
@pytest.mark.slow
def test_a_trained_model_is_measured_from_lines_to_lines(
    in_process: None, model_file: str, text_files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench", "decode", "--checkpoint", model_file, *text_files, "n_lines=9", "rounds=2", "device=cpu"]
    assert main([*words, "decode.max_extra_length=6"]) == 0
    text = capsys.readouterr().out
    lines = text.split("\n")
    assert max(map(len, lines)) <= WIDTH
    assert len([line for line in lines if line.startswith("|")]) == 2 + 2 * 5
    assert "9 sentences, " in text
    for printed in ("beam 4, lines to lines: tfm to Hugging Face ", "is the likelier one in ", "reordering "):
        assert printed in " ".join(lines)


@OF_CT2
@NEEDS_BASELINES
def test_a_baseline_without_such_a_model_is_left_out_with_a_line(
    in_process: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "decode", *DECODING, "model.positions=rotary"]) == 0
    captured = capsys.readouterr()
    rows = [line.split("|")[1].strip() for line in captured.out.split("\n") if line.startswith("| ")]
    assert {"greedy: tfm", "greedy: CTranslate2"} <= set(rows)
    assert "greedy: Hugging Face" not in rows
    assert "Left out: model.positions=rotary" in " ".join(captured.out.split())
    assert "left out: model.positions=rotary" in captured.err


def test_without_baselines_only_tfm_is_measured(in_process: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "decode", "rivals=false", *DECODING]) == 0
    rows = [line for line in capsys.readouterr().out.split("\n") if line.startswith("| ")]
    assert [row.split("|")[1].strip() for row in rows[2:]] == [
        f"{search}: {name}" for search in ("greedy", "beam 4") for name in ("tfm", "tfm, batches of 32")
    ]


@pytest.mark.parametrize(
    ("overrides", "code", "message"),
    [
        (["source=a"], 2, "source=a: needs a model"),
        (["checkpoint=a"], 2, "checkpoint=a: and what is it to translate?"),
        (["reference=a"], 2, "reference=a: of which text?"),
        (["decode=greedy"], 2, "decode.beam_size=1: greedy search is measured anyway"),
        (["n_lines=0"], 2, "n_lines=0: out of range"),
        (["checkpoint=nowhere", "source=a"], 4, "nowhere: no such file or folder"),
    ],
)
def test_bad_input_is_one_line(
    overrides: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "decode", *DECODING, *overrides]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"tfm: error: {message}")
    assert captured.err.count("\n") == 1


def test_a_reference_of_another_length_is_refused(
    model_file: str, text_files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "reference").write_text("a\n", encoding="utf-8")
    assert main(["bench", "decode", "--checkpoint", model_file, *text_files]) == 3
    assert f"reference: has 1 lines, {tmp_path / 'source'} 40" in capsys.readouterr().err


def test_the_first_line_is_timed_with_the_search_of_the_config() -> None:
    wanted = config("checkpoint=a b", "decode.beam_size=7", subject="decode")
    found = load_config("translate", translating_overrides(wanted))
    assert (found.checkpoint, found.device, found.decode) == ("a b", wanted.device, wanted.decode)


def test_the_parts_of_a_first_line_are_timed_in_order(
    model_file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = {"command": "translate", "overrides": [f"checkpoint={model_file}", "device=cpu"], "started": 0.0}
    monkeypatch.setattr(sys, "argv", ["startup", json.dumps(parameters)])
    startup.main()
    parts = json.loads(capsys.readouterr().out)["parts"]
    assert list(parts) == [
        *("Python", "importing Hydra", "composing the config", "importing torch", "importing tfm"),
        *("reading the model", "building it", "the first line"),
    ]
    assert min(parts.values()) >= 0


@pytest.mark.slow
def test_start_measures_the_first_line_and_its_parts(model_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "start", "--checkpoint", model_file, "rounds=1", "device=cpu", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)["figures"]
    (whole,), (parts,) = figures["whole"], figures["parts"]
    assert parts["the first line"] > 0
    assert sum(parts.values()) == pytest.approx(whole, rel=0.5)  # tolerates load on the machine


@pytest.mark.slow
@NEEDS_BASELINES
def test_programs_are_measured_in_processes_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "decode", "--json", *DECODING]) == 0
    assert json.loads(capsys.readouterr().out)["ratios"]["beam 4: tfm to CTranslate2"]["median"] > 0
