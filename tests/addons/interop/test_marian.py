"""Models of Marian: what is written is what is read, by us, by CTranslate2 and by Marian itself.

Shapes: V vocabulary, D width.
"""

import io
import json
import random
import re
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch
import yaml

from tests.addons.interop.test_export import model_file
from tests.conftest import ROOT
from tests.support.forked import run
from tests.support.hostile_child import FIRED
from tests.toy.translator import sentences, toy_tokenizer
from transformer_cli.addons.interop import marian
from transformer_cli.addons.interop.foreign import ReadOptions
from transformer_cli.addons.interop.marian_names import OPTIONS, Tied, marian_options
from transformer_cli.addons.interop.marian_reader import PAD_BIAS, Marian
from transformer_cli.addons.interop.marian_vocabulary import read_vocabulary, written
from transformer_cli.addons.interop.npz import Npz, write_npz
from transformer_cli.addons.interop.parts import parts_of
from transformer_cli.addons.interop.text import normalising, protobuf_messages
from transformer_cli.addons.interop.verify import log_probs, verify
from transformer_cli.addons.interop.weights import with_wide_embeddings
from transformer_cli.config.data import TokenizerConfig, TokenizerKind
from transformer_cli.config.model import Activation, DecoderStart, ModelConfig, Norm, Positions, Tying
from transformer_cli.data.packed_tokenizer import PackedTokenizer, Segmenter
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers, train_tokenizer
from transformer_cli.errors import CheckpointError, ConfigError, TfmError
from transformer_cli.models.file import ModelFile
from transformer_cli.training.loss import smoothed_nll

CPU = torch.device("cpu")
AS_MARIAN: dict[str, Any] = {
    "positions": Positions.sinusoidal_tensor2tensor,
    "norm_eps": 1e-6,
    "decoder_start": DecoderStart.zero,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "post": {"output_bias": True},
    "no biases": {"bias": False, "activation": Activation.silu},
    "decoder tied": {"tie_embeddings": Tying.decoder, "n_encoder_layers": 3, "n_decoder_layers": 1},
    "untied": {"tie_embeddings": Tying.none, "output_bias": True},
    "source and target tied": {"tie_embeddings": Tying.source_target},
    "narrow": {"d_embedding": 12, "output_bias": True},
}
LANGUAGES = ReadOptions(source_lang="en", target_lang="de")
LINES = sentences(8, seed=5)


def ours(target: Tokenizer | None = None, **changes: Any) -> ModelFile:
    return model_file(target, **AS_MARIAN | changes)


def exported(model: ModelFile, folder: Path) -> Path:
    folder.mkdir()
    marian.write(model, folder)
    return folder


@pytest.fixture(scope="module")
def exported_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(ours(), tmp_path_factory.mktemp("marian") / "out")


@pytest.fixture
def folder(exported_once: Path, tmp_path: Path) -> Path:
    """An export of its own, to be changed."""
    return Path(shutil.copytree(exported_once, tmp_path / "out"))


def imported(path: Path, options: ReadOptions = LANGUAGES) -> ModelFile:
    assert Marian().recognises(path)
    found = Marian().read(path, options)
    weights = {name: read() for name, read in found.weights.items()}
    return ModelFile(found.config, found.tokenizers, weights, found.source_lang, found.target_lang, step=0)


def other_tokenizer() -> Tokenizer:
    return train_tokenizer(sentences(300, seed=9), TokenizerConfig(vocab_size=70), seed=2)


def target_of(changes: dict[str, Any]) -> Tokenizer | None:
    """The target's own tokenizer, where the model can have one."""
    return None if ModelConfig(**changes).tie_embeddings.shares_embedding else other_tokenizer()


def pieces_of(tokenizer: Tokenizer) -> list[str]:
    return tokenizer.pieces(range(len(tokenizer)))


def says_the_same(model: ModelFile, other: ModelFile) -> None:
    """Asserts equal results on the same text, each through its own tokenizers, whose ids differ."""
    found = []
    for one in (model, other):
        source, target = one.tokenizers.source.encode(LINES), one.tokenizers.target.encode(LINES[::-1])
        found.append(log_probs(one.build(CPU), source, target, one.tokenizers))
    torch.testing.assert_close(
        *(torch.tensor([x for row in rows for x in row]) for rows in found), atol=1e-5, rtol=1e-5
    )


# ---- Round trips


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_what_is_read_back_is_what_was_written(changes: dict[str, Any], tmp_path: Path) -> None:
    model = ours(target_of(changes), **changes)
    again = imported(exported(model, tmp_path / "out"))
    wide = with_wide_embeddings(model)
    before, after = parts_of(wide), parts_of(again)
    orders = [
        [pieces_of(old).index(piece) for piece in pieces_of(new)]
        for old, new in (
            (model.tokenizers.source, again.tokenizers.source),
            (model.tokenizers.target, again.tokenizers.target),
        )
    ]
    for name, weight in after.items():
        expected = before.get(name)
        if expected is None:  # a bias that we do not have
            assert name.endswith("bias")
            assert not weight.any()
            continue
        if name in ("source_embedding", "target_embedding", "output", "output_bias"):
            expected = expected[orders[name != "source_embedding"]]
        assert torch.equal(weight, expected), name
    assert again.config.tie_embeddings is wide.config.tie_embeddings
    says_the_same(model, again)


