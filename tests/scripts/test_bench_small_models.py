"""The script that trains and scores small models: its rows, texts and table."""

import gzip
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import ROOT
from transformer_cli.config.compose import load_config


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_small_models", ROOT / "scripts" / "bench_small_models.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "bench_small_models", module)  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def corpora(folder: Path) -> Path:
    """Multi30k and the others with a few pairs, one file of them packed."""
    for name, languages in (("multi30k", ("en", "de", "fr")), ("iwslt14_de_en_small", ("de", "en"))):
        (folder / name).mkdir(parents=True)
        stems = ("train", "val", "test_2016_flickr") if name == "multi30k" else ("train_small", "valid", "test")
        for stem in stems:
            n_lines = 60 if stem.startswith("train") else 4
            for language in languages:
                lines = (f"{language.upper()} Dog no. {n} sees {n % 7} cats ({stem})." for n in range(n_lines))
                (folder / name / f"{stem}.{language}").write_text("".join(f"{line}\n" for line in lines))
    plain = folder / "multi30k" / "train.en"
    plain.with_name("train.en.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    return folder


@pytest.mark.slow
def test_the_config_of_every_row_composes(bench: ModuleType, tmp_path: Path) -> None:
    one = bench.Bench(corpora(tmp_path), tmp_path / "runs", [])
    for name, row in bench.ROWS.items():
        assert row.text in bench.TEXTS
        teachers = [run.rpartition("-")[0] for run in " ".join(row.teachers).split()]
        for other in (row.begins_with, row.members, *teachers):
            assert other is None or bench.ROWS[other].text == row.text, name
        if row.members is None:
            data = one.data_of(row.text, [tmp_path / "a", tmp_path / "b"])
            config = load_config("train", [*row.overrides.split(), *data]).data
            assert config.train == [str(tmp_path / "a"), str(tmp_path / "b")]
            assert config.test is None  # it is scored by --test alone
            assert config.source_lang == bench.TEXTS[row.text].source


def test_rows_of_equal_updates_and_of_equal_passes_are_what_they_say(bench: ModuleType) -> None:
    def settings(name: str) -> tuple[int, float, float]:
        data = "data=files data.source_lang=de data.target_lang=en data.train=[a.de,a.en]"
        train = load_config("train", [*bench.ROWS[name].overrides.split(), *data.split()[1:]]).train
        return train.max_steps, train.rdrop, train.simcut

    (steps, *none), regularized = settings("iwslt14"), [settings(f"iwslt14_{name}") for name in ("rdrop", "simcut")]
    assert none == [0, 0]
    assert regularized == [(steps, 3, 0), (steps, 0, 3)]
    assert settings("iwslt14_twice") == (2 * steps, 0, 0)
    assert settings("iwslt14_both")[0] + settings("iwslt14_after_both")[0] == steps
    assert settings("iwslt14_both_twice")[0] + settings("iwslt14_after_both_twice")[0] == 2 * steps


def test_lower_cased_text_is_that_of_the_task_without_escapes(bench: ModuleType, tmp_path: Path) -> None:
    one = bench.Bench(corpora(tmp_path), tmp_path / "runs", [])
    source, target = one.files("lower_cased", "dev")
    assert source.read_text().split("\n")[0] == "en dog no . 0 sees 0 cats ( val ) ."
    assert target.read_text().count("\n") == 4
    assert bench.lowercased_tokens("en", escape=False)("A \u201cdog\u2019s\u201d [bone]") == 'a " dog \'s " [ bone ]'


def test_a_part_has_the_first_pairs_and_all_of_dev_and_test(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(bench.TEXTS, "10k", bench.Text("multi30k", "en", "de", n_pairs=10))
    one = bench.Bench(corpora(tmp_path), tmp_path / "runs", [])
    for language, path in zip(("en", "de"), one.files("10k", "train"), strict=True):
        lines = path.read_text().split("\n")[:-1]
        assert lines == [f"{language.upper()} Dog no. {n} sees {n % 7} cats (train)." for n in range(10)]
    assert one.files("10k", "dev")[0] == (tmp_path / "multi30k" / "val.en").resolve()


def test_the_last_line_may_lack_its_line_feed(bench: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.en").write_bytes(b"one\n\nthree")
    assert bench.read_lines(tmp_path / "a.en") == ["one", "", "three"]


@pytest.fixture
def trained(bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that are given to tfm, which only leaves a result."""
    commands: list[list[str]] = []

    def tfm(arguments: list[str], **_: object) -> bytes:
        commands.append(arguments)
        if arguments[0] == "train":
            run_dir = tmp_path / "runs" / next(a for a in arguments if a.startswith("name=")).removeprefix("name=")
            run_dir.mkdir(parents=True, exist_ok=True)
            (run_dir / "result.json").write_text("{}")
        return json.dumps({"scores": [{"name": "BLEU", "score": float(len(commands))}]}).encode()

    monkeypatch.setattr(bench, "tfm", tfm)
    return commands


def test_a_run_of_other_overrides_is_refused(bench: ModuleType, tmp_path: Path, trained: list[list[str]]) -> None:
    text = corpora(tmp_path / "text")
    runs = tmp_path / "runs"
    runs.mkdir()
    bench.Bench(text, runs, ["train.precision=fp32"]).run("cased", 1)
    bench.Bench(text, runs, ["train.precision=fp32"]).run("cased", 1)
    assert [command[0] for command in trained] == ["train"]
    with pytest.raises(SystemExit, match=r"cased-1: was trained with experiment=multi30k .* train\.precision=fp32"):
        bench.Bench(text, runs, ["train.precision=bf16"]).run("cased", 1)


def test_hours_that_were_not_noted_are_not_a_number(
    bench: ModuleType, tmp_path: Path, trained: list[list[str]]
) -> None:
    """After SIGKILL, whether the training was stopped with it or went on to its end."""
    one = bench.Bench(corpora(tmp_path / "text"), tmp_path / "runs", [])
    (tmp_path / "runs" / "cased-1").mkdir(parents=True)  # stopped
    (tmp_path / "runs" / "cased-2").mkdir()
    (tmp_path / "runs" / "cased-2" / "result.json").write_text("{}")
    assert one.line("cased", [1], with_test=False).endswith("| nan |")
    assert one.line("cased", [2], with_test=False).endswith("| nan |")
    assert one.line("cased", [3], with_test=False).endswith("| 0.00 |")


SAVES_AND_ENDS = """
import pathlib, signal, sys
def save(*_):
    pathlib.Path(sys.argv[1]).write_text("saved")
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
signal.pause()
"""


def test_a_training_saves_before_a_signal_ends_it(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "TFM", [sys.executable, "-c", SAVES_AND_ENDS])

    def as_main_does(process: subprocess.Popen[bytes], *_: object, **__: object) -> None:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        sys.exit(143)  # what the handler of SIGTERM raises while the script waits

    monkeypatch.setattr(subprocess.Popen, "communicate", as_main_does)
    with pytest.raises(SystemExit):
        bench.tfm([str(tmp_path / "state")], stdout=subprocess.PIPE)
    assert (tmp_path / "state").read_text() == "saved"


def test_each_ensemble_has_its_own_score(bench: ModuleType, tmp_path: Path, trained: list[list[str]]) -> None:
    one = bench.Bench(corpora(tmp_path / "text"), tmp_path / "runs", [])
    (tmp_path / "runs").mkdir()
    first, second = (one.line("cased_ensemble", seeds, with_test=False) for seeds in ([1, 2], [1, 3]))
    assert first.split("|")[3] != second.split("|")[3]
    assert one.line("cased_ensemble", [1, 2], with_test=False) == first


def test_scores_are_shown_with_their_mean_and_deviation(bench: ModuleType) -> None:
    assert bench.spread([41.0, 42.0, 43.0]) == "42.00 ± 1.00 (41.00, 42.00, 43.00)"
    assert bench.spread([41.0]) == "41.00"
    assert bench.spread([None]) == bench.spread([]) == ""


@pytest.mark.slow
def test_a_row_is_trained_and_scored_once(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second start prints the same without training."""
    runs = tmp_path / "runs"
    tiny = "model=tiny train.max_steps=2 schedule.warmup_steps=1 data.tokenizer.vocab_size=120 train.save_every=1"
    options = ["--seeds", "1,2", "--runs", str(runs), "--test", *tiny.split(), "device=cpu"]
    arguments = ["bench", str(corpora(tmp_path / "text")), "10k", "10k_ensemble", *options]
    monkeypatch.setattr(sys, "argv", arguments)
    bench.main()
    first = capsys.readouterr().out
    rows = [line.split("|")[1].strip() for line in first.split("\n")[2:-1]]
    assert rows == ["10k", "10k_ensemble"]
    assert json.loads((runs / "10k-1" / "bench.json").read_bytes())["seconds"] > 1
    monkeypatch.setattr(bench, "tfm", lambda *_, **__: pytest.fail("nothing is left to do"))
    bench.main()
    assert capsys.readouterr().out == first
