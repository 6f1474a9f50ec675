"""Directories of CTranslate2, read back."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.addons.interop.test_export import BOTH, ONLY_CTRANSLATE2, TAGGED, model_file, tagged_model
from tests.conftest import slow
from tests.toy import run as toy_run
from tests.toy.translator import sentences
from transformer_cli.addons.interop import ctranslate2
from transformer_cli.addons.interop.ctranslate2_reader import TYPES, CTranslate2Reader, Variables
from transformer_cli.addons.interop.foreign import Imported, ReadOptions
from transformer_cli.addons.interop.importing import import_model
from transformer_cli.addons.interop.parts import parts_of
from transformer_cli.addons.interop.verify import verify
from transformer_cli.addons.interop.weights import with_wide_embeddings
from transformer_cli.config.model import Norm, Positions
from transformer_cli.errors import CheckpointError
from transformer_cli.models.file import ModelFile

KINDS = BOTH | ONLY_CTRANSLATE2
OPTIONS = ReadOptions(source_lang="en", target_lang="fr")


def directory(folder: Path, model: ModelFile, quantization: str | None = None) -> Path:
    folder.mkdir()
    ctranslate2.write(model, folder, quantization=quantization)
    return folder


def as_file(found: Imported) -> ModelFile:
    return ModelFile(
        config=found.config,
        tokenizers=found.tokenizers,
        weights={name: read() for name, read in found.weights.items()},
        source_lang=found.source_lang,
        target_lang=found.target_lang,
        step=0,
    )


@pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS.keys())
def test_what_was_written_is_read_back_bit_for_bit(changes: dict[str, Any], tmp_path: Path) -> None:
    model = model_file(**changes)
    found = as_file(CTranslate2Reader().read(directory(tmp_path / "model", model), OPTIONS))
    ours, theirs = parts_of(with_wide_embeddings(model)), parts_of(found)  # CTranslate2 has no narrow ones
    assert set(theirs) - set(ours) <= {name for name in theirs if name.endswith("bias")}
    for name, part in theirs.items():
        assert torch.equal(part, ours[name]) if name in ours else not part.any(), name
    assert found.config.positions in (model.config.positions, Positions.sinusoidal)
    sentence = sentences(3, seed=2)
    assert found.tokenizers.source.encode(sentence) == model.tokenizers.source.encode(sentence)


@pytest.mark.parametrize("quantization", [slow(None), "int8"])
def test_an_export_can_be_a_checkpoint_again(quantization: str | None, tmp_path: Path) -> None:
    found = CTranslate2Reader().read(directory(tmp_path / "model", tagged_model(), quantization), OPTIONS)
    outcome = import_model(found, tmp_path / "m.safetensors", origin=tmp_path / "model")
    assert outcome.comparison is not None
    assert outcome.comparison.holds


def test_tags_are_tags_again(tmp_path: Path) -> None:
    model = tagged_model()
    found = as_file(CTranslate2Reader().read(directory(tmp_path / "model", model), OPTIONS))
    assert found.tokenizers.source.tags == model.tokenizers.source.tags
    assert found.tokenizers.source.encode(TAGGED) == model.tokenizers.source.encode(TAGGED)


@pytest.mark.parametrize("quantization", ["int8", slow("float16"), slow("int16"), "bfloat16"])
def test_rounded_weights_are_those_that_the_library_computes_with(quantization: str, tmp_path: Path) -> None:
    model = model_file(d_model=64, n_heads=4, d_ff=128, gain=1)
    found = CTranslate2Reader().read(directory(tmp_path / "model", model, quantization), OPTIONS)
    theirs, ours = parts_of(as_file(found)), parts_of(model)
    assert theirs.keys() >= ours.keys()
    for name, expected in ours.items():
        part = theirs[name]
        largest = expected.abs().amax(-1, keepdim=True) if expected.dim() == 2 else expected.abs().max()
        assert ((part - expected).abs() <= largest * 2**-7).all(), name
    assert any(quantization in note for note in found.notes)
    verdict = verify(as_file(found), found.program(), sentences(20, seed=3), is_float32=True)
    assert verdict.holds


def test_what_was_read_predicts_what_the_library_predicts(tmp_path: Path) -> None:
    model = model_file(**ONLY_CTRANSLATE2["marian"])
    found = CTranslate2Reader().read(directory(tmp_path / "model", model), OPTIONS)
    verdict = verify(as_file(found), found.program(), sentences(20, seed=3), is_float32=True)
    assert verdict.holds
    assert verdict.greedy_compared > 0


def test_sinusoids_that_a_directory_does_not_hold_are_those_of_the_library(tmp_path: Path) -> None:
    model = model_file(positions=Positions.sinusoidal_tensor2tensor, first_position=1, norm=Norm.pre)
    folder = directory(tmp_path / "model", model)
    without(folder, "position_encodings")
    found = CTranslate2Reader().read(folder, OPTIONS)
    assert (found.config.positions, found.config.first_position) == (Positions.sinusoidal_tensor2tensor, 1)
    assert verify(as_file(found), found.program(), sentences(20, seed=3), is_float32=True).holds


def test_a_vocabulary_without_padding_gets_one_that_changes_no_probability(tmp_path: Path) -> None:
    model = model_file()
    folder = directory(tmp_path / "model", model)
    file = folder / "shared_vocabulary.json"
    file.write_text(file.read_text().replace('"<pad>"', '"<unused>"'))
    found = CTranslate2Reader().read(folder, OPTIONS)
    assert len(found.tokenizers.target) == len(model.tokenizers.target) + 1
    assert verify(as_file(found), found.program(), sentences(20, seed=3), is_float32=True).holds


@pytest.mark.parametrize("joint", [True, False])
def test_vocabularies_may_be_lines_of_text(joint: bool, tmp_path: Path) -> None:
    model = toy_run.model_file(joint=joint)
    folder = directory(tmp_path / "model", model)
    expected = as_file(CTranslate2Reader().read(folder, OPTIONS)).tokenizers
    files = list(folder.glob("*_vocabulary.json"))
    assert len(files) == 1 if joint else len(files) == 2
    for file in files:
        file.with_suffix(".txt").write_text("".join(f"{piece}\n" for piece in json.loads(file.read_text())))
        file.unlink()
    found = as_file(CTranslate2Reader().read(folder, OPTIONS)).tokenizers
    for ours, theirs in ((found.source, expected.source), (found.target, expected.target)):
        assert ours.pieces(range(len(ours))) == theirs.pieces(range(len(theirs)))


def test_sources_end_as_the_directory_says(tmp_path: Path) -> None:
    folder = directory(tmp_path / "model", model_file())
    change(folder, add_source_eos=False)
    without_eos = CTranslate2Reader().read(folder, OPTIONS)
    assert without_eos.tokenizers.source.end_ids == []
    assert verify(as_file(without_eos), without_eos.program(), sentences(20, seed=3), is_float32=True).holds
    change(folder, decoder_start_token="</s>")  # as of Hugging Face, whose tokenizers append it
    with_eos = CTranslate2Reader().read(folder, OPTIONS)
    assert with_eos.tokenizers.source.end_ids == [with_eos.tokenizers.source.eos_id]
    assert with_eos.tokenizers.target.bos_id == with_eos.tokenizers.target.eos_id
    assert verify(as_file(with_eos), with_eos.program(), sentences(20, seed=3), is_float32=True).holds


def change(folder: Path, **settings: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


def without(folder: Path, word: str) -> None:
    """Take the variables with `word` in their names out of model.bin."""
    file = folder / "model.bin"
    variables = Variables.of(file)
    content = file.read_bytes()
    kept = {name: variable for name, variable in variables.variables.items() if word not in name}
    head = content[: content.index(struct.pack("<I", len(variables.variables)), 8)] + struct.pack("<I", len(kept))

    def name_of(text: str) -> bytes:
        return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"

    body = b""
    for name, v in kept.items():
        layout = struct.pack(f"<B{len(v.shape)}IBI", len(v.shape), *v.shape, TYPES.index(v.type), v.n_bytes)
        body += name_of(name) + layout + content[v.start : v.start + v.n_bytes]
    aliases = {name: of for name, of in variables.aliases.items() if word not in name + of}
    tail = struct.pack("<I", len(aliases)) + b"".join(name_of(a) + name_of(b) for a, b in aliases.items())
    file.write_bytes(head + body + tail)


Damage = Callable[[Path], object]
DAMAGES: dict[str, tuple[Damage, str]] = {
    "cut short": (lambda f: (f / "model.bin").write_bytes((f / "model.bin").read_bytes()[:-200]), "damaged"),
    "empty": (lambda f: (f / "model.bin").write_bytes(b""), "damaged"),
    "another version": (lambda f: (f / "model.bin").write_bytes(struct.pack("<I", 5) + bytes(100)), "version 5"),
    "a pickle": (lambda f: (f / "model.bin").write_bytes(b"\x80\x04\x95" + bytes(100)), "version"),
    "no vocabulary": (lambda f: (f / "shared_vocabulary.json").unlink(), "vocabulary"),
    "a short vocabulary": (lambda f: (f / "shared_vocabulary.json").write_text('["<unk>"]'), "1 pieces"),
    "a vocabulary of numbers": (lambda f: (f / "shared_vocabulary.json").write_text("[1, 2]"), "list of pieces"),
    "no SentencePiece model": (lambda f: (f / "source.spm").unlink(), "--segmenter"),
    "a SentencePiece model of zeros": (lambda f: (f / "source.spm").write_bytes(bytes(50)), "source.spm"),
    "a config that is a list": (lambda f: (f / "config.json").write_text("[]"), "object"),
    "a start that is no piece": (lambda f: change(f, decoder_start_token="<go>"), "<go>"),
    "a missing weight": (lambda f: without(f, "decoder/layer_0/ffn/linear_1/weight"), "linear_1"),
    "multilingual": (lambda f: change(f, add_source_eos=False, decoder_start_token=None), "multilingual"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGES.values(), ids=DAMAGES.keys())
def test_what_cannot_be_read_is_named(damage: Damage, message: str, tmp_path: Path) -> None:
    folder = directory(tmp_path / "model", model_file())
    damage(folder)
    with pytest.raises(CheckpointError, match=message):
        CTranslate2Reader().read(folder, OPTIONS)


def test_languages_are_asked_for_where_nothing_says_them(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="--source-lang"):
        CTranslate2Reader().read(directory(tmp_path / "model", model_file()), ReadOptions())


def test_an_unpacked_package_of_argos_translate_is_read(tmp_path: Path) -> None:
    package = tmp_path / "translate-en_fr-1_0"
    package.mkdir()
    folder = directory(package / "model", model_file())
    (folder / "source.spm").rename(package / "sentencepiece.model")
    (folder / "target.spm").unlink()
    (package / "metadata.json").write_text(json.dumps({"from_code": "en", "to_code": "fr"}))
    assert CTranslate2Reader().recognises(package)
    found = CTranslate2Reader().read(package, ReadOptions())
    assert (found.source_lang, found.target_lang) == ("en", "fr")
    assert verify(as_file(found), found.program(), sentences(20, seed=3), is_float32=True).holds
