"""`tfm export`: what it leaves, and what it refuses. The model copies letters, badly."""

import json
import os
import resource
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.addons.interop.test_export import model_file, tagged_model
from tests.golden.make import FOLDER
from tests.support.contract import bound_by_permissions, error_line, refused, run, tree, untouched
from tests.toy.run import sentences
from transformer_cli.addons.interop import huggingface
from transformer_cli.addons.interop import verify as verifying
from transformer_cli.addons.interop.exported import read_export
from transformer_cli.config.model import Positions
from transformer_cli.data.hashes import file_sha256
from transformer_cli.errors import CheckpointError
from transformer_cli.models.file import read_model, write_model

PACKAGES = {"ctranslate2": "ctranslate2", "huggingface": "transformers", "onnx": "onnxruntime", "argos": "ctranslate2"}
EXPORT = ["export", "ctranslate2", "--checkpoint", "model.safetensors", "--output", "out"]
FORMATS = pytest.mark.parametrize("form", PACKAGES)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with a model and a text of six lines."""
    (tmp_path / "model.safetensors").write_bytes((FOLDER / "joint-pre.safetensors").read_bytes())
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in sentences(6, seed=5)), encoding="utf-8")
    return tmp_path


@pytest.fixture(scope="module")
def exported_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("ctranslate2")
    place = tmp_path_factory.mktemp("exported")
    (place / "model.safetensors").write_bytes((FOLDER / "joint-pre.safetensors").read_bytes())
    ran = run(EXPORT, place)
    assert ran.code == 0, ran.err
    return place / "out"


@pytest.fixture
def exported(folder: Path, exported_once: Path) -> Path:
    """The working folder, with an export of its model."""
    shutil.copytree(exported_once, folder / "out")
    return folder


def export(form: str, *more: str) -> list[str]:
    named = ["--to-name", "Xish"] if form == "argos" else []  # `xx` is no code of a language
    return ["export", form, *named, *EXPORT[2:], *more]


@pytest.mark.slow
@FORMATS
def test_an_export_tells_what_it_was_made_from_and_how_it_was_verified(folder: Path, form: str) -> None:
    pytest.importorskip(PACKAGES[form])
    ran = run(export(form), folder)
    assert ran.code == 0, ran.err
    facts = json.loads((folder / "out" / "export.json").read_bytes())
    assert facts["model_sha256"] == file_sha256(folder / "model.safetensors")
    assert facts["library"].startswith(PACKAGES[form])
    verdict = facts["verified"]
    assert verdict["tokens"] > 200
    assert verdict["largest_difference"] <= verdict["tolerance"] == 1e-4
    assert 0 < verdict["greedy_compared"] == verdict["greedy_identical"]
    assert 0 < verdict["text_compared"] == verdict["text_identical"]
    there = [path.relative_to(folder / "out").as_posix() for path in (folder / "out").rglob("*") if path.is_file()]
    assert sorted(there) == sorted([*facts["files"], "export.json"])
    assert "README.md" in there
    assert sorted(os.listdir(folder)) == ["model.safetensors", "out", "text"]
    text = ran.out.decode()
    assert text.startswith("out: model.safetensors, for ")
    assert "nats (tolerance 0.0001, for the largest)" in text
    assert text.count("\n") == 6


@FORMATS
def test_a_length_penalty_that_is_left_behind_is_named(folder: Path, form: str) -> None:
    pytest.importorskip(PACKAGES[form])
    path = folder / "model.safetensors"
    write_model(path, replace(read_model(path), length_penalty=1.4))
    ran = run(export(form), folder)
    assert ran.code == 0, ran.err
    named = "tfm: warning: model.safetensors: has a length penalty of its own, 1.4, which is not in this format. "
    (line,) = [line for line in ran.err.decode().splitlines() if "length" in line]
    assert line.startswith(named)
    if form == "ctranslate2":
        scores = [
            json.loads(run(["translate", "--checkpoint", name, "--output-format", "jsonl", *more, "a b c"], folder).out)
            for name, more in (("out", ["decode.length_penalty=1.4"]), (str(path), []))
        ]
        assert scores[0]["score"] == pytest.approx(scores[1]["score"], abs=1e-3)


@pytest.mark.parametrize("quantization", ["int8", "int16", "bfloat16"])
def test_fewer_bits_are_compared_by_the_mean(folder: Path, quantization: str) -> None:
    pytest.importorskip("ctranslate2")
    ran = run([*EXPORT, "--quantization", quantization], folder)
    assert ran.code == 0, ran.err
    assert b"(tolerance 0.1, for the mean)" in ran.out
    facts = json.loads((folder / "out" / "export.json").read_bytes())
    assert facts["quantization"] == quantization
    assert 0 < facts["verified"]["mean_difference"] <= 0.1


def test_overwriting_replaces_an_export_and_nothing_else(exported: Path) -> None:
    folder = exported
    refused(EXPORT, folder, code=2, says=["out: exists already", "--overwrite"])
    assert run([*EXPORT, "--quantization", "int8", "--overwrite"], folder).code == 0
    assert json.loads((folder / "out" / "export.json").read_bytes())["quantization"] == "int8"
    assert sorted(os.listdir(folder)) == ["model.safetensors", "out", "text"]
    (folder / "out" / "mine").touch()
    refused([*EXPORT, "--overwrite"], folder, code=2, says=["out: is there, and holds mine", "another --output"])


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (EXPORT[:2], 2, ["--output: not given. Name the folder for the model"]),
        (["export"], 2, ["no format given. Name one: argos, ctranslate2, firefox, huggingface, marian or onnx"]),
        (["export", *EXPORT[2:]], 2, ["tfm export: no format given"]),
        (["export", "ctranslate", *EXPORT[2:]], 2, ["format=ctranslate: unknown; did you mean `ctranslate2`?"]),
        ([*EXPORT, "--checkpoint", "model.safetensors"], 2, ["--checkpoint: names several", "tfm average"]),
        (["export", "ctranslate2", "--output", "out", "checkpoint=[a,b]"], 2, ["--checkpoint: names several"]),
        (["export", "ctranslate2", "--output", "out", "checkpoint={a: b}"], 2, ["no name of a model. Give a path"]),
        ([*EXPORT, "--quantization", "int4"], 2, ["quantization=int4: unknown. Choose "]),
        (export("huggingface", "--quantization", "int8"), 2, ["--quantization int8: huggingface keeps float32"]),
        (export("onnx", "--quantization", "int8"), 2, ["--quantization int8: onnx keeps float32"]),
        (export("onnx", "--to-name", "X"), 2, ["--to-name X: for the format argos only"]),
        (export("argos", "--package-version", "../1"), 2, ["--package-version ../1: no version"]),
        (["export", "argos", *EXPORT[2:]], 2, ["--to-name: not given, and `xx` is no code that tfm knows"]),
        (export("ctranslate2", "--scores", "text"), 2, ["--scores text: not what `tfm evaluate --json` prints"]),
        (export("ctranslate2", "--scores", "none"), 5, ["--scores none: No such file"]),
        ([*EXPORT[:-1], "text"], 2, ["text: not a folder"]),
        ([*EXPORT[:-1], "."], 2, [".: is there, and holds model.safetensors"]),
        ([*EXPORT[:-1], "no/out"], 5, ["no: no such folder"]),
        ([*EXPORT[:3], "text", *EXPORT[4:]], 4, ["text: cut short or not a safetensors file"]),
    ],
    ids=str,
)
def test_what_cannot_be_exported_is_refused_in_one_line(
    folder: Path, arguments: list[str], code: int, says: list[str]
) -> None:
    pytest.importorskip("ctranslate2")
    pytest.importorskip("transformers")
    refused(arguments, folder, code=code, says=says)


def test_an_export_does_not_replace_the_model_that_it_is_made_from(folder: Path) -> None:
    """A file of an earlier export may have the same name."""
    pytest.importorskip("transformers")
    assert run(export("huggingface"), folder).code == 0
    (folder / "model.safetensors").rename(folder / "out" / "model.safetensors")
    (folder / "link").symlink_to("out/model.safetensors")
    for name in ("out", "out/model.safetensors", "link"):
        arguments = ["export", "huggingface", "--checkpoint", name, "--output", "out", "--overwrite"]
        refused(
            arguments,
            folder,
            code=2,
            says=["out: is there, and holds model.safetensors, which no export of ours wrote like that"],
        )


@FORMATS
def test_a_folder_may_have_any_name_that_is_text(folder: Path, form: str) -> None:
    pytest.importorskip(PACKAGES[form])
    name = "a  'b' $c {d} #e — für 日本 \U0001f600"
    ran = run([*export(form)[:-1], name], folder)
    assert ran.code == 0, ran.err
    assert ran.out.decode().startswith(f"{name}: model.safetensors, for ")
    assert sorted(os.listdir(folder)) == sorted([name, "model.safetensors", "text"])


@FORMATS
@pytest.mark.parametrize("name", [b"caf\xe9", b"caf\xe9/out"])
def test_a_name_that_is_no_text_is_refused(folder: Path, form: str, name: bytes) -> None:
    """The libraries take UTF-8, and fail in ways of their own."""
    pytest.importorskip(PACKAGES[form])
    (folder / os.fsdecode(b"caf\xe9")).mkdir()
    says = ["caf\\udce9", ": not UTF-8, ", "Choose another --output"]
    refused([*export(form, "--overwrite")[:-2], os.fsdecode(name), "--overwrite"], folder, code=2, says=says)


def test_the_folder_that_the_user_is_in_is_not_replaced(exported: Path) -> None:
    arguments = ["export", "ctranslate2", "--checkpoint", "../model.safetensors", "--overwrite", "--output"]
    for name in (".", "../out/.", "../out"):
        refused([*arguments, name], exported / "out", code=2, says=[": is the folder that you are in", "another --out"])


def test_a_link_is_no_folder_to_write_to(exported: Path) -> None:
    (exported / "link").symlink_to("out")
    (exported / "broken").symlink_to("nowhere")
    for name in ("link", "broken"):
        refused(
            [*EXPORT[:-1], name, "--overwrite"], exported, code=2, says=[f"{name}: a link. Choose another --output"]
        )


@pytest.mark.parametrize("place", ["checkpoints", "checkpoints/step-00000007", "best"])
def test_an_export_does_not_go_where_checkpoints_come_and_go(folder: Path, place: str) -> None:
    (folder / "run" / "checkpoints" / "step-00000007").mkdir(parents=True)
    (folder / "run" / "best").symlink_to("checkpoints/step-00000007")
    (folder / "run" / "config.yaml").touch()
    says = [f"run/{place}/out: is among the checkpoints of a run, which come and go", "Choose another --output"]
    refused([*EXPORT[:-1], f"run/{place}/out"], folder, code=2, says=says)
    assert run([*EXPORT[:-1], "run/out"], folder).code == 0


def test_a_folder_that_may_not_be_changed_is_told_before_any_work(exported: Path) -> None:
    (exported / "closed").mkdir(mode=0o555)
    refused([*EXPORT[:-1], "closed/out"], exported, code=5, says=["closed: cannot be written"], as_root=False)
    (exported / "out").chmod(0)
    refused([*EXPORT, "--overwrite"], exported, code=5, says=["Permission denied. Check"], as_root=False)


def test_an_earlier_export_that_cannot_be_removed_stays_beside_the_new_one(exported: Path) -> None:
    (exported / "out").chmod(0o555)
    with bound_by_permissions():
        ran = run([*EXPORT, "--quantization", "int8", "--overwrite"], exported)
    assert ran.code == 0, ran.err
    (old,) = exported.glob("out.old-*")
    assert f"{old.name}: the export that was replaced cannot be removed (Permission denied)" in ran.err.decode()
    for folder, quantization in ((old, "float32"), (exported / "out", "int8")):
        assert json.loads((folder / "export.json").read_bytes())["quantization"] == quantization
    assert read_export(old, program="ctranslate2").directory == old


def test_the_corpus_of_a_model_may_have_names_that_are_no_text(folder: Path) -> None:
    """One is `caf\xe9.en`, which Python reads with a lone surrogate in it."""
    model = read_model(folder / "model.safetensors")
    model.data["train"] = ["caf\udce9.en", "caf\udce9.xx"]
    write_model(folder / "model.safetensors", model)
    ran = run(EXPORT, folder)
    assert ran.code == 0, ran.err
    assert read_export(folder / "out", program="ctranslate2").data["train"] == model.data["train"]


def test_an_option_that_the_format_cannot_express_is_named(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    write_model(tmp_path / "model.safetensors", model_file(positions=Positions.rotary))
    refused(export("huggingface"), tmp_path, code=2, says=["model.positions=rotary: ", "tfm export ctranslate2"])


@pytest.mark.parametrize("form", ["argos", "marian"])
def test_a_model_that_has_to_have_tags_is_not_for_programs_without_them(tmp_path: Path, form: str) -> None:
    model = replace(tagged_model(), target_lang="de+fr", data={"tags": ["<2de>", "<2fr>"]})
    write_model(tmp_path / "model.safetensors", model)
    pytest.importorskip("ctranslate2")
    says = [f"tfm export {form}: the model was trained with tags before its lines, as <2fr>"]
    refused(export(form), tmp_path, code=2, says=says)


@FORMATS
def test_a_package_that_is_not_installed_is_named_with_its_extra(
    folder: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, PACKAGES[form], None)
    says = [f"tfm export {form}: the package {PACKAGES[form]} cannot be imported", "pip install '.[export]'"]
    refused(export(form), folder, code=5, says=says)


@pytest.mark.slow
def test_a_model_that_says_something_else_is_not_published(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr(huggingface, "order", lambda config: huggingface.torch.arange(config.d_model))
    says = ["model.safetensors: does not say the same in transformers", "largest difference", "report it"]
    refused(export("huggingface"), folder, code=4, says=says)


@FORMATS
@pytest.mark.parametrize("n_bytes", [15_000, 170_000])
def test_a_disk_that_takes_no_more_leaves_no_half_of_an_export(folder: Path, form: str, n_bytes: int) -> None:
    """The first limit stops the weights, the second the table of letters."""
    pytest.importorskip(PACKAGES[form])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        ran = run(export(form), folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    error_line(ran, code=5, says=["out: cannot save the export: ", "Make room"])
    assert sorted(os.listdir(folder)) == ["model.safetensors", "text"]


def stating(**changes: object) -> Callable[[Path], Any]:
    """Change what export.json says."""

    def spoil(out: Path) -> None:
        facts = json.loads((out / "export.json").read_bytes())
        (out / "export.json").write_text(json.dumps(facts | changes))

    return spoil


def in_place_of(name: str, content: bytes) -> Callable[[Path], Any]:
    """Change a file, and the hash of it, too."""

    def spoil(out: Path) -> None:
        (out / name).write_bytes(content)
        facts = json.loads((out / "export.json").read_bytes())
        facts["files"][name] = file_sha256(out / name)
        (out / "export.json").write_text(json.dumps(facts))

    return spoil


def flip(name: str) -> Callable[[Path], Any]:
    """Change one bit in the middle of a file."""

    def spoil(out: Path) -> None:
        content = bytearray((out / name).read_bytes())
        content[len(content) // 2] ^= 1
        (out / name).write_bytes(content)

    return spoil


def into_a_folder(name: str) -> Callable[[Path], Any]:
    def spoil(out: Path) -> None:
        (out / name).unlink()
        (out / name).mkdir()

    return spoil


def read(out: Path) -> bytes:
    return (out / "model.bin").read_bytes()


WRITTEN = ["config.json", "model.bin", "shared_vocabulary.json", "source.spm", "target.spm"]
ANOTHER = "is not the file that was exported: its SHA-256 is "
DAMAGED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no facts": (
        lambda out: (out / "export.json").unlink(),
        "out: holds no export.json. Name a folder of `tfm export ctranslate2`",
    ),
    "no JSON": (lambda out: (out / "export.json").write_text("{"), "out/export.json: damaged"),
    "no text": (lambda out: (out / "export.json").write_bytes(b"\xff\xfe\xff"), "out/export.json: damaged"),
    "no object": (lambda out: (out / "export.json").write_text("[]"), "out/export.json: damaged"),
    "few facts": (
        lambda out: (out / "export.json").write_text('{"program": "ctranslate2"}'),
        "out/export.json: damaged",
    ),
    "another program": (stating(program="huggingface"), "out: was exported for huggingface"),
    "no program": (stating(program={"\x1b[2J": 1}), "out: was exported for {"),
    "files as a list": (stating(files=WRITTEN), "out/export.json: damaged"),
    "no files": (stating(files={}), "out/export.json: damaged ('ValueError: files has no source.spm')"),
    "a file elsewhere": (stating(files={"../text": ""}), "out/export.json: damaged"),
    "a hash of nothing": (stating(files={"model.bin": None}), f"out/model.bin: {ANOTHER}"),
    "language as a path": (stating(target_lang="../x"), "out/export.json: damaged"),
    "positions as a list": (stating(max_positions=[1]), "out/export.json: damaged"),
    **{f"format {v!r}": (stating(format=v), "out/export.json: damaged") for v in (-1, 0, True, "1", 1.0)},
    "a newer format": (stating(format=2), "out: written in format 2 by a newer tfm"),
    "no positions": (stating(max_positions=0), "out/export.json: damaged"),
    "data as a text": (stating(data="multi30k"), "out/export.json: damaged"),
    "another tokenizer": (in_place_of("source.spm", b"no model"), "out/source.spm: tokenizer: not a SentencePiece"),
    "another model": (in_place_of("model.bin", b"no model"), "out: CTranslate2 cannot load it"),
    "a model cut short": (lambda out: in_place_of("model.bin", read(out)[:-1])(out), "out: CTranslate2 cannot load it"),
    "another weight": (
        lambda out: in_place_of("model.bin", read(out).replace(b"projection/weight", b"projection/wei\0ht"))(out),
        "out: CTranslate2 cannot load it ('variable decoder/projection/weight not found')",
    ),
    "another config": (in_place_of("config.json", b"{"), "out: CTranslate2 cannot load it"),
    "another vocabulary": (in_place_of("shared_vocabulary.json", b"["), "out: CTranslate2 cannot load it"),
    "a short vocabulary": (
        in_place_of("shared_vocabulary.json", b'["a"]'),
        "out: CTranslate2 cannot translate with it",
    ),
    **{f"one bit of {name}": (flip(name), f"out/{name}: {ANOTHER}") for name in WRITTEN},
    **{f"a folder as {name}": (into_a_folder(name), f"out/{name}: is missing or not a plain file") for name in WRITTEN},
    **{f"no {name}": (lambda out, name=name: (out / name).unlink(), f"out/{name}: is missing") for name in WRITTEN},
}


def is_alike(name: str) -> bool:
    """Whether the damage of another file, the weights, stands for this one."""
    kinds = ("one bit of ", "a folder as ", "format ", *(f"no {file}" for file in WRITTEN))
    return name.startswith(kinds) and "model.bin" not in name and name != "format 0"


DAMAGES = [
    pytest.param(*damage, id=name, marks=[pytest.mark.slow] if is_alike(name) else [])
    for name, damage in DAMAGED.items()
]


@pytest.mark.parametrize(("spoil", "says"), DAMAGES)
def test_a_damaged_export_is_refused_by_the_engine(exported: Path, spoil: Callable[[Path], Any], says: str) -> None:
    spoil(exported / "out")
    refused(["translate", "engine=ctranslate2", "--checkpoint", "out"], exported, code=4, says=[says], stdin=b"a b\n")


@pytest.mark.slow
def test_the_files_of_two_exports_are_not_mixed(exported: Path) -> None:
    shutil.copy(FOLDER / "separate-pre.safetensors", exported / "other.safetensors")
    assert run(["export", "ctranslate2", "--checkpoint", "other.safetensors", "--output", "other"], exported).code == 0
    piece = (exported / "other" / "target.spm").read_bytes()
    assert piece != (exported / "out" / "target.spm").read_bytes()
    (exported / "out" / "target.spm").write_bytes(piece)
    evaluate = ["evaluate", "engine=ctranslate2", "--checkpoint", "out", "--source", "text", "--reference", "text"]
    says = [f"out/target.spm: {ANOTHER}", "Write it again with `tfm export ctranslate2`"]
    refused(evaluate, exported, code=4, says=says)


@pytest.mark.parametrize("name", ["export.json", "model.bin", "source.spm"])
def test_an_export_that_may_not_be_read_is_not_called_damaged(exported: Path, name: str) -> None:
    (exported / "out" / name).chmod(0)
    translate = ["translate", "engine=ctranslate2", "--checkpoint", "out"]
    refused(translate, exported, code=5, says=[f"out/{name}: Permission denied"], stdin=b"a\n", as_root=False)


def test_an_export_may_be_given_a_name_that_is_no_text(exported: Path) -> None:
    name = os.fsdecode(b"caf\xe9 \xe2\x82\xac")
    (exported / "out").rename(exported / name)
    ran = run(["translate", "engine=ctranslate2", "--checkpoint", name], exported, stdin=b"a b\n")
    assert (ran.code, ran.err, ran.out.count(b"\n")) == (0, b"", 1)


def test_the_engine_refuses_what_is_no_model(folder: Path) -> None:
    says = ["nowhere: no such file or folder. Check --checkpoint"]
    refused(["translate", "engine=ctranslate2", "--checkpoint", "nowhere"], folder, code=4, says=says)
    with pytest.raises(CheckpointError, match=r"holds no export\.json"):
        read_export(folder, program="ctranslate2")


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("decode=sample", "decode.search=sample: engine=ctranslate2 draws"),
        ("decode.batch_invariant=true", "decode.batch_invariant=true: engine=ctranslate2 does not have it"),
        ("decode.coverage_penalty=0.2", "decode.coverage_penalty=0.2: engine=ctranslate2 does not have it"),
        ("decode.max_source_length=4000", "decode.max_source_length=4000: with decode.max_extra_length=50 up to 4051"),
    ],
)
def test_what_the_engine_would_not_do_is_refused_by_name(exported: Path, option: str, says: str) -> None:
    refused(["translate", "engine=ctranslate2", "--checkpoint", "out", option], exported, code=2, says=[says])


def test_the_engine_follows_the_folder(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (exported / "text").read_bytes()
    ran = run(["translate", "decode=greedy", "--checkpoint", "out"], exported, stdin=text)
    assert b"out: was exported for CTranslate2, so engine=ctranslate2" in ran.err
    named = run(["translate", "decode=greedy", "--checkpoint", "out", "--engine", "ctranslate2"], exported, stdin=text)
    assert (ran.code, ran.out) == (0, named.out)
    assert b"was exported" not in named.err
    monkeypatch.setenv("XDG_CACHE_HOME", str(exported / "cache"))
    read_back = run(["translate", "decode=greedy", "--checkpoint", "out", "--engine", "torch"], exported, stdin=text)
    assert (read_back.code, read_back.out) == (0, named.out)
    assert b"imported once" in read_back.err


def test_both_commands_take_the_engine(exported: Path) -> None:
    folder = exported
    ours, theirs = ["--checkpoint", "model.safetensors", "engine=torch"], ["--checkpoint", "out", "engine=ctranslate2"]
    text = (folder / "text").read_bytes() + b"\n \nj i h\xff"
    translated = [run(["translate", "decode=greedy", *which], folder, stdin=text) for which in (ours, theirs)]
    assert translated[0] == translated[1]
    assert translated[0].out.count(b"\n") == 9
    files = ["--source", "text", "--reference", "text", "--json", "decode=greedy"]
    scores = [json.loads(run(["evaluate", *files, *which], folder).out)["scores"] for which in (ours, theirs)]
    assert scores[0] == scores[1]


@pytest.mark.parametrize("inside", [False, True], ids=["from outside", "from within"])
def test_the_translations_of_an_export_are_not_taken_for_its_run_s(exported: Path, inside: bool) -> None:
    folder = exported / "runs" / "mine"
    folder.mkdir(parents=True)
    (folder / "config.yaml").touch()
    (exported / "out").rename(folder / "model.ct2")
    ours, theirs = (folder / f"hypotheses.text.beam4{more}.xx" for more in ("", "-engine=ctranslate2.model.ct2"))
    ours.write_text("of the run's own model\n")
    before = tree(exported)
    name, place = (".", folder / "model.ct2") if inside else ("runs/mine/model.ct2", exported)
    text = str(exported / "text")
    ran = run(["evaluate", "engine=ctranslate2", "--checkpoint", name, "--source", text, "--reference", text], place)
    assert ran.code == 0, ran.err
    assert theirs.read_bytes().count(b"\n") == 6
    record = theirs.with_name(f".{theirs.name}.input")
    untouched(before, exported, new=[str(file.relative_to(exported)) for file in (theirs, record)])


def test_lines_for_the_comparison_are_made_up_where_there_are_none() -> None:
    lines = verifying.made_up(model_file().tokenizers.source)
    assert len(lines) == verifying.N_LINES
    assert lines == verifying.made_up(model_file().tokenizers.source)
    assert all(line.strip() for line in lines)
