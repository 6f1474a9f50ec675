"""`tfm import`, and foreign models where a --checkpoint is named."""

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import safetensors.torch
import torch

from tests.addons.interop.test_export import model_file
from tests.addons.interop.toy_huggingface import change_json, opus
from tests.commands.test_hostile import Job, Outcome, check, run_child
from tests.support.contract import refused, run, tree
from tests.support.each import each
from tests.toy import run as toy_run
from tests.toy.translator import sentences
from transformer_cli.addons.interop import huggingface, kept_imports
from transformer_cli.addons.interop.comparison import ImportComparison
from transformer_cli.addons.interop.registries import export_formats, import_formats
from transformer_cli.config.compose import load_config
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.errors import CheckpointError
from transformer_cli.files import writing_whole
from transformer_cli.models.file import map_model, model_pieces, read_model, write_lazily, write_model
from transformer_cli.models.locate import locate_model

IMPORT = ["import", "hf", "opus", "--output", "m.safetensors"]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good") / "opus"
    opus(folder)
    return folder


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    """A working folder with a model of Hugging Face and a text of five lines."""
    shutil.copytree(good, tmp_path / "opus")
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in sentences(5, seed=5)), encoding="utf-8")
    return tmp_path


def test_a_format_is_called_the_same_for_import_and_export() -> None:
    """Formats that are read or written alone are left out."""
    read, written = set(import_formats()), set(export_formats())
    assert (read - written, written - read) == ({"fairseq", "opennmt"}, {"firefox", "onnx"})
    for name in ("hf", "huggingface"):
        assert load_config("export", flags={"format": name}).format == "huggingface"
    for name, kind in (("hf", "hf"), ("huggingface", "hf"), ("argos", "ctranslate2")):
        assert load_config("import", flags={"format": name, "path": "m", "output": "o"}).format == kind


def test_what_an_import_would_be_written_over_stays(folder: Path) -> None:
    """Overwriting replaces a file alone: neither a run nor the folder of a link."""
    (folder / "run" / "checkpoints").mkdir(parents=True)
    (folder / "link").symlink_to("run")
    os.mkfifo(folder / "pipe")
    for output in ("run", "link", "pipe"):
        for options in ([], ["--overwrite"]):
            refused([*IMPORT[:3], "--output", output, *options], folder, code=2, says=[f"{output}: not a plain file"])
    (folder / "linked").symlink_to("text")
    says = ["linked: exists already", "--overwrite"]
    refused([*IMPORT[:3], "--output", "linked"], folder, code=2, says=says)


def test_what_is_of_tfm_already_is_not_imported(folder: Path) -> None:
    (folder / "ours.safetensors").write_bytes(b"".join(model_pieces(model_file())))
    says = ["ours.safetensors: is a model of tfm, with nothing to import. Name it with --checkpoint"]
    refused(["import", "ours.safetensors", "--output", "m"], folder, code=4, says=says)


def test_an_import_prints_what_was_compared_and_translates(folder: Path) -> None:
    ran = run([*IMPORT, "--lines", "text"], folder)
    assert ran.code == 0, ran.err
    lines = ran.out.decode().split("\n")
    assert lines[0] == "m.safetensors: opus, eng → deu"
    assert lines[1].startswith("compared with transformers ")
    assert lines[1].endswith(" on 5 lines of text")
    assert "tokenizers: 5 of 5 lines have the same ids, 5 of 5 translations the same text" in lines
    assert any(line.startswith("text to text, beam 4: ") for line in lines)
    translated = run(["translate", "--checkpoint", "m.safetensors", "--input", "text"], folder)
    assert translated.code == 0
    assert translated.out.count(b"\n") == 5


