"""Symbols of a vocabulary that can stand for placeholders."""

import re

from transformer_cli.data.extend_vocabulary import Pieces
from transformer_cli.data.sentencepiece_model import PieceKind
from transformer_cli.data.tokenizer import Tokenizers

_PLACEHOLDER = re.compile(r"[<\[{(⟦]+[\w:-]+/?[>\]})⟧]+")


def placeholder_symbols(tokenizers: Tokenizers) -> tuple[str, ...]:
    """The texts of `data.tokenizer.user_symbols` in brackets, as `<ph1>` or `<1/>`, that both vocabularies have.

    A text that opens a pair, as `<1>` beside `</1>`, is none: the model would write the end of the pair, too.
    """
    source, target = (
        [] if one.sentencepiece is None else Pieces(one.sentencepiece).entries
        for one in (tokenizers.source, tokenizers.target)
    )
    common = {name for name, _, kind in target if kind == PieceKind.user_defined}
    found = (name for name, _, kind in source if kind == PieceKind.user_defined and name in common)
    return tuple(name for name in found if _PLACEHOLDER.fullmatch(name) and f"</{name[1:]}" not in common)
