"""Fault rows E, config and command line, as every command meets them. Test names carry the row of the fault matrix."""

import importlib
import py_compile
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tests.data.test_corpus_faults import PREPARE, TRAIN, write
from tests.support.contract import process, refused, run
from tests.support.forked import UNMEASURED
from tests.toy.run import model_file, packed, sentences
from transformer_cli import __version__, cli
from transformer_cli.commands.prepare import run as prepare
from transformer_cli.commands.prepare.keys import PrepareConfig
from transformer_cli.config.compose import load_config

REFUSED: dict[str, list[tuple[list[str], list[str]]]] = {
    "E1: an unknown key names the right one": [
        (["train", "model.d_modle=256"], ["model.d_modle: unknown key", "did you mean `model.d_model`?"]),
        (["train", "+model.d_modle=256"], ["model.d_modle: unknown key", "did you mean `model.d_model`?"]),
        (["train", "-m", "model.d_modle=1,2"], ["model.d_modle: unknown key", "did you mean `model.d_model`?"]),
        (["translate", "decode.beam=3"], ["decode.beam: unknown key"]),
        (["translate", "--bem", "3"], ["--bem", "did you mean `--beam`?"]),
        (["train", "data.train=own.tsv"], ["data.train: data=demo_en_fr is built in"]),
        (["train", "~model.d_model"], ["~model.d_model", "keys cannot be deleted. Set"]),
    ],
    "E2: a wrong type or range names the range": [
        (["train", "model.d_model=abc"], ["model.d_model=abc: no whole number"]),
        (["train", "model.d_model=12.5"], ["model.d_model=12.5: no whole number"]),
        (["train", "train.length_penalties=0.6"], ["train.length_penalties=0.6: must be a list. Write train.length_p"]),
        (["train", "data.augment=[typos]"], ["data.augment: is a group of keys", "as in data.augment.merged=…"]),
        (["train", "data.augment=typos"], ["data.augment: is a group of keys"]),
        (["train", "train.max_steps=[1]"], ["train.max_steps=[1]: no whole number. Give one, or auto"]),
        (["train", "train.tokens_per_update=[1]"], ["train.tokens_per_update=[1]: no whole number. Give one, or auto"]),
        (["train", "data.clean={a:1}"], ["data.clean: must be a list, and is a table"]),
        (["train", "data.tags=[[a]]"], ["data.tags: holds a list, not values alone"]),
        (["train", "data.tags=[{a:1}]"], ["data.tags: holds a table of keys, not values alone"]),
        (["train", "plugins=${x}"], ["plugins: Interpolation key 'x' not found"]),
        (["train", "train=3"], ["train: is a group of keys", "as in train.tokens_per_update=…"]),
        (["train", "data.tags='<2de>'"], ['data.tags=<2de>: must be a list. Write data.tags=["<2de>"]']),
        (["train", "train.max_steps=-1"], ["train.max_steps=-1: out of range", "at least 1"]),
        (["train", "train.label_smoothing=nan"], ["train.label_smoothing=nan: out of range"]),
        (["train", "schedule=cosine", "schedule.lr=1e3"], ["schedule.lr=1000.0: out of range", "at most 10"]),
        (["translate", "--beam", "0"], ["decode.beam_size=0: out of range", "at least 1"]),
        (["translate", "--beam", "four"], ["--beam 'four': must be a whole number. `tfm translate --help`"]),
        (["translate", "--beam", "2.5"], ["--beam '2.5': must be a whole number"]),
        (["translate", "--beam"], ["argument --beam: expected one argument. `tfm translate --help` lists the flags"]),
    ],
    "E3: an unknown choice lists the choices": [
        (["train", "model=bgi"], ["model: no model called `bgi`; did you mean `big`?", "student_tiny, tiny"]),
        (["train", "-m", "model=tiny,bgi"], ["no model called `bgi`"]),
        (["train", "+model=base"], ["'+model=base': model is there already, and + only adds. Write model=base"]),
        (["train", "++model=base"], ["'++model=base': model is there already, and + only adds. Write model=base"]),
        (["train", "-m", "+model=base,big"], ["'+model=base,big': model is there already", "Write model=base,big"]),
        (["train", "+recipe=small"], ["'+recipe=small': recipe is there already, and + only adds. Write recipe=small"]),
        (["train", "+recipe=null"], ["'+recipe=null': recipe is there already", "Write recipe=null"]),
        (["train", "+experiment=sst2"], ["'+experiment=sst2': experiment is there already", "Write experiment=sst2"]),
        (["evaluate", "data=nowhere"], ["data: no data called `nowhere`", "choices: "]),
        (["train", "schedule.name=cosin"], ["no schedule called `cosin`", "did you mean `cosine`?"]),
        (["train", "model.name=transfomer"], ["`transfomer`", "did you mean `transformer`?"]),
    ],
    "E4: values that contradict each other name both": [
        (["train", "model.n_heads=7"], ["model.n_heads=7", "model.d_model=128", "model.n_heads=4 or 8"]),
        (
            ["train", "model.d_model=129", "model.n_heads=3"],
            ["model.d_model=129", "positions=sinusoidal", "128 or 130"],
        ),
        (["train", "model.dropout=1"], ["model.dropout=1", "below 1"]),
        (["train", "model.n_encoder_layers=0"], ["model.n_encoder_layers=0", "at least 1"]),
        (["train", "train.label_smoothing=1"], ["train.label_smoothing=1", "below 1"]),
        (["train", "schedule.warmup_steps=0"], ["schedule.warmup_steps=0", "at least 1"]),
        (["train", "data.max_length=9999"], ["data.max_length=9999", "train.tokens_per_update=1024"]),
    ],
    "E6: what is unset or leads nowhere is named": [
        (["train", "data=files"], ["data.source_lang: not set. Give it as data.source_lang=VALUE"]),
        (["train", "seed=${foo.bar}"], ["seed=${foo.bar}: ", "'foo.bar' not found"]),
        (["train", "seed=${seed}"], ["seed=${seed}: "]),
        (["train", "seed=${train.max_steps}", "train.max_steps=${seed}"], ["seed"]),
    ],
    "two values for one key are refused": [
        (["train", "--name", "a", "name=b"], ["name=b: contradicts --name 'a'"]),
        (["train", "-m", "--name", "a", "name=b,c"], ["name=", "contradicts --name 'a'"]),
        (["translate", "--beam", "2", "decode.beam_size=4"], ["decode.beam_size=4: contradicts --beam '2'"]),
        (["translate", "--overwrite", "overwrite=false"], ["overwrite=False: contradicts --overwrite"]),
        (["translate", "--checkpoint", "a", "--checkpoint", "b", "checkpoint=[a,c]"], ["contradicts --checkpoint"]),
        (["attention", "a b", "sentence=c"], ["sentence=c: contradicts the sentence 'a b'"]),
        (["translate", "--beam", "2", "--beam", "4"], ["--beam: given twice, as '2' and '4'"]),
        (["bench", "decode", "--device", "cpu", "--device", "cuda"], ["--device: given twice"]),
        (["bench", "decode", "--checkpoint", "a", "--checkpoint", "b"], ["several models, where one is asked"]),
        (["export", "ctranslate2", "--output", "o", "--checkpoint", "a", "--checkpoint", "b"], ["names several"]),
    ],
    "a word on its own names where text comes from": [
        (["evaluate", "test.en"], ["'test.en'", "--source and --reference"]),
        (["evaluate", "model.safetensors"], ["'model.safetensors'", "Name a model with --checkpoint"]),
        (["evaluate", "."], ["'.'", "Name a model with --checkpoint"]),
        (["score", "a", "b"], ["'a'", "--source and --translation"]),
        (["classify", "What is this?"], ["'What is this?'", "--input"]),
        (["embed", "lines.txt"], ["'lines.txt'", "--input"]),
        (["average", "runs/a", "runs/b"], ["'runs/a'", "--checkpoint"]),
        (["train", "big"], ["'big'", "key=value"]),
    ],
}


