"""Small directories of NLLB-200 and M2M-100, as transformers writes them, with random weights."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.addons.interop.toy_huggingface import pieces_of, spm, write_json
from transformer_cli.addons.interop.m2m100 import LANGUAGES

SIZES: dict[str, Any] = {
    **{"d_model": 32, "encoder_layers": 2, "decoder_layers": 2},
    **{"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48},
}
NLLB = ["deu_Latn", "eng_Latn", "fra_Latn", "kas_Arab", "kas_Deva", "zho_Hans", "zho_Hant"]


def m2m100(folder: Path, **changes: Any) -> Any:
    """Write a folder as facebook's, and return its model: 100 languages and 8 rows for nothing after the pieces."""
    pieces = {piece: i for i, piece in enumerate(["<s>", "<pad>", "</s>", *pieces_of(spm(1))])}
    assert pieces["<unk>"] == 3
    model = _saved(folder, len(pieces) + 108, **changes)
    write_json(folder / "vocab.json", pieces)
    special = [f"__{code}__" for code in LANGUAGES["m2m100"].split()]
    settings = {"tokenizer_class": "M2M100Tokenizer", "additional_special_tokens": special}
    write_json(folder / "tokenizer_config.json", settings)
    return model


def nllb(
    folder: Path,
    *,
    languages: Sequence[str] = NLLB,
    legacy: bool = False,
    fast: bool = False,
    half: bool = False,
    **changes: Any,
) -> Any:
    """Write a folder of NLLB with few languages, and return its model: `<mask>` and two rows for nothing are last.

    With `fast` tokenizer.json says what tokens are added, else tokenizer_config.json.
    """
    transformers = pytest.importorskip("transformers")
    first = ["<s>", "<pad>", "</s>", *pieces_of(spm(1))]
    tokens = {token: i for i, token in enumerate([*languages, "<mask>"], len(first))}
    model = _saved(folder, len(first) + len(tokens) + 2, half=half, **changes)
    every = {**{token: i for i, token in enumerate(first[:4])}, **tokens}
    settings: dict[str, Any] = {
        "tokenizer_class": "NllbTokenizer",
        "additional_special_tokens": [*languages],
        "added_tokens_decoder": {str(i): {"content": token, "special": True} for token, i in every.items()},
    }
    if legacy:
        settings["legacy_behaviour"] = True
    write_json(folder / "tokenizer_config.json", settings)
    if fast:
        transformers.NllbTokenizer.from_pretrained(folder).backend_tokenizer.save(str(folder / "tokenizer.json"))
        del settings["added_tokens_decoder"]
        write_json(folder / "tokenizer_config.json", settings)
    return model


def _saved(folder: Path, size: int, *, half: bool = False, shards: bool = False, **changes: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    config = transformers.M2M100Config(**{**SIZES, "vocab_size": size, "scale_embedding": True, **changes})
    model = transformers.M2M100ForConditionalGeneration(config).eval()
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm.weight" in name:
                parameter.normal_(1, 0.2)
            else:
                parameter.normal_(0, 4 * parameter.shape[-1] ** -0.5 if parameter.ndim > 1 else 0.2)
        model.model.shared.weight.mul_(0.1)  # else each token is followed by itself
        rows = model.model.shared.weight
        rows[2] = 0.55 * rows[62] + 0.1 * rows[38]  # so that many sentences end
    folder.mkdir(parents=True)
    (model.half() if half else model).save_pretrained(folder, **({"max_shard_size": "20KB"} if shards else {}))
    (folder / "sentencepiece.bpe.model").write_bytes(spm(1))
    return model.float()


def names_in(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))
