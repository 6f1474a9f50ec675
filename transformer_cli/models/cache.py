"""What a decoder need not compute again while a translation grows.

Shapes: B sentences, N beams of each, R = B × N rows (row b·N + n is beam n of sentence b), G families of F rows each,
M = F × target positions, S source, H heads, E head width.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from transformer_cli.models.layouts import Newest, Padded, Places

LARGEST_FAMILY = 16  # rows; each looks at the keys of all of them, so that work grows with its square


@dataclass(kw_only=True)
class PastCache:
    """Keys and values of the target so far, in memory taken once for the longest: all that a language model needs.

    The beams of a sentence are a family: what any of them has written lies side by side (token t of its row f at
    t·F + f), all of them look at all of it, and a mask says whose past is whose. So beams that change places move
    nothing but their row of the mask. Beams that are too many for that are families of one, and move what they hold.

    Lists have an entry for each layer. Masks are added to scores: 0 where a query may look, -inf where not.
    """

    keys_GHME: list[Tensor]
    values_GHME: list[Tensor]
    past_mask_GFM: Tensor | None  # None: families of one
    beam_size: int
    length: int = 0
    mask_GHFM: Tensor | None = None  # `past_mask_GFM` as far as it goes, with H of 1

    @classmethod
    def empty(
        cls, like: Sequence[tuple[Tensor, Tensor]], n_sentences: int, *, beam_size: int, max_length: int, **more: Any
    ) -> Self:
        """For keys and values as `like`, […, H, E], one of each layer; `more` is what a subclass has."""
        family = beam_size if 1 < beam_size <= LARGEST_FAMILY else 1
        n_families = n_sentences * beam_size // family

        def room(x: Tensor) -> Tensor:
            return x.new_empty(n_families, x.size(-2), max_length * family, x.size(-1))

        return cls(
            keys_GHME=[room(k) for k, _ in like],
            values_GHME=[room(v) for _, v in like],
            past_mask_GFM=own_past(family, like[0][0]).repeat(n_families, 1, max_length) if family > 1 else None,
            beam_size=beam_size,
            **more,
        )

    @property
    def family(self) -> int:
        return 1 if self.past_mask_GFM is None else self.past_mask_GFM.size(1)

    @property
    def newest(self) -> Places:
        """Where the token after those so far stands."""
        return Padded(1, first=self.length)

    @property
    def n_alike(self) -> int:
        """How many rows after each other, of the tokens that come now, say the same."""
        return self.family if self.length == 0 else 1

    def grow(self) -> None:
        """Make room for the newest token of each row."""
        self.length += 1
        used = self.length * self.family
        assert used <= self.keys_GHME[0].size(2), "more steps than `start` was told of"
        if self.past_mask_GFM is not None:
            n_rows = 1 if self.length == 1 else self.family  # in the first step those of a family are alike
            self.mask_GHFM = self.past_mask_GFM[:, None, :n_rows, :used]

    def write(self, layer: int, k_RHE: Tensor, v_RHE: Tensor) -> tuple[Tensor, Tensor]:
        """Put down what the newest tokens are looked up by, and return that of all so far."""
        family = self.family
        start, n_new = (self.length - 1) * family, family
        keys_GHME, values_GHME = self.keys_GHME[layer], self.values_GHME[layer]
        n_families = len(keys_GHME)
        keys_GHME.narrow(2, start, n_new).copy_(torch.unflatten(k_RHE, 0, (n_families, -1)).transpose(1, 2))
        values_GHME.narrow(2, start, n_new).copy_(torch.unflatten(v_RHE, 0, (n_families, -1)).transpose(1, 2))
        return keys_GHME.narrow(2, 0, start + n_new), values_GHME.narrow(2, 0, start + n_new)

    def begin_with(self, past: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Put down keys and values of the first tokens of each sentence, [B, T, H, E], which its beams share."""
        family = self.family
        for layer, both in enumerate(past):
            for x_GHME, new_BTHE in zip((self.keys_GHME[layer], self.values_GHME[layer]), both, strict=True):
                new_GHTE = new_BTHE.transpose(1, 2).repeat_interleave(self.beam_size // family, dim=0)
                x_GHME[:, :, : new_BTHE.size(1) * family] = new_GHTE.repeat_interleave(family, dim=2)
        self.length = past[0][0].size(1)

    def reorder(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        """Go on with these rows, and these sentences (None: all): each new one is named by its number until now."""
        used = self.length * self.family
        if self.past_mask_GFM is not None:
            if sentences_B is not None:
                self.past_mask_GFM = first(self.past_mask_GFM, sentences_B)
            beam_GF1 = (rows_R % self.family).view(-1, self.family, 1)  # [R] -> [G, F, 1]
            used_GFM = self.past_mask_GFM[:, :, :used]
            used_GFM.copy_(used_GFM.gather(1, beam_GF1.expand_as(used_GFM)))
            families_G = sentences_B
        else:
            families_G = rows_R if sentences_B is not None or self.beam_size > 1 else None
        if families_G is not None:
            take((self.keys_GHME, self.values_GHME), families_G, used=used)


@dataclass(kw_only=True)
class DecoderCache(PastCache):
    """And what each layer looks the source up by."""

    memory_keys_BHSE: list[Tensor]
    memory_values_BHSE: list[Tensor]
    source_mask_BHNS: Tensor  # H and N of 1
    keeps_attention: bool = False
    attention_BNS: Tensor | None = None  # where the newest tokens looked: the last layer's mean over its heads

    @classmethod
    def start(
        cls,
        memory: Sequence[tuple[Tensor, Tensor]],
        source_mask_B11S: Tensor,
        *,
        beam_size: int,
        max_length: int,
        keeps_attention: bool,
    ) -> Self:
        """`memory` are keys and values of the source, [B, S, H, E], of each layer; `source_mask_B11S` is boolean."""
        return cls.empty(
            memory,
            len(source_mask_B11S),
            beam_size=beam_size,
            max_length=max_length,
            memory_keys_BHSE=[k.transpose(1, 2).contiguous() for k, _ in memory],
            memory_values_BHSE=[v.transpose(1, 2).contiguous() for _, v in memory],
            source_mask_BHNS=added(source_mask_B11S, memory[0][0].dtype),
            keeps_attention=keeps_attention,
        )

    def keep_attention(self, attention_BNS: Tensor) -> None:
        self.attention_BNS = attention_BNS

    def reorder(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        super().reorder(rows_R, sentences_B)
        if sentences_B is not None:
            take((self.memory_keys_BHSE, self.memory_values_BHSE), sentences_B)
            self.source_mask_BHNS = first(self.source_mask_BHNS, sentences_B)


@dataclass(kw_only=True)
class StaticCache(DecoderCache):
    """One whose tensors stay where they are, so that steps which a GPU has recorded find them.

    What is recorded may not depend on `length`, which differs from step to step: it goes by `position_1`, and looks at
    as many tokens as `attended` says, of which those that are not yet written are hidden.
    """

    position_1: Tensor = field(init=False)
    attended: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.position_1 = torch.zeros(1, dtype=torch.long, device=self.source_mask_BHNS.device)
        for x_GHME in (*self.keys_GHME, *self.values_GHME):
            x_GHME.zero_()  # what is hidden counts zero times, which is not a number where it is none itself
        if self.keeps_attention:
            n_sentences, _, n_source, _ = self.memory_keys_BHSE[0].shape
            self.attention_BNS = self.memory_keys_BHSE[0].new_zeros(n_sentences, self.beam_size, n_source)

    def restart(self, memory: Sequence[tuple[Tensor, Tensor]], source_mask_B11S: Tensor) -> None:
        """Begin with other sentences. Where they are fewer than before, the others stay, whom nobody asks."""
        n_sentences = len(source_mask_B11S)
        for layer, (k_BSHE, v_BSHE) in enumerate(memory):
            self.memory_keys_BHSE[layer][:n_sentences] = k_BSHE.transpose(1, 2)
            self.memory_values_BHSE[layer][:n_sentences] = v_BSHE.transpose(1, 2)
        self.source_mask_BHNS[:n_sentences] = added(source_mask_B11S, self.source_mask_BHNS.dtype)
        if self.past_mask_GFM is not None:
            own_FF = own_past(self.family, self.past_mask_GFM)
            self.past_mask_GFM.copy_(own_FF.repeat(1, self.past_mask_GFM.size(2) // self.family))
        self.length = 0

    def take_over(self, other: "StaticCache") -> None:
        """Go on with the first sentences of another one, which has room for more."""
        for own, theirs in zip(self.tensors(), other.tensors(), strict=True):
            own.copy_(theirs[: len(own)])
        self.length = other.length

    def tensors(self) -> Iterator[Tensor]:
        yield from (*self.keys_GHME, *self.values_GHME, *self.memory_keys_BHSE, *self.memory_values_BHSE)
        yield self.source_mask_BHNS
        if self.past_mask_GFM is not None:
            yield self.past_mask_GFM

    def advance(self, attended: int) -> None:
        """Before each step, whether it is replayed or not: the place of the newest token, on the device too."""
        self.length += 1
        self.position_1.fill_(self.length - 1)
        self.attended = attended

    @property
    def newest(self) -> Places:
        return Newest(self.position_1, bound=self.attended)

    def grow(self) -> None:
        used = self.attended * self.family
        is_to_come_M = torch.arange(used, device=self.position_1.device) >= (self.position_1 + 1) * self.family
        past_GHFM = self.source_mask_BHNS.new_zeros(1, 1, 1, 1)
        if self.past_mask_GFM is not None:
            past_GHFM = self.past_mask_GFM[:, None, :, :used]
        self.mask_GHFM = past_GHFM.masked_fill(is_to_come_M, -math.inf)

    def write(self, layer: int, k_RHE: Tensor, v_RHE: Tensor) -> tuple[Tensor, Tensor]:
        family, used = self.family, self.attended * self.family
        at_F = self.position_1 * family + torch.arange(family, device=self.position_1.device)
        found = []
        for x_GHME, new_RHE in ((self.keys_GHME[layer], k_RHE), (self.values_GHME[layer], v_RHE)):
            x_GHME.index_copy_(2, at_F, torch.unflatten(new_RHE, 0, (len(x_GHME), -1)).transpose(1, 2))
            found.append(x_GHME.narrow(2, 0, used))
        return found[0], found[1]

    def keep_attention(self, attention_BNS: Tensor) -> None:
        assert self.attention_BNS is not None
        self.attention_BNS.copy_(attention_BNS)


def own_past(family: int, like: Tensor) -> Tensor:
    """What each row of a family is allowed to see of one token of all of them, [F, F]: its own."""
    own_FF = torch.zeros(family, family, device=like.device).fill_diagonal_(1).log()  # 0 for oneself, else -inf
    return own_FF.to(like.dtype)


def added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A boolean mask, True where a query may look, as what is added to scores."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, -math.inf)


def first(x_BX: Tensor, from_B: Tensor) -> Tensor:
    """Those that `from_B` names, in the memory of the first ones."""
    first_BX = x_BX[: len(from_B)]
    return first_BX.copy_(x_BX[from_B])


def take(tensors: Iterable[list[Tensor]], from_G: Tensor, *, used: int | None = None) -> None:
    """Put the groups that `from_G` names first, in its order, and forget the rest.

    Only those that move are copied, and of them what is `used`; whatever moves is read before anything is written.
    """
    to_K = (from_G != torch.arange(len(from_G), device=from_G.device)).nonzero().squeeze(1)
    from_K = from_G[to_K]
    for layers in tensors:
        if len(to_K):
            for x_GHME in layers:
                used_GHME = x_GHME[:, :, :used]
                used_GHME[to_K] = used_GHME[from_K]
        layers[:] = [x_GHME[: len(from_G)] for x_GHME in layers]