def test_the_format_is_recognised(folder: Path) -> None:
    ran = run(["import", "opus", "--output", "m.safetensors", "compare=false"], folder)
    assert ran.code == 0, ran.err
    assert ran.out.decode().split("\n")[1] == "not compared with the original (compare=false)"
    assert read_model(folder / "m.safetensors").source_lang == "eng"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["import"], 2, ["no path given", "Name the folder"]),
        (["import", "opus"], 2, ["--output: not given"]),
        (["import", "hg", "opus", "--output", "m"], 2, ["hg", "hf"]),
        (["import", "hf", "opus", "more", "--output", "m"], 2, ["'more'", "second path"]),
        (["import", "none", "--output", "m"], 4, ["none: no such file or folder"]),
        (["import", "text", "--output", "m"], 4, ["text: none of the formats", "hf"]),
        (["import", "hf", "text", "--output", "m"], 4, ["text/config.json: no such file"]),
        (["import", "opus", "--output", "text"], 2, ["text: exists already", "--overwrite"]),
        (["import", "opus", "--output", "opus/m"], 2, []),
        (["import", "opus", "--output", "no/m"], 5, ["no: no such folder"]),
        ([*IMPORT, "--lines", "nothing"], 3, ["nothing: no such file", "--lines"]),
        ([*IMPORT, "--lines", "text", "compare=false"], 2, ["--lines text", "compare=false"]),
        ([*IMPORT, "--source-lang", "../x"], 2, ["source_lang='../x'"]),
        ([*IMPORT, "--vocabulary", "a", "--vocabulary", "b", "--vocabulary", "c"], 2, ["--vocabulary: names 3 files"]),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    arguments: list[str], code: int, says: list[str], folder: Path
) -> None:
    if "opus/m" in arguments:
        (folder / "opus" / "m").write_text("", encoding="utf-8")
        arguments = [*arguments, "--overwrite"]
        says = ["belongs to the model to import"]
    before = tree(folder)
    refused(arguments, folder, code=code, says=says)
    assert tree(folder) == before


def test_a_checkpoint_may_be_a_foreign_folder_which_is_imported_once(folder: Path) -> None:
    first = run(["translate", "--checkpoint", "opus", "--input", "text"], folder)
    assert first.code == 0, first.err
    assert b"imported once, into" in first.err
    again = run(["translate", "--checkpoint", "opus", "--input", "text"], folder)
    assert again.out == first.out
    assert b"imported" not in again.err
    (kept,) = (folder / "opus" / kept_imports.FOLDER).glob("*.safetensors")
    change_json(folder / "opus" / "tokenizer_config.json", target_lang="nds")
    other = run(["score", "--checkpoint", "opus", "--source", "text", "--translation", "text"], folder)
    assert other.code == 0
    assert not kept.exists(), "what another version of the folder was imported into"
    (kept,) = (folder / "opus" / kept_imports.FOLDER).glob("*.safetensors")
    assert read_model(kept).target_lang == "nds"


def test_what_an_earlier_reader_has_read_is_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = locate_model(str(folder / "opus"), "runs")
    assert locate_model(str(folder / "opus"), "runs") == before
    monkeypatch.setattr(kept_imports, "READING", kept_imports.READING + 1)
    assert locate_model(str(folder / "opus"), "runs") != before


def test_a_kept_import_that_is_damaged_is_made_again(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    kept = locate_model(str(folder / "opus"), "runs")
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-100])
    assert locate_model(str(folder / "opus"), "runs") == kept
    assert kept.read_bytes() == whole
    assert "it is made again" in caplog.text


def test_translations_of_a_foreign_folder_are_saved_beside_it(folder: Path) -> None:
    ran = run(["evaluate", "--checkpoint", "opus", "--source", "text", "--reference", "text"], folder)
    assert ran.code == 0, ran.err
    (saved,) = folder.glob("hypotheses.*")
    assert ".opus." in saved.name
    assert len(saved.read_text(encoding="utf-8").splitlines()) == len((folder / "text").read_text().splitlines())


def test_an_export_for_huggingface_is_a_checkpoint_and_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "out").mkdir()
    huggingface.write(model_file(), tmp_path / "out")
    facts = {"program": "huggingface", "source_lang": "en", "target_lang": "fr", "step": 7, "scores": {}, "data": {}}
    (tmp_path / "out" / "export.json").write_text(json.dumps(facts | {"fingerprint": "f"}), encoding="utf-8")
    before = tree(tmp_path / "out")
    path = locate_model(str(tmp_path / "out"), "runs")
    assert path.is_relative_to(tmp_path / "cache" / "tfm")
    model = read_model(path)
    assert (model.source_lang, model.target_lang, model.step, model.fingerprint) == ("en", "fr", 7, "f")
    assert tree(tmp_path / "out") == before


