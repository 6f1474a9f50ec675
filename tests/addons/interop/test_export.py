"""The same weights say the same in CTranslate2 and in Hugging Face transformers.

Shapes: B batch, S source, T target, V vocabulary.
"""

import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from torch import Tensor, nn

from tests.support.each import each
from tests.toy.translator import MARKS, SIZES, sentences, toy_tokenizer
from transformer_cli.addons.interop import ctranslate2 as to_ctranslate2
from transformer_cli.addons.interop import huggingface as to_huggingface
from transformer_cli.addons.interop.foreign import ReadOptions
from transformer_cli.addons.interop.huggingface_reader import ARCHITECTURES, HuggingFaceReader
from transformer_cli.addons.interop.keys import ExportConfig
from transformer_cli.addons.interop.registries import EXPORTERS
from transformer_cli.addons.interop.text import folder_tokenizers, normalising, write_tokenizers
from transformer_cli.config.data import TokenizerConfig
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.model import Activation, Autoregression, DecoderStart, ModelConfig, Norm, Positions, Tying
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers, train_tokenizer
from transformer_cli.decoding.torch_engine import torch_translator
from transformer_cli.errors import ConfigError
from transformer_cli.models.build import build_model
from transformer_cli.models.file import ModelFile

CPU = torch.device("cpu")
BOTH = {  # what both formats can hold
    "paper": {},
    "concat": {"positions": Positions.sinusoidal_concat},
    "pre": {"norm": Norm.pre},
    "pre learned": {"norm": Norm.pre, "positions": Positions.learned, "activation": Activation.gelu},
    "untied": {"tie_embeddings": Tying.none, "activation": Activation.silu},
    "pre untied": {"tie_embeddings": Tying.none, "norm": Norm.pre, "bias": False},
    "decoder tied": {"tie_embeddings": Tying.decoder, "scale_embeddings": False, "bias": False},
    "output bias": {"output_bias": True},
    "source and target tied": {"tie_embeddings": Tying.source_target, "output_bias": True},
    "narrow": {"d_embedding": 12, "output_bias": True},
    "pre narrow": {"d_embedding": 12, "norm": Norm.pre, "tie_embeddings": Tying.decoder},
    "narrow, own output, from zero": {
        "d_embedding": 12,
        "tie_embeddings": Tying.source_target,
        "scale_embeddings": False,
        "decoder_start": DecoderStart.zero,
    },
    "narrow, tied, from zero": {"d_embedding": 12, "decoder_start": DecoderStart.zero, "norm": Norm.pre},
    "pre output bias": {"output_bias": True, "norm": Norm.pre},
    "untied, from zero": {"tie_embeddings": Tying.none, "output_bias": True, "decoder_start": DecoderStart.zero},
    "deep encoder": {"n_encoder_layers": 3, "n_decoder_layers": 1, "norm": Norm.pre, "scale_embeddings": False},
}
MARIAN = {
    "positions": Positions.sinusoidal_tensor2tensor,
    "norm_eps": 1e-3,  # far enough from torch's to be seen
    "output_bias": True,
    "decoder_start": DecoderStart.zero,
}
ONLY_CTRANSLATE2 = {
    "marian": MARIAN,
    "fairseq": {"positions": Positions.sinusoidal_tensor2tensor, "first_position": 2, "norm": Norm.pre},
    "learned": {"positions": Positions.learned},
    "rotary": {"norm": Norm.pre, "positions": Positions.rotary},
    "rms swiglu": {"norm": Norm.pre, "norm_kind": "rms", "activation": Activation.swiglu, "bias": False},
    "post rms rotary": {"norm_kind": "rms", "positions": Positions.rotary, "activation": Activation.swiglu},
}