def test_a_second_round_changes_no_byte(tmp_path: Path) -> None:
    first = exported(ours(output_bias=True), tmp_path / "first")
    second = exported(imported(first), tmp_path / "second")
    assert (first / "model.npz").read_bytes() == (second / "model.npz").read_bytes()
    assert (first / "vocab.spm").read_bytes() == (second / "vocab.spm").read_bytes()


def test_equal_models_give_equal_bytes(tmp_path: Path) -> None:
    folders = [exported(ours(), tmp_path / name) for name in "ab"]
    for file in folders[0].iterdir():
        assert file.read_bytes() == (folders[1] / file.name).read_bytes()


def lines_of_all_kinds() -> list[str]:
    return [
        *sentences(60, seed=8),
        "Ä a\u0308  é\te\u0301",
        "</s> <pad> <s> the cat",
        ">>de<< the",
        "the \u2581 cat",
        "",
    ]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("byte_fallback", [False, True])
def test_pieces_in_another_order_cut_text_as_before(kind: str, byte_fallback: bool, tmp_path: Path) -> None:
    config = TokenizerConfig(vocab_size=400, kind=TokenizerKind[kind], byte_fallback=byte_fallback)
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()
    tokenizer = train_tokenizer([*text, "Wo ist “Da”, z. B. 3½ m² —"], config, seed=3)
    found = written(tokenizer, name="vocab", segmenter="source", hides_pad=False)
    processor: Any = sentencepiece.SentencePieceProcessor(model_proto=found.files["vocab.spm"])
    assert (processor.eos_id(), processor.unk_id()) == (0, 1)  # where Marian has them
    for line in [*text, *lines_of_all_kinds()]:
        assert [found.order[i] for i in processor.encode(line)] == tokenizer.encode([line])[0], line


# ---- Other programs