@pytest.mark.parametrize("group", REFUSED)
def test_E1_E2_E3_E4_E6_a_wrong_command_line_is_refused(tmp_path: Path, group: str) -> None:
    for command, says in REFUSED[group]:
        refused(command, tmp_path, code=2, says=says)


ALIAS_BOMB = "a: &a [x,x]\n" + "".join(f"{b}: &{b} [*{a},*{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a:\n\t- b\n", "mine.yaml:2: not valid YAML"),
        ("a: [1,\n", "mine.yaml:2: not valid YAML"),
        ("a: 1\na: 2\n", "mine.yaml:2: key 'a' stands twice"),
        (ALIAS_BOMB, "mine.yaml:2: aliases are not supported"),
        ("#" * 1_000_001, "mine.yaml: larger than 1,000,000 bytes"),
        ("a: \x01\n", "mine.yaml: not valid YAML"),
        ("# @package _global_\nmodel: 5\n", "experiment/mine"),
    ],
    ids=["tab", "open", "twice", "bomb", "giant", "control", "value for a group"],
)
def test_E5_bad_yaml_names_file_and_line_soon(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(text, encoding="utf-8")
    start = time.process_time()
    refused(["train", "--config-dir", ".", "experiment=mine"], tmp_path, code=2, says=[says])
    assert time.process_time() - start < 20  # aliases within aliases would take hours; other threads count as well


@pytest.mark.parametrize("override", ["+model._target_=os.system", "+_target_=os.system"])
def test_E7_a_class_cannot_be_named(tmp_path: Path, override: str) -> None:
    refused(["train", override], tmp_path, code=2, says=[override[1:].split("=")[0], "_target_: not supported"])


def test_E8_a_run_directory_of_another_config_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "corpus.en", sentences(60, seed=1))
    write(tmp_path / "corpus.de", sentences(60, seed=2))
    command = [*TRAIN, "data.train=corpus"]
    assert run(command, tmp_path).code == 0
    says = ["runs/run: ", "seed was 1, is 2 and 1 more", "name=", "force=true"]
    ran = {"working": True, "written": ["runs/run/.owner"]}  # a table of three columns comes first
    refused([*command, "seed=2", "model.dropout=0.4"], tmp_path, code=2, says=says, **ran)


