"""The likeliest words for the masks of a text.

Shapes: V vocabulary.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from transformer_cli.addons.masked_language_models.masking import special_ids
from transformer_cli.addons.masked_language_models.predictor import MaskPredictor
from transformer_cli.data.sentencepiece_model import SPACE
from transformer_cli.errors import DataError

MASK = re.compile(r"\[mask\]|<mask>", re.IGNORECASE)
_LEAST_BEAM = 5  # fillings of the masks so far that are kept where there are further ones
_NO_PIECE = "\ue000"  # of the private use area: no piece has it, so text behind it is cut as within a word


@dataclass(frozen=True)
class MaskedText:
    """A text, the parts around its masks, and the ids of each part."""

    text: str
    parts: list[str]  # one more than masks
    ids: list[list[int]]

    @property
    def n_masks(self) -> int:
        return len(self.parts) - 1

    def begins_word(self, mask: int) -> bool:
        """Whether white space, or nothing, stands before the mask with this number."""
        before = self.parts[mask]
        return before[-1:].isspace() or (mask == 0 and not before)

    def with_words(self, words: Sequence[str]) -> str:
        """The text with words in the place of its masks."""
        return "".join(text for pair in zip(self.parts, [*words, ""], strict=True) for text in pair)


@dataclass(frozen=True)
class Filling:
    """A word for each mask of a text, and the probability of them all."""

    words: tuple[str, ...]
    text: str
    log_prob: float  # natural logarithm

    @property
    def probability(self) -> float:
        return math.exp(self.log_prob)


@dataclass(frozen=True)
class _Partial:
    """Words for the first masks: their ids and their text."""

    ids: tuple[tuple[int, ...], ...] = ()
    words: tuple[str, ...] = ()
    log_prob: float = 0.0


class Filler:
    """Fills the masks of one text at a time, from left to right.

    Each mask is predicted with the words that the masks before it got, the masks after it still being masks. The
    probability of a filling is the product of those of its words. With one mask and `most_pieces` 1 it is the softmax
    of the model's logits.

    A word of n pieces is looked for with n masks in the place of its mask, filled from left to right, too. All n up to
    `most_pieces` are taken for equally probable.
    """

    def __init__(self, predictor: MaskPredictor, *, longest: int, top: int, most_pieces: int = 1) -> None:
        """`longest` is how many tokens the model reads, BOS and EOS counted."""
        self.predictor, self.tokenizer = predictor, predictor.tokenizer
        self.longest, self.top, self.most_pieces = longest, top, most_pieces

    @cached_property
    def _can_follow_V(self) -> tuple[Tensor, Tensor]:
        """The pieces that may continue a word, and those that may begin one, as masks over the vocabulary."""
        tokenizer = self.tokenizer
        pieces = tokenizer.pieces(range(len(tokenizer)))
        no_text = {*special_ids(tokenizer), *tokenizer.unknown_ids, tokenizer.unk_id}
        has_spaces = any(piece.startswith(SPACE) for piece in pieces)
        is_text_V = torch.tensor([i not in no_text and bool(piece.strip(SPACE)) for i, piece in enumerate(pieces)])
        begins_V = torch.tensor([piece.startswith(SPACE) or not has_spaces for piece in pieces])
        return is_text_V & ~begins_V, is_text_V & begins_V

    def read(self, text: str, where: str) -> MaskedText:
        """Raises DataError, which names `where` the text is, for one that is blank, without a mask, or too long."""
        if not text.strip():
            raise DataError(f"{where}: is empty. Give a text with a [mask]")
        parts = MASK.split(text)
        if len(parts) == 1:
            raise DataError(f"{where}: has no mask. Write [mask] where a word is to be found")
        found = MaskedText(text, parts, [self._ids(part, is_first=n == 0) for n, part in enumerate(parts)])
        n_tokens = sum(map(len, found.ids)) + found.n_masks + self.most_pieces + 1
        if n_tokens > self.longest:
            raise DataError(f"{where}: {n_tokens:,} tokens, and the model reads {self.longest}. Shorten it")
        return found

    def _ids(self, part: str, *, is_first: bool) -> list[int]:
        """The ids of a part of a text; one that follows a mask without white space goes on within a word."""
        tokenizer = self.tokenizer
        if is_first or part[:1].isspace() or not part or tokenizer.has_words_only:
            (ids,) = tokenizer.encode([part])
            return ids if is_first else ids[tokenizer.n_tags(ids) :]
        alone, together = tokenizer.encode([_NO_PIECE, _NO_PIECE + part])
        return together[len(alone) :]

    def fill(self, masked: MaskedText) -> list[Filling]:
        """The `top` likeliest fillings, the likeliest first. Raises CheckpointError if logits are not numbers."""
        beam = [_Partial()]
        for mask in range(masked.n_masks):
            is_last = mask == masked.n_masks - 1
            beam = self._best(self._with_next(masked, beam), self.top if is_last else max(self.top, _LEAST_BEAM))
        return [Filling(one.words, masked.with_words(one.words), one.log_prob) for one in beam]

    def _with_next(self, masked: MaskedText, beam: Sequence[_Partial]) -> list[_Partial]:
        """The fillings of `beam` with the likeliest words for the next mask, of each number of pieces."""
        mask = len(beam[0].ids)
        found: list[_Partial] = []
        for n_pieces in range(1, self.most_pieces + 1):
            share = -math.log(self.most_pieces)
            growing = [replace(one, ids=(*one.ids, ()), log_prob=one.log_prob + share) for one in beam]
            for n_left in range(n_pieces, 0, -1):
                begins = masked.begins_word(mask) if n_left == n_pieces else False
                growing = self._with_piece(masked, growing, n_left=n_left, begins=begins)
            found += self._whole_words(growing, begins=masked.begins_word(mask))
        return found

    def _with_piece(
        self, masked: MaskedText, growing: Sequence[_Partial], *, n_left: int, begins: bool
    ) -> list[_Partial]:
        """The likeliest of `growing` with a further piece of the last word, which lacks `n_left`."""
        sentences = [self._sentence(masked, one.ids, n_left) for one in growing]
        width = max(self.top, _LEAST_BEAM)
        longer: list[_Partial] = []
        for one, log_p_V in zip(growing, self.predictor.log_probs(sentences), strict=True):
            allowed_V = log_p_V.masked_fill(~self._can_follow_V[begins], -torch.inf)
            best = allowed_V.sort(descending=True, stable=True)
            for log_p, piece in zip(best.values[:width].tolist(), best.indices[:width].tolist(), strict=True):
                if log_p > -math.inf:
                    ids = (*one.ids[:-1], (*one.ids[-1], piece))
                    longer.append(replace(one, ids=ids, log_prob=one.log_prob + log_p))
        return self._best(longer, width)

    def _sentence(self, masked: MaskedText, filled: Sequence[Sequence[int]], n_left: int) -> list[int]:
        """The ids from BOS to EOS with the words so far, of which the last one lacks `n_left` pieces."""
        tokenizer, mask_id = self.tokenizer, self.predictor.mask_id
        n_open = masked.n_masks - len(filled)
        words = [*filled[:-1], [*filled[-1], *[mask_id] * n_left], *[[mask_id]] * n_open, []]
        ids = [i for part, word in zip(masked.ids, words, strict=True) for i in (*part, *word)]
        return [tokenizer.bos_id, *ids, *tokenizer.end_ids]

    def _whole_words(self, growing: Sequence[_Partial], *, begins: bool) -> list[_Partial]:
        """The fillings with the text of their last word, if a text with it is cut into just these pieces."""
        found = []
        for one in growing:
            ids = list(one.ids[-1])
            word = self.tokenizer.decode(ids)
            if word and (len(ids) == 1 or self._ids(word, is_first=begins) == ids):
                found.append(replace(one, words=(*one.words, word)))
        return found

    @staticmethod
    def _best(found: Sequence[_Partial], n: int) -> list[_Partial]:
        """The `n` likeliest; of equal ones those with the lower ids."""
        return sorted(found, key=lambda one: (-one.log_prob, one.ids))[:n]
