"""A model of Hugging Face transformers says here what it says there."""

import gc
import json
import shutil
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.addons.interop.test_export import BOTH, model_file
from tests.addons.interop.toy_huggingface import CODES, change_json, opus, spm
from tests.toy.translator import sentences
from transformer_cli.addons.interop import huggingface
from transformer_cli.addons.interop.foreign import Imported, ReadOptions
from transformer_cli.addons.interop.importing import format_of, import_model, read
from transformer_cli.config.model import Activation, DecoderStart, Norm, Positions, Tying
from transformer_cli.errors import CheckpointError
from transformer_cli.models.file import ModelFile, read_model

CPU = torch.device("cpu")
KINDS: dict[str, dict[str, Any]] = {
    "as OPUS-MT": {},
    "pickled tensors": {"binary": True},
    "in parts": {"shards": True},
    "16 bits": {"half": True},
    "separate vocabularies": {"separate": True},
    "untied": {"separate": True, "tie_word_embeddings": False, "activation_function": "gelu"},
    "a start that is not zero": {"start_is_zero": False, "scale_embedding": False},
    "deep encoder": {"encoder_layers": 3, "decoder_layers": 1, "activation_function": "relu"},
}


def imported_to(folder: Path, output: Path, **options: Any) -> tuple[Imported, ModelFile]:
    """The folder, imported: the comparison with transformers is part of it."""
    imported = read(folder, "hf", ReadOptions(**options))
    outcome = import_model(imported, output, origin=folder, n_made_up=8)
    assert outcome.comparison is not None
    assert outcome.comparison.holds
    assert outcome.comparison.encoded_identical == outcome.comparison.verdict.lines
    return imported, read_model(output)


def first_fast(kinds: dict[str, dict[str, Any]], *fast: str) -> list[Any]:
    """Each of `kinds` as a parameter; those that are not named are slow tests."""
    return [
        pytest.param(changes, id=name, marks=() if name in fast else pytest.mark.slow)
        for name, changes in kinds.items()
    ]


@pytest.mark.parametrize("changes", first_fast(KINDS, "as OPUS-MT", "separate vocabularies", "16 bits"))
def test_a_marian_folder_gives_the_logits_that_transformers_gives(changes: dict[str, Any], tmp_path: Path) -> None:
    theirs = opus(tmp_path / "opus", **changes)
    _, ours = imported_to(tmp_path / "opus", tmp_path / "m.safetensors")
    source_BS = torch.tensor([[5, 9, 33, 0], [8, 12, 0, theirs.config.pad_token_id]])
    target_BT = torch.tensor([[theirs.config.decoder_start_token_id, 7, 21], [theirs.config.pad_token_id, 30, 6]])
    mask_BS = source_BS != theirs.config.pad_token_id
    with torch.inference_mode():
        found_BTV = ours.build(CPU)(source_BS, target_BT)
        expected_BTV = theirs(input_ids=source_BS, attention_mask=mask_BS, decoder_input_ids=target_BT).logits
    torch.testing.assert_close(found_BTV, expected_BTV, rtol=1e-5, atol=2e-5)


def test_the_config_says_what_the_folder_says(tmp_path: Path) -> None:
    opus(tmp_path / "opus")
    imported, model = imported_to(tmp_path / "opus", tmp_path / "m.safetensors")
    config = model.config
    assert (config.norm, config.positions, config.activation) == (
        *(Norm.post, Positions.sinusoidal_concat),
        Activation.silu,
    )
    assert (config.tie_embeddings, config.decoder_start, config.output_bias) == (
        *(Tying.three_way, DecoderStart.zero),
        True,
    )
    assert (model.source_lang, model.target_lang) == ("eng", "deu")
    assert any("beam of 6" in note for note in imported.notes)
    assert any("256 tokens" in note for note in imported.notes)


@pytest.mark.parametrize("separate", [False, True])
def test_text_is_cut_and_joined_as_by_marian_tokenizer(separate: bool, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    opus(tmp_path / "opus", separate=separate)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "opus")
    ours = read(tmp_path / "opus").tokenizers
    lines = [*sentences(20, seed=9), "  two  blanks ", "ﬁne ½ …", "漢字 xyz", "the\tcat", *(f"{CODES[0]} a cat" * 1,)]
    assert [[*ids, 0] for ids in ours.source.encode(lines)] == theirs(lines).input_ids
    expected = theirs(text_target=lines).input_ids
    assert [[*ids, 0] for ids in ours.target.encode(lines)] == expected
    for ids in expected:
        known = [i for i in ids if i != ours.target.unk_id]
        assert ours.target.decode(known) == theirs.decode(known, skip_special_tokens=True)


