"""Dev and test text in the run directory: scores need neither the training text nor the files of the test set."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.evaluation.test_hints import FILES, TRAIN, TRANSLATION, classified, spoken, tagged, translated
from tests.support.forked import Ran, run
from tests.toy.run import prepared
from transformer_cli.data.corpus import ParallelText, TextPart
from transformer_cli.evaluation import held_out
from transformer_cli.evaluation.held_out import HELD_OUT_FILE, HeldOutTexts, read_held_out, write_held_out

SHORT = ["train.max_steps=6", "train.eval_every=6", "train.save_every=6", "data.cache=cache"]
LANGUAGES = ["data.source_lang=en", "data.target_lang=xx"]
TASKS = {
    "translation": (translated, [*TRANSLATION, *LANGUAGES]),
    "classes": (classified, ["data=labels"]),
    "tags": (tagged, ["data=tags"]),
    "text": (spoken, ["data=text"]),
}


def scores(folder: Path, *arguments: str) -> tuple[Ran, str]:
    """What `tfm evaluate` of the run has printed, and its scores alone."""
    ran = run(["evaluate", "--checkpoint", "runs/run", "--device", "cpu", *arguments], folder)
    assert ran.code == 0, ran.err.decode()
    lines = ran.out.decode().splitlines(keepends=True)
    return ran, "".join(line for line in lines if not line.startswith("baseline"))  # which the training text gives


@pytest.mark.parametrize("task", TASKS)
def test_a_model_is_scored_alike_when_its_corpus_is_gone(tmp_path: Path, task: str) -> None:
    write, settings = TASKS[task]
    write(tmp_path)
    assert run([*TRAIN, *FILES, *settings, *SHORT], tmp_path).code == 0
    search = ["decode=greedy", "decode.max_extra_length=3"] if task == "translation" else []
    before, expected = scores(tmp_path, *search)
    assert b"has changed" not in before.err
    for file in tmp_path.glob("*.tsv"):
        file.unlink()
    shutil.rmtree(tmp_path / "cache")
    after, found = scores(tmp_path, *search)
    assert found == expected
    assert b"so the text that the run has kept is used" in after.err


def test_a_test_set_that_has_changed_since_is_scored_as_it_is_and_said(tmp_path: Path) -> None:
    translated(tmp_path)
    settings = TASKS["translation"][1]
    assert run([*TRAIN, *FILES, *settings, *SHORT], tmp_path).code == 0
    (tmp_path / "test.tsv").write_text("a b\ta b\nc d\tc d\n")
    ran, found = scores(tmp_path, "decode=greedy")
    assert ", 2 lines, " in found
    assert b"data.test: has changed since the run was trained." in ran.err


@pytest.mark.slow
def test_two_runs_are_compared_without_any_training_text(tmp_path: Path) -> None:
    translated(tmp_path)
    settings = [*FILES[:1], *TASKS["translation"][1], *SHORT]
    for name in ("a", "b"):
        trained = run([*TRAIN, *settings, f"name={name}", f"seed={1 if name == 'a' else 2}"], tmp_path)
        assert trained.code == 0, trained.err.decode()
    (tmp_path / "train.tsv").unlink()
    shutil.rmtree(tmp_path / "cache")
    search = ["decode=greedy", "decode.max_extra_length=3", "--device", "cpu"]
    compared = run(["compare", "runs/a", "runs/b", *search], tmp_path)
    assert compared.code == 0, compared.err.decode()
    kept = json.loads((tmp_path / "runs" / "a" / HELD_OUT_FILE).read_bytes())["test"]["sources"]
    assert kept
    assert f"{len(kept)} lines" in compared.out.decode()


# ---- What is kept


def test_what_is_kept_is_what_is_read(tmp_path: Path) -> None:
    text = ParallelText(["a", "", "c"], ["x", "", "z"], parts=[TextPart("news", 2, "de"), TextPart("talk", 1, "fr")])
    for test in (text, None):
        corpus = replace(prepared(), test=test)
        write_held_out(corpus, tmp_path)
        assert read_held_out(tmp_path, [corpus.fingerprint]) == HeldOutTexts(corpus.dev, test)
    assert read_held_out(tmp_path, [corpus.fingerprint, "another corpus"]) is None
    assert read_held_out(tmp_path / "nowhere", []) is None
    assert read_held_out(None, []) is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"fingerprint": "x", "dev": 1}', b"\xff"])
def test_a_damaged_file_is_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / HELD_OUT_FILE).write_bytes(content)
    assert read_held_out(tmp_path, ["x"]) is None


@pytest.mark.parametrize(("more", "is_kept"), [(0, True), (1, False)])
def test_text_beyond_a_size_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int, is_kept: bool
) -> None:
    corpus = replace(prepared(), dev=ParallelText(["abc"], ["defg"]), test=ParallelText(["h"], ["ij" + "k" * more]))
    monkeypatch.setattr(held_out, "MOST_CHARACTERS", 3 + 4 + 1 + 2)
    write_held_out(corpus, tmp_path)
    assert (tmp_path / HELD_OUT_FILE).exists() == is_kept