def model_file(
    target: Tokenizer | None = None, *, source: Tokenizer | None = None, seed: int = 1, gain: float = 2, **changes: Any
) -> ModelFile:
    """Random weights; no bias or norm is at its start value, where a mistake might hide."""
    config = ModelConfig(**SIZES | changes)
    tokenizers = Tokenizers(source or toy_tokenizer(), target or toy_tokenizer())
    torch.manual_seed(seed)
    model = build_model(config, *tokenizers.vocabularies)
    for parameter in model.parameters():
        with torch.no_grad():
            nn.init.normal_(parameter, mean=0.5, std=0.2) if parameter.ndim == 1 else parameter.mul_(gain)
    return ModelFile(config, tokenizers, model.state_dict(), source_lang="en", target_lang="en", step=1)


def pairs(model: ModelFile) -> tuple[list[list[int]], list[list[int]]]:
    """Ids of sentences of several lengths and of something to say to them, without BOS and EOS."""
    source, target = (
        tokenizer.encode(sentences(6, seed=seed))
        for tokenizer, seed in ((model.tokenizers.source, 3), (model.tokenizers.target, 4))
    )
    return source, target


def padded(rows: list[list[int]], pad_id: int) -> Tensor:
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=pad_id)


def forced(model: ModelFile) -> tuple[Tensor, Tensor, Tensor]:
    """Source with EOS, target with BOS, and our logits."""
    source, target = model.tokenizers.source, model.tokenizers.target
    sources, targets = pairs(model)
    source_BS = padded([[*row, source.eos_id] for row in sources], source.pad_id)
    target_BT = padded([[target.bos_id, *row] for row in targets], target.pad_id)
    with torch.inference_mode():
        return source_BS, target_BT, model.build(CPU)(source_BS, target_BT)


