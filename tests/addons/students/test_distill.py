"""`tfm distill`: the text, the student, its shortlist and its export, each made once and kept."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.contract import Ran, refused, run
from tests.support.each import each
from tests.toy.run import model_file, packed, sentences
from transformer_cli.addons.students import run_distill
from transformer_cli.addons.students.distillation import languages_of_student, with_recipe
from transformer_cli.addons.students.run_distill import (
    WITH_RANKS,
    exported_from,
    is_newer,
    make_text,
    table_settings,
    training_of,
)
from transformer_cli.addons.synthesis.steps import refuse_ranks
from transformer_cli.config.compose import load_config
from transformer_cli.data.hashes import file_sha256
from transformer_cli.errors import ConfigError
from transformer_cli.models.file import read_model
from transformer_cli.models.locate import EXPORT_FILE

QUICK = [
    "recipe=auto",
    "model=tiny",
    "train.rdrop=0",
    "train.tokens_per_update=512",
    "train.max_steps=300",
    "device=cpu",
]
SMALL = [
    *("model.n_encoder_layers=1", "model.n_decoder_layers=1", "model.d_model=64", "model.n_heads=2", "model.d_ff=64"),
    *(
        "train.max_steps=2",
        "data.tokenizer.vocab_size=auto",
        "data.holdout=4",
        "device=cpu",
        "train.robustness_lines=0",
    ),
]


def written(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A teacher from en to fr, and a text."""
    (tmp_path / "teacher.safetensors").write_bytes(packed(model_file()))
    written(tmp_path / "in.en", sentences(300, seed=5))
    return tmp_path


def lines_of(path: Path) -> list[str]:
    return path.read_text().split("\n")[:-1]


def distill(folder: Path, *more: str) -> Ran:
    return run(["distill", "teacher.safetensors", "in.en", "--beam", "1", *SMALL, *more], folder)


@pytest.mark.slow  # a teacher is trained first: one with drawn weights writes nothing but loops
def test_a_student_is_made_once(folder: Path) -> None:
    lines = sentences(2000, seed=6)
    written(folder / "train.en", lines)
    written(folder / "train.fr", [line.upper() for line in lines])
    corpus = ["data=files", "data.train=[train.en,train.fr]", "data.clean=[]", "data.tokenizer.vocab_size=40"]
    ran = run(["train", *corpus, *QUICK, "name=teacher"], folder)
    assert ran.code == 0, ran.err.decode()
    shutil.copy(folder / "runs" / "teacher" / "model.safetensors", folder / "teacher.safetensors")
    ran = distill(folder, "--size", "tiny")
    assert ran.code == 0, ran.err.decode()
    student = folder / "student"
    model = read_model(student / "run" / "model.safetensors")
    assert (model.source_lang, model.target_lang, model.config.decoder.name) == ("en", "fr", "ssru")
    expected = run(["translate", "--checkpoint", "teacher.safetensors", "--input", "in.en", "--beam", "1"], folder)
    pairs = set(zip(lines_of(student / "text.en"), lines_of(student / "text.fr"), strict=True))
    assert len(pairs) > 50
    assert pairs <= set(zip(lines_of(folder / "in.en"), expected.out.decode().split("\n")[:-1], strict=True))
    assert exported_from(student / "firefox") == file_sha256(student / "run" / "model.safetensors")
    rows = [row.split("|")[1].strip() for row in ran.out.decode().split("\n") if row.startswith("| ")]
    assert {"teacher.safetensors", "student/run"} <= set(rows)
    files = {path: path.stat().st_mtime_ns for path in student.rglob("*.safetensors")}
    again = distill(folder, "--size", "tiny", "bench_lines=0")
    assert (again.code, b"source tokens/s" in again.out) == (0, False)
    assert b"was made before" in again.err
    assert files == {path: path.stat().st_mtime_ns for path in student.rglob("*.safetensors")}
    (folder / "in.en").write_text("another text\n")
    says = "--output student: holds the student of another teacher, text, beam or engine. Choose another --output"
    assert says in distill(folder, "--size", "tiny").err.decode()


@each(
    "given, flags, model, norm, vocab_size",
    [
        ([], {}, "student_tiny", "post", "auto"),
        ([], {"size": "small"}, "student_small", "post", "auto"),
        ([], {"size": "mini"}, "student_mini", "pre", 4000),
        (["data.tokenizer.vocab_size=800"], {"size": "mini"}, "student_mini", "pre", 800),
        (["size=deep"], {}, "deep_shallow", "pre", "auto"),
        (["model=tiny"], {}, "tiny", "post", "auto"),
    ],
)
def test_the_config_follows_from_teacher_text_and_size(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: list[str],
    flags: dict[str, Any],
    model: str,
    norm: str,
    vocab_size: int | str,
) -> None:
    monkeypatch.chdir(folder)
    flags = {"teacher": "teacher.safetensors", "input": "in.en", "output": "o", **flags}
    config = load_config("distill", given, flags=flags)
    assert (config.model.preset, config.model.norm.name, config.decode.search) == (model, norm, "greedy")
    assert config.data.tokenizer.vocab_size == vocab_size
    assert languages_of_student(config) == ("en", "fr")
    text = Path("o/text.en"), Path("o/text.fr")
    training = training_of(config, Path("o"), ("en", "fr"), text)
    assert (training.data.train, training.runs, training.name) == (["o/text.en", "o/text.fr"], "o", "run")
    assert (training.data.source_lang, training.data.target_lang) == ("en", "fr")
    assert config.train.rdrop == 0


