"""`tfm inspect`: what a file says of itself, or one line about what is wrong with it."""

import json
import random
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.addons.interop.test_export import model_file
from tests.addons.interop.test_model_card import PROVENANCE, SCORES
from tests.golden.make import FOLDER
from tests.support.contract import refused, run
from transformer_cli.errors import CheckpointError
from transformer_cli.models.facts import checked_facts, model_facts
from transformer_cli.models.file import write_model
from transformer_cli.models.header import read_header

MODEL = "joint-pre.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m").write_bytes((FOLDER / MODEL).read_bytes())
    return tmp_path


def printed(folder: Path, *arguments: str) -> str:
    ran = run(["inspect", *arguments], folder)
    assert ran.code == 0, ran.err
    assert ran.err == b""
    return ran.out.decode()


def test_a_model_file_is_described_in_columns(folder: Path) -> None:
    text = printed(folder, "m")
    assert text.startswith("m\n")
    rows = dict(line.split("  ", 1) for line in text.split("\n")[1:] if "  " in line)
    assert rows["languages"].strip() == "English (en) → xx"
    assert rows["parameters"].strip().replace(",", "").isdigit()


def test_a_length_penalty_of_its_own_has_a_line(folder: Path) -> None:
    assert "length penalty" not in printed(folder, "m")
    write_model(folder / "own", replace(model_file(), length_penalty=1.4))
    (line,) = [line for line in printed(folder, "own").splitlines() if line.startswith("length penalty")]
    assert line.split("  ")[-1].strip() == "1.4, its own: chosen on the dev set"
    assert "| length penalty | 1.4, its own" in printed(folder, "own", "--card")
    assert json.loads(printed(folder, "own", "--json"))["length_penalty"] == 1.4
    with pytest.raises(CheckpointError, match="damaged or not written by tfm"):
        checked_facts(model_facts(folder / "own") | {"length_penalty": "1.4"}, folder / "own")


def test_json_and_the_card_have_the_same_facts(folder: Path) -> None:
    facts = json.loads(printed(folder, "m", "--json"))
    assert facts["source_lang"] == "en"
    assert f"{facts['parameters']:,}" in printed(folder, "m", "--card")
    assert facts["model_sha256"] in printed(folder, "m", "--card", "--license", "MIT")
    assert "| licence | MIT |" in printed(folder, "m", "--card", "--license", "MIT")


def test_a_run_a_checkpoint_and_the_newest_run_are_found(folder: Path) -> None:
    model = (folder / "m").read_bytes()
    (folder / "runs" / "a" / "checkpoints" / "step-00000007").mkdir(parents=True)
    (folder / "runs" / "a" / "checkpoints" / "step-00000007" / "model.safetensors").write_bytes(model)
    for arguments in (["runs/a"], ["runs/a/checkpoints/step-00000007"]):
        ran = run(["inspect", *arguments], folder)
        assert ran.out.startswith(b"runs/a/checkpoints/step-00000007/model.safetensors\n"), ran.err
    refused(["inspect"], folder, code=4, says=["runs: no run is finished. runs/a is unfinished, step 7"])
    (folder / "runs" / "b").mkdir()
    (folder / "runs" / "b" / "model.safetensors").write_bytes(model)
    ran = run(["inspect"], folder)
    assert ran.out.startswith(b"runs/b/model.safetensors\n")
    assert ran.err == b"using runs/b, finished\n"


@pytest.mark.parametrize("form", ["ctranslate2", "argos"])
def test_an_export_is_described_and_checked(folder: Path, form: str) -> None:
    pytest.importorskip("ctranslate2")
    names = ["--to-name", "Xish"] if form == "argos" else []
    outputs = ["out", "out.argosmodel"] if form == "argos" else ["out"]
    for output in outputs:
        assert (
            run(["export", form, "--checkpoint", "m", "--output", output, "--license", "MIT", *names], folder).code == 0
        )
        text = printed(folder, output)
        assert "exported for" in text
        assert "MIT" in text
        assert json.loads(printed(folder, "m", "--json"))["model_sha256"] in text
    (folder / "out" / "README.md").write_text("other")
    refused(["inspect", "out"], folder, code=4, says=["out/README.md: is not the file that was exported"])
    if form == "argos":
        content = bytearray((folder / "out.argosmodel").read_bytes())
        content[content.index(b"add_source_eos")] ^= 1
        (folder / "out.argosmodel").write_bytes(content)
        refused(["inspect", "out.argosmodel"], folder, code=4, says=["out.argosmodel: ", "`tfm export`"])


