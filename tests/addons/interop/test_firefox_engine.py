"""Firefox's engine as the engine of the Translator: what fxtranslate says of each line, and one line of a fault."""

import json
import math
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.addons.interop.test_export_firefox import LINES, student
from tests.support.contract import refused, run
from tests.support.each import each
from tests.toy.translator import GREEDY
from transformer_cli import api
from transformer_cli.addons.interop import firefox, firefox_engine, firefox_kind, intgemm
from transformer_cli.addons.interop.conversions import kept_conversion
from transformer_cli.addons.interop.firefox_engine import FIREFOX_ALONE, FIREFOX_WITH_TORCH, FirefoxEngine
from transformer_cli.addons.interop.firefox_library import LEXICON, FirefoxFiles, FirefoxLibrary
from transformer_cli.addons.serving.apis.own import response_json
from transformer_cli.addons.serving.keys import ServeConfig
from transformer_cli.addons.serving.models import ModelTable
from transformer_cli.addons.serving.service import RequestOptions, Service
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.train import Device
from transformer_cli.data.hashes import file_sha256
from transformer_cli.decoding.engine import DecodeRequest, check_supported
from transformer_cli.decoding.opening import open_models
from transformer_cli.decoding.plan import Segment
from transformer_cli.decoding.results import TranslateOptions
from transformer_cli.decoding.shortlist import SHORTLIST_FILE, Shortlist
from transformer_cli.decoding.torch_engine import TorchEngine
from transformer_cli.errors import CheckpointError, ConfigError, DataError
from transformer_cli.models.file import ModelFile, write_model

fxtranslate = pytest.importorskip("fxtranslate")

ODD = ["the\tcat\u00a0sat .", "a \U0001f600 cat", "\u201cthe cat\u201d \u2026", "</s> the", "in\u200bher", " the  cat "]
DECODE = DecodeConfig(**GREEDY)


@pytest.fixture(scope="module")
def model() -> ModelFile:
    return replace(student(), target_lang="fr")


