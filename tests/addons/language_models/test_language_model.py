"""The decoder alone: what holds for every variant, against torch's own layers, and the figures that it is judged by.

Shapes: B batch, T target, D width, V vocabulary, N beam, R = B × N.
"""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.addons.language_models.toy_text import SIZES, config, content, language_model, prepared, run, without_bytes
from tests.conftest import slow
from tests.support.contract import refused
from tests.support.contract import run as tfm
from tests.support.each import each
from tests.support.forked import Ran
from tests.toy.models import torchs_layers
from tests.toy.run import assert_resumes, dying_at, metrics
from tests.toy.run import model_file as translator_file
from tests.toy.run import packed as packed_file
from tests.toy.translator import sentences
from transformer_cli.addons.language_models.incremental import LanguageModelDecoder
from transformer_cli.addons.language_models.language_model import LanguageModel
from transformer_cli.config.model import Activation, ModelConfig, Norm, Positions, Tying
from transformer_cli.config.train import InitConfig, LoraConfig
from transformer_cli.models.file import read_model
from transformer_cli.models.layouts import PackedLayout

CPU = torch.device("cpu")
V = 20
VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {},
    "pre-LN": {"norm": Norm.pre},
    "learned": {"positions": Positions.learned, "max_positions": 16},
    "rotary": {"positions": Positions.rotary, "norm": Norm.pre, "norm_kind": "rms"},
    "narrow heads": {"d_k": 4, "d_v": 6, "activation": Activation.swiglu},
    "untied": {"tie_embeddings": Tying.none, "bias": False},
    "window, narrow": {"attention_window": 2, "d_embedding": 6},
    "narrow, own output": {"d_embedding": 6, "tie_embeddings": Tying.source_target, "output_bias": True},
}
every_variant = pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())


def toy(**changes: Any) -> LanguageModel:
    return language_model(ModelConfig(**{**SIZES, **changes}), size=V).double()


def texts() -> Tensor:
    return torch.tensor([[2, 13, 14, 15, 4, 9], [2, 16, 17, 18, 5, 8]])


@every_variant
def test_a_later_token_changes_nothing_before_it(changes: dict[str, Any]) -> None:
    model, ids_BT = toy(**changes), texts()
    logits_BTV = model(ids_BT)
    ids_BT[:, 3] = 7
    torch.testing.assert_close(model(ids_BT)[:, :3], logits_BTV[:, :3])
    assert (model(ids_BT)[:, 3] - logits_BTV[:, 3]).abs().max() > 1e-3


@every_variant
def test_packed_texts_get_the_logits_of_padded_ones(changes: dict[str, Any]) -> None:
    model, ids_BT = toy(**changes), texts()
    short_T, long_T = ids_BT[0, :4], ids_BT[1]
    packed = PackedLayout.of_groups([(1, 4), (1, 6)], CPU)
    found_KV = model.predict(torch.cat([short_T, long_T]), packed)
    padded_BTV = model(torch.stack([F.pad(short_T, (0, 2), value=0), long_T]))
    torch.testing.assert_close(found_KV, torch.cat([padded_BTV[0, :4], padded_BTV[1]]))


@every_variant
@pytest.mark.parametrize("beam_size", [1, 3, 20])
def test_a_cache_gives_the_logits_of_reading_all_again(changes: dict[str, Any], beam_size: int) -> None:
    model, ids_BT = toy(**changes), texts()
    expected_BTV = model(ids_BT)
    decoder = LanguageModelDecoder(model)
    for n_read in (1, 3):
        logits_BV, cache = decoder.start(ids_BT[:, :n_read], beam_size=beam_size, max_length=6)
        torch.testing.assert_close(logits_BV, expected_BTV[:, n_read - 1])
        for t in range(n_read, 6):
            logits_RV = decoder.step(ids_BT[:, t].repeat_interleave(beam_size), cache)
            torch.testing.assert_close(logits_RV, expected_BTV[:, t].repeat_interleave(beam_size, dim=0))