def test_our_own_files_are_found_without_any_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with writing_whole(tmp_path / "m.safetensors") as output:
        output.writelines(model_pieces(model_file()))
    monkeypatch.setattr(kept_imports, "imported_file", None)
    assert locate_model(str(tmp_path / "m.safetensors"), "runs") == tmp_path / "m.safetensors"
    (tmp_path / "run").mkdir()
    shutil.copy(tmp_path / "m.safetensors", tmp_path / "run" / "model.safetensors")
    assert locate_model(str(tmp_path / "run"), "runs") == tmp_path / "run" / "model.safetensors"


# ---- The file


def test_a_file_that_is_written_weight_by_weight_has_the_same_bytes(tmp_path: Path) -> None:
    model = model_file(norm_eps=1e-6)
    assert model.tokenizers.joint
    weights = {name: lambda weight=weight: weight for name, weight in model.weights.items()}
    with writing_whole(tmp_path / "m") as output:
        write_lazily(output, replace(model, weights={}), weights)
        mapped = map_model(output.temporary)
    assert (tmp_path / "m").read_bytes() == b"".join(model_pieces(model))
    assert mapped.config == model.config
    assert all(torch.equal(mapped.weights[name], weight) for name, weight in model.weights.items())


def test_a_weight_of_another_shape_is_not_written(tmp_path: Path) -> None:
    model = model_file()
    weights = {name: lambda: torch.zeros(3) for name in model.weights}
    with (
        pytest.raises(CheckpointError, match=r"is \[3\] of float32, but the model's config asks for"),
        writing_whole(tmp_path / "m") as output,
    ):
        write_lazily(output, model, weights)
    assert list(tmp_path.iterdir()) == []


def test_a_mapped_file_with_another_byte_is_refused(tmp_path: Path) -> None:
    content = b"".join(model_pieces(model_file()))
    (tmp_path / "m").write_bytes(content[:-9] + b"x" + content[-8:])
    with pytest.raises(CheckpointError, match="its SHA-256 is"):
        map_model(tmp_path / "m")


def test_a_mapped_file_has_the_tokenizers_that_are_known_if_they_are_the_same(tmp_path: Path) -> None:
    model, other = model_file(), toy_run.tokenizers(joint=False).target
    assert other.model_bytes != model.tokenizers.source.model_bytes
    write_model(tmp_path / "m", model)
    mapped = map_model(tmp_path / "m", model.tokenizers)
    assert mapped.tokenizers.source is mapped.tokenizers.target is model.tokenizers.source
    mapped = map_model(tmp_path / "m", Tokenizers(other, other))
    assert mapped.tokenizers.source.model_bytes == model.tokenizers.source.model_bytes


# ---- Hostile folders


class Bomb:
    def __reduce__(self) -> object:
        return os.system, ("touch exploded",)


def vocabulary(**changes: object) -> Callable[[Path], object]:
    return lambda folder: change_json(folder / "vocab.json", **changes)


def pickled(folder: Path, **options: object) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"model.shared.weight": Bomb()}, folder / "pytorch_model.bin", **options)


def header(text: bytes, length: int | None = None) -> Callable[[Path], object]:
    content = (len(text) if length is None else length).to_bytes(8, "little") + text
    return lambda folder: (folder / "model.safetensors").write_bytes(content)