def test_the_original_translates_before_its_tokenizer_takes_memory(tmp_path: Path) -> None:
    """A tokenizer of a quarter of a million pieces takes 0.1 GB; and all of it is gone before our model is read."""
    opus(tmp_path / "opus")
    program: Any = read(tmp_path / "opus").program()
    program.translate([[5, 9], [8]], beam_size=2, max_tokens=4)
    assert "tokenizer" not in vars(program)
    assert len(program.encode(["the cat"])) == 1
    assert "tokenizer" in vars(program)
    alive = weakref.ref(program.model)
    gc.disable()
    try:
        del program
        assert alive() is None
    finally:
        gc.enable()


def test_a_language_code_is_one_token_and_never_cut(tmp_path: Path) -> None:
    opus(tmp_path / "opus")
    source = read(tmp_path / "opus").tokenizers.source
    (ids,) = source.encode([f"{CODES[1]} the cat"])
    assert source.pieces(ids)[0] == CODES[1]
    assert CODES[1] not in source.pieces(source.encode([f"the {CODES[1]}"])[0])


@pytest.mark.parametrize("changes", first_fast(BOTH, "paper", "pre learned", "decoder tied"))
def test_what_we_export_is_read_back_with_the_same_logits(changes: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    model = model_file(**changes)
    (tmp_path / "out").mkdir()
    huggingface.write(model, tmp_path / "out")
    imported = read(tmp_path / "out")
    weights = {name: load() for name, load in imported.weights.items()}
    again = ModelFile(imported.config, imported.tokenizers, weights, "en", "en", step=1)
    source_BS, target_BT = torch.tensor([[5, 9, 3], [8, 3, 0]]), torch.tensor([[2, 7, 21], [2, 30, 6]])
    with torch.inference_mode():
        expected_BTV, found_BTV = (one.build(CPU)(source_BS, target_BT) for one in (model, again))
    torch.testing.assert_close(found_BTV, expected_BTV, rtol=1e-5, atol=2e-5)


ROUND = {"positions": Positions.sinusoidal_concat}


@pytest.mark.parametrize(
    "changes",
    [ROUND, ROUND | {"norm": Norm.pre}, ROUND | {"tie_embeddings": Tying.decoder, "output_bias": True}],
    ids=["post", "pre", "decoder tied"],
)
def test_ours_to_huggingface_to_ours_is_bit_equal(changes: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    model = model_file(**changes)
    (tmp_path / "out").mkdir()
    huggingface.write(model, tmp_path / "out")
    weights = read(tmp_path / "out").weights
    assert weights.keys() == model.weights.keys()
    assert all(torch.equal(load(), model.weights[name]) for name, load in weights.items())


def with_config(**changes: Any) -> Callable[[Path], object]:
    return lambda folder: change_json(folder / "config.json", **changes)


REFUSED = {
    "another kind": (with_config(model_type="bart"), "model_type=bart: not one that tfm computes"),
    "a norm of embeddings": (with_config(normalize_embedding=True), "normalize_embedding=True: not supported"),
    "learned positions": (with_config(static_position_embeddings=False), "static_position_embeddings=False"),
    "other heads": (with_config(decoder_attention_heads=2), "encoder_attention_heads=4 and decoder_attention_heads=2"),
    "another width": (with_config(decoder_ffn_dim=64), "encoder_ffn_dim=48 and decoder_ffn_dim=64"),
    "an activation": (with_config(activation_function="tanh"), "activation_function=tanh: not supported"),
    "rounded": (with_config(quantization_config={"bits": 4}), "quantization_config="),
    "a layer more": (with_config(encoder_layers=3), "model.encoder.layers.2.self_attn.q_proj.weight' is missing"),
    "a layer less": (with_config(encoder_layers=1), "'model.encoder.layers.1.fc1.bias' and 15 more, which no model"),
    "a billion layers": (with_config(encoder_layers=10**9), "model.n_encoder_layers=1000000000"),
    "no number": (with_config(d_model="32"), "d_model is '32', which it cannot be"),
    "true for one": (with_config(encoder_layers=True), "encoder_layers is 'True'"),
    "another size": (with_config(vocab_size=90), "'model.shared.weight' is [160, 32]"),
    "a start outside": (with_config(decoder_start_token_id=500), "decoder_start_token_id=500: not in the decoder's"),
    "no end": (with_config(eos_token_id=1), "'</s>' has the id 0, but config.json has 1"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "holds no weights"),
    "no pieces": (lambda folder: (folder / "source.spm").unlink(), "source.spm: no such file"),
    "no vocabulary": (lambda folder: (folder / "vocab.json").unlink(), "vocab.json: no such file"),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "opus"
    opus(folder)
    return folder


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_expressed_is_refused_by_name(name: str, good: Path, tmp_path: Path) -> None:
    change, says = REFUSED[name]
    shutil.copytree(good, tmp_path / "opus")
    size = len(json.loads((good / "vocab.json").read_bytes()))
    change(tmp_path / "opus")
    with pytest.raises(CheckpointError) as caught:
        read(tmp_path / "opus", "hf")
    assert says.replace("[160, ", f"[{size}, ") in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "opus"))


def test_tied_matrices_that_differ_are_refused(tmp_path: Path) -> None:
    opus(tmp_path / "opus", binary=True)
    tensors = torch.load(tmp_path / "opus" / "pytorch_model.bin", weights_only=True)
    tensors["lm_head.weight"] = tensors["lm_head.weight"] + 1
    torch.save(tensors, tmp_path / "opus" / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"'lm_head.weight' and 'model.shared.weight' differ"):
        read(tmp_path / "opus")


@pytest.mark.parametrize("part", ["decoder.layers.1.cross_attention.to_kv.weight", "source_embedding.bias"])
def test_nothing_is_written_where_a_weight_is_another(part: str, good: Path, tmp_path: Path) -> None:
    imported = read(good)
    changed = replace(imported, weights={**imported.weights, part: lambda: imported.weights[part]() * 1.01})
    with pytest.raises(CheckpointError, match="does not say the same in transformers"):
        import_model(changed, tmp_path / "m.safetensors", origin=good, n_made_up=4)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_where_text_is_cut_otherwise(good: Path, tmp_path: Path) -> None:
    shutil.copytree(good, tmp_path / "opus")
    imported = read(tmp_path / "opus")
    (tmp_path / "opus" / "source.spm").write_bytes(spm(5, kind="char"))
    with pytest.raises(CheckpointError, match="of 4 lines have the same ids"):
        import_model(imported, tmp_path / "m.safetensors", origin=good, n_made_up=4)


def test_old_files_with_a_table_of_sinusoids_are_read(good: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    shutil.copytree(good, tmp_path / "opus")
    (tmp_path / "opus" / "model.safetensors").unlink()
    model = transformers.MarianMTModel.from_pretrained(good)
    tensors = model.state_dict()
    assert "model.encoder.embed_positions.weight" in tensors
    for old in (True, False):  # the format of torch before 1.6, and today's
        torch.save(tensors, tmp_path / "opus" / "pytorch_model.bin", _use_new_zipfile_serialization=not old)
        imported = read(tmp_path / "opus")
        assert imported.config.positions is Positions.sinusoidal_concat
        assert torch.equal(imported.weights["source_embedding.weight"](), tensors["model.shared.weight"])


@pytest.mark.parametrize("named", [".", "config.json", "model.safetensors"])
def test_a_folder_is_recognised_by_its_config(named: str, good: Path) -> None:
    assert format_of(good / named) == "hf"
    assert format_of(good / "vocab.json") is None
    assert format_of(good.parent) is None


@pytest.mark.parametrize(
    ("name", "settings", "options", "expected"),
    [
        ("opus-mt-en-fi", {"source_lang": None, "target_lang": None}, {}, ("en", "fi")),
        ("opus-mt-tc-big-en-zle", {"source_lang": None}, {}, ("en", "deu")),
        ("mine", {"source_lang": None, "target_lang": None}, {}, ("und", "und")),
        ("opus-mt-en-fi", {}, {"source_lang": "en"}, ("en", "deu")),
    ],
)
def test_languages_are_those_of_the_user_or_the_files_or_the_name(
    name: str, settings: dict[str, Any], options: dict[str, Any], expected: tuple[str, str], good: Path, tmp_path: Path
) -> None:
    shutil.copytree(good, tmp_path / name)
    change_json(tmp_path / name / "tokenizer_config.json", **settings)
    imported = read(tmp_path / name, "hf", ReadOptions(**options))
    assert (imported.source_lang, imported.target_lang) == expected
