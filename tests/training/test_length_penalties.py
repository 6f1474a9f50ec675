"""The length penalty that is chosen on the dev set when training ends, and that the model then has."""

import json
import logging
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.each import each
from tests.toy.run import CPU, Died, config, model_file, prepared, run, sentences, sha256
from transformer_cli import api
from transformer_cli.config.compose import load_config
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.corpus import ParallelText
from transformer_cli.decoding.opening import open_models
from transformer_cli.decoding.torch_engine import torch_translator
from transformer_cli.errors import ConfigError
from transformer_cli.evaluation.metrics import MetricSettings, bleu
from transformer_cli.evaluation.tokenization import PLAIN
from transformer_cli.models.file import read_model, write_model
from transformer_cli.training.length_penalty import Tried, choose
from transformer_cli.training.validation import TranslationScores, TranslationValidator

SEARCH = DecodeConfig(beam_size=3, max_extra_length=5)
VALUES = [10.0, 0.0, 0.6]


def choosing() -> TrainConfig:
    plain = config(ema=0.9, max_steps=30, eval_every=15)
    decode = replace(SEARCH, length_penalty=0.3)  # none of the values
    return replace(plain, decode=decode, train=replace(plain.train, length_penalties=VALUES))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        lines: list[str] = []
        patch.setattr(logging.Logger, "info", lambda self, line, *args: lines.append(line % args if args else line))
        run(folder, choosing())
        (folder / "lines").write_text("\n".join(lines))
    return folder


def test_the_best_on_the_dev_set_becomes_the_models_own_where_it_is_much_better(trained: Path) -> None:
    model, outcome = read_model(trained / "model.safetensors"), json.loads((trained / "result.json").read_bytes())
    dev, expected = prepared().dev, {}
    for alpha in VALUES:
        decode = replace(SEARCH, length_penalty=alpha)
        found = torch_translator(model.build(CPU), model.tokenizers, decode, device=CPU).translate(dev.sources)
        expected[f"{alpha:g}"] = bleu([line.text for line in found], [dev.targets]).value
    assert outcome["length_penalties"] == pytest.approx(expected)
    assert len(set(expected.values())) > 1, "or nothing is chosen"
    assert expected[f"{model.length_penalty:g}"] == pytest.approx(max(expected.values()))
    assert model.length_penalty == outcome["length_penalty"]
    assert model.scores["dev_bleu"] == outcome["dev_score"] == pytest.approx(max(expected.values()))
    assert f"length_penalty:{model.length_penalty}" in model.provenance["dev_search"]


def test_the_log_has_the_score_of_every_candidate(trained: Path) -> None:
    lines, outcome = (trained / "lines").read_text(), json.loads((trained / "result.json").read_bytes())
    for name, what in (("ema", "of the moving average"), ("average", "of the average of the last checkpoints")):
        assert f"{outcome[name]['dev_bleu']:.4g} {what}" in lines
    for alpha, score in outcome["length_penalties"].items():
        assert re.search(rf"{score:.4g} with {alpha} in \d+\.\d s", lines)


def tried(alpha: float, translations: list[str], references: list[str]) -> Tried:
    score = bleu(translations, [references])
    return Tried(alpha, TranslationScores(1.0, {"bleu": score}, translations), seconds=alpha)


@each(
    "n_right, expected",
    [
        ({0.6: 100, 1.0: 100, 1.4: 101}, 0.6),  # one line of 200 more is chance
        ({0.6: 100, 1.0: 140, 1.4: 141}, 1.0),  # forty are not
        ({0.6: 140, 1.0: 120, 1.4: 100}, 0.6),
        ({1.4: 100, 0.6: 100, 1.0: 100}, 0.6),  # of equals the cheapest, in whatever order they are named
    ],
)
def test_of_choices_within_noise_the_cheapest_is_taken(n_right: dict[float, int], expected: float) -> None:
    references = [f"{line} of two hundred lines" for line in sentences(200, seed=1)]
    text = ParallelText(references, references)
    wrong = "there is nothing right in this one"
    found = [tried(alpha, [*references[:n], *[wrong] * (200 - n)], references) for alpha, n in n_right.items()]
    chosen, why = choose(found, "bleu", text, MetricSettings(PLAIN, "en", "xx"), seed=1)
    assert chosen.alpha == expected
    best = max(found, key=lambda one: one.scores.scores["bleu"].value)
    assert ("may be chance" in why) == (chosen.scores.scores["bleu"].value < best.scores.scores["bleu"].value)