@pytest.mark.parametrize("beam_size", [3, 20])
def test_rows_that_change_places_take_their_past_along(beam_size: int) -> None:
    model = toy(norm=Norm.pre)
    decoder = LanguageModelDecoder(model)
    ids_T = texts()[0]
    _, cache = decoder.start(ids_T[None, :2], beam_size=beam_size, max_length=6)
    own_R = torch.arange(beam_size) % 10 + 5
    decoder.step(own_R, cache)
    order_R = torch.arange(beam_size).flip(0)
    cache.reorder(order_R)
    logits_RV = decoder.step(torch.full((beam_size,), 9), cache)
    for r in (0, 1, beam_size - 1):
        whole_1T = torch.tensor([[*ids_T[:2], own_R[order_R[r]], 9]])
        torch.testing.assert_close(logits_RV[r], model(whole_1T)[0, -1])


@each("norm", Norm)
@each("activation", [Activation.relu, Activation.gelu])
def test_torchs_layers_with_a_causal_mask_and_our_weights_give_our_logits(norm: Norm, activation: Activation) -> None:
    model = language_model(ModelConfig(**SIZES, norm=norm, activation=activation), size=V)
    for parameter in model.parameters():
        if parameter.ndim == 1:
            nn.init.normal_(parameter, mean=0.5, std=0.2)
    reference = torchs_layers(model.decoder, norm, activation)
    ids_BT = texts()
    position_T1, exponent_D = torch.arange(6)[:, None], torch.arange(8) / 8  # section 3.5: sin, cos, sin, cos
    angle_TD = position_T1 / 10_000**exponent_D
    sinusoids_TD = torch.stack([angle_TD.sin(), angle_TD.cos()], dim=-1).flatten(1)
    x_BTD = model.embedding.weight[ids_BT] * 4 + sinusoids_TD
    y_BTD = reference(x_BTD, mask=nn.Transformer.generate_square_subsequent_mask(6), is_causal=True)
    torch.testing.assert_close(model(ids_BT), y_BTD @ model.embedding.weight.T, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("norm", "expected"), [(Norm.post, 4768), (Norm.pre, 4768 + 32)])
def test_parameters_are_those_counted_by_hand(norm: Norm, expected: int) -> None:
    """20 × 16 embeddings; 2 × (4 × (16² + 16) + 2 × 16 × 32 + 32 + 16 + 4 × 16); pre-LN ends in a norm."""
    model = language_model(ModelConfig(**SIZES, norm=norm), size=V)
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


# ---- Training


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    run(folder)
    return folder


def test_the_shipped_model_is_the_best_on_dev_nll(trained: Path) -> None:
    scored = [entry for entry in metrics(trained) if "dev_nll" in entry]
    shipped = read_model(trained / "model.safetensors")
    assert len(scored) >= 3
    assert shipped.scores["dev_nll"] <= min(entry["dev_nll"] for entry in scored)
    assert shipped.scores["dev_nll"] < scored[0]["dev_nll"]
    model, total, n_tokens = shipped.build_as(LanguageModel, CPU), 0.0, 0
    ids = shipped.tokenizers.target
    for line in prepared().dev.targets:
        targets = [*ids.encode([line])[0], ids.eos_id]
        logits_BTV = model(torch.tensor([[ids.bos_id, *targets[:-1]]]))
        total += F.cross_entropy(logits_BTV[0], torch.tensor(targets), reduction="sum").item()
        n_tokens += len(targets)
    assert shipped.scores["dev_nll"] == pytest.approx(total / n_tokens, abs=1e-5)
    assert shipped.scores["dev_ppl"] == pytest.approx(math.exp(total / n_tokens), rel=1e-5)


def test_a_resumed_run_is_the_run_that_was_never_stopped(trained: Path, tmp_path: Path) -> None:
    with dying_at(8):
        run(tmp_path)
    run(tmp_path)
    assert metrics(tmp_path) == metrics(trained)
    assert (tmp_path / "model.safetensors").read_bytes() == (trained / "model.safetensors").read_bytes()


