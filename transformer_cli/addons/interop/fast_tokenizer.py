"""A SentencePiece model as a fast tokenizer of Hugging Face transformers: tokenizer.json and tokenizer_config.json.

What the library tokenizers has in common with SentencePiece is enough for texts without control tokens in them. A
written `</s>` is that token there.
"""

import unicodedata
from itertools import chain
from pathlib import Path
from typing import Any

from transformer_cli.addons.interop.text import normalising, protobuf_messages
from transformer_cli.data.sentencepiece_model import SPACE, ModelKind, PieceKind
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.extras import imported

FAST_TOKENIZER = "tokenizer.json"
_NEEDS = "tfm export huggingface"


def write_fast_tokenizer(tokenizer: Tokenizer, directory: Path, *, begins: bool, max_length: int) -> None:
    """Write both files, if the tokenizer is one SentencePiece model of unigrams or merges.

    One of whole words has one `<unk>` for all unknown words in a row, which that library does not do.

    Args:
        begins: whether BOS stands before a text; EOS stands behind it always.
        max_length: tokens of the longest text, with these.
    """
    tokenizers, transformers = (imported(name, needs=_NEEDS) for name in ("tokenizers", "transformers"))
    if tokenizer.packed is not None:
        return
    model = protobuf_messages().ModelProto.FromString(normalising(tokenizer))
    if model.trainer_spec.model_type not in list(ModelKind):
        return
    bos, eos, unk, pad = tokenizer.pieces([tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id, tokenizer.pad_id])
    fast = tokenizers.Tokenizer(_pieces(tokenizers.models, model, unk))
    fast.normalizer = _normalizer(tokenizers, tokenizer, model.normalizer_spec.precompiled_charsmap)
    fast.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always", split=True)
    decoders = tokenizers.decoders
    fast.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(replacement=SPACE, prepend_scheme="always")]
    )
    ends = [(bos, tokenizer.bos_id), (eos, tokenizer.eos_id)] if begins else [(eos, tokenizer.eos_id)]
    fast.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{bos} $A {eos}" if begins else f"$A {eos}", special_tokens=ends
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=fast,
        **{"bos_token": bos, "eos_token": eos, "unk_token": unk, "pad_token": pad},
        model_max_length=max_length,
        model_input_names=["input_ids", "attention_mask"],
    ).save_pretrained(directory)


def _normalizer(tokenizers: Any, tokenizer: Tokenizer, table: bytes) -> Any:
    """The table, after letters with marks have become one code point.

    Precompiled does not find a letter of two code points that are six bytes or more, and of others the shortest entry
    that it begins with.
    """
    normalizers = tokenizers.normalizers
    own = protobuf_messages().ModelProto.FromString(tokenizer.sentencepiece).normalizer_spec.precompiled_charsmap
    apart = {unicodedata.normalize("NFC", letter): letter for letter in sorted(tokenizer.alphabet)}
    return normalizers.Sequence(
        [
            normalizers.NFKC() if own else normalizers.NFC(),  # fold_case is nfkc_cf
            *(normalizers.Replace(nfc, letter) for nfc, letter in apart.items() if nfc != letter),
            normalizers.Precompiled(table),
            normalizers.Replace(tokenizers.Regex(" {2,}"), " "),
            normalizers.Strip(),
        ]
    )


def _pieces(models: Any, model: Any, unk: str) -> Any:
    """The segmenter itself: unigrams by their scores, or merges in the order of the pieces they make."""
    vocabulary = {piece.piece: i for i, piece in enumerate(model.pieces)}
    has_bytes = any(piece.type == PieceKind.byte for piece in model.pieces)
    if model.trainer_spec.model_type == ModelKind.unigram:
        scored = [(piece.piece, piece.score) for piece in model.pieces]
        return models.Unigram(scored, unk_id=vocabulary[unk], byte_fallback=has_bytes)
    merged = sorted((-piece.score, piece.piece) for piece in model.pieces if piece.type == PieceKind.normal)
    merges = chain.from_iterable(_ways(piece, vocabulary) for _, piece in merged)
    return models.BPE(vocabulary, list(merges), unk_token=unk, fuse_unk=True, byte_fallback=has_bytes)


def _ways(piece: str, vocabulary: dict[str, int]) -> list[tuple[str, str]]:
    """The pairs of pieces that a piece can be merged from."""
    pairs = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
    known = [pair for pair in pairs if pair[0] in vocabulary and pair[1] in vocabulary]
    return sorted(known, key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