def test_a_search_has_it_unless_another_is_asked_for(trained: Path) -> None:
    opened = open_models([str(trained)], runs="runs", decode=SEARCH)
    (model,) = opened.models
    assert opened.decode_config(SEARCH, CPU).length_penalty == model.length_penalty
    assert opened.decode_config(replace(SEARCH, length_penalty=0.3), CPU).length_penalty == 0.3
    assert SEARCH.alpha == 0.6  # of a model without its own: the paper's


def test_log_probabilities_of_the_python_api_do_not_depend_on_it(tmp_path: Path) -> None:
    found = []
    for own in (0.0, 2.0):
        path = tmp_path / f"{own}.safetensors"
        write_model(path, replace(model_file(), length_penalty=own))
        (scored,) = api.score([("a b c", "d e f")], path, device="cpu")
        n_tokens = len(scored.pieces)
        with api.load(path, device="cpu") as translator:
            normalized = scored.normalized_score(translator.config)
        assert normalized == pytest.approx(scored.log_prob / ((5 + n_tokens) / 6) ** own)
        found.append(scored.log_prob)
    assert found[0] == found[1]


def test_models_that_differ_are_searched_with_the_mean_and_a_line_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values, names = [1.4, None, 0.4], [str(tmp_path / f"{n}.safetensors") for n in range(3)]
    for name, own in zip(names, values, strict=True):
        write_model(Path(name), replace(model_file(seed=1), length_penalty=own))
    caplog.set_level("INFO", logger="tfm")
    opened = open_models(names, decode=SEARCH)
    decode = opened.decode_config(SEARCH, CPU)
    assert decode.length_penalty == 0.8  # as printed, and the same in any order of the models
    assert opened.translator(decode, CPU).config == decode  # as `tfm evaluate` does: still one line
    assert caplog.messages == [
        "length penalties of the models differ (1.4, none, which counts as 0.6, 0.4), so their mean, 0.8, is used;"
        " decode.length_penalty sets another"
    ]
    assert open_models(names[::-1], decode=SEARCH).decode_config(SEARCH, CPU) == decode
    caplog.clear()
    assert opened.decode_config(replace(SEARCH, length_penalty=1.0), CPU).length_penalty == 1.0
    assert open_models([names[0]] * 2, decode=SEARCH).decode_config(SEARCH, CPU).length_penalty == 1.4
    assert not caplog.messages


def test_a_run_that_dies_while_it_chooses_ends_alike(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(*_: object) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(TranslationValidator, "by_length_penalty", dying)
        with pytest.raises(Died):
            run(tmp_path, choosing())
    assert run(tmp_path, choosing()).is_new
    assert sha256(tmp_path / "model.safetensors") == sha256(trained / "model.safetensors")
    assert not run(tmp_path, choosing()).is_new
    assert sha256(tmp_path / "model.safetensors") == sha256(trained / "model.safetensors")


def test_other_values_for_a_finished_run_are_named(trained: Path, caplog: pytest.LogCaptureFixture) -> None:
    before, plain = (trained / "config.yaml").read_bytes(), choosing()
    for values, is_named in ((VALUES, False), ([0.0, 1.0], True), ([], True)):
        caplog.clear()
        run(trained, replace(plain, train=replace(plain.train, length_penalties=values)))
        warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert warnings == is_named * [
            f"train.length_penalties={values}: has no effect on a finished run, which had [10.0, 0.0, 0.6]. Raise"
            " train.max_steps to train on and choose again, or set decode.length_penalty where the model is used"
        ]
    assert (trained / "config.yaml").read_bytes() == before


@each(
    "overrides, message",
    [
        (["decode=greedy"], r"decode\.search=greedy"),
        (["decode.beam_size=1"], r"decode\.beam_size=1"),
        (["train.best_metric=nll"], r"train\.best_metric=nll"),
        (["decode.length_normalization=average"], r"decode\.length_normalization=average"),
        (["data=trec"], r"data\.task=classification"),
    ],
)
def test_a_choice_of_length_penalties_without_effect_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^train\.length_penalties=\[0\.6,1\]: has no effect with {message}\. "):
        load_config("train", [*overrides, "train.length_penalties=[0.6,1.0]"])


def test_a_length_penalty_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^train\.length_penalties=\[1\.0, 1\.0\]: has a value twice\. Remove one"):
        config(length_penalties=[1.0, 1.0])