@pytest.fixture(scope="module")
def path(model: ModelFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model file with its conversion, which is verified on few lines: weights are random."""
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    write_model(path, model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(firefox_kind, "text_without_tags", lambda *_: (LINES, "test"))
        kept_conversion(path, firefox_kind.FirefoxConversion())
    return path


def conversion_beside(path: Path) -> Path:
    (found,) = (one for one in (path.parent / ".firefox").iterdir() if one.name != "lock")
    return found


@pytest.fixture(scope="module")
def folder(path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A conversion is what `tfm export firefox` writes."""
    return shutil.copytree(conversion_beside(path), tmp_path_factory.mktemp("exported") / "fx")


def asked(folder: Path, lines: Sequence[str]) -> list[str]:
    """What fxtranslate says of each line, asked directly."""
    vocabulary = (folder / "vocab.spm").read_bytes()
    (weights,) = folder.glob("model.*.bin")
    engine = fxtranslate.Translator(weights.read_bytes(), vocabulary, vocabulary, None)
    return [engine.translate(line) for line in lines]


def test_a_folder_translates_each_line_as_fxtranslate_does(folder: Path) -> None:
    lines = [*LINES, *ODD]
    with api.load(folder, device="cpu", **GREEDY) as translator:
        assert isinstance(translator.shared.engine, FirefoxEngine)
        assert [result.text for result in translator.translate(lines)] == asked(folder, lines)


def test_a_model_file_is_converted_once_into_the_same_numbers(path: Path, folder: Path) -> None:
    with api.load(path, engine="firefox", device="cpu", **GREEDY) as translator:
        found = [result.text for result in translator.translate(LINES)]
    assert found == asked(folder, LINES)
    before = (made := conversion_beside(path) / "export.json").stat().st_mtime_ns
    opened = open_models(str(path), engine="firefox", decode=DECODE)
    opened.translator(DECODE, torch.device("cpu"))
    assert made.stat().st_mtime_ns == before


def test_nothing_is_made_of_a_blank_line(folder: Path) -> None:
    """fxtranslate would make something of it."""
    assert all(asked(folder, ["", "  "]))
    with api.load(folder, device="cpu", **GREEDY) as translator:
        assert [result.text for result in translator.translate(["", " \u00a0", LINES[0], "\t"])] == [
            "", "", *asked(folder, LINES[:1]), ""
        ]  # fmt: skip
        engine = translator.shared.engine
        ((_, ((blank,),)),) = engine.search([Segment(0, 0, [], text=" ")], DecodeRequest(DECODE))
        assert (blank.text, blank.finished) == ("", True)


def test_a_long_line_is_translated_in_parts(folder: Path) -> None:
    long = "the cat drank milk . " * 30
    with api.load(folder, device="cpu", max_source_length=20, **GREEDY) as translator:
        (result,) = translator.translate([long])
        segments = translator.planner.plan([long])[0].segments
    assert result.split
    assert result.text == " ".join(filter(None, asked(folder, [segment.text for segment in segments])))


def test_a_translation_has_no_score(folder: Path, tmp_path: Path) -> None:
    command = ["translate", "--checkpoint", str(folder), "decode=greedy", "--output-format", "jsonl", "--device", "cpu"]
    ran = run([*command, "the cat sat ."], tmp_path)
    assert ran.code == 0, ran.err
    record = json.loads(ran.out)
    assert (record["score"], record["log_prob"]) == (None, None)
    assert record["translation"] == asked(folder, ["the cat sat ."])[0]
    assert record["n_tokens"] > 0


def test_a_file_is_translated_and_evaluated_with_the_engine_s_name(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    command = ["--checkpoint", str(folder), "decode=greedy", "--device", "cpu"]
    ran = run(["translate", *command], tmp_path, stdin=(tmp_path / "a.en").read_bytes())
    assert ran.out.decode().splitlines() == asked(folder, LINES)
    scored = run(["evaluate", *command, "--json", "--source", "a.en", "--reference", "a.en"], tmp_path)
    assert scored.code == 0, scored.err
    assert json.loads(scored.out)["search"].startswith("search:greedy|engine:firefox|precision:auto|")


def test_alignments_and_token_scores_are_those_of_torch_where_it_has_the_model(path: Path, folder: Path) -> None:
    options = TranslateOptions(alignments=True, token_scores=True)
    with api.load(path, engine="firefox", device="cpu", options=options, **GREEDY) as translator:
        (result,) = translator.translate(LINES[:1])
        assert result.alignment is not None
        assert result.tokens is not None
        (scored,) = api.score([(LINES[0], result.text)], path, device="cpu")
    assert math.isnan(result.candidates[0].score)
    of_tokens = [score for _, score in result.tokens]
    torch.testing.assert_close(of_tokens, scored.log_probs[: len(of_tokens)], rtol=0, atol=1e-4)
    with pytest.raises(ConfigError, match=r"--alignments: engine=firefox gives text alone.* Use the model file"):
        api.load(folder, device="cpu", options=options, **GREEDY)


@each(
    "settings, says",
    [
        ({"search": "beam"}, r"decode\.search=beam: engine=firefox searches greedily\. Add decode=greedy"),
        ({"search": "sample"}, r"decode\.search=sample: engine=firefox searches greedily"),
        ({"max_length": 9}, r"decode\.max_length=9: engine=firefox does not have it"),
        ({"max_extra_length": 9}, r"decode\.max_extra_length=9"),
        ({"length_penalty": 1.0}, r"decode\.length_penalty=1"),
        ({"no_repeat_ngram": 3}, r"decode\.no_repeat_ngram=3"),
        ({"batch_invariant": True}, r"decode\.batch_invariant=true"),
    ],
)
def test_settings_that_it_does_not_follow_are_refused_by_name(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check_supported(FIREFOX_WITH_TORCH, DecodeConfig(**{**GREEDY, **settings}))


def test_a_shortlist_is_converted_with_the_model_and_kept_apart(
    path: Path, folder: Path, model: ModelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The conversion has the lists of an export with it; a folder has its own."""
    n, some = len(model.tokenizers.source), np.arange(0, len(model.tokenizers.target), 3)
    shortlist = Shortlist(some, np.zeros(n + 1, np.int64), np.empty(0, np.int64))
    shortlist.write(path.parent / SHORTLIST_FILE, model.tokenizers, (model.source_lang, model.target_lang))
    (exported := path.parent / "exported").mkdir()
    wanted = firefox.write(model, exported, LINES, shortlist).translate(LINES)
    monkeypatch.setattr(firefox_kind, "text_without_tags", lambda *_: (LINES, "test"))
    without = conversion_beside(path)
    with api.load(path, engine="firefox", device="cpu", shortlist="auto", **GREEDY) as translator:
        found = [result.text for result in translator.translate(LINES)]
        with_list = translator.shared.engine.directory  # type: ignore[attr-defined]
    assert found == wanted
    assert (with_list / LEXICON).read_bytes() == (exported / LEXICON).read_bytes()
    assert not (without / LEXICON).exists()
    assert without.parent == with_list.parent
    with api.load(path, engine="firefox", device="cpu", **GREEDY) as translator:
        assert [result.text for result in translator.translate(LINES)] == asked(folder, LINES)
        with pytest.raises(ConfigError, match=r"decode\.shortlist=auto: .*options\.shortlist"):
            check_supported(translator.shared.engine.capabilities, replace(DECODE, shortlist="auto"))
    shutil.rmtree(with_list)
    with pytest.raises(ConfigError, match=r"decode\.shortlist=auto: .*options\.shortlist"):
        api.load(folder, device="cpu", shortlist="auto", **GREEDY)


@each(
    "options, says",
    [
        ({"prefixes": True}, "--prefix: engine=firefox"),
        ({"retry": True}, "on_issue=retry: engine=firefox has no other search"),
        ({"n_likeliest": 3}, "--explain: engine=firefox does not show"),
        ({"tags": ("<bt>",)}, "--tag <bt>: engine=firefox would cut"),
        ({"lists_scores": True}, "output_format=moses: engine=firefox gives no scores"),
        ({"token_scores": True}, "--token-scores: .*Use the model file"),
    ],
)
def test_options_that_it_does_not_have_are_refused_by_name(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check_supported(FIREFOX_ALONE, DECODE, TranslateOptions(**options))


def test_a_line_that_begins_with_a_tag_is_refused(folder: Path) -> None:
    engine = api.load(folder, device="cpu", **GREEDY).shared.engine
    with pytest.raises(DataError, match="line 3: begins with a tag"):
        list(engine.search([Segment(2, 0, [5, 6], text="cat", n_tags=1)], DecodeRequest(DECODE)))


def test_it_is_never_chosen_and_joins_none(path: Path) -> None:
    assert isinstance(api.load(path, engine="auto", device="cpu", **GREEDY).shared.engine, TorchEngine)
    with pytest.raises(ConfigError, match="names several, and engine=firefox joins none"):
        api.load([path, path], engine="firefox", **GREEDY)


def test_the_length_penalty_of_a_model_is_no_obstacle(tmp_path: Path, model: ModelFile) -> None:
    write_model(path := tmp_path / "model.safetensors", replace(model, length_penalty=1.3))
    opened = open_models(str(path), engine="firefox", decode=DECODE)
    assert opened.decode_config(DECODE, torch.device("cpu")) == DECODE
    assert opened.length_penalties == [None]
    assert replace(opened, engine="torch").length_penalties == [1.3]


def test_another_model_is_refused_by_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path / "m.safetensors", student(d_model=96))
    command = ["translate", "--checkpoint", "m.safetensors", "--engine", "firefox", "decode=greedy", "device=cpu", "a"]
    refused(command, tmp_path, code=2, says=["model.d_model=96", "multiple of 64"])
    monkeypatch.setitem(sys.modules, "fxtranslate", None)
    refused(command, tmp_path, code=5, says=["engine=firefox: the package fxtranslate", "pip install '.[firefox]'"])


# ---- Damage


def copied(folder: Path, to: Path, **changed: bytes) -> Path:
    """A folder with other files, forged as whoever knows the hashes can."""
    to.mkdir()
    facts = json.loads((folder / "export.json").read_bytes())
    for name in facts["files"]:
        (to / name).write_bytes(changed.get(name.partition(".")[0], (folder / name).read_bytes()))
        facts["files"][name] = file_sha256(to / name)
    (to / "export.json").write_text(json.dumps(facts), encoding="utf-8")
    return to


def test_a_damaged_folder_is_refused_in_one_line(folder: Path, tmp_path: Path) -> None:
    whole = (folder / "model.enfr.intgemm.alphas.bin").read_bytes()
    copied(folder, tmp_path / "changed")
    with (tmp_path / "changed/model.enfr.intgemm.alphas.bin").open("r+b") as file:
        file.write(b"damaged!")
    copied(folder, tmp_path / "cut", model=whole[:5000])
    items = [item for item in intgemm.read_binary(whole) if item.name != "decoder_l1_rnn_W"]
    copied(folder, tmp_path / "lacking", model=intgemm.binary(items))
    copied(folder, tmp_path / "nothing", vocab=b"")
    for name, says in {
        "changed": ["is not the file that was exported", "tfm export firefox"],
        "cut": ["cut: fxtranslate cannot load it", "--overwrite"],
        "lacking": ["lacking: fxtranslate cannot translate with it", "--overwrite"],
        "nothing": ["damaged"],
    }.items():
        command = ["translate", "--checkpoint", name, "decode=greedy", "--device", "cpu", "the cat"]
        refused(command, tmp_path, code=4, says=says, working=True)


def test_a_panic_at_a_line_is_one_line_too(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    forged = forged_rows(folder, tmp_path / "fx")
    with api.load(forged, device="cpu", **GREEDY) as translator, pytest.raises(CheckpointError, match="out of range"):
        translator.translate(["the cat ."])
    assert capfd.readouterr().err == ""


def forged_rows(folder: Path, to: Path) -> Path:
    """A folder without the rows of the last pieces, which shows at the first line that has one of them."""
    n = 8
    items = {item.name: item for item in intgemm.read_binary((folder / "model.enfr.intgemm.alphas.bin").read_bytes())}
    values = np.frombuffer(items["Wemb"].data, np.int8, n * 64).reshape(n, 64)
    bias = np.frombuffer(items["decoder_ff_logit_out_b"].data, "<f4", n)
    items["Wemb"] = intgemm.int8_item("Wemb", values.astype(float), transpose=False)
    items["decoder_ff_logit_out_b"] = intgemm.float_item("decoder_ff_logit_out_b", bias[None])
    return copied(folder, to, model=intgemm.binary(list(items.values())))


def test_processes_translate_the_same_and_report_a_panic_as_one(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(firefox_engine, "_TOKENS", 20)
    cpu, lines = torch.device("cpu"), LINES * 3
    translator = open_models(str(folder), decode=DECODE).translator(DECODE, cpu, parallel=True)
    assert [result.text for result in translator.translate(lines)] == asked(folder, lines)
    assert translator.engine.pool.n_forked == 2  # type: ignore[attr-defined]
    forged = open_models(str(forged_rows(folder, tmp_path / "fx")), decode=DECODE).translator(
        DECODE, cpu, parallel=True
    )
    capfd.readouterr()
    with pytest.raises(CheckpointError, match="out of range"):
        forged.translate(["the cat .", "the cat sat .", *lines])
    assert capfd.readouterr().err == ""


def test_what_other_threads_write_meanwhile_is_kept(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    library = FirefoxLibrary(FirefoxFiles.of(folder, [one.name for one in folder.iterdir()]), needs="", remedy="")
    library._call("translate with", lambda: os.write(2, b"a line of the log\n"))
    assert capfd.readouterr().err == "a line of the log\n"


# ---- The server


def test_the_server_answers_with_it_and_with_torch_for_the_rest(path: Path, folder: Path) -> None:
    config = ServeConfig(checkpoint=[str(path)], engine="firefox", device=Device.cpu, decode=DECODE, cache=0)
    service = Service(config, ModelTable(config))
    (served,) = service.table.models
    lines = [*LINES, "", ODD[0]]
    found = service.translate(["\n".join(lines)], "en", "fr", RequestOptions(), service.call())
    assert found.results[0].text.split("\n") == ["" if not line else asked(folder, [line])[0] for line in lines]
    (record,) = response_json(found)["translations"]
    assert record["score"] is None
    assert served.torch is None
    service.translate([LINES[0]], "en", "fr", RequestOptions(prefix="the"), service.call())
    assert served.torch is not None