def test_the_command_trains_on_plain_text_and_ends_with_the_perplexity_that_evaluate_prints(tmp_path: Path) -> None:
    for name, seed in (("corpus", 1), ("dev", 2), ("test", 3)):
        lines = sentences(60 if name == "corpus" else 6, seed=seed)
        (tmp_path / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    files = [f"data.{split}={name}.txt" for split, name in (("train", "corpus"), ("dev", "dev"), ("test", "test"))]
    sizes = ["model.d_model=16", "model.n_heads=2", "model.d_ff=16", "data.tokenizer.vocab_size=60"]
    steps = [
        "train.max_steps=2",
        "train.tokens_per_update=256",
        "train.max_tokens_per_microbatch=256",
        "device=cpu",
        "name=r",
    ]
    ran = tfm(["train", "model=decoder_tiny", "data=text", *files, *sizes, *steps], tmp_path)
    assert ran.code == 0, ran.err
    assert b"perplexity" in ran.err
    again = tfm(["evaluate", "--checkpoint", "runs/r", "--device", "cpu"], tmp_path)
    assert again.code == 0, again.err
    assert b"text.test, 6 lines" in again.out
    assert ran.out == again.out


# ---- Figures


TEXT = ["the cat drank milk .", "", "a  pretty woman sat down", "it was ."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model `m`, a text, and a translator `t`."""
    place = tmp_path_factory.mktemp("text")
    (place / "m").write_bytes(content())
    (place / "t").write_bytes(packed_file(translator_file()))
    (place / "text").write_text("".join(f"{line}\n" for line in TEXT), encoding="utf-8")
    return place


def ok(folder: Path, *arguments: str, stdin: bytes = b"") -> Ran:
    ran = tfm([*arguments, "--device", "cpu"], folder, stdin=stdin)
    assert ran.code == 0, ran.err
    return ran


def by_hand(path: Path, line: str) -> list[float]:
    """The log-probability of each piece and of the end, from the model's own forward pass."""
    file = read_model(path)
    ids = file.tokenizers.target
    (said,) = ids.encode([line])
    with torch.no_grad():
        logits_TV = file.build_as(LanguageModel, CPU)(torch.tensor([[ids.bos_id, *said]]))[0]
    return [float(row_V.log_softmax(-1)[i]) for row_V, i in zip(logits_TV, [*said, ids.eos_id], strict=True)]


def test_evaluate_says_what_the_logits_say_over_words_and_characters_counted_by_hand(folder: Path) -> None:
    found = json.loads(ok(folder, "evaluate", "--checkpoint", "m", "--source", "text", "--json").out)
    log_probs = [p for line in TEXT if line for p in by_hand(folder / "m", line)]
    assert (found["model"], found["test_set"]) == ("m", "text")
    assert (found["n_lines"], found["n_blank"]) == (4, 1)
    assert found["n_tokens"] == len(log_probs)
    assert found["n_words"] == (5 + 1) + (5 + 1) + (3 + 1)
    assert found["n_characters"] == 21 + 25 + 9
    assert found["n_unknown"] == 0
    assert found["log_prob"] == pytest.approx(sum(log_probs), abs=1e-3)
    assert found["perplexity_per_token"] == pytest.approx(math.exp(-sum(log_probs) / len(log_probs)), rel=1e-5)
    assert found["perplexity_per_word"] == pytest.approx(math.exp(-sum(log_probs) / 16), rel=1e-5)
    assert found["bits_per_character"] == pytest.approx(-sum(log_probs) / 55 / math.log(2), rel=1e-5)
    printed = ok(folder, "evaluate", "--checkpoint", "m", "--source", "text")
    assert f"{found['perplexity_per_word']:.2f}  16 words".encode() in printed.out
    assert b"text: 1 blank lines" in printed.err


def test_score_says_the_same_of_each_line_and_its_sum_is_that_of_evaluate(folder: Path) -> None:
    ran = ok(folder, "score", "--checkpoint", "m", "--source", "text")
    assert [float(line) for line in ran.out.split()] == pytest.approx(
        [sum(by_hand(folder / "m", line)) if line else 0 for line in TEXT], abs=1e-3
    )
    whole = json.loads(ok(folder, "evaluate", "--checkpoint", "m", "--source", "text", "--json").out)
    assert sum(map(float, ran.out.split())) == pytest.approx(whole["log_prob"], abs=1e-3)
    assert ran.err.decode().startswith("4 lines, ")
    piped = ok(folder, "score", "--checkpoint", "m", "--json", stdin=(folder / "text").read_bytes())
    records = [json.loads(line) for line in piped.out.split(b"\n")[:-1]]
    assert [p for _, p in records[0]["tokens"]] == pytest.approx(by_hand(folder / "m", TEXT[0]), abs=1e-4)
    assert records[0]["tokens"][-1][0] == "</s>"
    assert [record["line"] for record in records] == [1, 2, 3, 4]


def test_a_tab_is_text_to_a_language_model(folder: Path) -> None:
    both = ok(folder, "score", "--checkpoint", "m", stdin=b"the cat\tdrank milk .\nthe cat drank milk .\n").out.split()
    assert both[0] == both[1]


def test_what_the_vocabulary_lacks_is_said(folder: Path) -> None:
    (folder / "few").write_bytes(content(without_bytes()))
    (folder / "odd").write_text("the cat drank Žluťoučký milk .\n", encoding="utf-8")
    ran = ok(folder, "evaluate", "--checkpoint", "few", "--source", "odd")
    assert b"unknown to the vocabulary" in ran.err
    assert b"are lower than they should be" in ran.err
    assert json.loads(ok(folder, "evaluate", "--checkpoint", "m", "--source", "odd", "--json").out)["n_unknown"] == 0


def test_a_line_longer_than_those_of_the_training_is_read_whole_and_named(folder: Path) -> None:
    (folder / "long").write_text("the cat drank milk " * 50 + "\n", encoding="utf-8")
    ran = ok(folder, "evaluate", "--checkpoint", "m", "--source", "long", "--json")
    assert b"line 1: longer than data.max_length=40 tokens" in ran.err
    assert json.loads(ran.out)["n_words"] == 201


def test_of_several_lines_those_that_are_too_long_are_named_by_their_numbers(folder: Path) -> None:
    file = read_model(folder / "m")
    long, longest = "the cat drank milk " * 50, file.data["max_length"]
    lengths = [len(ids) for ids in file.tokenizers.target.encode(["the cat drank milk"])]
    assert lengths[0] + 1 <= longest == 40
    (folder / "long").write_text(f"the cat\n{long}\nthe cat\n{long}\n", encoding="utf-8")
    for command in ("evaluate", "score"):
        ran = ok(folder, command, "--checkpoint", "m", "--source", "long")
        assert b"lines 2, 4: longer than data.max_length=40 tokens" in ran.err, command


@each(
    "arguments, says",
    [
        (["score", "--checkpoint", "m", "--source", "text", "--translation", "text"], ["--translation", "language"]),
        (["score", "--checkpoint", "m", "--checkpoint", "m"], ["a second language model", "--checkpoint"]),
        (["evaluate", "--checkpoint", "m", "--checkpoint", "m", "--source", "text"], ["a second language model"]),
        (["evaluate", "--checkpoint", "m", "--source", "text", "--reference", "text"], ["--reference"]),
        (["evaluate", "--checkpoint", "m", "--source", "text", "--save", "h"], ["--save"]),
        (["translate", "--checkpoint", "m"], ["this is a language model; use `tfm generate`"]),
        (["classify", "--checkpoint", "m"], ["this is a language model; use `tfm generate`"]),
        (["score", "--checkpoint", "t", "--source", "text"], ["--translation", "--source"]),
        (["evaluate", "--checkpoint", "m", "data=demo_en_fr"], ["data=demo_en_fr", "--source FILE"]),
        (["train", "model=tiny", "data=text", "data.train=text", "recipe=files"], ["model.name=decoder"]),
        (["train", "model=decoder_tiny", "data=demo_en_fr"], ["model.name=transformer"]),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(folder: Path, arguments: list[str], says: list[str]) -> None:
    codes = 4 if "translate" in arguments or "classify" in arguments else 2
    refused(arguments, folder, code=codes, says=says)


def test_an_empty_text_and_a_line_beyond_learned_positions_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(content(positions=Positions.learned, max_positions=16))
    (tmp_path / "blank").write_text("\n \n")
    (tmp_path / "long").write_text("it was .\n" + "the cat drank milk " * 9 + "\n", encoding="utf-8")
    refused(["evaluate", "--checkpoint", "m", "--source", "blank"], tmp_path, code=3, says=["blank", "no text"])
    for command in ("evaluate", "score"):
        refused(
            [command, "--checkpoint", "m", "--source", "long"], tmp_path, code=3, says=["line 2", "max_positions=16"]
        )


@pytest.mark.parametrize("lora", [slow({}), {"dropout": 0.2, "also": ["embeddings"]}], ids=["plain", "also"])
def test_adapters_resume_to_the_last_bit(lora: dict[str, Any], tmp_path: Path) -> None:
    source = tmp_path / "source.safetensors"
    source.write_bytes(content())
    settings = replace(
        config(save_every=1, max_steps=3, eval_every=3),
        init=InitConfig(from_=str(source)),
        lora=LoraConfig(**{"rank": 3, **lora}),
    )
    assert_resumes(tmp_path, settings, stopped_before=3, corpus=prepared(), meanwhile=source.unlink)