@each(
    "given, source, reference",
    [
        ([], "o/text.en", None),
        (["data.test=[test.en,test.fr]"], "test.en", "test.fr"),
        (["data.test=[test.fr,test.en]"], "test.en", "test.fr"),
        (["data.dev=[test.en,test.fr]"], "test.en", "test.fr"),
        (["data.dev=[test.fr,test.en]", "data.test=[other.en,other.fr]"], "other.en", "other.fr"),
        (["data.test=[test.en,none.fr]"], "o/text.en", None),
        (["data.test=test.tsv"], "o/text.en", None),
    ],
)
def test_the_table_is_of_the_test_text(
    folder: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], source: str, reference: str | None
) -> None:
    monkeypatch.chdir(folder)
    for name in ("test.en", "test.fr", "other.en", "other.fr", "test.tsv"):
        written(Path(name), ["a"])
    config = load_config("distill", given, flags={"teacher": "teacher.safetensors", "input": "in.en"})
    settings = table_settings(config, ["a", "b"], ("en", "fr"), (Path("o/text.en"), Path("o/text.fr")))
    assert (settings["source"], settings.get("reference")) == (source, reference)
    assert load_config("bench", [], flags=settings).checkpoints == ["a", "b"]


def test_the_table_has_the_tokenizer_of_bleu_that_is_given(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    flags = {"teacher": "teacher.safetensors", "input": "in.en"}
    for given, name in ((["data.bleu_tokenize=char"], "char"), ([], None)):
        config = load_config("distill", given, flags=flags)
        settings = table_settings(config, ["a", "b"], ("en", "zh"), (Path("o/text.en"), Path("o/text.zh")))
        assert load_config("bench", [], flags=settings).data.bleu_tokenize == name


@each(
    "arguments, message",
    [
        ([], "--input: not given"),
        (["teacher.safetensors", "in.en", "data.train=[a,b]"], "data.train: is what the teacher makes of --input"),
        (["teacher.safetensors", "in.en", "--size", "tiny", "model=small"], "are two models"),
        (["teacher.safetensors", "in.en", "--size", "huge"], "size=huge: unknown"),
        (["teacher.safetensors", "in.en", "data.target_lang=de"], "data.target_lang=de: the teacher"),
        (["teacher.safetensors", "in.en", "data.source_lang=en", "data.target_lang=de"], "=de: the teacher"),
    ],
)
def test_what_does_not_fit_is_refused(folder: Path, arguments: list[str], message: str) -> None:
    refused(["distill", *arguments], folder, code=2, says=[message])


def test_a_teacher_that_is_not_there_is_named(folder: Path) -> None:
    refused(["distill", "none", "in.en"], folder, code=4, says=["none: no such file or folder. Check --teacher"])


def test_several_ranks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="is one process"):
        refuse_ranks("tfm distill", WITH_RANKS)


def test_a_recipe_that_is_named_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    flags = {"teacher": "teacher.safetensors", "input": "in.en"}
    assert "recipe=student" in with_recipe([], flags)
    assert "recipe=student" not in with_recipe(["recipe=small"], flags)


def test_an_export_whose_files_are_not_all_there_is_not_the_one_that_was_made(tmp_path: Path) -> None:
    facts = {"model_sha256": "ab", "files": {"lex.s2t.bin": "cd"}}
    (tmp_path / EXPORT_FILE).write_text(json.dumps(facts))
    assert exported_from(tmp_path) is None
    (tmp_path / "lex.s2t.bin").touch()
    assert exported_from(tmp_path) == "ab"


def test_a_shortlist_that_was_written_after_the_export_is_newer(tmp_path: Path) -> None:
    export, shortlist = tmp_path / EXPORT_FILE, tmp_path / "shortlist"
    export.touch()
    assert not is_newer(shortlist, export)
    shortlist.touch()
    for seconds, expected in ((1, True), (-1, False)):
        os.utime(shortlist, ns=(0, export.stat().st_mtime_ns + seconds * 10**9))
        assert is_newer(shortlist, export) is expected


@each(
    "said, was_there, expected",
    [
        (
            "o/text.fr: was made before with these settings, and was edited since. Add --overwrite to",
            True,
            "Put it back",
        ),
        (
            "o/text.fr: exists already. Add --overwrite, or choose another --output",
            False,
            "already. Choose another --o",
        ),
        ("o/text.json: exists already. Add --overwrite, or", True, "holds the student of another teacher, text, beam"),
        ("in.en: no text. Choose another --input", False, "in.en: no text. Choose another --input"),
    ],
)
def test_a_text_that_cannot_be_made_is_refused_with_its_own_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, was_there: bool, expected: str
) -> None:
    def refuse(*_: object) -> None:
        raise ConfigError(said)

    monkeypatch.setattr(run_distill, "step", refuse)
    (tmp_path / "text.json").unlink(missing_ok=True)
    if was_there:
        (tmp_path / "text.json").write_text("{}")
    config = load_config("distill", [], flags={"teacher": "t", "input": "in.en", "output": str(tmp_path)})
    with pytest.raises(ConfigError) as caught:
        make_text(config, tmp_path, ("en", "fr"))
    assert expected in str(caught.value)
    assert "--overwrite" not in str(caught.value)
