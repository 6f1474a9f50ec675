"""Subword regularization: a text in other pieces, drawn from a seed and from nothing else.

SentencePiece samples, too, but from its seed and something of the process: no other process draws the same again.
"""

import math
import re
from collections.abc import Callable
from functools import cached_property
from heapq import heappop, heappush
from itertools import accumulate
from typing import Any

import sentencepiece

from transformer_cli.data.sentencepiece_model import SPACE, ModelKind, PieceKind, model_kind, read_pieces
from transformer_cli.errors import ConfigError

_UNKNOWN_PENALTY = 10.0  # below the lowest score: SentencePiece's score of a character that is no piece

Draw = Callable[[], float]  # from [0, 1)


class SubwordSampler:
    """Draws segmentations with the pieces of a SentencePiece model. Raises ConfigError for one of words or characters.

    bpe: each merge that comes up is left out with probability `alpha`, which 1 makes single characters of (BPE-dropout,
    Provilkov et al. 2020); like SentencePiece it does not offer a merge again that it has left out.
    unigram: a segmentation is drawn by its probability to the power of `alpha` (Kudo 2018, section 3.2), of all.
    Symbols of the user stay whole.
    """

    def __init__(self, model: bytes) -> None:
        self._processor: Any = sentencepiece.SentencePieceProcessor(model_proto=model)
        kind = model_kind(model)
        if kind not in list(ModelKind):
            raise ConfigError("data.subword_dropout: the model's tokenizer has no subwords. Leave it out")
        self._is_bpe = kind == ModelKind.bpe
        entries = read_pieces(model)
        self._names = frozenset(name for name, _, _ in entries)
        self._scores = {name: score for name, score, kind in entries if kind == PieceKind.normal}
        self._symbols = {name for name, _, kind in entries if kind == PieceKind.user_defined}
        self._has_bytes = any(kind == PieceKind.byte for _, _, kind in entries)
        self._longest = max(map(len, self._scores), default=1)
        self._unknown = min(self._scores.values(), default=0.0) - _UNKNOWN_PENALTY

    def pieces(self, text: str, *, alpha: float, draw: Draw) -> list[str]:
        """The sampled pieces of `text`; of a character that is no piece its bytes, or the character itself."""
        normal = self._processor.normalize(text).replace(" ", SPACE)
        cut = self._merged if self._is_bpe else self._drawn
        found: list[str] = []
        for part in self._divided.split(normal) if self._divided else [normal]:
            found += [part] if part in self._symbols else cut(part, alpha, draw)
        if not self._has_bytes:
            return found
        return [one for piece in found for one in ([piece] if piece in self._names else _in_bytes(piece))]

    @cached_property
    def _divided(self) -> re.Pattern[str] | None:
        """The user's symbols, the longest first."""
        longest_first = sorted(self._symbols, key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, longest_first))})") if longest_first else None

    def _merged(self, text: str, alpha: float, draw: Draw) -> list[str]:
        """The merge with the highest score first; among equal ones the leftmost."""
        symbols, after, before = list(text), list(range(1, len(text) + 1)), list(range(-1, len(text) - 1))
        heap: list[tuple[float, int, int, str]] = []

        def offer(left: int, right: int) -> None:
            piece = symbols[left] + symbols[right]
            if piece in self._scores:
                heappush(heap, (-self._scores[piece], left, right, piece))

        for left in range(len(symbols) - 1):
            offer(left, left + 1)
        while heap:
            _, left, right, piece = heappop(heap)
            is_there = symbols[left] and symbols[right] and symbols[left] + symbols[right] == piece
            if not is_there or draw() < alpha:
                continue
            symbols[left], symbols[right] = piece, ""
            after[left] = after[right]
            if after[left] < len(symbols):
                before[after[left]] = left
                offer(left, after[left])
            if before[left] >= 0:
                offer(before[left], left)
        return [symbol for symbol in symbols if symbol]

    def _drawn(self, text: str, alpha: float, draw: Draw) -> list[str]:
        """Forward filtering, backward sampling: the last piece first, each given those behind it."""
        logs = [0.0]  # of the sum over all segmentations of the text up to each place
        last: list[list[tuple[int, float]]] = [[]]  # where a piece that ends there can begin, and its share
        for end in range(1, len(text) + 1):
            options = []
            for start in range(max(0, end - self._longest), end):
                score = self._scores.get(text[start:end], self._unknown if end - start == 1 else None)
                if score is not None:
                    options.append((start, logs[start] + alpha * score))
            highest = max(log for _, log in options)
            shares = [(start, math.exp(log - highest)) for start, log in options]
            logs.append(highest + math.log(sum(share for _, share in shares)))
            last.append(shares)
        found: list[str] = []
        end = len(text)
        while end:
            sums = list(accumulate(share for _, share in last[end]))
            drawn = draw() * sums[-1]
            start = next((start for (start, _), total in zip(last[end], sums, strict=True) if drawn < total), end - 1)
            found.append(text[start:end])
            end = start
        return found[::-1]


def _in_bytes(character: str) -> list[str]:
    return [f"<0x{byte:02X}>" for byte in character.encode()]
