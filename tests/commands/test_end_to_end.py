"""The three commands, one after another, on a model that is hardly trained."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.forked import Ran, run
from transformer_cli.data.readers.builtin import read_builtin

SMALL = [
    "train",
    "name=small",
    *("model.d_model=32", "model.d_ff=32", "model.n_heads=2", "model.n_encoder_layers=1", "model.n_decoder_layers=1"),
    *("train.max_steps=12", "train.eval_every=6", "train.save_every=6", "train.log_every=4", "train.eval_lines=20"),
    *("train.average_last=2", "decode.beam_size=2", "decode.max_extra_length=5", "device=cpu"),
    "train.robustness_lines=5",
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder in which the small model has been trained."""
    folder = tmp_path_factory.mktemp("a working folder")
    result = tfm(folder, *SMALL)
    assert result.code == 0, result.err
    (folder / "train.stdout").write_bytes(result.out)
    return folder


def tfm(folder: Path, *arguments: str, stdin: bytes = b"") -> Ran:
    return run(arguments, folder, stdin=stdin)


def refused(result: Ran, status: int) -> str:
    """The last line that a refused command says, and the only one about an error."""
    text = result.err.decode()
    assert result.code == status, text
    assert result.out == b""
    assert text.count("tfm: error: ") == 1
    assert "Traceback" not in text
    line = text.split("\n")[-2]
    assert line.startswith("tfm: error: ")
    return line


def test_training_leaves_a_run_directory_and_prints_scores_only(trained: Path) -> None:
    run = trained / "runs" / "small"
    there = {path.name for path in run.iterdir()}
    assert {
        "config.yaml",
        "checkpoints",
        "best",
        "metrics.jsonl",
        "tensorboard",
        "tfm.log",
        "model.safetensors",
    } <= there
    assert (trained / "runs" / "latest").resolve() == run.resolve()
    lines = (trained / "train.stdout").read_text().strip().split("\n")
    assert lines[0].startswith("demo_en_fr.test, 500 lines, ")
    assert [line.split()[0] for line in lines[1:4]] == ["BLEU", "chrF2", "TER"]
    assert all("version:" in line for line in lines[1:4])
    assert lines[5].startswith("length ratio ")
    robustness = json.loads((run / "robustness.json").read_bytes())
    assert (robustness["lines"], robustness["test_lines"], robustness["rows"][0]["lines"]) == (5, 500, 5)
    assert robustness["model_sha256"] == [hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()]


def test_the_same_command_again_reports_and_does_not_train(trained: Path) -> None:
    before = (trained / "runs/small/metrics.jsonl").read_bytes()
    result = tfm(trained, *SMALL)
    assert result.code == 0
    assert b"already finished at step 12" in result.err
    assert result.out == (trained / "train.stdout").read_bytes()
    assert (trained / "runs/small/metrics.jsonl").read_bytes() == before


@pytest.mark.slow
def test_more_steps_go_on_where_the_run_ended(trained: Path) -> None:
    folder = trained.parent / "longer"
    shutil.copytree(trained, folder, symlinks=True)
    result = tfm(folder, *SMALL, "train.max_steps=14")
    assert result.code == 0, result.err
    assert b"resuming from step 12" in result.err
    steps = [json.loads(line)["step"] for line in (folder / "runs/small/metrics.jsonl").read_bytes().split(b"\n")[:-1]]
    assert steps == sorted(steps)
    assert steps[-1] == 14


@pytest.mark.slow
def test_own_text_from_a_first_mistake_to_a_changed_corpus(tmp_path: Path) -> None:
    own = ["train", "name=first", *SMALL[2:], "recipe=files"]  # a run of which can be prolonged
    own += ["data=files", "data.source_lang=en", "data.target_lang=fr"]
    pairs = [f"{english}\t{french}\n" for english, french in read_builtin("demo_en_fr", "train")[:300]]
    (tmp_path / "own.tsv").write_text("".join(pairs), encoding="utf-8")
    assert "own.tvs" in refused(tfm(tmp_path, *own, "data.train=own.tvs"), 3)
    own += ["data.train=own.tsv", "data.tokenizer.vocab_size=200"]
    trained = tfm(tmp_path, *own)  # a config that never came to a checkpoint does not block its name
    assert trained.code == 0, trained.err
    again = tfm(tmp_path, "evaluate", "decode.beam_size=2", "decode.max_extra_length=5")
    assert again.out.split(b"\n")[1:] == trained.out.split(b"\n")[1:]

    (tmp_path / "own.tsv").write_text("".join(pairs[:-1]), encoding="utf-8")
    kept = tfm(tmp_path, "evaluate", "decode.beam_size=2", "decode.max_extra_length=5")
    assert kept.out == again.out  # the run has the text that was held out
    own_data = ["data=files", "data.source_lang=en", "data.target_lang=fr", *own[-2:]]
    assert "is not the text that the model was trained on" in refused(tfm(tmp_path, "evaluate", *own_data), 3)
    assert "another vocabulary than these data" in refused(tfm(tmp_path, *own, "train.max_steps=14"), 3)


