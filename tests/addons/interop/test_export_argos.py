"""A package that Argos Translate installs and translates with."""

import json
import os
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.addons.interop.test_export import model_file, other_tokenizer
from tests.conftest import ROOT
from tests.golden.make import FOLDER
from tests.support.contract import Ran, refused, run
from tests.support.each import each
from tests.toy.run import sentences as letters
from tests.toy.translator import sentences, toy_tokenizer
from transformer_cli.addons.interop import argos, verify
from transformer_cli.addons.interop.export_file import is_unchanged_archive
from transformer_cli.config.data import TokenizerConfig
from transformer_cli.config.model import Norm, Tying
from transformer_cli.data.packed_tokenizer import PackedTokenizer, Segmenter
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers, train_tokenizer
from transformer_cli.errors import ConfigError
from transformer_cli.models.file import ModelFile

ctranslate2 = pytest.importorskip("ctranslate2")

LINES = sentences(6, seed=7)
EXPORT = [
    *("export", "argos", "--checkpoint", "model.safetensors", "--output", "en_xx.argosmodel"),
    *("--to-name", "Xish", "--license", "CC0-1.0"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.safetensors").write_bytes((FOLDER / "joint-pre.safetensors").read_bytes())
    return tmp_path


def exported(folder: Path, *more: str) -> Ran:
    ran = run([*EXPORT, *more], folder)
    assert ran.code == 0, ran.err
    return ran


def members(package: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(package) as archive:
        return {member.filename: archive.read(member) for member in archive.infolist()}


def test_a_package_is_one_folder_with_what_argos_reads(folder: Path) -> None:
    exported(folder)
    found = members(folder / "en_xx.argosmodel")
    top = "translate-en_xx-1_0"
    assert {name.split("/")[0] for name in found} == {top}
    metadata = json.loads(found[f"{top}/metadata.json"])
    assert metadata == {
        **{"package_version": "1.0", "argos_version": "1.9.0"},
        **{"from_code": "en", "from_name": "English", "to_code": "xx", "to_name": "Xish"},
    }
    assert json.loads(found[f"{top}/model/config.json"])["add_source_eos"] is True
    assert {f"{top}/model/model.bin", f"{top}/sentencepiece.model", f"{top}/README.md"} <= found.keys()
    assert "CC0-1.0" in found[f"{top}/README.md"].decode()
    facts = json.loads(found[f"{top}/export.json"])
    assert sorted(f"{top}/{name}" for name in [*facts["files"], "export.json"]) == sorted(found)
    assert is_unchanged_archive(folder / "en_xx.argosmodel")
    assert sorted(os.listdir(folder)) == ["en_xx.argosmodel", "model.safetensors"]


def test_the_same_export_gives_the_same_bytes(folder: Path) -> None:
    exported(folder)
    first = (folder / "en_xx.argosmodel").read_bytes()
    exported(folder, "--overwrite")
    assert (folder / "en_xx.argosmodel").read_bytes() == first


def test_what_is_no_package_of_ours_is_not_replaced(folder: Path) -> None:
    exported(folder)
    refused(EXPORT, folder, code=2, says=["en_xx.argosmodel: exists already", "--overwrite"])
    with zipfile.ZipFile(folder / "en_xx.argosmodel", "a") as archive:
        archive.writestr("translate-en_xx-1_0/mine", "x")
    says = ["en_xx.argosmodel: is there, and no export of ours wrote it like that", "another --output"]
    refused([*EXPORT, "--overwrite"], folder, code=2, says=says)
    (folder / "en_xx.argosmodel").write_text("mine")
    refused([*EXPORT, "--overwrite"], folder, code=2, says=says)
    (folder / "en_xx.argosmodel").unlink()
    (folder / "en_xx.argosmodel").symlink_to("elsewhere")
    refused([*EXPORT, "--overwrite"], folder, code=2, says=["en_xx.argosmodel: a link"])


def test_a_folder_is_the_package_unpacked(folder: Path) -> None:
    exported(folder)
    ran = run([*EXPORT[:5], "out", *EXPORT[6:]], folder)
    assert ran.code == 0, ran.err
    found = members(folder / "en_xx.argosmodel")
    for name, content in found.items():
        assert (folder / "out" / name.partition("/")[2]).read_bytes() == content
    (folder / "out" / "model" / "mine").touch()
    says = ["out: is there, and holds model/mine, which no export of ours wrote like that"]
    refused([*EXPORT[:5], "out", *EXPORT[6:], "--overwrite"], folder, code=2, says=says)


def test_fewer_bits_are_possible(folder: Path) -> None:
    ran = exported(folder, "--quantization", "int8")
    assert b"(tolerance 0.1, for the mean)" in ran.out


@pytest.mark.parametrize("tying", [Tying.three_way, Tying.none])
def test_text_goes_through_the_one_sentencepiece_model(tmp_path: Path, tying: Tying) -> None:
    """A package has the SentencePiece model of the source, which also joins the pieces of a target with another one."""
    target = other_tokenizer() if tying is Tying.none else None
    model = model_file(target, norm=Norm.pre, tie_embeddings=tying)
    argos.write(model, tmp_path, package_version="1.0")
    verdict = verify.verify(model, argos.Loaded(tmp_path, model), LINES, is_float32=True)
    assert verdict.holds, verdict
    assert verdict.text_compared > 0


def test_an_underscore_is_shown_as_a_space_and_counted() -> None:
    """Argos does both with every translation."""
    shown = argos.Loaded.shown(None, "snake_case is_a ▁ word_")  # type: ignore[arg-type]
    assert shown == "snake case is a   word"


def with_bytes(has_bytes: bool) -> Tokenizer:
    config = TokenizerConfig(vocab_size=90 + 256 * has_bytes, byte_fallback=has_bytes)
    return train_tokenizer([*sentences(200, seed=5), 'a b . ! ? … " » ) 。 ！'], config, seed=1)


def test_pieces_that_the_source_cannot_join_are_named() -> None:
    assert argos.cannot_join(toy_tokenizer(), with_bytes(True)) == "the byte <0x00>"
    assert argos.cannot_join(with_bytes(True), with_bytes(True)) is None
    assert argos.cannot_join(with_bytes(True), toy_tokenizer()) is None
    model = model_file(with_bytes(True), tie_embeddings=Tying.none)
    with pytest.raises(
        ConfigError, match=r"^data.tokenizer.joint=false: .* cannot join the byte <0x00> of the target\. "
    ):
        argos.check(model)


@each(
    "changes, what",
    [
        ({"whole": ["▁the"]}, "tags that are looked up whole"),
        ({"prefix": ["▁the"]}, "a token that every sentence begins with"),
        ({"moses": "en"}, "Moses tokenization"),
        ({"lowercase": True}, "lower case"),
        ({"segmenter": Segmenter.words, "model": b""}, "a segmenter other than SentencePiece"),
    ],
)
def test_what_argos_does_not_do_to_text_is_refused(changes: dict[str, Any], what: str) -> None:
    own = toy_tokenizer()
    ids = {"pad": own.pad_id, "unk": own.unk_id, "bos": own.bos_id, "eos": own.eos_id}
    options = {"segmenter": Segmenter.sentencepiece, "model": own.model_bytes, **ids, **changes}
    tokenizer = Tokenizer(PackedTokenizer(pieces=own.pieces(range(len(own))), **options).to_bytes())
    model = model_file()
    with pytest.raises(ConfigError, match=f"^tokenizer: has {what}, and Argos"):
        argos.check(ModelFile(model.config, Tokenizers(tokenizer, tokenizer), {}, "en", "de", step=1))


@pytest.mark.parametrize("language", ["none", "e n", "../x", "xx"])
def test_languages_are_codes_with_names(language: str, tmp_path: Path) -> None:
    model = model_file()
    model = ModelFile(model.config, model.tokenizers, model.weights, "en", language, step=1)
    with pytest.raises(ConfigError, match=r"^(--to-name: not given, and `\w+`|data\.target_lang=.*: no code)"):
        argos.write(model, tmp_path)


@pytest.mark.slow
def test_argos_installs_the_package_and_translates_as_we_do(folder: Path) -> None:
    """`scripts/judges argos` installs that program. Its beam of 4 ends by another rule, as CTranslate2's does."""
    python = Path(os.environ.get("TFM_JUDGES", ROOT / ".judges")) / "argos" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no {python}: run scripts/judges argos")
    exported(folder)
    lines = letters(20, seed=9)
    home = {"HOME": str(folder), "XDG_DATA_HOME": str(folder / "home"), "ARGOS_PACKAGES_DIR": str(folder / "packages")}
    child = Path(__file__).with_name("argos_child.py")
    ran = subprocess.run(
        [python, child, folder / "en_xx.argosmodel"],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, **home, "PYTHONPATH": ""},
    )
    assert ran.returncode == 0, ran.stderr
    names, card, *theirs = ran.stdout.removesuffix("\n").split("\n")
    assert names == "en\tEnglish\txx\tXish"
    assert int(card) > 500
    (folder / "text").write_text("".join(f"{line}\n" for line in lines))
    ours = run(
        ["translate", "--checkpoint", "model.safetensors", "--input", "text", "decode.length_penalty=0.2"], folder
    )
    wanted = ours.out.decode().removesuffix("\n").split("\n")
    assert len(theirs) == len(wanted) == 20
    assert sum(a == b for a, b in zip(theirs, wanted, strict=True)) >= 18
    # The same search by the same library, from our own tokens: what is left is the package.
    run([*EXPORT[:1], "ctranslate2", *EXPORT[2:5], "out"], folder)
    tokenizer = model_tokenizer(folder)
    found = ctranslate2.Translator(str(folder / "out")).translate_batch(
        [tokenizer.pieces(ids) for ids in tokenizer.encode(lines)],
        **{"beam_size": 4, "num_hypotheses": 4, "length_penalty": 0.2, "replace_unknowns": True},
    )
    ids = {piece: number for number, piece in enumerate(tokenizer.pieces(range(len(tokenizer))))}
    assert theirs == [tokenizer.decode([ids[piece] for piece in it.hypotheses[0]]).replace("_", " ") for it in found]


def model_tokenizer(folder: Path) -> Tokenizer:
    from transformer_cli.models.file import read_model

    return read_model(folder / "model.safetensors").tokenizers.target
