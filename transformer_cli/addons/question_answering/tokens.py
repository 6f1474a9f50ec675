"""Passages as tokens with the characters that each of them is, and the windows in which a model reads them.

Words, divided by white space, are tokenized one by one, so that the same word has the same tokens everywhere.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from transformer_cli.addons.tagging.words import WordEncoder
from transformer_cli.data.packed_tokenizer import Segmenter
from transformer_cli.data.sentencepiece_model import SPACE
from transformer_cli.data.tokenizer import Tokenizer

_WORD = re.compile(r"\S+")
_BYTE = re.compile("<0x([0-9A-F]{2})>")
_GLUE = "@@"  # of subword-nmt, at the end of a piece that is not the last of its word
_UNKNOWN = "\0"  # in the place of <unk>, which is no character of any word
_MOST_WORDS = 100_000  # different ones whose bounds are kept
_Bounds = tuple[int, int]  # the first character, and the one behind the last


@dataclass(frozen=True)
class PassageTokens:
    """The ids of a passage, and the characters of each: those from its start on, and before its end."""

    ids: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def span(self, start: int, end: int) -> _Bounds | None:
        """The first and the last token of the smallest span around the characters; None where no token has any."""
        first, last = bisect_right(self.ends, start), bisect_left(self.starts, end) - 1
        return (first, last) if first <= last else None


class PassageEncoder:
    """Encodes questions and passages; with `as_written` as training text is."""

    def __init__(self, tokenizer: Tokenizer, *, as_written: bool = False) -> None:
        self.tokenizer = tokenizer
        self._words = WordEncoder(tokenizer, as_written=as_written)
        self._bounds: dict[str, list[_Bounds]] = {}

    def questions(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each question, none of which is blank."""
        return [self._safe(i for word in one for i in word) for one in self._words.encode([t.split() for t in texts])]

    def passages(self, texts: Sequence[str]) -> list[PassageTokens]:
        """The tokens of each passage."""
        words = [list(_WORD.finditer(text)) for text in texts]
        encoded = self._words.encode([[word[0] for word in one] for one in words])
        found = []
        for of_text, ids in zip(words, encoded, strict=True):
            tokens = PassageTokens()
            for word, its_ids in zip(of_text, ids, strict=True):
                tokens.ids.extend(self._safe(its_ids))
                bounds = self._bounds_of(word[0], its_ids)
                tokens.starts.extend(word.start() + start for start, _ in bounds)
                tokens.ends.extend(word.start() + end for _, end in bounds)
            found.append(tokens)
        return found

    def _safe(self, ids: Iterable[int]) -> list[int]:
        """The ids without EOS, which text never holds."""
        eos_id, unk_id = self.tokenizer.eos_id, self.tokenizer.unk_id
        return [unk_id if i == eos_id else i for i in ids]

    def _bounds_of(self, word: str, ids: Sequence[int]) -> list[_Bounds]:
        found = self._bounds.get(word)
        if found is None:
            found = token_bounds(word, surfaces(self.tokenizer, ids))
            if len(self._bounds) < _MOST_WORDS:
                self._bounds[word] = found
        return found


def surfaces(tokenizer: Tokenizer, ids: Sequence[int]) -> list[bytes]:
    """The text of each token of a word in UTF-8, of which a byte of byte fallback is a part of a character."""
    glued = tokenizer.packed is not None and tokenizer.packed.segmenter is Segmenter.subword_nmt
    found = []
    for i, piece in zip(ids, tokenizer.pieces(ids), strict=True):
        byte = _BYTE.fullmatch(piece) if i in tokenizer.unknown_ids else None
        if byte is not None:
            found.append(bytes.fromhex(byte[1]))
        elif i == tokenizer.unk_id:
            found.append(_UNKNOWN.encode())
        else:
            found.append((piece.removesuffix(_GLUE) if glued else piece.replace(SPACE, "")).encode())
    return found


def token_bounds(word: str, texts: Sequence[bytes]) -> list[_Bounds]:
    """The characters of each token of a word.

    Where the tokens spell it otherwise, as in small letters, with composed marks or as <unk>, what differs is aligned
    as a whole. A token without a character of its own has those of the next one.
    """
    joined = b"".join(texts)
    read = joined.decode("utf-8", errors="replace")
    to_word = _aligned(read, word)
    # Of each byte the character in `read`; where they are not UTF-8, a character is as many bytes as it took.
    character = _characters(joined, read)
    found: list[_Bounds | None] = []
    at = 0
    for text in texts:
        chosen = [to_word[c] for c in character[at : at + len(text)]]
        at += len(text)
        found.append((chosen[0][0], chosen[-1][1]) if chosen else None)
    behind: _Bounds | None = None
    for n in reversed(range(len(found))):
        behind = found[n] = found[n] or behind
    last = next((one for one in reversed(found) if one is not None), (0, len(word)))
    return [one or last for one in found]


def _characters(joined: bytes, read: str) -> list[int]:
    """The character of `read`, which is decoded from `joined`, that each byte is a part of."""
    if read.encode() == joined:
        return [n for n, c in enumerate(read) for _ in c.encode()]
    # Bytes that are no UTF-8, as of a damaged vocabulary: all belong to all.
    return [min(n, len(read) - 1) for n in range(len(joined))]


def _aligned(read: str, word: str) -> list[_Bounds]:
    """The characters of `word` that each character of `read` stands for; together they are all of them."""
    if read == word:
        return [(n, n + 1) for n in range(len(word))]
    found: list[_Bounds] = []
    for kind, i, j, a, b in SequenceMatcher(None, read, word, autojunk=False).get_opcodes():
        if kind == "insert" and found:  # characters that no token has, as soft hyphens, belong to the one before
            found[-1] = (found[-1][0], b)
        elif j - i == b - a:
            found += [(n, n + 1) for n in range(a, b)]
        elif kind != "insert":
            found += [(a, b) if b > a else (max(0, a - 1), a)] * (j - i)
    if found:
        found[0] = (0, found[0][1])
    return found


def token_windows(n_tokens: int, room: int, stride: int) -> list[range]:
    """Ranges of at most `room` tokens of a passage that begin every `stride` tokens; one where all fits in."""
    starts = [0]
    while starts[-1] + room < n_tokens:
        starts.append(starts[-1] + stride)
    return [range(start, min(start + room, n_tokens)) for start in starts]


@dataclass(frozen=True)
class WindowSize:
    """The size of windows: `max_length` tokens with the question and the marks; `stride` unset: half of a window."""

    max_length: int
    stride: int | None = None

    def question(self, ids: Sequence[int]) -> Sequence[int]:
        """A question, cut to half of a window."""
        return ids[: max(1, (self.max_length - 3) // 2)]

    def of(self, question: Sequence[int], n_tokens: int) -> list[range]:
        """The windows of a passage that is read with `question`, which is cut already."""
        room = max(1, self.max_length - 3 - len(question))
        stride = min(self.stride, room) if self.stride is not None else (room + 1) // 2
        return token_windows(n_tokens, room, stride)


def joined_ids(tokenizer: Tokenizer, question: Sequence[int], passage: Sequence[int]) -> list[int]:
    """BOS, the question, EOS, the tokens of a window, EOS; the window begins at `offset_of(question)`."""
    return [tokenizer.bos_id, *question, tokenizer.eos_id, *passage, tokenizer.eos_id]


def offset_of(question: Sequence[int]) -> int:
    return len(question) + 2
