"""The same weights say the same in CTranslate2 and in Hugging Face transformers.

Shapes: B batch, S source, T target, V vocabulary.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.toy_translator import SIZES, sentences, toy_tokenizer
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.export import ctranslate2 as to_ctranslate2
from transformer_cli.export import huggingface as to_huggingface
from transformer_cli.models.file import ModelFile
from transformer_cli.models.transformer import build_model
from transformer_cli.schema import Activation, ModelConfig, Norm, NormKind, Positions, Tying

CPU = torch.device("cpu")
BOTH = {  # what both formats can hold
    "paper": {},
    "concat": {"positions": Positions.sinusoidal_concat},
    "pre": {"norm": Norm.pre},
    "pre learned": {"norm": Norm.pre, "positions": Positions.learned, "activation": Activation.gelu},
    "untied": {"tie_embeddings": Tying.none, "activation": Activation.silu},
    "pre untied": {"tie_embeddings": Tying.none, "norm": Norm.pre, "bias": False},
    "decoder tied": {"tie_embeddings": Tying.decoder, "scale_embeddings": False, "bias": False},
    "deep encoder": {"n_encoder_layers": 3, "n_decoder_layers": 1, "norm": Norm.pre, "scale_embeddings": False},
}
ONLY_CTRANSLATE2 = {
    "learned": {"positions": Positions.learned},
    "rotary": {"norm": Norm.pre, "positions": Positions.rotary},
    "rms swiglu": {"norm": Norm.pre, "norm_kind": NormKind.rms, "activation": Activation.swiglu, "bias": False},
    "post rms rotary": {"norm_kind": NormKind.rms, "positions": Positions.rotary, "activation": Activation.swiglu},
}


def model_file(target: Tokenizer | None = None, *, seed: int = 1, gain: float = 2, **changes: Any) -> ModelFile:
    """Random weights; no bias or norm is at its start value, where a mistake might hide."""
    config = ModelConfig(**SIZES | changes)
    tokenizers = Tokenizers(toy_tokenizer(), target or toy_tokenizer())
    torch.manual_seed(seed)
    model = build_model(
        config,
        source_vocab_size=len(tokenizers.source),
        target_vocab_size=len(tokenizers.target),
        source_pad_id=tokenizers.source.pad_id,
        target_pad_id=tokenizers.target.pad_id,
    )
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
    to_ctranslate2.convert(model, tmp_path)
    source, target = model.tokenizers.source, model.tokenizers.target
    translator = ctranslate2.Translator(str(tmp_path), intra_threads=1)
    sources, targets = pairs(model)
    scored = translator.score_batch([source.pieces(row) for row in sources], [target.pieces(row) for row in targets])
    log_p_BTV = forced(model)[2].log_softmax(-1)
    for row, found, log_p_TV in zip(targets, scored, log_p_BTV, strict=True):
        wanted = [log_p_TV[t, token].item() for t, token in enumerate([*row, target.eos_id])]
        assert found.log_probs == pytest.approx(wanted, abs=1e-4)
