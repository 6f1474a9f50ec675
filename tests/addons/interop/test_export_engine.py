"""CTranslate2 as the engine of the Translator: the same lines, and scores that mean the same."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.addons.interop.test_export import model_file
from tests.toy.translator import GREEDY, sentences
from transformer_cli.addons.interop import ctranslate2 as to_ctranslate2
from transformer_cli.addons.interop import verify
from transformer_cli.addons.interop.conversions import conversion_of
from transformer_cli.addons.interop.ctranslate2_engine import CTranslate2Engine, check_lengths
from transformer_cli.addons.interop.exported import facts_of, read_export
from transformer_cli.addons.interop.publish import publishing
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.model import Norm, Positions, Tying
from transformer_cli.decoding.engine import DecodeRequest
from transformer_cli.decoding.opening import open_models
from transformer_cli.decoding.plan import Segment
from transformer_cli.decoding.search.scores import length_penalty
from transformer_cli.decoding.shortlist import SHORTLIST_FILE, Shortlist
from transformer_cli.decoding.torch_engine import torch_translator
from transformer_cli.decoding.training_text import training_text
from transformer_cli.decoding.translator import Translator
from transformer_cli.errors import ConfigError, EnvironmentFault
from transformer_cli.models.file import ModelFile, write_model

CPU = torch.device("cpu")
LINES = ["", *sentences(20, seed=7), " \u00a0", *sentences(2, seed=8, longest=60), "the cat ."]


def both(model: ModelFile, folder: Path, **options: Any) -> tuple[Translator, Translator]:
    """Ours and theirs."""
    pytest.importorskip("ctranslate2")
    config = DecodeConfig(**{"max_extra_length": 6, "max_source_length": 40, **options})
    facts = facts_of(model, "", program="ctranslate2", max_positions=None)
    with publishing(folder / "out", facts) as directory:
        to_ctranslate2.write(model, directory)
    exported = read_export(folder / "out", program="ctranslate2")
    ours = torch_translator(model.build(CPU), model.tokenizers, config, device=CPU)
    text = training_text([exported], max_positions=exported.max_positions)
    engine = CTranslate2Engine(exported.directory, exported.tokenizers, text=text, device=CPU)
    return ours, Translator(engine, config)


def engine_of(translator: Translator) -> CTranslate2Engine:
    assert isinstance(translator.engine, CTranslate2Engine)
    return translator.engine


@pytest.mark.parametrize("batch_tokens", [30, 4096])
def test_greedy_search_finds_the_same_for_every_line(tmp_path: Path, batch_tokens: int) -> None:
    ours, theirs = both(model_file(norm=Norm.pre), tmp_path, batch_tokens=batch_tokens, **GREEDY)
    for wanted, found in zip(ours.translate(LINES), theirs.translate(LINES), strict=True):
        assert found.text == wanted.text
        assert (found.split, found.hit_limit) == (wanted.split, wanted.hit_limit)
        if not wanted.hit_limit:
            assert found.hypotheses[0][1] == pytest.approx(wanted.hypotheses[0][1], abs=1e-3)


@pytest.mark.parametrize("n_sentences", [2, 0])
def test_B8_a_batch_too_large_for_the_memory_is_cut_in_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_sentences: int
) -> None:
    class TooLarge:
        def result(self) -> Any:
            raise RuntimeError("CUDA failed with error out of memory")

    submit = CTranslate2Engine._submit

    def small(self: CTranslate2Engine, batch: Sequence[Segment], *args: Any, **options: Any) -> list[Any]:
        return submit(self, batch, *args, **options) if len(batch) <= n_sentences else [TooLarge()] * len(batch)

    _, theirs = both(model_file(norm=Norm.pre), tmp_path, **GREEDY)
    expected = [found.text for found in theirs.translate(LINES)]
    monkeypatch.setattr(CTranslate2Engine, "_submit", small)
    if n_sentences:
        assert [found.text for found in theirs.translate(LINES)] == expected
    else:
        with pytest.raises(EnvironmentFault, match=r"with a single sentence .* Lower decode\.beam_size or"):
            theirs.translate(LINES)


@pytest.mark.parametrize("alpha", [0, 0.6, 1])
def test_the_score_of_a_hypothesis_is_that_of_force_decoding(tmp_path: Path, alpha: float) -> None:
    model = model_file(norm=Norm.pre, tie_embeddings=Tying.none, gain=1)
    model.weights["own_output.weight"][model.tokenizers.target.eos_id] += 0.16  # about every tenth token
    _, theirs = both(model, tmp_path, length_penalty=alpha, n_best=3, max_extra_length=30)
    segments = [Segment(n, 0, ids) for n, ids in enumerate(model.tokenizers.source.encode(sentences(8, seed=9)))]
    found = {
        s.key: h
        for b, hs in engine_of(theirs).search(segments, DecodeRequest(theirs.config))
        for s, h in zip(b, hs, strict=True)
    }
    n_checked = 0
    for segment in segments:
        hypotheses = found[segment.key]
        ended = [h for h in hypotheses if h.finished]
        assert ended == sorted(ended, key=lambda h: -h.score)
        assert len(hypotheses) == 3
        for forced, h in zip(log_probs(model, [segment.ids] * len(ended), [h.ids for h in ended]), ended, strict=True):
            assert h.log_prob == pytest.approx(sum(forced), abs=1e-3)
            assert h.score == pytest.approx(sum(forced) / length_penalty(len(forced), alpha), abs=1e-3)
            n_checked += 1
    assert n_checked >= 16


def log_probs(model: ModelFile, sources: list[list[int]], targets: list[list[int]]) -> list[list[float]]:
    return verify.log_probs(model.build(CPU), sources, targets, model.tokenizers)


def test_padding_bos_and_the_unknown_token_are_banned(tmp_path: Path) -> None:
    model = model_file(norm=Norm.pre, tie_embeddings=Tying.none)
    target = model.tokenizers.target
    ours, theirs = both(model, tmp_path, **GREEDY)
    ids = [i for result in ours.translate(LINES) for i in target.encode([result.text])[0]]
    likeliest = max(set(ids), key=ids.count)
    weights = dict(model.weights)
    output = weights["own_output.weight"].clone()
    output[[target.pad_id, target.bos_id, target.unk_id]] = 1.5 * output[likeliest]
    weights["own_output.weight"] = output
    (tmp_path / "tempting").mkdir()
    ours, theirs = both(replace(model, weights=weights), tmp_path / "tempting", **GREEDY)
    (spoken,) = engine_of(theirs).library.translate_batch([target.pieces([likeliest])], beam_size=1)
    assert {"<pad>", "<s>", "<unk>"} & set(spoken.hypotheses[0]), "nothing tempted it"
    for wanted, found in zip(ours.translate(LINES), theirs.translate(LINES), strict=True):
        assert found.text == wanted.text
        assert found.hypotheses[0][1] == pytest.approx(wanted.hypotheses[0][1], abs=1e-2)


def test_the_engine_splits_lines_as_the_model_was_trained(tmp_path: Path) -> None:
    model = replace(model_file(norm=Norm.pre), multi_sentence_share=0.02, data={"max_length": 31})
    _, theirs = both(model, tmp_path, max_source_length=None, **GREEDY)
    lines = ["The cat sat. A woman drank milk.", "the cat sat", "the cat " * 20]
    results = theirs.translate(lines)
    assert [(result.n_parts > 1, result.split) for result in results] == [(True, False), (False, False), (True, True)]
    alone = theirs.translate(["The cat sat.", "A woman drank milk."])
    assert results[0].text == " ".join(result.text for result in alone if result.text)


def test_a_line_keeps_its_own_limit_in_a_batch(tmp_path: Path) -> None:
    ours, theirs = both(model_file(norm=Norm.pre), tmp_path, max_extra_length=0, **GREEDY)
    lines = ["the cat .", *sentences(6, seed=3, longest=30)]
    together = [result.text for result in theirs.translate(lines)]
    assert together == [result.text for result in ours.translate(lines)]
    assert together == [theirs.translate([line])[0].text for line in lines]


@pytest.mark.parametrize("options", [{"min_length": 3}, {"no_repeat_ngram": 30}, {}], ids=str)
def test_a_translation_that_takes_all_positions_can_be_scored(tmp_path: Path, options: dict[str, Any]) -> None:
    model = model_file(norm=Norm.pre, positions=Positions.learned, max_positions=24)
    _, theirs = both(model, tmp_path, max_extra_length=200, max_source_length=20, **GREEDY, **options)
    engine = engine_of(theirs)
    engine.text = replace(engine.text, max_positions=24)
    results = theirs.translate(LINES)
    assert any(result.hit_limit for result in results)


def test_a_shortest_length_beyond_the_positions_is_refused() -> None:
    check_lengths(DecodeConfig(min_length=22), Path("out"), 24)
    check_lengths(DecodeConfig(min_length=99), Path("out"), None)
    with pytest.raises(
        ConfigError, match=r"decode\.min_length=23: out has 24 positions, .* of 22 tokens at most\. Lower"
    ):
        check_lengths(DecodeConfig(min_length=23), Path("out"), 24)


def test_a_device_that_fails_is_reported_without_blaming_the_model(tmp_path: Path) -> None:
    _, theirs = both(model_file(norm=Norm.pre), tmp_path)

    class Library:
        def translate_batch(self, *_: Any, **__: Any) -> list[Any]:
            return [self]

        def result(self) -> None:
            raise RuntimeError("CUDA failed with error unspecified launch failure")

    engine_of(theirs).library = Library()
    with pytest.raises(EnvironmentFault, match=r"out: CTranslate2 failed .*launch failure.* Add --device cpu"):
        theirs.translate(["the cat ."])


# ---- A shortlist


def listed(model: ModelFile, folder: Path) -> Path:
    """A model with lists of few tokens, which change what it says."""
    write_model(path := folder / "model.safetensors", model)
    n, rng = len(model.tokenizers.source), np.random.default_rng(1)
    ids = [np.unique(rng.integers(4, len(model.tokenizers.target), 4)) for _ in range(n)]
    starts = np.cumsum([0, *map(len, ids)])
    Shortlist(np.arange(10, 14), starts, np.concatenate(ids)).write(
        folder / SHORTLIST_FILE, model.tokenizers, (model.source_lang, model.target_lang)
    )
    return path


@pytest.mark.parametrize(
    "search", [GREEDY, pytest.param({"beam_size": 3, "length_penalty": 0}, marks=pytest.mark.slow)]
)
def test_with_a_shortlist_it_says_what_torch_says(tmp_path: Path, search: dict[str, Any]) -> None:
    """A batch of CTranslate2 has the lists of all its sentences, so each is searched alone."""
    pytest.importorskip("ctranslate2")
    path = listed(model_file(norm=Norm.pre), tmp_path)
    config = DecodeConfig(**{"max_extra_length": 6, "shortlist": "auto", **search})
    without = replace(config, shortlist=None)
    ours, theirs, plain = (
        open_models(str(path), engine=engine, decode=one).translator(one, CPU).translate(LINES)
        for engine, one in (("torch", config), ("ctranslate2", config), ("ctranslate2", without))
    )
    assert [one.text for one in theirs] == [one.text for one in ours]
    assert [one.text for one in theirs] != [one.text for one in plain]
    for wanted, other in zip(ours, theirs, strict=True):
        assert other.candidates[0].log_prob == pytest.approx(wanted.candidates[0].log_prob, abs=1e-3)


def test_a_shortlist_is_refused_where_it_cannot_serve(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    path = listed(model_file(norm=Norm.pre), tmp_path)
    config = DecodeConfig(shortlist="auto")
    assert open_models(str(path), engine="auto", decode=config).engine == "torch"
    folder = conversion_of(path).directory
    with pytest.raises(ConfigError, match=r"decode\.shortlist=auto: is for translating with a model file"):
        open_models(str(folder), decode=config)
    with pytest.raises(ConfigError, match=r"decode\.no_repeat_ngram=3: engine=ctranslate2 .* use engine=torch"):
        open_models(str(path), engine="ctranslate2", decode=replace(config, no_repeat_ngram=3))


def test_a_vocabulary_map_has_what_is_always_there_first() -> None:
    """CTranslate2 documents a line: source, tab, targets with spaces between; an empty source is always there."""
    tokenizers = model_file().tokenizers
    source, target = tokenizers.source, tokenizers.target
    lists = [[5, 6] if i == source.eos_id else [7, 8] if i == 20 else [] for i in range(len(source))]
    starts = np.cumsum([0, *map(len, lists)])
    shortlist = Shortlist(np.array([6, 9]), starts, np.concatenate([np.array(one, np.int64) for one in lists]))
    always, ends, other = (" ".join(target.pieces(ids)) for ids in ([0, 1, 2, 3, 5, 6, 9], [5, 6], [7, 8]))
    expected = f"\t{always}\n</s>\t{ends}\n{source.pieces([20])[0]}\t{other}\n"
    assert to_ctranslate2.vocabulary_map(shortlist, tokenizers).decode() == expected