def forged(tree: Any, chooser: random.Random) -> Any:
    """`tree` with one value in it replaced by one of another type."""
    if isinstance(tree, dict | list) and tree and chooser.random() < 0.9:
        copy = dict(tree) if isinstance(tree, dict) else list(tree)
        place: Any = chooser.choice(list(copy)) if isinstance(copy, dict) else chooser.randrange(len(copy))
        copy[place] = forged(copy[place], chooser)
        return copy
    return chooser.choice([None, -1, 2.5, "", "x" * 50, [], [[]], {}, {"a": 1}, True, 10**30, "\ud800", "{0}{a}{:>9}"])


def test_forged_facts_are_shown_or_refused_in_one_line(folder: Path) -> None:
    pytest.importorskip("ctranslate2")
    assert run(["export", "ctranslate2", "--checkpoint", "m", "--output", "out"], folder).code == 0
    file = folder / "out" / "export.json"
    facts, codes = json.loads(file.read_bytes()), set()
    row = {"name": "a", "lines": 1, "chrf_plain": 1.5, "chrf_reference": None, "length": 1.0}
    row |= {"loops": 0, "copies": 0, "empty": 0, "lost": None}
    suite = {"test_set": "t", "search": "s", "suite": 1, "seed": 1, "lines": 1, "test_lines": 2, "chrf": "c"}
    facts |= {"provenance": PROVENANCE, "test": SCORES, "labels": ["a"], "averaged": ["b"]}
    facts |= {"robustness": {**suite, "rows": [row]}}
    for seed in range(150):
        file.write_text(json.dumps(forged(facts, random.Random(seed))))
        ran = run(["inspect", "out", *([], ["--card"], ["--json"])[seed % 3]], folder)
        assert ran.code in (0, 4), f"{seed}: {ran.err!r}"
        assert ran.code == 0 or ran.err.count(b"\n") == 1
        codes.add(ran.code)
    assert codes == {0, 4}


def test_a_package_that_could_grow_is_not_read(folder: Path) -> None:
    with zipfile.ZipFile(folder / "bomb", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/model.bin", bytes(1 << 20))
    refused(["inspect", "bomb"], folder, code=4, says=["bomb: damaged", "model.bin is compressed"])


def changed(at: int, content: bytes = b"\0") -> Any:
    def change(file: Path) -> None:
        found = bytearray(file.read_bytes())
        found[at : at + len(content)] = content
        file.write_bytes(found)

    return change


BAD = {
    "nothing": (lambda file: file.unlink(), "no such file"),
    "empty": (lambda file: file.write_bytes(b""), "its metadata|cut short|not a safetensors|damaged"),
    "text": (lambda file: file.write_text("hello, world, this is text"), "cut short or not a safetensors file"),
    "zip": (lambda file: file.write_bytes(b"PK\x03\x04" + b"x" * 2000), "zip archive or pickle"),
    "pickle": (lambda file: file.write_bytes(b"\x80\x02}q\x00." * 40), "zip archive or pickle"),
    "cut": (lambda file: file.write_bytes(file.read_bytes()[:-100]), "damaged: its SHA-256"),
    "one byte": (changed(-50), "damaged: its SHA-256"),
    "header cut": (lambda file: file.write_bytes(file.read_bytes()[:500]), "cut short or not a safetensors file"),
}


@pytest.mark.parametrize(("spoil", "says"), BAD.values(), ids=BAD)
def test_what_is_no_model_is_refused_in_one_line(folder: Path, spoil: Any, says: str) -> None:
    spoil(folder / "m")
    ran = run(["inspect", "m"], folder)
    assert ran.code == 4
    assert ran.err.count(b"\n") == 1
    assert any(it in ran.err.decode() for it in says.split("|")), ran.err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["m", "--json", "--card"], 2, ["--json: and --card are two forms of the same"]),
        (["m", "n"], 2, ["'n': a second checkpoint after 'm'"]),
        (["checkpoint=[a,b]"], 2, ["checkpoint"]),
        (["m", "--scores", "m"], 2, ["--scores m: not what `tfm evaluate --json` prints"]),
        ([], 4, ["runs/latest: no trained model"]),
        (["."], 4, [".: is no run directory, and holds no model.safetensors"]),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused_in_one_line(
    folder: Path, arguments: list[str], code: int, says: list[str]
) -> None:
    refused(["inspect", *arguments], folder, code=code, says=says)


def test_the_hash_in_the_header_is_not_the_hash_of_the_file(folder: Path) -> None:
    """The second is what sha256sum prints, and what export.json names."""
    import hashlib

    header = read_header(folder / "m")
    assert header.sha256 == hashlib.sha256((folder / "m").read_bytes()).hexdigest()
    assert header.sha256 != header.metadata["sha256"]


def test_torch_is_not_imported(folder: Path) -> None:
    write_model(folder / "model.safetensors", model_file())
    code = (
        "import sys; from transformer_cli.cli import main; main(['inspect', 'model.safetensors']);"
        " assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, encoding="utf-8")
    assert ran.returncode == 0, ran.stderr
    assert "parameters" in ran.stdout
