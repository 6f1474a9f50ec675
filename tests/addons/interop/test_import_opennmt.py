"""Checkpoints of OpenNMT-py: the variants that are read, those that are refused, and OpenNMT-py as the judge."""

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from tests.support.each import each
from tests.support.judges import (
    LONGEST,
    built,
    call,
    check_same,
    judge,
    largest_relative,
    lines_of,
    scores,
    scramble,
    translations,
)
from transformer_cli.addons.interop.fairseq import FairseqReader
from transformer_cli.addons.interop.foreign import Imported, ReadOptions
from transformer_cli.addons.interop.opennmt import OpenNMTReader
from transformer_cli.addons.interop.verify import verify
from transformer_cli.config.model import Activation, Positions, Tying
from transformer_cli.errors import CheckpointError

WIDTH, D_FF, HEADS = 16, 24, 2
SOURCE = ["<unk>", "<blank>", "<s>", "</s>", *(f"s{i}" for i in range(20))]
TARGET = ["<unk>", "<blank>", "<s>", "</s>", *(f"t{i}" for i in range(28))]
DEFAULTS: dict[str, Any] = {
    "model_task": "seq2seq",
    "model_type": "text",
    "encoder_type": "transformer",
    "decoder_type": "transformer",
    "self_attn_type": "scaled-dot-flash",
    "heads": HEADS,
    "hidden_size": WIDTH,
    "transformer_ff": D_FF,
    "position_encoding": True,
    "position_encoding_type": "SinusoidalInterleaved",
    "max_relative_positions": 0,
    "pos_ffn_activation_fn": "relu",
    "dropout": [0.3, 0.1],
}
LUT = "embeddings.make_embedding.emb_luts.0.weight"
LINES = [" ".join(SOURCE[4 + (i * 7 + j * j) % 20] for j in range(1 + i % 9)) for i in range(9)]
ROTARY = {"position_encoding": False, "max_relative_positions": -1}
SHARED = {"share_embeddings": True, "share_decoder_embeddings": True, "share_vocab": True}


