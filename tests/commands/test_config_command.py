"""`tfm config`: where the value of a key is from, and in which keys two configs differ."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.support.contract import WITHOUT_TORCH, process
from transformer_cli.cli import main
from transformer_cli.completion import complete
from transformer_cli.config.compose import load_config, to_plain, to_yaml
from transformer_cli.config.difference import differences, flattened
from transformer_cli.config.origin import CommandLine, Origins

GOLDEN = ROOT / "tests" / "golden" / "format-1"


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["config", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["config", *words]) in (2, 4)
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    return captured.err.removeprefix("tfm: error: ")


@pytest.fixture
def a_run(tmp_path: Path) -> Path:
    """A run whose config lacks a key."""
    content = yaml.safe_load(to_yaml(load_config("train", ["model=small"])))
    del content["model"]["attention_dropout"]
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return folder


def line_in_file(where: str) -> str:
    file, _, line = where.rpartition(":")
    return Path(file).read_text(encoding="utf-8").split("\n")[int(line) - 1].strip()


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        [],
        ["data=wmt14_en_de", "model=big", "norm=pre", "train.max_steps=7"],
        ["experiment=table3_a_heads_1", "decode=greedy"],
        ["experiment=trec", "seed=4", "seed=5", "model.dropout=0.3"],
        ["experiment=trec", "data.fold=2/5"],  # whose file names a test set
    ],
)
def test_the_last_source_of_every_key_has_the_value_that_the_command_takes(words: list[str]) -> None:
    origins = Origins.of(CommandLine("train", words))
    for key, value in flattened(to_plain(load_config("train", words))).items():
        why = origins.why(key, otherwise=False)
        assert why.value == value
        assert why.winner is not None
        if key != "data.downloads":  # whose elements have defaults of their own
            assert why.winner.value == value, key
        if why.winner.file is not None:
            assert line_in_file(why.winner.where).startswith(key.rsplit(".", 1)[-1] + ":")


def test_why_names_the_file_the_choice_and_what_would_be_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "why", "model.d_model", "experiment=multi30k", "model=big")
    assert (found["value"], found["default"]) == (1024, 512)
    default, tiny, small, big = found["sources"]
    assert default == {"value": 512, "where": "default", "holds": False}
    assert (tiny["value"], tiny["replaced_by"]) == (128, "model=big")
    assert line_in_file(tiny["chosen_by"]) == "- model: tiny"
    assert line_in_file(small["chosen_by"]) == "- override /model: small"
    assert (big["choice"], big["chosen_by"], big["holds"]) == ("model=big", "model=big", True)
    assert line_in_file(big["where"]) == "d_model: 1024"
    assert found["without"] == "model=big"
    assert found["otherwise"]["where"] == small["where"]


@pytest.mark.parametrize(
    ("words", "otherwise", "where"),
    [
        (["data=multi30k_en_de"], 1200, "configs/recipe/demo_en_fr.yaml"),  # the recipe by task is not chosen then
        (["recipe=null", "train.max_steps=7"], 100_000, "default"),
        (["train.max_steps=7", "train.max_steps=8"], 7, "train.max_steps=7"),
        (["experiment=paper_big"], 1200, "configs/recipe/demo_en_fr.yaml"),
    ],
)
def test_otherwise_is_what_the_command_line_without_that_word_gives(
    words: list[str], otherwise: int, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer(capsys, "why", "train.max_steps", *words)
    assert found["without"] == words[-1]
    assert found["otherwise"]["value"] == otherwise
    assert found["otherwise"]["where"].startswith(where)
    assert load_config("train", words[:-1]).train.max_steps == otherwise


def test_why_of_a_flag_in_a_quoted_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["tfm translate --beam 3"], ["translate --beam 3"], ["--beam 3", "--command", "translate"]):
        found = answer(capsys, "why", "decode.beam_size", *words)
        assert (found["value"], found["without"], found["otherwise"]["value"]) == (3, "--beam 3", 4)


def test_why_of_a_group_names_who_chose_it(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "why", "norm", "experiment=trec")
    assert (found["choice"], found["keys"][0]["key"]) == ("pre", "model.norm")
    assert line_in_file(found["files"][-1]["chosen_by"]) == "- override /norm: pre"
    assert answer(capsys, "why", "recipe", "recipe=null")["choice"] is None


def test_why_of_a_command_without_a_yaml_file_names_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "why", "decode.beam_size", "serve decode=greedy")
    _, beam, greedy = found["sources"]
    assert (beam["value"], beam["chosen_by"], beam["replaced_by"]) == (4, "tfm serve", "decode=greedy")
    assert (found["value"], greedy["value"]) == (1, 1)


def test_why_of_a_command_line_that_is_refused_says_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "why", "train.max_steps", "data=files"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("train.max_steps=auto\n")
    assert "the config.yaml of the run keeps it" in shown
    assert "`tfm train` would refuse this command line: data.source_lang: not set" in shown


def test_why_reads_the_users_own_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "experiment").mkdir()
    file = tmp_path / "experiment" / "mine.yaml"
    file.write_text("# @package _global_\ntrain:\n  max_tokens_per_microbatch: 44\n", encoding="utf-8")
    found = answer(capsys, "why", "train.max_tokens_per_microbatch", "experiment=mine", "--config-dir", str(tmp_path))
    assert (found["value"], found["sources"][-1]["where"]) == (44, f"{file}:3")


def test_why_of_a_run_names_the_line_of_its_config(a_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for key, written in (
        ("model.d_model", "d_model: 128"),
        ("train.max_tokens_per_microbatch", "max_tokens_per_microbatch: 1024"),
    ):
        assert line_in_file(answer(capsys, "why", key, str(a_run))["sources"][-1]["where"]) == written
    (source,) = answer(capsys, "why", "model.attention_dropout", str(a_run))["sources"]
    assert (source["value"], source["where"]) == (0.0, "default")


def test_what_is_no_key_file_or_command_line_is_refused_in_a_line(
    a_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.yaml").write_text(to_yaml(load_config("translate")), encoding="utf-8")
    for words, says in {
        (): "Write `why KEY`, or `diff A B`",
        ("why",): "Write `why KEY`, or `diff A B`",
        ("wy", "x"): "action=wy: unknown. Choose why, diff",
        ("why", "model.d_modle"): "did you mean `model.d_model`?",
        ("why", "model.d_modle", str(a_run)): "did you mean `model.d_model`?",
        ("why", "model=big"): "no key given",
        ("why", "seed", "model=bgi"): "did you mean `big`?",
        ("why", "seed", "runs/none"): "no such file, and no command line",
        ("why", "seed", "train -m seed=1,2"): "several values make several runs",
        ("why", "seed", "--command", "trian"): "did you mean `train`?",
        ("why", "train.max_steps", str(GOLDEN / "joint-pre.safetensors")): "does not hold train.max_steps",
        ("diff", "model=big"): "1 given",
        ("diff", "model=big", "model='big"): "Close every quote",
        ("diff", str(tmp_path / "t.yaml"), "model=big"): "t.yaml: checkpoint: unknown key",
        ("diff", str(ROOT / "README.md"), "model=big"): "not a safetensors file",
    }.items():
        assert says in refusal(capsys, *words), words


def test_a_misspelt_key_of_a_file_is_refused_in_whole_sentences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "t.yaml"
    file.write_text("modle: {d_model: 3}\n", encoding="utf-8")
    assert "did you mean `model`? It should be" in refusal(capsys, "diff", str(file), "model=big")


def test_diff_prints_the_keys_that_differ(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "diff", "model=big norm=pre", "model=big"]) == 0
    assert capsys.readouterr().out == (
        "A  model=big norm=pre\nB  model=big\n\nkey         A    B\nmodel.norm  pre  post\n\n"
        f"1 of the {len(flattened(to_plain(load_config('train'))))} keys that both have differs\n"
    )
    assert main(["config", "diff", "model=big", "train model=big"]) == 0
    assert "none of the" in capsys.readouterr().out


def test_diff_does_not_name_a_key_that_a_run_lacks(a_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "diff", str(a_run), "model=small")["differences"] == []
    found = answer(capsys, "diff", str(a_run / "config.yaml"), "model=small seed=7")["differences"]
    assert found == [{"key": "seed", "values": [1, 7]}]


def test_diff_of_model_files_choices_and_printed_configs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    post, pre = (str(GOLDEN / f"joint-{norm}.safetensors") for norm in ("post", "pre"))
    assert answer(capsys, "diff", post, pre)["differences"] == [{"key": "model.norm", "values": ["post", "pre"]}]
    found = answer(capsys, "diff", str(GOLDEN / "run"), "model=big")["differences"]
    assert {"key": "model.d_model", "values": [8, 1024]} in found
    assert {one["key"].partition(".")[0] for one in found} == {"model", "data"}  # a model file has no others
    assert answer(capsys, "diff", "configs/model/big.yaml", "model=big")["differences"] == []
    printed = tmp_path / "beam.yaml"
    printed.write_text(to_yaml(load_config("translate", ["decode.beam_size=9"])), encoding="utf-8")
    found = answer(capsys, "diff", str(printed), "translate --beam 3", "--command", "translate")["differences"]
    assert found == [{"key": "decode.beam_size", "values": [9, 3]}]


def test_diff_of_a_choice_in_the_users_own_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model").mkdir()
    own = tmp_path / "model" / "mine.yaml"
    own.write_text("defaults: [big]\nd_ff: 77\n", encoding="utf-8")
    found = answer(capsys, "diff", str(own), "configs/model/big.yaml")["differences"]
    assert found == [{"key": "model.d_ff", "values": [77, 4096]}]


def test_a_config_without_a_key_does_not_differ_in_it() -> None:
    assert differences([{"a": {"x": 1, "y": 2}}, None, {"a": {"x": 3}}]) == [("a.x", [1, None, 3])]


def test_config_answers_without_torch() -> None:
    words = ["config", "diff", str(GOLDEN / "run"), "model=big"]
    assert process(words, ROOT, program=WITHOUT_TORCH).code == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["config", ""], ["why", "diff"]),
        (["config", "why", "model.d_m"], ["model.d_model"]),
        (["config", "why", "model.d_model", "model=b"], ["model=base", "model=big"]),
    ],
)
def test_completion_of_its_words(words: list[str], expected: list[str]) -> None:
    assert complete(words) == expected
