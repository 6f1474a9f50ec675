"""Small directories of Hugging Face models, as that library writes them, with random weights."""

import io
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch

from tests.toy.translator import MARKS, WORDS, sentences

SIZES: dict[str, Any] = {
    **{"d_model": 32, "encoder_layers": 2, "decoder_layers": 2},
    **{"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48},
}
CODES = [">>fra<<", ">>deu<<"]


@cache
def spm(seed: int, size: int = 80, kind: str = "bpe") -> bytes:
    """A SentencePiece model with its own ids, as OPUS-MT has them beside the vocabulary."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*sentences(200, seed=seed), MARKS, " ".join(WORDS)]),
        model_writer=model,
        vocab_size=size,
        minloglevel=3,
        num_threads=1,
        model_type=kind,
        hard_vocab_limit=False,
    )
    return model.getvalue()


def pieces_of(model: bytes) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(len(processor)) if not processor.is_control(i)]


def vocabulary(*models: bytes) -> dict[str, int]:
    """`</s>` 0, `<unk>` 1, the pieces in no order of SentencePiece's, and `<pad>` last. One piece is unknown."""
    pieces = sorted({piece for model in models for piece in pieces_of(model)} - {"<unk>"})
    random.Random(3).shuffle(pieces)
    return {piece: i for i, piece in enumerate(["</s>", "<unk>", *CODES, *pieces[1:], "<pad>"])}


def shaken(model: Any, *, gain: float = 2, seed: int = 1) -> Any:
    """Random weights that are sure of what they say; no bias or norm is at its start value."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" in name:
                continue
            if parameter.ndim == 1:
                parameter.normal_(0.5, 0.2)
            else:
                parameter.normal_(0, gain * parameter.shape[-1] ** -0.5)
    return model.eval()


def opus(
    folder: Path,
    *,
    separate: bool = False,
    binary: bool = False,
    half: bool = False,
    shards: bool = False,
    start_is_zero: bool = True,
    **changes: Any,
) -> Any:
    """Write a folder as Helsinki-NLP's, and return its model."""
    transformers = pytest.importorskip("transformers")
    source_spm, target_spm = spm(1), spm(2)
    vocabularies = [vocabulary(source_spm, target_spm)]
    if separate:  # of one size, as the padding has one id in both
        size = 70
        vocabularies = [
            {piece: i for i, piece in enumerate(["</s>", "<unk>", *pieces_of(model)[5:size], "<pad>"])}
            for model in (source_spm, target_spm)
        ]
    pad = len(vocabularies[0]) - 1
    options = {
        **SIZES,
        **{"vocab_size": pad + 1, "pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": 0},
        **{"forced_eos_token_id": 0, "activation_function": "swish", "scale_embedding": True},
        **{"max_position_embeddings": 256, "decoder_vocab_size": len(vocabularies[-1])},
        **({"share_encoder_decoder_embeddings": False} if separate else {}),
        **changes,
    }
    model = shaken(transformers.MarianMTModel(transformers.MarianConfig(**options)))
    with torch.no_grad():
        model.final_logits_bias.normal_(0, 0.5)
        model.final_logits_bias[:, 0] += 6  # so that sentences end
        if start_is_zero:
            for embedding in (model.get_encoder().embed_tokens, model.get_decoder().embed_tokens):
                embedding.weight[pad] = 0
            model.final_logits_bias[:, pad] = 0
    model.generation_config.update(num_beams=6, bad_words_ids=[[pad]], max_length=256)
    if half:
        model = model.half()
    folder.mkdir(parents=True, exist_ok=True)
    if binary:
        model.config.save_pretrained(folder)
        model.generation_config.save_pretrained(folder)
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    else:
        model.save_pretrained(folder, **({"max_shard_size": "20KB"} if shards else {}))
    (folder / "source.spm").write_bytes(source_spm)
    (folder / "target.spm").write_bytes(target_spm)
    settings: dict[str, Any] = {"source_lang": "eng", "target_lang": "deu"}
    write_json(folder / "vocab.json", vocabularies[0])
    if separate:
        write_json(folder / "target_vocab.json", vocabularies[1])
        settings["separate_vocabs"] = True
    write_json(folder / "tokenizer_config.json", settings)
    return model.float()


def write_json(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value, ensure_ascii=False, indent=2), encoding="utf-8")


def change_json(file: Path, **changes: Any) -> None:
    """None removes a key."""
    value = json.loads(file.read_text(encoding="utf-8")) | changes
    write_json(file, {key: one for key, one in value.items() if one is not None})