def tensors(options: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Random weights of the model and of the generator, by their names in OpenNMT-py."""
    generator = torch.Generator().manual_seed(1)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator) * 0.4

    found: dict[str, Tensor] = {}

    def linear(name: str, rows: int, columns: int, *, bias: bool) -> None:
        found[f"{name}.weight"] = draw(rows, columns)
        if bias:
            found[f"{name}.bias"] = draw(rows)

    def norm(name: str) -> None:
        found[f"{name}.weight"] = 1 + draw(WIDTH)
        if options.get("layer_norm") != "rms":
            found[f"{name}.bias"] = draw(WIDTH)

    def attention(name: str) -> None:
        for matrix in ("linear_keys", "linear_values", "linear_query", "final_linear"):
            linear(f"{name}.{matrix}", WIDTH, WIDTH, bias=bool(options.get("add_qkvbias")))

    for side, layers, n_layers in (("encoder", "transformer", 2), ("decoder", "transformer_layers", 1)):
        found[f"{side}.{LUT}"] = draw(len(SOURCE if side == "encoder" else TARGET), WIDTH)
        for layer in (f"{side}.{layers}.{i}" for i in range(n_layers)):
            attention(f"{layer}.self_attn")
            if side == "decoder":
                attention(f"{layer}.context_attn")
                norm(f"{layer}.layer_norm_1")
                norm(f"{layer}.layer_norm_2")
            else:
                norm(f"{layer}.layer_norm")
            norm(f"{layer}.feed_forward.layer_norm")
            bias = bool(options.get("add_ffnbias"))
            linear(f"{layer}.feed_forward.w_1", D_FF, WIDTH, bias=bias)
            linear(f"{layer}.feed_forward.w_2", WIDTH, D_FF, bias=bias)
            if options["pos_ffn_activation_fn"] == "silu":
                linear(f"{layer}.feed_forward.w_3", D_FF, WIDTH, bias=bias)
        norm(f"{side}.layer_norm")
    if options.get("share_embeddings"):
        found[f"encoder.{LUT}"] = found[f"decoder.{LUT}"]
    tied = options.get("share_decoder_embeddings")
    weight = found[f"decoder.{LUT}"] if tied else draw(len(TARGET), WIDTH)
    return found, {"weight": weight, "bias": draw(len(TARGET))}


def saved(
    folder: Path, *, drop: str = "", add: Mapping[str, Any] = {}, vocab: Mapping[str, Any] = {}, **options: Any
) -> Path:
    theirs = DEFAULTS | options
    model, generator = tensors(theirs)
    words = {"src": TARGET if theirs.get("share_vocab") else SOURCE, "tgt": TARGET}
    content = {
        "model": {name: x for name, x in model.items() if name != drop} | dict(add),
        "generator": generator,
        "vocab": {**words, "data_task": "seq2seq", "decoder_start_token": "<s>"} | dict(vocab),
        "opt": argparse.Namespace(**theirs),
        "optim": {},
    }
    torch.save(content, folder / "model_step_5.pt")
    return folder / "model_step_5.pt"


def read(path: Path, **options: Any) -> Imported:
    return OpenNMTReader().read(path, ReadOptions(**{"source_lang": "en", "target_lang": "de", **options}))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="no biases"),
        pytest.param({"add_qkvbias": True, "add_ffnbias": True, "norm_eps": 1e-2}, id="biases, epsilon"),
        pytest.param({"add_ffnbias": True, **SHARED, "pos_ffn_activation_fn": "gelu"}, id="one vocabulary"),
        pytest.param({"share_decoder_embeddings": True, "layer_norm": "rms", "add_qkvbias": True}, id="rms"),
        pytest.param({"position_encoding_type": "SinusoidalConcat", "pos_ffn_activation_fn": "silu"}, id="concat"),
        pytest.param({**ROTARY, "rotary_interleave": False}, id="rotary in halves"),
        pytest.param({**ROTARY, "rotary_interleave": True, "add_qkvbias": True}, id="rotary in pairs"),
    ],
)
def test_a_checkpoint_predicts_what_its_own_tensors_do(tmp_path: Path, options: dict[str, Any]) -> None:
    imported = read(saved(tmp_path, **options))
    verdict = verify(built(imported)[0], imported.program(), LINES, is_float32=True)
    assert verdict.holds, verdict.lines_of_text()
    assert verdict.lines == len(LINES)
    assert verdict.largest_difference < 2e-5


def test_the_config_says_what_the_options_do(tmp_path: Path) -> None:
    config = read(saved(tmp_path, **ROTARY, pos_ffn_activation_fn="silu", layer_norm="rms", norm_eps=1e-5)).config
    assert (config.positions, config.activation, config.norm_kind) == (
        Positions.rotary,
        Activation.swiglu,
        "rms",
    )
    assert (config.scale_embeddings, config.bias, config.epsilon, config.output_bias) == (False, False, 1e-5, True)
    config = read(saved(tmp_path, **SHARED)).config
    assert (config.tie_embeddings, config.scale_embeddings, config.epsilon) == (Tying.three_way, True, 1e-6)
    assert (config.n_encoder_layers, config.n_decoder_layers, config.dropout) == (2, 1, 0.1)


def test_sources_have_no_end_and_translations_begin_with_bos(tmp_path: Path) -> None:
    source, target = (t := read(saved(tmp_path)).tokenizers).source, t.target
    assert source.encode(["s0 s1 t1"]) == [[4, 5, 0]]
    assert (source.end_ids, target.end_ids) == ([], [3])
    assert (target.bos_id, target.pad_id, target.eos_id, target.unk_id) == (2, 1, 3, 0)
    start = {"decoder_start_token": "</s>"}
    assert read(saved(tmp_path, vocab=start)).tokenizers.target.bos_id == 3


def test_only_its_own_format_is_recognised(tmp_path: Path) -> None:
    path = saved(tmp_path)
    assert OpenNMTReader().recognises(path)
    assert not FairseqReader().recognises(path)
    assert OpenNMTReader().recognises(tmp_path)  # of which it is the only checkpoint
    (tmp_path / "model_step_10.pt").write_bytes(path.read_bytes())
    assert read(tmp_path).files == [tmp_path / "model_step_10.pt"]
    (tmp_path / "other.pt").write_bytes(path.read_bytes())
    assert not OpenNMTReader().recognises(tmp_path)
    with pytest.raises(CheckpointError, match=r"not a file. Name the checkpoint of OpenNMT-py itself"):
        read(tmp_path)


def test_weights_may_lie_in_safetensors_beside_it(tmp_path: Path) -> None:
    path = saved(tmp_path)
    content = torch.load(path, weights_only=False)
    generator = {f"generator.{name}": x for name, x in content.pop("generator").items()}
    safetensors.torch.save_file(content.pop("model") | generator, tmp_path / "model_step_5.safetensors")
    torch.save(content, path)
    imported = read(path)
    assert verify(built(imported)[0], imported.program(), LINES, is_float32=True).holds
    (tmp_path / "model_step_5.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"there is no model_step_5\.safetensors with them beside it"):
        read(path)


@each(
    "options, message",
    [
        ({"model_task": "lm"}, "model_task='lm' is not supported (only seq2seq)"),
        ({"decoder_type": "rnn"}, "decoder_type='rnn'"),
        ({"self_attn_type": "average"}, "self_attn_type='average'"),
        ({"copy_attn": True}, "copy_attn='True'"),
        ({"max_relative_positions": 20, "position_encoding": False}, "max_relative_positions='20'"),
        ({"max_relative_positions": -2, "position_encoding": False}, "max_relative_positions='-2'"),
        ({"relative_positions_buckets": 32}, "relative_positions_buckets='32'"),
        ({"position_encoding": False}, "position_encoding=False with max_relative_positions=0 is not supported"),
        ({**ROTARY, "rotary_theta": 1000000}, "rotary_theta='1000000'"),
        ({**ROTARY, "rotary_dim": 4}, "rotary_dim='4'"),
        ({"pos_ffn_activation_fn": "gated-gelu"}, "pos_ffn_activation_fn='gated-gelu'"),
        ({"num_kv": 1}, "num_kv='1' is not supported (only 0, 2)"),
        ({"multiquery": True}, "multiquery='True'"),
        ({"parallel_residual": True}, "parallel_residual='True'"),
        ({"num_experts": 4}, "num_experts='4'"),
        ({"sliding_window": 128}, "sliding_window='128'"),
        ({"lora_layers": ["linear_query"]}, "lora_layers="),
        ({"quant_type": "bnb_8bit"}, "quant_type='bnb_8bit'"),
        ({"src_word_vec_size": 8}, "src_word_vec_size='8'"),
        ({"heads": 3}, "heads=3 and hidden_size=16 do not fit together"),
        ({"_all_transform": {"onmt_tokenize"}}, "its text is cut by onmt_tokenize"),
        ({"vocab": {"src_feats": [["a"]]}}, "features of the source (src_feats)"),
        ({"vocab": {"src": {"a": 1}}}, "its src vocabulary is no list of text"),
        ({"vocab": {"tgt": TARGET[4:]}}, "its tgt vocabulary has no <blank>"),
        ({"vocab": {"decoder_start_token": ""}}, "has no '', which the decoder starts with"),
        ({"vocab": {"tgt": [*TARGET, "more"]}}, "target_embedding is [32, 16], not [33, 16]"),
        ({"share_decoder_embeddings": True, "add": {f"decoder.{LUT}": torch.ones(32, 16)}}, "differs from"),
        ({"add": {"decoder.transformer_layers.0.gate.weight": torch.ones(2)}}, "has the tensor 'decoder.transformer_l"),
        ({"drop": "decoder.layer_norm.bias"}, "has no tensor 'decoder.layer_norm.bias'"),
    ],
)
def test_a_variant_that_cannot_be_expressed_is_named(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=re.escape(message)) as caught:
        read(saved(tmp_path, **options))
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_languages_are_those_of_the_options_or_unknown(tmp_path: Path) -> None:
    imported = OpenNMTReader().read(saved(tmp_path, src_lang="en", tgt_lang="de"), ReadOptions())
    assert (imported.source_lang, imported.target_lang) == ("en", "de")
    imported = OpenNMTReader().read(saved(tmp_path), ReadOptions(source_lang="en"))
    assert (imported.source_lang, imported.target_lang) == ("en", "und")
    assert "its languages are not known" in imported.notes[0]


def test_transforms_that_are_not_applied_are_noted(tmp_path: Path) -> None:
    (note, _) = read(saved(tmp_path, _all_transform={"prefix", "bpe", "filtertoolong"})).notes
    assert "trained with the transforms prefix, which are not applied" in note


# ---- OpenNMT-py itself


CONFIG = """
save_model: model
src_vocab: vocab.en
tgt_vocab: vocab.de
data: {corpus_1: {path_src: raw.train.en, path_tgt: raw.train.de, transforms: [TRANSFORM]}}
encoder_type: transformer
decoder_type: transformer
layers: 2
heads: 4
hidden_size: 64
word_vec_size: 64
transformer_ff: 256
attention_dropout: [0.0]
batch_type: tokens
batch_size: 2048
normalization: tokens
optim: adam
adam_beta2: 0.998
learning_rate: 2
decay_method: noam
warmup_steps: 200
max_grad_norm: 0
param_init: 0
param_init_glorot: true
label_smoothing: 0.1
bucket_size: 20000
num_workers: 0
seed: 1
"""
PLAIN = {"position_encoding": "true"}
MODELS: dict[str, tuple[str, dict[str, str]]] = {
    "one vocabulary": (
        "sentencepiece",
        {**PLAIN, "share_vocab": "true", "share_embeddings": "true", "share_decoder_embeddings": "true"},
    ),
    "BPE, biases, gelu": (
        "bpe",
        {**PLAIN, "add_qkvbias": "true", "add_ffnbias": "true", "pos_ffn_activation_fn": "gelu",
         "position_encoding_type": "SinusoidalConcat"},
    ),
    "rotary, rms, gated": (
        "bpe",
        {"max_relative_positions": "-1", "rotary_interleave": "true", "layer_norm": "rms", "norm_eps": "1e-5",
         "pos_ffn_activation_fn": "silu", "add_qkvbias": "true"},
    ),
    "rotary in halves": ("bpe", {"max_relative_positions": "-1", "share_decoder_embeddings": "true"}),
}  # fmt: skip


def trained(folder: Path, data: Path, *, n_updates: int, name: str) -> tuple[Path, Path]:
    """A judge, and the checkpoint that it has trained on Multi30k, with what cuts text beside it."""
    python, (transform, options) = judge("opennmt"), MODELS[name]
    for language in ("en", "de"):
        code = f"import gzip; open('raw.train.{language}', 'wb').write(gzip.open('{data}/train.{language}.gz').read())"
        call(python, "-c", code, cwd=folder)
        test = "\n".join(lines_of(data / f"test_2016_flickr.{language}")) + "\n"
        (folder / f"raw.test.{language}").write_text(test, encoding="utf-8")
    if transform == "sentencepiece":
        code = (
            "import sentencepiece as s; s.SentencePieceTrainer.train(input='raw.train.en,raw.train.de',"
            " model_prefix='spm', vocab_size=2000, minloglevel=2);"
            "p = s.SentencePieceProcessor(model_file='spm.model');"
            "[open('vocab.' + language, 'w').writelines(p.id_to_piece(i) + '\\n' for i in range(3, len(p)))"
            " for language in ('en', 'de')]"
        )
        call(python, "-c", code, cwd=folder)
        models = {"src_subword_model": "spm.model", "tgt_subword_model": "spm.model"}
    else:
        models = {}
        for side, language in (("src", "en"), ("tgt", "de")):
            files = ("-i", f"raw.train.{language}", "-o", f"codes.{language}")
            call(python, "subword-nmt", "learn-bpe", "-s", "1500", *files, cwd=folder)
            cut = ("apply-bpe", "-c", f"codes.{language}", "-i", f"raw.train.{language}", "-o", f"cut.{language}")
            call(python, "subword-nmt", *cut, cwd=folder)
            pieces = {
                piece for line in (folder / f"cut.{language}").read_text("utf-8").split("\n") for piece in line.split()
            }
            (folder / f"vocab.{language}").write_text("".join(f"{p}\n" for p in sorted(pieces)), encoding="utf-8")
            models[f"{side}_subword_model"] = f"codes.{language}"
    rest = {**options, **models, "train_steps": str(n_updates), "save_checkpoint_steps": str(n_updates)}
    text = CONFIG.replace("TRANSFORM", transform) + "".join(f"{key}: {value}\n" for key, value in rest.items())
    (folder / "train.yaml").write_text(text)
    call(python, "onmt_train", "-config", "train.yaml", cwd=folder)
    return python, folder / f"model_step_{n_updates}.pt"


def translate(python: Path, checkpoint: Path, name: str, *options: str) -> str:
    """What `onmt_translate` prints; the translations are in out.de."""
    models = ["spm.model"] * 2 if MODELS[name][0] == "sentencepiece" else ["codes.en", "codes.de"]
    return call(
        python, "onmt_translate", "-model", checkpoint, "-src", "raw.test.en", "-output", "out.de",
        "-batch_size", "1", "-transforms", MODELS[name][0], "-src_subword_model", models[0],
        "-tgt_subword_model", models[1], "-ban_unk_token", "-length_penalty", "none", *options, cwd=checkpoint.parent,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_opennmt_gives_random_weights_the_same_probabilities(tmp_path: Path, shared_data: Path, name: str) -> None:
    python, checkpoint = trained(tmp_path, shared_data / "multi30k", n_updates=1, name=name)
    scramble(python, checkpoint)
    printed = translate(python, checkpoint, name, "-tgt", "raw.test.de", "-verbose", "-max_length", "2")
    theirs = [float(score) for score in re.findall(r"^GOLD SCORE: (-?[\d.]+)$", printed, re.M)]
    imported = read(checkpoint)
    ours = scores(imported, lines_of(tmp_path / "raw.test.en"), lines_of(tmp_path / "raw.test.de"))
    assert len(theirs) == len(ours)
    assert largest_relative(list(map(sum, ours)), theirs) < 1e-4
    verdict = verify(built(imported)[0], imported.program(), lines_of(tmp_path / "raw.test.en", 64), is_float32=True)
    assert verdict.holds, verdict.lines_of_text()


@pytest.mark.slow
def test_opennmt_translates_the_same(tmp_path: Path, shared_data: Path) -> None:
    name = "one vocabulary"
    python, checkpoint = trained(tmp_path, shared_data / "multi30k", n_updates=500, name=name)
    imported, sources = read(checkpoint), lines_of(tmp_path / "raw.test.en")
    for beam_size in (1, 4):
        limits = ("-max_length", str(LONGEST), "-max_length_ratio", "100")
        translate(python, checkpoint, name, "-beam_size", str(beam_size), *limits)
        theirs = lines_of(tmp_path / "out.de")
        check_same(translations(imported, sources, beam_size=beam_size), theirs, beam_size=beam_size)
