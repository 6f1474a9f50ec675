"""Groups the tokens of an encoded sentence by word."""

import re
from collections.abc import Sequence
from itertools import pairwise

from transformer_cli.data.packed_tokenizer import Segmenter
from transformer_cli.data.tokenizer import Tokenizer

_SPACE = "\u2581"  # SentencePiece's mark of a word boundary
_GLUE = "@@"  # of subword-nmt, at the end of a piece that is not the last of its word
_BYTES = re.compile("(?:<0x[0-9A-F]{2}>)+")  # SentencePiece's byte fallback


def word_groups(tokenizer: Tokenizer, ids: Sequence[int]) -> list[range]:
    """The tokens of each word of a sentence; a word begins after a space of the text.

    BOS, EOS and tags are words of their own.
    """
    alone = {tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id} | tokenizer.tag_ids
    pieces = tokenizer.pieces(ids)
    segmenter = Segmenter.sentencepiece if tokenizer.packed is None else tokenizer.packed.segmenter

    def begins(i: int) -> bool:
        if i == 0 or ids[i] in alone or ids[i - 1] in alone or segmenter is Segmenter.words:
            return True
        if segmenter is Segmenter.subword_nmt:
            return not pieces[i - 1].endswith(_GLUE)
        return pieces[i].startswith(_SPACE)

    starts = [i for i in range(len(ids)) if begins(i)]
    return [range(start, end) for start, end in pairwise([*starts, len(ids)])]


def word_text(tokenizer: Tokenizer, pieces: Sequence[str]) -> str:
    """The pieces of one word as text, without the marks of the segmenter."""
    if tokenizer.packed is not None and tokenizer.packed.segmenter is Segmenter.subword_nmt:
        return "".join(piece.removesuffix(_GLUE) for piece in pieces)
    joined = "".join(pieces)
    text = _BYTES.sub(lambda found: bytes.fromhex(re.sub("<0x|>", "", found[0])).decode(errors="replace"), joined)
    return text.removeprefix(_SPACE) or text