def test_a_second_trainer_in_a_run_directory_is_turned_away(trained: Path) -> None:
    from transformer_cli.files import locked

    with locked(trained / "runs/small/.lock"):
        line = refused(tfm(trained, *SMALL), 7)
    assert "runs/small" in line
    assert "is training here" in line


def test_a_model_that_left_its_run_is_evaluated_on_our_corpus_of_that_name(trained: Path, tmp_path: Path) -> None:
    shutil.copy(trained / "runs/small/model.safetensors", tmp_path / "m.safetensors")
    result = tfm(
        tmp_path, "evaluate", "--checkpoint", "m.safetensors", "decode.beam_size=2", "decode.max_extra_length=5"
    )
    assert result.code == 0, result.err
    assert result.out.split(b"\n")[1:] == (trained / "train.stdout").read_bytes().split(b"\n")[1:]


def test_translate_uses_the_newest_run_and_keeps_every_line(trained: Path) -> None:
    result = tfm(trained, "translate", "--beam", "2", stdin=b"The cat drank the milk.\n\n \t\nShe sat down.")
    assert result.code == 0, result.err
    lines = result.out.split(b"\n")
    assert len(lines) == 5
    assert lines[1] == lines[2] == lines[4] == b""


def test_translate_gives_a_file_the_same_text_as_standard_output(trained: Path) -> None:
    (trained / "in").write_bytes(b"The cat drank the milk.\nShe sat down.\n")
    piped = tfm(trained, "translate", stdin=(trained / "in").read_bytes())
    result = tfm(trained, "translate", "--checkpoint", "runs/small", "--input", "in", "--output", "out")
    assert (result.code, result.out) == (0, b"")
    assert (trained / "out").read_bytes() == piped.out
    assert "Add --overwrite" in refused(tfm(trained, "translate", "--input", "in", "--output", "out"), 2)


def test_D21_every_score_is_that_of_sacrebleus_own_command(trained: Path) -> None:
    (trained / "hypotheses.fr").symlink_to("saved.fr")  # a link to where they are wanted
    result = tfm(trained, "evaluate", "--json", "decode.beam_size=2", "--save", "hypotheses.fr")
    assert result.code == 0, result.err
    assert (trained / "hypotheses.fr").is_symlink()
    ours = {score["name"]: score for score in json.loads(result.out)["scores"]}
    reference = trained / "reference.fr"
    reference.write_text("".join(f"{french}\n" for _, french in read_builtin("demo_en_fr", "test")), encoding="utf-8")
    theirs = subprocess.run(
        [
            sys.executable,
            "-m",
            "sacrebleu",
            str(reference),
            "-i",
            "hypotheses.fr",
            "-m",
            "bleu",
            "chrf",
            "ter",
            "-w",
            "12",
        ],
        cwd=trained,
        capture_output=True,
        check=True,
    )
    for score in json.loads(theirs.stdout):
        assert f"{ours[score['name']]['score']:.12f}" == f"{score['score']:.12f}"
        assert ours[score["name"]]["signature"] == score["signature"]


def test_evaluate_takes_own_files_with_several_references(trained: Path) -> None:
    for name in ("source", "first", "second"):
        (trained / name).write_text("The cat drank the milk.\nShe sat down.\n", encoding="utf-8")
    result = tfm(trained, "evaluate", "--source", "source", "--reference", "first", "--reference", "second")
    assert result.code == 0, result.err
    assert b"nrefs:2" in result.out


@pytest.mark.slow
def test_a_sweep_runs_through_hydras_joblib_launcher(tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    arguments = [word for word in SMALL if not word.startswith("name=")]
    result = tfm(tmp_path, *arguments, "-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "seed=1,2")
    assert result.code == 0, result.err
    configs = sorted(tmp_path.glob("runs/demo_en_fr-tiny-post-*/config.yaml"))
    assert sorted(path.read_text().split("seed: ")[1][0] for path in configs) == ["1", "2"]
    assert len(list(tmp_path.glob("runs/*/model.safetensors"))) >= 2
