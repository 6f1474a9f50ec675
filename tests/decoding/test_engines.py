"""Engines: their capabilities, conversion on demand, and the Python API that opens models with them."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.addons.interop.test_export import model_file
from tests.support.each import each
from tests.toy.translator import sentences, toy_tokenizer, translator_of
from transformer_cli import api
from transformer_cli.addons.interop import conversions, ctranslate2_kind
from transformer_cli.addons.interop.ctranslate2_engine import CAPABILITIES, CTranslate2Engine
from transformer_cli.config.decode import DecodeConfig, Quantize
from transformer_cli.config.model import Norm
from transformer_cli.decoding import search as searches
from transformer_cli.decoding.engine import Capabilities, check_supported
from transformer_cli.decoding.results import TranslateOptions
from transformer_cli.decoding.search import SEARCHES, Hypothesis, SearchMethod, SearchRequest
from transformer_cli.decoding.search.registry import register_search
from transformer_cli.decoding.terminology import Term, Terminology
from transformer_cli.decoding.torch_engine import TorchEngine
from transformer_cli.errors import CheckpointError, ConfigError, EnvironmentFault
from transformer_cli.models.file import read_model, write_model
from transformer_cli.models.locate import EXPORT_FILE

LINES = ["", *sentences(8, seed=7), "the cat ."]
TERMS = Terminology([Term("cat", ("milk",), 1)], name="terms.tsv")


@pytest.fixture
def model_path(tmp_path: Path) -> Path:
    pytest.importorskip("ctranslate2")
    path = tmp_path / "mine" / "model.safetensors"
    path.parent.mkdir()
    write_model(path, model_file(norm=Norm.pre))
    return path


def conversions_of(path: Path) -> list[str]:
    return sorted(one.name for one in (path.parent / ".ctranslate2").iterdir() if one.name != "lock")


# ---- Capabilities


@each(
    "settings, options, says",
    [
        ({"search": "sample", "beam_size": 1}, {}, "decode.search=sample: engine=ctranslate2 draws by a seed"),
        (
            {"batch_invariant": True},
            {},
            "decode.batch_invariant=true: engine=ctranslate2 does not have it. Leave one of them out",
        ),
        ({"coverage_penalty": 0.2}, {}, "decode.coverage_penalty=0.2: engine=ctranslate2 does not have it"),
        ({}, {"prefixes": True}, "--prefix: engine=ctranslate2 does not have it"),
        ({}, {"terminology": TERMS}, "--terms: engine=ctranslate2 does not have it"),
        ({}, {"alignments": True}, "--alignments: engine=ctranslate2 does not have it"),
        ({}, {"token_scores": True}, "--token-scores: engine=ctranslate2 does not have it"),
    ],
)
def test_what_an_engine_lacks_is_refused_by_name(settings: dict[str, Any], options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_supported(CAPABILITIES, DecodeConfig(**settings), TranslateOptions(**options))
    assert str(refused.value).startswith(says)
    check_supported(Capabilities("torch", batch_invariant=True), DecodeConfig(**settings), TranslateOptions(**options))


def test_what_every_engine_has_is_accepted() -> None:
    config = DecodeConfig(
        max_source_length=40, split_sentences=True, n_best=2, no_repeat_ngram=3, quantize=Quantize.int8
    )
    check_supported(CAPABILITIES, config, TranslateOptions(retry=True))


@each(
    "settings, says",
    [
        ({"search": "beem"}, "no search called `beem`; did you mean `beam`? (choices: "),
        ({"n_best": 9}, "decode.n_best=9: more than decode.beam_size=4. Raise decode.beam_size to 9"),
        ({"search": "greedy", "beam_size": 1, "n_best": 2}, "decode.n_best=2: greedy search finds one."),
        ({"search": "greedy"}, "decode.beam_size=4: needs decode.search=beam, not greedy"),
        ({"top_k": 5}, "decode.search=beam: decode.temperature, decode.top_k and decode.top_p need sampling"),
        ({"search": "mbr", "beam_size": 1, "n_best": 40}, "decode.n_best=40: more than decode.n_samples=32"),
    ],
)
def test_options_that_a_search_does_not_have_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        translator_of(toy_tokenizer(), **settings)
    assert str(refused.value).startswith(says)


def test_a_registered_search_needs_no_other_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SEARCHES, "_entries", dict(SEARCHES._entries))

    def short(request: SearchRequest[Any]) -> list[list[Hypothesis]]:
        one = replace(request, config=replace(request.config, search="greedy", beam_size=1))
        return [[replace(h, ids=h.ids[:1]) for h in found] for found in searches.SEARCHES["greedy"](one)]

    register_search(SearchMethod("short", short))
    greedy = translator_of(toy_tokenizer(), search="greedy", beam_size=1).translate(LINES)
    found = translator_of(toy_tokenizer(), search="short", beam_size=1).translate(LINES)
    assert [result.text for result in found] != [result.text for result in greedy]
    assert all(greedy[n].text.startswith(result.text) for n, result in enumerate(found))


# ---- Conversion on demand


@pytest.mark.slow
def test_a_model_is_converted_once_and_anew_after_a_change(model_path: Path) -> None:
    first = conversions.conversion_of(model_path)
    before = (first.directory / "model.bin").stat().st_mtime_ns
    assert conversions.conversion_of(model_path).directory == first.directory
    assert (first.directory / "model.bin").stat().st_mtime_ns == before
    assert conversions_of(model_path) == [first.directory.name]
    write_model(model_path, replace(read_model(model_path), step=7))
    second = conversions.conversion_of(model_path)
    assert second.directory != first.directory
    assert conversions_of(model_path) == [second.directory.name], "the conversion of the old model is removed"


def test_a_conversion_whose_record_is_damaged_is_left_alone(model_path: Path) -> None:
    (first := conversions.conversion_of(model_path).directory / EXPORT_FILE).write_text("{")
    write_model(model_path, replace(read_model(model_path), step=7))
    second = conversions.conversion_of(model_path)
    assert conversions_of(model_path) == sorted([first.parent.name, second.directory.name])


def test_each_precision_has_its_own_conversion(model_path: Path) -> None:
    for quantize in Quantize:
        conversions.conversion_of(model_path, quantize=quantize)
    assert [name.partition("-")[2] for name in conversions_of(model_path)] == ["float32", "int8"]


def test_a_damaged_conversion_is_made_again(model_path: Path) -> None:
    directory = conversions.conversion_of(model_path).directory
    (directory / "model.bin").write_bytes(b"damaged")
    assert conversions.conversion_of(model_path).directory == directory
    assert (directory / "model.bin").stat().st_size > 100


def test_a_conversion_that_predicts_otherwise_is_not_kept(model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = conversions.ctranslate2.write

    def wrong(model: Any, directory: Path, **options: Any) -> None:
        weights = {name: weight * 1.5 if weight.dim() == 2 else weight for name, weight in model.weights.items()}
        write(replace(model, weights=weights), directory, **options)

    monkeypatch.setattr(conversions.ctranslate2, "write", wrong)
    with pytest.raises(CheckpointError, match=r"does not predict the same in ctranslate2 .* Use engine=torch"):
        conversions.conversion_of(model_path)
    assert conversions_of(model_path) == []


def test_a_folder_that_cannot_be_written_has_its_conversions_in_the_user_s_cache(
    model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(conversions, "_is_writable", lambda folder: False)
    caplog.set_level("INFO", logger="tfm")
    found = conversions.conversion_of(model_path)
    assert found.directory.parent == tmp_path / "cache" / "tfm" / "ctranslate2"
    assert not (model_path.parent / ".ctranslate2").exists()
    assert any("cannot be written, so the conversion for CTranslate2 is kept in" in m for m in caplog.messages)
    caplog.clear()
    assert conversions.conversion_of(model_path).directory == found.directory
    assert caplog.messages == []


def test_a_checkpoint_s_conversion_is_kept_in_its_run(model_path: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "run" / "checkpoints" / "step-00000010"
    checkpoint.mkdir(parents=True)
    shutil.copy(model_path, checkpoint)
    (tmp_path / "run" / "best").symlink_to("checkpoints/step-00000010")
    found = conversions.conversion_of(tmp_path / "run" / "best" / "model.safetensors")
    assert found.directory.parent == (tmp_path / "run" / ".ctranslate2").resolve()
    assert [one.name for one in checkpoint.iterdir()] == ["model.safetensors"]


def test_a_model_that_ctranslate2_cannot_express_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    path = tmp_path / "model.safetensors"
    write_model(path, model_file(norm=Norm.pre, d_k=4, d_v=8))
    with pytest.raises(ConfigError, match="CTranslate2"):
        api.load(path, engine="ctranslate2")
    assert [one.name for one in tmp_path.iterdir()] == ["model.safetensors"]
    assert isinstance(api.load(path, engine="auto", device="cpu").shared.engine, TorchEngine)


# ---- The Python API


@pytest.mark.parametrize("engine", ["ctranslate2", "auto"])
def test_both_engines_translate_alike(model_path: Path, engine: str) -> None:
    settings: dict[str, Any] = {"search": "greedy", "beam_size": 1, "max_extra_length": 6}
    torch_one = api.load(model_path, device="cpu", engine="torch", parallel=False, **settings)
    other = api.load(model_path, device="cpu", engine=engine, **settings)
    assert isinstance(torch_one.shared.engine, TorchEngine)
    assert isinstance(other.shared.engine, CTranslate2Engine)
    assert [r.text for r in other.translate(LINES)] == [r.text for r in torch_one.translate(LINES)]


def test_auto_takes_torch_for_what_only_torch_has(model_path: Path) -> None:
    assert isinstance(
        api.load(model_path, device="cpu", engine="auto", coverage_penalty=0.1).shared.engine, TorchEngine
    )
    assert isinstance(api.load([model_path, model_path], device="cpu", engine="auto").shared.engine, TorchEngine)


def test_unset_the_engine_is_torch_but_for_an_export(model_path: Path) -> None:
    directory = conversions.conversion_of(model_path).directory
    assert isinstance(api.load(model_path, device="cpu").shared.engine, TorchEngine)
    assert isinstance(api.load(directory, device="cpu").shared.engine, CTranslate2Engine)


def test_what_cannot_be_opened_is_refused(model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"engine=marian: unknown\. Choose ctranslate2, firefox, torch, auto"):
        api.load(model_path, engine="marian")
    with pytest.raises(ConfigError, match="names several, and engine=ctranslate2 joins none"):
        api.load([model_path, model_path], engine="ctranslate2")
    with pytest.raises(ConfigError, match="beam_sise"):
        api.load(model_path, beam_sise=3)

    def missing(name: str, *, needs: str) -> Any:
        raise EnvironmentFault(f"{needs}: the package {name} cannot be imported. Run `pip install …`")

    monkeypatch.setattr(ctranslate2_kind, "imported", missing)
    with pytest.raises(EnvironmentFault, match="engine=ctranslate2: the package ctranslate2"):
        api.load(model_path, engine="ctranslate2")
    assert isinstance(api.load(model_path, engine="auto", device="cpu").shared.engine, TorchEngine)


def test_scores_of_the_engine_are_those_of_torch(model_path: Path) -> None:
    ours, theirs = (
        api.load(model_path, device="cpu", engine=name, parallel=False) for name in ("torch", "ctranslate2")
    )
    source, target = ours.tokenizers.source.encode(LINES[1:5]), ours.tokenizers.target.encode(LINES[5:9])
    pairs: Sequence[tuple[list[int], list[int]]] = list(zip(source, target, strict=True))
    for one, other in zip(
        ours.engine.score(pairs, batch_tokens=99), theirs.engine.score(pairs, batch_tokens=99), strict=True
    ):
        torch.testing.assert_close(torch.tensor(one.log_probs), torch.tensor(other.log_probs), rtol=0, atol=1e-3)


def test_ctranslate2_has_alignments_and_token_scores_where_torch_has_the_model(model_path: Path) -> None:
    options = TranslateOptions(alignments=True, token_scores=True)
    fast, torch_one = (
        api.load(model_path, engine=name, device="cpu", options=options, beam_size=2)
        for name in ("ctranslate2", "torch")
    )
    with fast, torch_one:
        for ours, theirs in zip(fast.translate(LINES), torch_one.translate(LINES), strict=True):
            assert (ours.text, ours.alignment) == (theirs.text, theirs.alignment)
            if theirs.tokens is not None:
                assert ours.tokens is not None
                assert [piece for piece, _ in ours.tokens] == [piece for piece, _ in theirs.tokens]
    with pytest.raises(ConfigError, match="--alignments: engine=ctranslate2 does not have it"):
        api.load(conversions.conversion_of(model_path).directory, device="cpu", options=options)
