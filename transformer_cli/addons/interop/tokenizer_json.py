"""The SentencePiece model that a tokenizer.json of Hugging Face tokenizers was made from.

transformers 5 saves a tokenizer of byte-pair encoding without it. What decides how a text is cut is all there: the
pieces in their order, the table of spellings, and the merges. Those of a SentencePiece model are all ways to put a
piece together from two others, in the order of the pieces' scores.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NoReturn

from transformer_cli.addons.interop.huggingface_files import json_of, pieces_in_order, refuse_file
from transformer_cli.addons.interop.text import protobuf_messages
from transformer_cli.data.sentencepiece_model import ModelKind, PieceKind
from transformer_cli.errors import quoted

_KNOWN = ("Sequence", "Precompiled", "Strip", "Replace", "Metaspace", "WhitespaceSplit")  # of what is around the model
_PLAIN = {
    **{"dropout": None, "continuing_subword_prefix": None, "end_of_word_suffix": None},
    **{"byte_fallback": False, "ignore_merges": False},
}


def sentencepiece_of(file: Path, first: Sequence[str], instead: str) -> bytes:
    """A SentencePiece model with `<unk>`, `<s>` and `</s>`, and the pieces of tokenizer.json behind `first`.

    Raises CheckpointError where it would cut text otherwise; `instead` names the file that has to be fetched.
    """

    def refuse(what: str) -> NoReturn:
        refuse_file(
            file, f"{what}, so that {instead} cannot be made from it. Fetch that file, and put it beside this one"
        )

    content = json_of(file)
    model: Any = content.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(vocabulary, dict):
        refuse("has no pieces of byte-pair encoding")
    for name, value in _PLAIN.items():
        if model.get(name, value) not in (value, None, ""):
            refuse(f"has {name}={quoted(str(model[name]))[1:-1]}")
    steps = [*_steps(content.get("normalizer")), *_steps(content.get("pre_tokenizer"))]
    if odd := next((step for step in steps if step.get("type") not in _KNOWN), None):
        refuse(f"changes text by {quoted(str(odd.get('type')))}")
    pieces = pieces_in_order(file, vocabulary, len(vocabulary))
    if pieces[: len(first)] != [*first]:
        refuse(f"its pieces do not begin with {', '.join(first)}")
    order = _order_of_merges(model.get("merges"), pieces[len(first) :])
    if order is None:
        refuse("its merges are not those of a SentencePiece model")
    tables = [step.get("precompiled_charsmap") for step in steps if step.get("type") == "Precompiled"]
    try:
        spellings = base64.b64decode(str(tables[0]), validate=True) if tables else b""
    except binascii.Error:
        refuse("its table of spellings is damaged")
    return _written(pieces[len(first) :], order, spellings)


def _steps(step: Any) -> Iterator[Mapping[str, Any]]:
    """The steps of a normalizer or a pre-tokenizer; a sequence of them is taken apart."""
    if not isinstance(step, dict):
        return
    parts = step.get("normalizers", step.get("pretokenizers"))
    if step.get("type") == "Sequence" and isinstance(parts, list):
        for part in parts:
            yield from _steps(part)
    else:
        yield step


def _order_of_merges(merges: Any, pieces: Sequence[str]) -> dict[str, int] | None:
    """The place of each piece that is merged; None where SentencePiece would merge others, or in another order."""
    if not isinstance(merges, list):
        return None
    split = [pair.split(" ") if isinstance(pair, str) else pair for pair in merges]
    pairs = [tuple(map(str, pair)) for pair in split if isinstance(pair, list)]
    known = {*pieces}
    every = {(p[:i], p[i:]) for p in pieces for i in range(1, len(p)) if p[:i] in known and p[i:] in known}
    if len(pairs) != len(every) or {*pairs} != every:
        return None
    merged = [piece for piece, _ in groupby("".join(pair) for pair in pairs)]
    order = {piece: number for number, piece in enumerate(merged)}
    return order if len(order) == len(merged) else None


def _written(pieces: Sequence[str], order: Mapping[str, int], spellings: bytes) -> bytes:
    message = protobuf_messages().ModelProto()
    for name, kind in (("<unk>", PieceKind.unknown), ("<s>", PieceKind.control), ("</s>", PieceKind.control)):
        message.pieces.add(piece=name, score=0.0, type=int(kind))
    for number, piece in enumerate(pieces):
        score = order.get(piece, len(order) + number)  # of a character the lowest: nothing is merged into it
        message.pieces.add(piece=piece, score=-float(score), type=int(PieceKind.normal))
    message.trainer_spec.model_type = int(ModelKind.bpe)
    message.trainer_spec.vocab_size = len(message.pieces)
    message.normalizer_spec.name = "user_defined"
    message.normalizer_spec.precompiled_charsmap = spellings
    written: bytes = message.SerializeToString()
    return written