def test_E9_a_wrong_command_is_named_with_the_right_one(tmp_path: Path) -> None:
    refused(["trian"], tmp_path, code=2, says=["no command called `trian`; did you mean `train`?"])
    refused(["completion", "csh"], tmp_path, code=2, says=["completion: no script for `csh`. Choose one of"])


TIMED = """
import os, sys
from transformer_cli.cli import entry_point
try:
    entry_point()
except SystemExit as status:
    seconds = sum(os.times()[:2])  # of the processor, 0.2 of an idle one: other work makes it slower
    heavy = {"torch", "hydra", "omegaconf", "sacrebleu"} & set(sys.modules)
    sys.exit(f"{seconds} s, {heavy}" if seconds > 0.45 or heavy else status.code)
"""


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["train", "--help"], ["translate", "-h"], ["--version"]])
def test_E9_help_answers_at_once(tmp_path: Path, arguments: list[str]) -> None:
    ran = process(arguments, tmp_path, env=UNMEASURED, program=TIMED)
    assert (ran.code, ran.err) == (0, b"")
    assert ran.out.startswith(f"tfm {__version__}".encode() if "--version" in arguments else b"usage: tfm")


def test_E10_a_bug_of_ours_is_one_line_that_names_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: list[str]) -> int:
        raise ZeroDivisionError("secret detail\n\udcff")

    monkeypatch.setattr(cli, "_run", fail)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("transformer_cli.plugins._loaded", [])  # which other tests of the process have loaded
    new = ["tfm-crash-*.txt"]
    line = refused(["train", "seed=3\udcff"], tmp_path, code=70, says=["internal error (ZeroDivisionError)"], new=new)
    report = Path(line.rsplit(": ", 1)[1]).read_text(encoding="utf-8")
    assert "secret detail" in report
    assert "tfm train seed=3" in report


def test_a_compiled_file_that_a_full_disk_has_cut_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "cut_short.py"
    source.write_text("x = [1, 2, 3]\n")
    compiled = Path(py_compile.compile(str(source), doraise=True) or "")
    compiled.write_bytes(compiled.read_bytes()[:-5])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(cli, "_run", lambda _: len(importlib.import_module("cut_short").x))
    line = refused(["train"], tmp_path, code=5, says=["a file that Python has compiled is damaged (", "Remove it, and"])
    assert str(compiled) in line


