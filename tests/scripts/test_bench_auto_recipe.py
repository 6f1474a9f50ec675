"""scripts/bench_auto_recipe.py: what JoeyNMT is given, when a program is interrupted, and the table."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import bench_auto_recipe as bench


def corpora(folder: Path) -> Path:
    """Pairs of Tatoeba's names: 60 for training, 4 for dev and test each."""
    (folder / "tatoeba_en_fr").mkdir(parents=True)
    for stem, n_lines in (("train", 60), ("valid", 4), ("test", 4)):
        for language, word in (("en", "dog"), ("fr", "chien")):
            lines = (f"{word} no. {n} ({stem}) {n * 7919 % 1000}.\n" for n in range(n_lines))
            (folder / "tatoeba_en_fr" / f"{stem}.{language}").write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.fixture
def setting(tmp_path: Path) -> bench.Setting:
    (tmp_path / "run").mkdir()
    runs = bench.Bench(corpora(tmp_path / "text"), tmp_path, [])
    return bench.Setting(runs, "fr_1k", tmp_path / "run", minutes=1, every=50, seed=3, precision="fp32")


def test_every_text_of_the_table_has_a_language_pair_and_a_tokenizer() -> None:
    assert bench.TEXTS["fr_80k"].n_pairs == 80_000
    assert bench.TEXTS["ja_5k"].tokenize == bench.TEXTS["ja"].tokenize == "char"
    assert bench.TEXTS["fr_5k"].tokenize == bench.TEXTS["europarl"].tokenize == "13a"
    assert bench.TEXTS["iwslt14"].tokenize == "none"
    assert (bench.TEXTS["europarl"].source, bench.TEXTS["europarl"].target) == ("de", "en")


def test_joeynmt_reads_floats_from_its_configuration(setting: bench.Setting, tmp_path: Path) -> None:
    """PyYAML reads 1e-08 as a text."""
    for joey, width, tokens in ((bench.IWSLT14, 256, 4096), (bench.SMALL, 64, 10)):
        found = bench.yaml.safe_load(bench.yaml.safe_dump(bench.joeynmt_config(setting, tmp_path / "pieces", joey)))
        assert found["training"]["learning_rate_min"] == joey.training["learning_rate_min"]
        assert found["training"]["batch_size"] == tokens
        assert (
            found["model"]["encoder"]["hidden_size"]
            == found["model"]["decoder"]["embeddings"]["embedding_dim"]
            == width
        )
        assert found["data"]["src"]["lang"] == "en"
        assert found["random_seed"] == 3


def test_pieces_are_as_many_as_the_text_has(setting: bench.Setting) -> None:
    """A vocabulary that is too large for the text is no error, and control symbols are left to the program."""
    training = setting.copy("train", "train")
    pieces = bench.learn_pieces(training, setting.languages(), 4000, setting.folder / "pieces")
    assert 20 < len(pieces) < 4000
    assert not {"<s>", "</s>", "<unk>"} & set(pieces)
    assert (setting.folder / "train.fr").read_text(encoding="utf-8").count("\n") == 60


def test_fairseq_gets_each_part_in_pieces(setting: bench.Setting) -> None:
    options = bench.fairseq_texts(setting)
    assert options[::2] == ["--trainpref", "--validpref", "--testpref"]
    for prefix, stem in zip(options[1::2], ("train", "valid", "test"), strict=True):
        for language in ("en", "fr"):
            given = setting.bench.folder / "tatoeba_en_fr" / f"{stem}.{language}"
            lines = bench.read_lines(Path(f"{prefix}.{language}"))
            assert [line.replace(" ", "").replace("▁", " ").strip() for line in lines] == bench.read_lines(given)


WAITS = "import pathlib, time\ntry:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    pathlib.Path('saved').touch()"


def test_a_program_is_interrupted_when_the_minutes_are_over(tmp_path: Path) -> None:
    start = time.monotonic()
    minutes = bench.call([sys.executable, "-c", f"open('begun', 'w')\n{WAITS}"], tmp_path / "log", minutes=1 / 60)
    assert (tmp_path / "saved").exists()
    assert 1 / 60 <= minutes <= (time.monotonic() - start) / 60


def test_a_program_is_interrupted_also_where_the_shell_ignores_it(tmp_path: Path) -> None:
    """A shell lets SIGINT be ignored by what it starts in the background, and programs inherit that."""
    program = [
        f"import pathlib, sys; sys.path.insert(0, {str(ROOT / 'scripts')!r}); import bench_auto_recipe as bench",
        f"command, log = [sys.executable, '-c', {WAITS!r}], pathlib.Path('log').resolve()",
        "bench.run = lambda *_: {'minutes': bench.call(command, log, minutes=1 / 60)}",
        "sys.argv[1:] = ['text', 'fr_1k', '--only', 'files', '--out', '.']",
        "bench.main()",
    ]
    (tmp_path / "program.py").write_text("\n".join(program), encoding="utf-8")
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    shell = ["sh", "-c", f"'{sys.executable}' program.py & wait $!"]
    subprocess.run(shell, cwd=tmp_path, env=variables, check=True, timeout=60)
    assert (tmp_path / "saved").exists()
    assert json.loads((tmp_path / "results.jsonl").read_text(encoding="utf-8"))["minutes"] < 1


def test_a_program_that_fails_ends_the_script_with_its_log(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"exit code 3: .* See .*log"):
        bench.call([sys.executable, "-c", "import sys; sys.exit(3)"], tmp_path / "log")


def record(row: str, system: str, bleu: float, *, minutes: float = 12.2) -> str:
    given = {"row": row, "system": system, "budget": 12.0, "seed": 1, "pairs": 5000, "bleu": bleu}
    return json.dumps({**given, "minutes": minutes, "updates": 1234}) + "\n"


def test_the_table_has_the_newest_run_of_each_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = record("fr_5k", "auto", 20.0), record("de_5k", "joeynmt", 1.25), record("fr_5k", "auto", 21.04)
    (tmp_path / "results.jsonl").write_text("".join(lines), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["bench", "table", "--out", str(tmp_path)])
    bench.main()
    printed = capsys.readouterr().out.split("\n")
    assert printed[0] == "| text | pairs | minutes | seed | auto | files | small | joeynmt | joeynmt_small | fairseq |"
    assert printed[2] == "| fr_5k | 5,000 | 12 | 1 | 21.0 (12, 1,234) |  |  |  |  |  |"
    assert printed[3] == "| de_5k | 5,000 | 12 | 1 |  |  |  | 1.2 (12, 1,234) |  |  |"


def test_an_unknown_row_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "text", "fr_6k"])
    with pytest.raises(SystemExit):
        bench.main()
    assert "fr_6k: no row. Rows: " in capsys.readouterr().err


@pytest.mark.slow
def test_a_recipe_is_trained_and_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["model.d_model=16", "model.d_ff=32", "model.n_heads=2", "model.n_encoder_layers=1"]
    small += ["model.n_decoder_layers=1", "data.tokenizer.vocab_size=60", "device=cpu", "data.clean=[]"]
    given = [str(corpora(tmp_path / "text")), "fr_1k", "--only", "files", "--minutes", "0.05", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["bench", *given, *small])
    bench.main()
    found = json.loads(capsys.readouterr().out)
    assert (found["row"], found["system"], found["pairs"], found["tokenize"]) == ("fr_1k", "files", 60, "13a")
    assert found["updates"] > 0
    assert found["minutes"] > 0.02
    assert 0 <= found["bleu"] <= 100
    assert Path(found["translations"]).read_text(encoding="utf-8").count("\n") == 4