def test_ctranslate2_gives_what_is_written_our_probabilities(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    model = ours(other_tokenizer(), tie_embeddings=Tying.decoder, n_decoder_layers=1)
    folder = exported(model, tmp_path / "out")
    for one, program in ((model, marian.Loaded(folder, model)), (imported(folder), program_of(folder))):
        source, target = one.tokenizers.source.encode(LINES), one.tokenizers.target.encode(LINES[::-1])
        expected = log_probs(one.build(CPU), source, target, one.tokenizers)
        for ours_T, theirs_T in zip(expected, program.log_probs(source, target), strict=True):
            assert ours_T == pytest.approx(theirs_T, abs=2e-5)
    assert sorted(path.name for path in folder.iterdir()) == [
        "decoder.yml", "model.npz", "source.vocab.spm", "target.vocab.spm",
    ]  # fmt: skip


def program_of(folder: Path) -> Any:
    return Marian().read(folder, LANGUAGES).program()


@pytest.mark.slow
@pytest.mark.parametrize("listed", [False, True], ids=["SentencePiece", "listed"])
@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_ctranslate2_translates_what_is_written_as_we_do(changes: dict[str, Any], listed: bool, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    if listed and target_of(changes) is not None:
        pytest.skip("one kind of ids is enough")
    model = ours(target_of(changes), **changes)
    model = in_pieces(model) if listed else model
    folder = exported(model, tmp_path / "out")
    for one, program in ((model, marian.Loaded(folder, model)), (imported(folder), program_of(folder))):
        verdict = verify(one, program, LINES, is_float32=True)
        assert verdict.holds, verdict.lines_of_text()
    program, tokenizers = marian.Loaded(folder, model), model.tokenizers
    found = program.translate(tokenizers.source.encode(LINES), beam_size=1, max_tokens=60)
    assert program.translate_text(LINES, max_tokens=60) == [tokenizers.target.decode(ids) for ids in found]


def test_an_archive_of_other_weights_is_noticed(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    folder, model = exported(ours(seed=2), tmp_path / "out"), ours()
    assert not verify(model, marian.Loaded(folder, model), LINES, is_float32=True).holds


def converted_by_name(folder: Path, out: Path, vocabulary: str) -> Any:
    """CTranslate2's own converter, with Marian's positions and norms in the place of its own."""
    from ctranslate2.converters import MarianConverter

    converter = MarianConverter(str(folder / "model.npz"), [str(folder / vocabulary)] * 2)
    converter.convert(str(out))
    return out


def test_the_converter_of_ctranslate2_accepts_our_options_and_vocabulary(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    folder = exported(in_pieces(ours(output_bias=True)), tmp_path / "out")
    out = converted_by_name(folder, tmp_path / "ct2", "vocab.yml")
    written = json.loads((out / "shared_vocabulary.json").read_text(encoding="utf-8"))
    assert written == imported(folder).tokenizers.source.pieces(range(len(written)))


def in_pieces(original: ModelFile, **options: Any) -> ModelFile:
    """The model with its ids in another order, over a segmenter that has its own: as OPUS-MT has them."""
    tokenizer = original.tokenizers.source
    order = random.Random(1).sample(range(len(tokenizer)), len(tokenizer))
    special = {kind: order.index(getattr(tokenizer, f"{kind}_id")) for kind in ("pad", "unk", "bos", "eos")}
    defaults: dict[str, Any] = {"segmenter": Segmenter.sentencepiece, "model": normalising(tokenizer)}
    packed = PackedTokenizer(pieces=tokenizer.pieces(order), **special, **defaults | options)
    again = Tokenizer(packed.to_bytes())
    of_ids = ("source_embedding.weight", "source_embedding.bias", "own_output.weight", "own_output.bias")
    weights = {name: x[order] if name in of_ids else x for name, x in original.weights.items()}
    return ModelFile(original.config, Tokenizers(again, again), weights, "en", "de", step=1)


# ---- Reading


def test_a_padding_that_marian_does_not_have_takes_no_probability(tmp_path: Path) -> None:
    folder = exported(ours(output_bias=True), tmp_path / "out")
    model = sentencepiece_of(folder)
    (folder / "vocab.spm").write_bytes(model)
    read = imported(folder)
    n = len(read.tokenizers.target)
    assert read.tokenizers.target.pad_id == read.tokenizers.target.bos_id == n - 1
    with torch.inference_mode():
        source = torch.tensor([read.tokenizers.source.encode(LINES[:1])[0] + [read.tokenizers.source.eos_id]])
        logits = read.build(CPU)(source, torch.tensor([[n - 1, 5, 6]]))
    assert logits[..., n - 1].eq(PAD_BIAS).all()
    assert torch.equal(logits.softmax(-1)[..., : n - 1], logits[..., : n - 1].softmax(-1))
    loss, _ = smoothed_nll(logits[0].half().float().requires_grad_(), torch.tensor([5, 6, 7]), smoothing=0.1)
    assert loss.isfinite()


def sentencepiece_of(folder: Path) -> bytes:
    """The vocabulary of an export without padding and BOS, as Marian's own have none: these are plain pieces then."""
    model = protobuf_messages().ModelProto.FromString((folder / "vocab.spm").read_bytes())
    for piece in model.pieces[2:4]:
        piece.piece, piece.type = f"{piece.piece}x", 1
    model.trainer_spec.pad_id = model.trainer_spec.bos_id = -1
    written: bytes = model.SerializeToString()
    return written


def test_a_vocabulary_of_yaml_is_read_as_yaml_says_it(tmp_path: Path) -> None:
    odd = [
        *"!\"#%&'*,-:=>?@[]`|{}~",
        "\\",
        "\\x41",
        "a:b",
        'a"b',
        "a'b",
        "a:",
        "#a",
        "null",
        "yes",
        "1.0",
        "0x1F",
        "日本",
    ]
    odd += ["tab\tin", "bell\x07", "nel\x85", "ls\u2028", "\U0001f600", "é", "▁the", ">>fra<<", "- a", "? b", " "]
    tokens = ["</s>", "<unk>", *odd]
    file = tmp_path / "vocab.yml"
    for style in ('"', "'"):
        text = yaml.safe_dump(
            {token: i for i, token in enumerate(tokens)}, default_style=style, allow_unicode=True, width=10_000
        )
        file.write_text(re.sub(r": !!int [\"'](\d+)[\"']$", r": \1", text, flags=re.MULTILINE), encoding="utf-8")
        if style == "'" and "? " in text:
            continue
        read = read_vocabulary(file, len(tokens), None)
        assert read.tokenizer.pieces(range(len(tokens))) == tokens
        assert read.tokenizer.packed is not None
        assert list(read.tokenizer.packed.whole) == [">>fra<<"]


def test_ids_without_a_token_have_names_that_no_text_has(tmp_path: Path) -> None:
    file = tmp_path / "vocab.yml"
    file.write_text('eos: 0\nUNK: 1\n"a": 2\nb: 5\nc: 9\n', encoding="utf-8")
    read = read_vocabulary(file, 8, None)
    assert read.tokenizer.pieces(range(9)) == ["</s>", "<unk>", "a", *(f"<unused {i}>" for i in (3, 4)), "b",
                                               *(f"<unused {i}>" for i in (6, 7)), "<pad>"]  # fmt: skip
    assert read.tokenizer.encode(["a b c d"]) == [[2, 5, 1, 1]]  # c is beyond the embedding


def opus(tmp_path: Path) -> Path:
    """A folder as those of OPUS-MT: a list of tokens whose ids are not those of the two SentencePiece models."""
    folder = tmp_path / "en-de"
    model = in_pieces(ours(output_bias=True))
    exported(model, folder)
    (folder / "model.npz").rename(folder / "opus.bpe.npz")
    (folder / "vocab.yml").rename(folder / "opus.vocab.yml")
    shutil.copy(folder / "source.spm", folder / "target.spm")
    settings = {"models": ["/home/x/opus.bpe.npz"], "vocabs": ["/home/x/opus.vocab.yml"] * 2, "beam-size": 6}
    (folder / "decoder.yml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    return folder


def test_a_folder_of_opus_mt_says_its_files_and_languages_by_their_names(tmp_path: Path) -> None:
    folder = opus(tmp_path)
    found = Marian().read(folder, ReadOptions())
    assert (found.source_lang, found.target_lang) == ("en", "de")
    assert [file.name for file in found.files] == ["opus.bpe.npz", "opus.vocab.yml", "source.spm", "target.spm"]
    assert any("beam-size 6" in note for note in found.notes)
    line = LINES[0]
    assert found.tokenizers.source.pieces(found.tokenizers.source.encode([line])[0]) == toy_tokenizer().pieces(
        toy_tokenizer().encode([line])[0]
    )
    for path in (folder / "opus.bpe.npz", folder / "decoder.yml"):
        assert Marian().read(path, ReadOptions()).config == found.config


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_sinusoids_and_norms_are_those_of_marians_formula(norm: str, tmp_path: Path) -> None:
    """The first layer by hand, in NumPy, from the items of the archive alone."""
    archive = npz_of(ours(output_bias=True, norm=Norm[norm]), tmp_path)
    model = imported(archive.parent)
    items = {name: np.load(archive)[name].astype(np.float64) for name in np.load(archive) if name != OPTIONS}
    ids = [7, 12, 0]
    d = items["Wemb"].shape[1]
    frequencies = 1e-4 ** (np.arange(d // 2) / (d / 2 - 1))
    angles = np.arange(len(ids))[:, None] * frequencies
    x = items["Wemb"][ids] * np.sqrt(d) + np.concatenate([np.sin(angles), np.cos(angles)], 1)

    def normed(x: Any, name: str) -> Any:
        suffix = "_pre" if norm == "pre" else ""
        scale, bias = items[f"{name}_ln_scale{suffix}"], items[f"{name}_ln_bias{suffix}"]
        return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-6) * scale + bias

    for i in (1, 2):
        name = f"encoder_l{i}_self"
        y = normed(x, f"{name}_Wo") if norm == "pre" else x
        q, k, v = (y @ items[f"{name}_W{m}"] + items[f"{name}_b{m}"] for m in "qkv")
        heads = []
        for h in range(4):
            part = slice(h * d // 4, (h + 1) * d // 4)
            weights = np.exp(q[:, part] @ k[:, part].T / np.sqrt(d / 4))
            heads.append(weights / weights.sum(1, keepdims=True) @ v[:, part])
        x = x + np.concatenate(heads, 1) @ items[f"{name}_Wo"] + items[f"{name}_bo"]
        x = x if norm == "pre" else normed(x, f"{name}_Wo")
        name = f"encoder_l{i}_ffn"
        y = normed(x, f"{name}_ffn") if norm == "pre" else x
        hidden = np.maximum(y @ items[f"{name}_W1"] + items[f"{name}_b1"], 0)
        x = x + hidden @ items[f"{name}_W2"] + items[f"{name}_b2"]
        x = x if norm == "pre" else normed(x, f"{name}_ffn")
    if norm == "pre":
        scale, bias = items["encoder_top_ln_scale"], items["encoder_top_ln_bias"]
        x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-6) * scale + bias
    transformer = model.build(CPU)
    source = torch.tensor([ids])
    with torch.inference_mode():
        memory = transformer.encode(source, transformer.source_layout(source))
    np.testing.assert_allclose(memory[0].numpy(), x, atol=2e-5)


def npz_of(model: ModelFile, tmp_path: Path) -> Path:
    """The .npz of a model, also of one that Marian's own search would treat otherwise."""
    folder = tmp_path / "en-de"
    folder.mkdir()
    vocabularies = marian.vocabularies_of(model)
    (folder / "vocab.spm").write_bytes(vocabularies[0].files["vocab.spm"])
    write_npz(folder / "model.npz", marian.items(model, vocabularies))
    return folder / "model.npz"


def test_half_precision_and_the_older_output_matrix_are_read(tmp_path: Path) -> None:
    folder = exported(ours(tie_embeddings=Tying.none, output_bias=True), tmp_path / "out")
    before = imported(folder)
    with np.load(folder / "model.npz") as archive:
        items = {name: archive[name] for name in archive}
    items["decoder_ff_logit_out_W"] = items.pop("decoder_ff_logit_out_Wt").T.copy()
    rewrite(folder, items)
    assert torch.equal(imported(folder).weights["own_output.weight"], before.weights["own_output.weight"])
    rewrite(folder, {k: v.astype(np.float16) if v.dtype == np.float32 else v for k, v in items.items()})
    half = imported(folder).weights["own_output.weight"]
    assert half.dtype is torch.float32
    torch.testing.assert_close(half, before.weights["own_output.weight"], atol=2e-3, rtol=1e-3)


def test_learned_positions_are_shared_and_not_scaled(folder: Path) -> None:
    table = np.random.default_rng(1).normal(size=(40, 32)).astype(np.float32)
    change(folder, {"Wpos": table}, {"transformer-train-position-embeddings": True})
    model = imported(folder)
    assert model.config.positions is Positions.learned
    assert not model.config.scale_embeddings
    assert model.config.max_positions == 40
    for side in ("encoder", "decoder"):
        assert np.array_equal(model.weights[f"{side}.positions.weight"].numpy(), table)


def rewrite(folder: Path, items: dict[str, Any], options: dict[str, Any] | None = None) -> None:
    if options is not None:
        text = yaml.safe_dump(options).encode()
        items = items | {OPTIONS: np.frombuffer(text + b"\0" * (256 - len(text) % 256), np.int8)}  # as Marian pads it
    with (folder / "model.npz").open("wb") as file:
        np.savez(file, **items)


def change(folder: Path, items: dict[str, Any], options: dict[str, Any]) -> None:
    """Change items (None: leave them out) and options of an exported model."""
    with np.load(folder / "model.npz") as archive:
        old = {name: archive[name] for name in archive}
    theirs = yaml.safe_load(old[OPTIONS].tobytes().rstrip(b"\0"))
    kept = {name: value for name, value in (old | items).items() if value is not None}
    rewrite(folder, kept, {name: value for name, value in (theirs | options).items() if value is not None})


# ---- What cannot be expressed


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "AAN": ({"transformer-decoder-autoreg": "average-attention"}, "AAN"),
    "SSRU": ({"transformer-decoder-autoreg": "rnn", "dec-cell": "ssru"}, "SSRU"),
    "another type": ({"type": "s2s"}, "another kind of model"),
    "factors": ({"lemma-dim-emb": 8}, "factored"),
    "tied layers": ({"transformer-tied-layers": [1, 1]}, "share weights"),
    "no projection": ({"transformer-no-projection": True}, "output projection"),
    "depth": ({"transformer-ffn-depth": 3}, "another depth"),
    "decoder depth": ({"transformer-decoder-ffn-depth": 1}, "transformer-decoder-ffn-depth=1"),
    "decoder width": ({"transformer-decoder-dim-ffn": 48}, "transformer-decoder-dim-ffn=48"),
    "gelu": ({"transformer-ffn-activation": "gelu"}, "another formula"),
    "highway": ({"transformer-postprocess": "dhn"}, "neither post-LN"),
    "rms": ({"transformer-postprocess": "dar"}, "neither post-LN"),
    "pre without a last norm": ({"transformer-preprocess": "n", "transformer-postprocess": "da"}, "neither post-LN"),
    "normed embeddings": ({"transformer-postprocess-emb": "nd"}, "embeddings are normalised"),
    "alibi": ({"transformer-attention-mask": "alibi"}, "attention mask"),
    "no positions": ({"transformer-disable-position-embeddings": True}, "no positions"),
    "right to left": ({"right-left": True}, "right to left"),
    "ulr": ({"ulr": True}, "universal"),
    "classes": ({"input-types": ["sequence", "class"]}, "other than text"),
    "two sources": ({"dim-vocabs": [90, 90, 90]}, "not the sizes"),
    "unlike sizes": ({"dim-vocabs": [90, 80]}, "two sizes"),
    "an option of the future": ({"transformer-brain": "large"}, "does not know"),
    "no heads": ({"transformer-heads": None}, "do not say transformer-heads"),
    "no whole number": ({"enc-depth": "two"}, "not a whole number"),
    "heads that do not divide": ({"transformer-heads": 5}, "make no model"),
    "layers without end": ({"enc-depth": 10**9}, "make no model"),
    "more layers than items": ({"enc-depth": 3}, "has no 'encoder_l3"),
    "fewer layers than items": ({"enc-depth": 1}, "which no model of its options has"),
    "another width": ({"transformer-dim-ffn": 65}, "ask for [32, 65]"),
    "another tying": ({"tied-embeddings-all": False, "tied-embeddings": True}, "has no 'encoder_Wemb'"),
}


@pytest.mark.parametrize(("options", "says"), REFUSED.values(), ids=REFUSED)
def test_a_variant_that_is_not_ours_is_refused_by_name(options: dict[str, Any], says: str, folder: Path) -> None:
    change(folder, {}, options)
    with pytest.raises(CheckpointError, match=re.escape(says)) as raised:
        imported(folder)
    assert "\n" not in str(raised.value)


ITEMS: dict[str, tuple[dict[str, Any], str]] = {
    "one more": ({"encoder_l1_self_Wz": np.zeros(3, np.float32)}, "which no model of its options has"),
    "quantized": ({"Wemb_QuantMultA": np.zeros(1, np.float32)}, "quantized"),
    "one less": ({"decoder_l2_context_bo": None}, "has no 'decoder_l2_context_bo'"),
    "another shape": ({"Wemb": np.zeros((90, 31), np.float32)}, "'Wemb' is [90, 31]"),
    "another type": ({"decoder_l2_context_bo": np.zeros((1, 32), np.complex64)}, "holds <c8"),
    "texts": ({"decoder_l2_context_bo": np.array(["a"])}, "holds <U1"),
    "whole numbers": ({"decoder_l2_context_bo": np.zeros((1, 32), np.int64)}, "holds <i8"),
    "by columns": ({"encoder_l1_self_Wq": np.asfortranarray(np.ones((32, 32), np.float32))}, "column by column"),
}


@pytest.mark.parametrize(("items", "says"), ITEMS.values(), ids=ITEMS)
def test_each_item_is_used_or_refused(items: dict[str, Any], says: str, folder: Path) -> None:
    change(folder, items, {})
    with pytest.raises(CheckpointError, match=re.escape(says)):
        imported(folder)


CANNOT: dict[str, dict[str, Any]] = {
    "positions": {"positions": Positions.sinusoidal},
    "norm_eps": {"norm_eps": None},
    "decoder_start": {"decoder_start": DecoderStart.bos},
    "norm": {"norm": Norm.pre},
    "norm_kind": {"norm_kind": "rms"},
    "activation": {"activation": Activation.gelu},
    "first_position": {"first_position": 2},
    "scale_embeddings": {"scale_embeddings": False},
    "d_k": {"d_k": 12},
}


@pytest.mark.parametrize("key", CANNOT)
def test_what_marian_cannot_express_is_refused_by_name(key: str, tmp_path: Path) -> None:
    model = ours(**CANNOT[key])
    with pytest.raises(ConfigError, match=f"model.{key}=") as raised:
        marian.write(model, tmp_path)
    assert not list(tmp_path.iterdir())
    assert re.search("Train with|tfm export", str(raised.value))


# ---- Hostile files


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("canary"),)


def array(value: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, value, **options)
    return file.getvalue()


def zipped(members: dict[str, bytes], kind: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", kind) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def header(shape: str, descr: str = "<f4") -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}".ljust(117).encode() + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text


def options_file(text: bytes) -> dict[str, bytes]:
    return {f"{OPTIONS}.npy": array(np.frombuffer(text + b"\0", np.int8))}


def shrunk(content: bytes, name: bytes, size: int) -> bytes:
    """An archive whose table says that a member is `size` bytes long."""
    at = content.rindex(name) - 46
    return content[: at + 24] + struct.pack("<I", size) + content[at + 28 :]


GOOD_OPTIONS = b"type: transformer\n"
LAUGHS = b"a0: &a0 [x, x]\n" + b"".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n".encode() for i in range(1, 60))


def hostile() -> dict[str, bytes]:
    return {
        "a pickle": zipped(
            options_file(GOOD_OPTIONS) | {"x.npy": array(np.array([Bomb()], object), allow_pickle=True)}
        ),
        "options that are a pickle": zipped({f"{OPTIONS}.npy": array(np.array([Bomb()], object), allow_pickle=True)}),
        "a tag that runs": zipped(options_file(b"type: !!python/object/apply:pathlib.Path.touch [canary]\n")),
        "a billion laughs": zipped(options_file(LAUGHS)),
        "a deep list": zipped(options_file(b"a: " + b"[" * 2000)),
        "options that are a number": zipped(options_file(b"12")),
        "options that are no text": zipped(options_file(b"a: \xff\xfe")),
        "options with a key twice": zipped(options_file(b"type: a\ntype: b\n")),
        "long options": zipped(options_file(b"a: 1\n" * 400_000)),
        "a huge shape": zipped(options_file(GOOD_OPTIONS) | {"Wemb.npy": header("(1000000000, 1000000000)")}),
        "a shape below zero": zipped(options_file(GOOD_OPTIONS) | {"Wemb.npy": header("(-4, 4)") + b"\0" * 64}),
        "a shape that is code": zipped(options_file(GOOD_OPTIONS) | {"Wemb.npy": header("__import__('os').getcwd()")}),
        "a long header": zipped(options_file(GOOD_OPTIONS) | {"Wemb.npy": header("(" + "0," * 30_000 + ")")}),
        "a type that is code": zipped(options_file(GOOD_OPTIONS) | {"Wemb.npy": header("(1,)", "O") + b"\0" * 8}),
        "zeros without end": zipped(
            options_file(GOOD_OPTIONS) | {"Wemb.npy": header("(12000000,)") + b"\0" * 48_000_000}, zipfile.ZIP_DEFLATED
        ),
        "more zeros than it says": shrunk(
            zipped(
                options_file(GOOD_OPTIONS) | {"Wemb.npy": header("(500,)") + b"\0" * 9_000_000}, zipfile.ZIP_DEFLATED
            ),
            b"Wemb.npy",
            128 + 2000,
        ),
        "names of other folders": zipped(
            options_file(GOOD_OPTIONS) | {"../../canary": b"x", "/canary.npy": header("()")}
        ),
        "one name twice": zipped(options_file(GOOD_OPTIONS) | {"a.npy": array(np.zeros(2)), "a": array(np.zeros(2))}),
        "no arrays": zipped(options_file(GOOD_OPTIONS) | {"a.npy": b"hello"}),
        "no options": zipped({"a.npy": array(np.zeros(2))}),
        "cut short": zipped(options_file(GOOD_OPTIONS))[:-30],
        "nothing": b"",
        "a flipped bit": zipped(options_file(GOOD_OPTIONS)).replace(b"type: transformer", b"type: transformes"),
    }


def test_hostile_archives_are_refused_in_one_line_and_nothing_is_run(tmp_path: Path) -> None:
    good = exported(ours(), tmp_path / "good")
    contents = hostile()
    for i, content in enumerate(contents.values()):
        (tmp_path / f"{i}.npz").write_bytes(content)
    program = """
import json, resource, sys
from pathlib import Path
from tests.support.hostile_child import arm
from transformer_cli.errors import TfmError
from transformer_cli.addons.interop.foreign import ReadOptions
from transformer_cli.addons.interop.marian_reader import Marian
options = ReadOptions(source_lang="en", target_lang="de", vocabularies=[Path("good/vocab.spm")])
def read(path):
    found = Marian().read(path, options)
    for weight in found.weights.values():
        weight()
read(Path("good"))
arm()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sorted(Path().glob("*.npz"), key=lambda path: int(path.stem)):
    Marian().recognises(path)
    try:
        read(path)
        said = [0, ""]
    except TfmError as error:
        said = [error.exit_code, str(error)]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps([*said, grown]))
"""
    ran = run([], tmp_path, program=program)
    assert ran.code != FIRED, ran.err
    assert ran.code == 0, ran.err.decode()[-2000:]
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert len(lines) == len(contents)
    for name, (code, message, grown) in zip(contents, lines, strict=True):
        assert code == 4, (name, message)
        assert "\n" not in message, name
        assert ".npz" in message, name
        assert len(message) < 500, name
        assert grown < 100_000, name  # kB
    assert not list(tmp_path.rglob("canary*"))
    assert good.is_dir()


VOCABULARIES = {
    "a word": ("hello\n", "not `token: id`"),
    "an id that is none": ("</s>: 0\n<unk>: one\n", "is no id"),
    "an id below zero": ("</s>: 0\n<unk>: -1\n", "is no id"),
    "a huge id": ("</s>: 0\n<unk>: 1\na: 999999999\n", "is no id"),
    "a digit of another script": ("</s>: 0\n<unk>: ١\n", "is no id"),
    "a token twice": ("</s>: 0\n<unk>: 1\na: 2\n'a': 3\n", "stands twice"),
    "an id twice": ("</s>: 0\n<unk>: 1\na: 2\nb: 2\n", "one id to two"),
    "an escape that is none": ('</s>: 0\n<unk>: 1\n"\\q": 2\n', "escape"),
    "no end": ("a: 0\n<unk>: 1\n", "has no </s>"),
    "surrogates": ('</s>: 0\n<unk>: 1\n"\\ud800": 2\n', "cannot be used"),
    "no text": ("\udcff", "not UTF-8"),
}


@pytest.mark.parametrize(("text", "says"), VOCABULARIES.values(), ids=VOCABULARIES)
def test_a_damaged_vocabulary_is_refused_with_its_place(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "vocab.yml"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(CheckpointError, match=re.escape(says)) as raised:
        read_vocabulary(file, 4, None)
    assert str(file) in str(raised.value)
    assert "\n" not in str(raised.value)


def without(name: str) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).unlink()


def settings(**changes: Any) -> Callable[[Path], Any]:
    return lambda folder: (folder / "decoder.yml").write_text(yaml.safe_dump(changes), encoding="utf-8")


def beside(name: str) -> Callable[[Path], Any]:
    return lambda folder: shutil.copy(folder / "model.npz", folder / name)


FILES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no vocabulary": (without("vocab.spm"), "vocab.spm: named in decoder.yml, but not there"),
    "a vocabulary of another folder": (settings(vocabs=["../../x.spm", "/etc/passwd"]), "named in decoder.yml, but"),
    "two models": (lambda folder: (settings()(folder), beside("b.npz")(folder)), "several models"),
    "three vocabularies": (settings(vocabs=["vocab.spm"] * 3), "3 vocabularies"),
    "settings that are a list": (lambda folder: (folder / "decoder.yml").write_text("- a\n"), "no list of settings"),
    "an empty vocabulary": (lambda folder: (folder / "vocab.spm").write_bytes(b""), "no SentencePiece model"),
    "a vocabulary that is text": (lambda folder: (folder / "vocab.spm").write_text("a: 0"), "no SentencePiece model"),
}


@pytest.mark.parametrize(("spoil", "says"), FILES.values(), ids=FILES)
def test_files_that_are_not_clear_are_asked_for(spoil: Callable[[Path], Any], says: str, folder: Path) -> None:
    spoil(folder)
    with pytest.raises(CheckpointError, match=re.escape(says)):
        Marian().read(folder, LANGUAGES)


def test_languages_that_nothing_says_are_undetermined(folder: Path) -> None:
    found = Marian().read(folder, ReadOptions(target_lang="de"))
    assert (found.source_lang, found.target_lang) == ("und", "de")
    with pytest.raises(CheckpointError, match="source_lang"):
        Marian().read(folder, ReadOptions(source_lang="../x"))


@pytest.mark.parametrize("moses", ["en", None])
def test_bpe_codes_come_back_with_what_they_cut(moses: str | None, tmp_path: Path) -> None:
    codes = b"#version: 0.2\nt h\nth e</w>\nc a\nca t</w>\n"
    model = in_pieces(ours(), segmenter=Segmenter.subword_nmt, model=codes, moses=moses)
    folder = exported(model, tmp_path / "en-en")
    before, after = model.tokenizers.source, imported(folder, ReadOptions()).tokenizers.source
    for line in ["the cat", "the cat, it's", "cats"]:
        ids = before.encode([line])[0], after.encode([line])[0]
        assert before.pieces(ids[0]) == after.pieces(ids[1])
    assert after.packed is not None
    assert after.packed.moses == moses


@pytest.mark.parametrize(
    ("options", "says"),
    [({"prefix": ["the"]}, "begins with"), ({"adds_eos": False}, "end without"), ({"lowercase": True}, "changes text")],
)
def test_a_tokenizer_that_marians_files_cannot_express_is_refused(
    options: dict[str, Any], says: str, tmp_path: Path
) -> None:
    model = ours()
    piece = pieces_of(model.tokenizers.source)[20]
    given = {name: [piece] if name == "prefix" else value for name, value in options.items()}
    with pytest.raises(ConfigError, match=says):
        marian.write(in_pieces(model, **given), tmp_path)


def test_the_vocabulary_of_another_model_is_refused(tmp_path: Path, folder: Path) -> None:
    other = exported(ours(other_tokenizer(), tie_embeddings=Tying.none), tmp_path / "other")
    given = ReadOptions(source_lang="en", target_lang="de", vocabularies=[other / "target.vocab.spm"])
    with pytest.raises(CheckpointError, match="has 70 pieces, but the model's embedding 90 rows"):
        Marian().read(folder, given)


def test_only_models_of_marian_are_recognised(tmp_path: Path, folder: Path) -> None:
    assert Marian().recognises(folder)
    assert Marian().recognises(folder / "model.npz")
    assert Marian().recognises(folder / "decoder.yml")
    for name, content in {"a.npz": zipped({"x.npy": array(np.zeros(2))}), "b.npz": b"", "c.bin": b"abc"}.items():
        (tmp_path / name).write_bytes(content)
        assert not Marian().recognises(tmp_path / name)
    assert not Marian().recognises(tmp_path)
    binary = tmp_path / "model.intgemm.alphas.bin"
    binary.write_bytes((1).to_bytes(8, "little") + bytes(100))
    assert Marian().recognises(binary)
    with pytest.raises(CheckpointError, match=r"Name the \.npz"):
        Marian().read(binary, LANGUAGES)


def test_an_archive_is_read_by_numpy_and_ours_by_us(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b:c": np.array([1, 0], np.int8), "d": np.float32(3)}
    write_npz(tmp_path / "x.npz", ((name, np.asarray(value)) for name, value in arrays.items()))
    np.savez_compressed(tmp_path / "y.npz", **arrays)
    for path in (tmp_path / "x.npz", tmp_path / "y.npz"):
        with np.load(path, allow_pickle=False) as theirs:
            assert sorted(theirs) == sorted(Npz(path)) == sorted(arrays)
            for name, value in arrays.items():
                assert np.array_equal(theirs[name], value)
                assert np.array_equal(Npz(path).read(name), value)


def test_a_part_that_is_damaged_is_found_when_it_is_read(folder: Path) -> None:
    content = bytearray((folder / "model.npz").read_bytes())
    content[content.index(b"encoder_l1_ffn_W1.npy") + 1000] ^= 1
    (folder / "model.npz").write_bytes(content)
    found = Marian().read(folder, LANGUAGES)
    with pytest.raises(TfmError, match="damaged"):
        for weight in found.weights.values():
            weight()


def test_options_are_called_as_on_marians_command_line() -> None:
    names = list(marian_options(ModelConfig(), (10, 10), Tied(True, True), "v1"))
    assert names == sorted(names)
    assert all(re.fullmatch("[a-z][a-z0-9]*(-[a-z0-9]+)*", name) for name in names)


@pytest.mark.parametrize(("head", "layer"), [(None, "last"), ((5, 0), "last"), ((4, 0), "5"), ((4, 1), "last")])
def test_the_layer_whose_first_head_was_taught_the_alignment_is_named(head: tuple[int, int] | None, layer: str) -> None:
    """Marian counts layers from 1, and reads the first head of one."""
    options = marian_options(ModelConfig(), (10, 10), Tied(True, True), "v1", head)
    assert options["transformer-guided-alignment-layer"] == layer