def test_of_two_overrides_the_last_holds_and_a_line_says_so(tmp_path: Path) -> None:
    """Hydra has the same rule: a script has defaults, to which its own arguments are appended."""
    ran = run(["prepare", *PREPARE[1:], "data.train=nowhere", "data.train=no"], tmp_path)
    first, last = ran.err.decode().removesuffix("\n").split("\n")
    assert first == "tfm: warning: data.train=nowhere, data.train=no: given more than once; the last one holds"
    assert last.startswith("tfm: error: data.train=no: no such file")


@pytest.mark.parametrize(
    "words",
    [
        ["--name", "a", "name=a", "--name", "a", "name='a'"],
        ["--device", "cpu", "device=cpu"],
        ["--name", "7", "name=7"],
        ["model=tiny", "model=tiny"],
    ],
)
def test_one_value_may_be_given_twice(tmp_path: Path, words: list[str]) -> None:
    assert run(["train", "--cfg", *words], tmp_path).code == 0


def test_a_path_with_an_equals_sign_is_an_argument(tmp_path: Path) -> None:
    incident = "runs/abc-seed=1/incidents/step-00000003"
    refused(["replay", incident], tmp_path, code=4, says=[incident])


def test_prepare_takes_the_command_line_of_train_and_tells_what_it_does_not_use(tmp_path: Path) -> None:
    write(tmp_path / "corpus.en", sentences(60, seed=1))
    write(tmp_path / "corpus.de", sentences(60, seed=2))
    ran = run(["prepare", *TRAIN[1:], "data.train=corpus", "--name", "run", "model=small", "recipe=files"], tmp_path)
    assert ran.code == 0, ran.err.decode()
    first = ran.err.decode().split("\n")[0]
    assert first.startswith("not used by `tfm prepare`: name, decode")
    assert "model" in first
    assert "data" not in first
    assert "recipe" not in first
    assert run([*TRAIN, "data.train=corpus"], tmp_path).code == 0
    assert len(list((tmp_path / "data" / "files").glob("prepared-*"))) == 1  # the same


@pytest.mark.parametrize("start", ["", "model.safetensors"])
def test_prepare_reports_as_unused_just_what_it_does_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, start: str
) -> None:
    """What it reads is recorded; a plugin is imported before."""
    monkeypatch.chdir(tmp_path)
    for name in ("corpus.en", "corpus.de"):
        write(tmp_path / name, sentences(60, seed=1))
    if start:
        (tmp_path / start).write_bytes(packed(model_file()))
    overrides = [
        *PREPARE[1:],
        "data.train=corpus",
        "name=run",
        "recipe=files",
        *([f"init.from={start}"] if start else []),
    ]
    config = load_config("prepare", overrides)
    read: set[str] = set()

    class Recorded(PrepareConfig):
        def __getattribute__(self, name: str) -> Any:
            read.add(name)
            return super().__getattribute__(name)

    config.__class__ = Recorded
    prepare.run(config)
    every = {field.name for field in fields(PrepareConfig)}
    given = {"init.from_": start} if start else {}
    caplog.set_level("INFO", logger="tfm")
    cli._report_unused("prepare", given, {name: ["x"] for name in sorted(every)})
    unused = set(caplog.messages[-1].removeprefix("not used by `tfm prepare`: ").split(", "))
    assert unused == every - read - {"plugins", "init", "listing", "overwrite"}  # the last two with a flag alone


def test_prepare_uses_the_corpus_of_an_experiment_and_of_a_recipe_and_knows_its_keys(tmp_path: Path) -> None:
    ran = run(["prepare", "experiment=sst2", "--cfg"], tmp_path)
    assert b"  name: sst2\n" in ran.out
    ran = run([*PREPARE, "data.train=corpus", "recipe=summarization", "--cfg"], tmp_path)
    assert (b"\n  truncate_source: true\n" in ran.out, ran.err) == (True, b"")
    refused(["prepare", "model.d_modle=3"], tmp_path, code=2, says=["did you mean `model.d_model`?"])
    # Which `tfm train` would refuse, as its model has one vocabulary: and a model of another config may not.
    assert run(["prepare", "data.tokenizer.joint=false", "--cfg"], tmp_path).code == 0
