"""Byte pair encoding with the codes of subword-nmt (Sennrich et al. 2016), as in fairseq and OPUS-MT."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

_END = "</w>"
_GLUE = "@@"  # at the end of a piece that is not the last of its word
_REMEMBERED = 100_000  # words


class SubwordNmt:
    """Raises ValueError for text that is not a list of merges, one in a line."""

    def __init__(self, codes: str) -> None:
        lines = [line.strip("\r\n ") for line in codes.split("\n")]
        self.is_newer = lines[0].startswith("#version: 0.2")  # the end of a word is a part of its last character
        if lines[0].startswith("#version:"):
            del lines[0]
        self.ranks: dict[tuple[str, ...], int] = {}
        for number, line in enumerate(lines):
            if line:
                merge = tuple(line.split(" "))[:2]
                if len(merge) < 2:
                    raise ValueError(f"BPE codes: line {number + 1} is not a pair")
                self.ranks.setdefault(merge, number)
        if not self.ranks:
            raise ValueError("BPE codes: no merges")
        self._word = lru_cache(_REMEMBERED)(self._split)

    def segment(self, text: str) -> list[str]:
        """The pieces of the words of a text, which spaces divide."""
        pieces: list[str] = []
        for word in text.strip("\r\n ").split(" "):
            if word:
                *inner, last = self._word(word)
                pieces += [piece + _GLUE for piece in inner] + [last]
        return pieces

    def _split(self, word: str) -> tuple[str, ...]:
        """A word by its merges: again and again the pair that was merged first in training, wherever it stands."""
        parts = [*word[:-1], word[-1] + _END] if self.is_newer else [*word, _END]
        while len(parts) > 1:
            first = min(pairwise(parts), key=lambda pair: self.ranks.get(pair, len(self.ranks)))
            if first not in self.ranks:
                break
            parts = merged(parts, first)
        if parts[-1] == _END:
            parts = parts[:-1]
        elif parts[-1].endswith(_END):
            parts[-1] = parts[-1].removesuffix(_END)
        return tuple(parts)

    @staticmethod
    def joined(text: str) -> str:
        """The words of pieces with spaces between them."""
        return (text + " ").replace(f"{_GLUE} ", "").rstrip(" ")


def merged(parts: Sequence[str], pair: tuple[str, ...]) -> list[str]:
    """The parts of a word with `pair` as one, wherever it stands."""
    found: list[str] = []
    i = 0
    while i < len(parts):
        if tuple(parts[i : i + 2]) == pair:
            found.append(parts[i] + parts[i + 1])
            i += 2
        else:
            found.append(parts[i])
            i += 1
    return found