def raw(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def pipe(folder: Path) -> None:
    (folder / "vocab.json").unlink()
    os.mkfifo(folder / "vocab.json")


def replaced(name: str, target: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(target)

    return change


def index(value: object) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": value}), encoding="utf-8")

    return change


HUGE = b'{"model.shared.weight":{"dtype":"F32","shape":[1000000000000,32],"data_offsets":[0,128000000000000]}}'
HOSTILE: dict[str, Callable[[Path], object]] = {
    "code in a zip": pickled,
    "code in an old file": lambda folder: pickled(folder, _use_new_zipfile_serialization=False),
    "a header of exabytes": header(b"{}", 1 << 60),
    "a header without an end": header(b'{"a":'),
    "a tensor of terabytes": header(HUGE),
    "no tensors": header(b"{}"),
    "an empty file": raw("model.safetensors", b""),
    "a config that is no JSON": raw("config.json", b"\xff\x00"),
    "a config that is a list": raw("config.json", b"[]"),
    "brackets": raw("config.json", b"[" * 100_000),
    "a key twice": raw("config.json", b'{"model_type":"marian","model_type":"marian"}'),
    "no number in config": lambda folder: change_json(folder / "config.json", d_model=10**30),
    "not a number": raw("config.json", b'{"model_type":"marian","dropout":NaN}'),
    "code in config": lambda folder: change_json(folder / "config.json", model_type="../evil", auto_map={"A": "b.C"}),
    "a gap": lambda folder: (folder / "vocab.json").write_text('{"</s>":0,"<unk>":1,"a":3}', encoding="utf-8"),
    "an id twice": vocabulary(more=0),
    "an id that is text": vocabulary(more="0"),
    "an id below 0": vocabulary(more=-1),
    "an id beyond": vocabulary(more=1 << 40),
    "an id that is true": vocabulary(more=True),
    "a vocabulary that is a list": raw("vocab.json", b"[1]"),
    "no SentencePiece": raw("source.spm", b"\x08\x01"),
    "an empty SentencePiece": raw("target.spm", b""),
    "a language that is a path": lambda folder: change_json(folder / "tokenizer_config.json", source_lang="../../x"),
    "a language that is a list": lambda folder: change_json(folder / "tokenizer_config.json", source_lang=["x"]),
    "a token that is a list": lambda folder: change_json(folder / "tokenizer_config.json", pad_token=["x"]),
    "a pipe": pipe,
    "a link to nothing": replaced("vocab.json", "nowhere"),
    "a link to zeros": replaced("vocab.json", "/dev/zero"),
    "parts elsewhere": index({"model.shared.weight": "../../precious"}),
    "parts that are none": index({}),
    "parts that are missing": index({"model.shared.weight": "part.safetensors"}),
    "parts of another type": index([1]),
}


@pytest.fixture(scope="module")
def outcomes(good: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """What became of every hostile folder, in a process that ends when anything is executed."""
    place = tmp_path_factory.mktemp("hostile")
    (place / "precious").write_text("precious", encoding="utf-8")
    jobs = {}
    for i, (name, change) in enumerate(HOSTILE.items()):
        shutil.copytree(good, place / f"opus-{i}")
        change(place / f"opus-{i}")
        arguments = ["import", "hf", f"opus-{i}", "--output", f"{i}.safetensors", "compare=false"]
        whole = Job("command", arguments, (4,), f"opus-{i}")  # takes longer
        jobs[name] = whole if "code" in name else Job("foreign", f"opus-{i}", (4,), f"opus-{i}")
    tensors = safetensors.torch.load_file(good / "model.safetensors")
    for kind in ("good", "zip", "old"):  # whose files have torch import what it needs
        shutil.copytree(good, place / f"opus-{kind}")
        if kind != "good":
            (place / f"opus-{kind}" / "model.safetensors").unlink()
            file = place / f"opus-{kind}" / "pytorch_model.bin"
            torch.save(tensors, file, _use_new_zipfile_serialization=kind == "zip")
    warm_up = [
        ("command", ["import", "hf", f"opus-{kind}", "--output", "good.safetensors", "--overwrite", "compare=false"])
        for kind in ("good", "zip", "old")
    ]
    status, found, words = run_child(place, warm_up, list(jobs.values()))
    assert status == 0, f"{list(jobs)[len(found)]} ended the child ({status}): {words[-500:]}"
    assert not list(place.rglob("exploded"))
    assert sorted(file.name for file in place.glob("*.safetensors")) == ["good.safetensors"]
    return dict(zip(jobs, found, strict=True))


@each("name", HOSTILE)
def test_a_hostile_folder_ends_in_one_line_and_executes_nothing(name: str, outcomes: dict[str, Outcome]) -> None:
    check(outcomes[name])


def test_a_comparison_says_what_was_compared_of_the_text() -> None:
    verdict: Any = SimpleNamespace(lines=9, beam_compared=4, lines_of_ids=lambda: ["ids: 9 of 9"])
    assert ImportComparison(verdict, None, None, None).lines_of_text() == [
        "ids: 9 of 9",
        "text: not compared, as the original has no tokenizer of its own",
    ]
    head, same, text = ImportComparison(verdict, 8, 7, 3).lines_of_text()
    assert head == "ids: 9 of 9"
    assert same == "tokenizers: 8 of 9 lines have the same ids, 7 of 9 translations the same text"
    assert re.fullmatch(r"text to text, beam \d+: 3 of 4 lines identical", text)