@pytest.mark.parametrize("changes", BOTH.values(), ids=BOTH)
def test_transformers_gives_our_logits(changes: dict[str, Any]) -> None:
    pytest.importorskip("transformers")
    model = model_file(**changes)
    source_BS, target_BT, logits_BTV = forced(model)
    theirs = to_huggingface.convert(model)
    pad_id = model.tokenizers.target.pad_id
    with torch.inference_mode():
        found_BTV = theirs(
            input_ids=source_BS, attention_mask=(source_BS != pad_id).long(), decoder_input_ids=target_BT
        ).logits
    is_real_BT = target_BT != pad_id
    torch.testing.assert_close(found_BTV[is_real_BT], logits_BTV[is_real_BT], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("changes", (BOTH | ONLY_CTRANSLATE2).values(), ids=BOTH | ONLY_CTRANSLATE2)
def test_ctranslate2_gives_our_probabilities(changes: dict[str, Any], tmp_path: Path) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2")
    model = model_file(**changes)
    to_ctranslate2.write(model, tmp_path)
    source, target = model.tokenizers.source, model.tokenizers.target
    translator = ctranslate2.Translator(str(tmp_path), intra_threads=1)
    sources, targets = pairs(model)
    scored = translator.score_batch([source.pieces(row) for row in sources], [target.pieces(row) for row in targets])
    log_p_BTV = forced(model)[2].log_softmax(-1)
    for row, found, log_p_TV in zip(targets, scored, log_p_BTV, strict=True):
        wanted = [log_p_TV[t, token].item() for t, token in enumerate([*row, target.eos_id])]
        assert found.log_probs == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_ctranslate2_has_the_attention_of_the_head_that_was_taught_the_alignment(layer: int, tmp_path: Path) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2")
    model = replace(model_file(n_decoder_layers=3), alignment_head=(layer, 0))
    to_ctranslate2.write(model, tmp_path)
    source, target = model.tokenizers.source, model.tokenizers.target
    ids = source.encode(["the cat sat down"])[0]
    translator = ctranslate2.Translator(str(tmp_path), intra_threads=1)
    options = {"beam_size": 1, "max_decoding_length": 5, "return_attention": True}
    (result,) = translator.translate_batch([source.pieces(ids)], **options)
    numbers = {piece: i for i, piece in enumerate(target.pieces(range(len(target))))}
    written = [numbers[piece] for piece in result.hypotheses[0]]
    target_in = [target.bos_id, *written[:-1]]
    with torch.inference_mode():
        expected_BTS = model.build(CPU).alignment(torch.tensor([[*ids, source.eos_id]]), torch.tensor([target_in]))
    found_TS = torch.tensor(result.attention[0])
    torch.testing.assert_close(found_TS, expected_BTS[0, :, : found_TS.size(1)], rtol=1e-3, atol=1e-4)


def test_ctranslate2_has_no_layer_of_a_head_that_was_taught_with_full_context(tmp_path: Path) -> None:
    """The weights of its search are of causal passes, of which the head was taught nothing."""
    ctranslate2 = pytest.importorskip("ctranslate2")
    written = []
    for head in (None, (1, 0)):
        model = replace(model_file(n_decoder_layers=3), alignment_head=head, full_context_alignment=head is not None)
        (folder := tmp_path / str(head)).mkdir()
        to_ctranslate2.write(model, folder)
        translator = ctranslate2.Translator(str(folder), intra_threads=1)
        tokens = [model.tokenizers.source.pieces(model.tokenizers.source.encode(["the cat sat down"])[0])]
        written += translator.translate_batch(tokens, beam_size=1, max_decoding_length=5, return_attention=True)
    assert written[0].attention == written[1].attention


TEXTS = [
    "the cat sat down in her chair .",
    "  the\tcat\u00a0sat\u2003down  ",
    "a\u0308 u\u0308ber e\u0304\u0301 \u0113\u0301 \u1112\u1161\u11ab",  # marks apart, partly and wholly
    "½ m² … ﬁ \u200d",  # which NFKC would rewrite
    "a </s> b <unk> <pad> <s>",
    "",
    " \u00a0 ",
]


def test_the_tokenizer_of_transformers_gives_our_ids_for_raw_text(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = model_file(norm=Norm.pre)
    to_huggingface.write(model, tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    source = model.tokenizers.source
    assert tokenizer(TEXTS).input_ids == [[*ids, source.eos_id] for ids in source.encode(TEXTS)]


@each("spelling", [text for text in TEXTS if text.strip()])
def test_the_sentencepiece_model_that_is_exported_needs_no_help(spelling: str) -> None:
    exported = sentencepiece.SentencePieceProcessor(model_proto=normalising(toy_tokenizer()))
    for text in (spelling, unicodedata.normalize("NFD", spelling)):
        assert exported.encode(text) == toy_tokenizer().encode([text])[0]


@pytest.mark.parametrize(
    "changes", [{}, {"norm": Norm.pre}, {"tie_embeddings": Tying.none}], ids=["post", "pre", "own"]
)
def test_what_transformers_reads_back_has_our_weights(changes: dict[str, Any], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = model_file(other_tokenizer() if "tie_embeddings" in changes else None, **changes)
    written = to_huggingface.write(model, tmp_path)
    read = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert type(read) is type(written)
    for name, weight in written.state_dict().items():
        torch.testing.assert_close(read.state_dict()[name], weight, rtol=0, atol=0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    target = model.tokenizers.target
    text = "the cat drank milk ."
    assert tokenizer.decode(target.encode([text])[0], skip_special_tokens=True) == text
    assert tokenizer(text_target=text).input_ids == [*target.encode([text])[0], target.eos_id]


def other_tokenizer() -> Tokenizer:
    return train_tokenizer(sentences(200, seed=5), TokenizerConfig(vocab_size=60), seed=1)


REFUSED = {
    "norm_kind=rms": {"norm_kind": "rms"},
    "activation=swiglu": {"activation": Activation.swiglu},
    "positions=rotary": {"positions": Positions.rotary},
    "positions=learned": {"positions": Positions.learned},
    "d_k=4": {"d_k": 4},
    "d_v=16": {"d_v": 16},
    "decoder=ssru": {"decoder": Autoregression.ssru},
}


@each("option, changes", REFUSED.items())
def test_what_transformers_cannot_express_is_refused_by_name(option: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"^model\.{option}: .*\. "):
        to_huggingface.check(model_file(**changes))


def test_pegasus_has_one_vocabulary_size() -> None:
    model = model_file(other_tokenizer(), norm=Norm.pre, tie_embeddings=Tying.none)
    with pytest.raises(ConfigError, match=r"^model\.norm=pre: .*\(90, 60\)"):
        to_huggingface.check(model)


@pytest.mark.parametrize("key", ["d_k", "d_v"])
def test_heads_of_another_width_are_refused_by_name(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"^model\.{key}=4: "):
        to_ctranslate2.check(ModelConfig(**SIZES, **{key: 4}))


@pytest.mark.parametrize("form", ["ctranslate2", "marian", "onnx"])
def test_a_recurrent_decoder_is_refused_by_name(form: str, tmp_path: Path) -> None:
    exporter = EXPORTERS[form]
    with pytest.raises(ConfigError, match=r"^model\.decoder=ssru: no such decoder in .*\. Train with self_attention"):
        exporter.write(model_file(decoder=Autoregression.ssru), tmp_path, ExportConfig())


RAW = ["the cat sat\u00a0down .", "  in  her chair", "a woman ."]


@pytest.mark.parametrize("norm", Norm)
def test_transformers_translates_raw_text_as_we_do(norm: Norm, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = model_file(norm=norm)
    to_huggingface.write(model, tmp_path)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    config = DecodeConfig(search="greedy", beam_size=1, max_extra_length=4)
    ours = torch_translator(model.build(CPU), model.tokenizers, config, device=CPU).translate(RAW)
    for line, wanted in zip(RAW, ours, strict=True):
        given = tokenizer([line], return_tensors="pt")
        with to_huggingface.quiet():
            ids_1T = theirs.generate(**given, num_beams=1, max_new_tokens=given.input_ids.size(1) + 4)
        assert tokenizer.decode(ids_1T[0], skip_special_tokens=True) == wanted.text


TAGGED = ["<2de> the cat sat down .", "<2fr> <bt> a woman .", "  <bt> in her chair", "the cat </s> .", ">>de<< a woman"]


def tagged_model(**changes: Any) -> ModelFile:
    tokenizer = train_tokenizer(
        [*sentences(200, seed=0), MARKS],
        TokenizerConfig(vocab_size=90),
        seed=1,
        tags=["<2fr>", "<2de>", "<bt>", ">>de<<"],
    )
    return model_file(tokenizer, source=tokenizer, **changes)


def test_transformers_finds_the_tags_of_a_text(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = tagged_model()
    to_huggingface.write(model, tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    source = model.tokenizers.source
    assert tokenizer(TAGGED).input_ids == [[*ids, source.eos_id] for ids in source.encode(TAGGED)]


@pytest.mark.parametrize("target", [None, "another"])
def test_tags_are_tags_again_when_the_folder_is_imported(target: str | None, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    tagged = tagged_model()
    if target is None:
        model = tagged
    else:
        model = model_file(other_tokenizer(), source=tagged.tokenizers.source, tie_embeddings=Tying.none)
    to_huggingface.write(model, tmp_path)
    back = HuggingFaceReader(ARCHITECTURES).read(tmp_path, ReadOptions()).tokenizers
    assert set(back.source.tags) == set(model.tokenizers.source.tags)
    assert back.source.encode(TAGGED) == model.tokenizers.source.encode(TAGGED)
    assert back.joint == model.tokenizers.joint


@pytest.mark.parametrize("finds_tags", [False, True])
def test_the_files_of_an_export_have_the_tags_of_a_text(finds_tags: bool, tmp_path: Path) -> None:
    tokenizers = tagged_model().tokenizers
    write_tokenizers(tokenizers, tmp_path, finds_tags=finds_tags)
    source, _ = folder_tokenizers(tmp_path)
    assert [source.ids(line) for line in TAGGED] == tokenizers.source.encode(TAGGED)


def test_the_translation_pipeline_loads_the_folder(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    if int(transformers.__version__.split(".")[0]) >= 5:
        pytest.skip("transformers 5 has no translation pipeline")
    to_huggingface.write(model_file(norm=Norm.pre), tmp_path)
    translate = transformers.pipeline("translation", str(tmp_path))
    assert isinstance(translate("the cat .", max_length=8)[0]["translation_text"], str)
