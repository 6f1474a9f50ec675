"""What a decoder need not compute again while a translation grows.

Shapes: B sentences, N beams of each, R = B × N rows (row b·N + n is beam n of sentence b), G families of F rows each,
M = F × target positions, S source, H heads, E head width, Y layers.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

LARGEST_FAMILY = 16  # rows; each looks at the keys of all of them, so that work grows with its square


@dataclass
class DecoderCache:
    """Keys and values of the target so far, in memory taken once for the longest translation, and those of the source.

    The beams of a sentence are a family: what any of them has written lies side by side (token t of its row f at
    t·F + f), all of them look at all of it, and a mask says whose past is whose. So beams that change places move
    nothing but their row of the mask. Beams that are too many for that are families of one, and move what they hold.
    """

    keys_YGHME: Tensor
    values_YGHME: Tensor
    memory_keys_BHSE: list[Tensor]  # of each layer
    memory_values_BHSE: list[Tensor]
    source_mask_B11S: Tensor  # added to scores: 0 where a query may look, -inf where not
    past_mask_GFM: Tensor | None  # likewise; None: families of one
    beam_size: int
    keeps_attention: bool = False
    attention_BNS: Tensor | None = None  # where the newest tokens looked: the last layer's mean over its heads
    length: int = 0

    @classmethod
    def start(
        cls,
        memory: list[tuple[Tensor, Tensor]],
        source_mask_B11S: Tensor,
        *,
        beam_size: int,
        max_length: int,
        keeps_attention: bool,
    ) -> "DecoderCache":
        """`memory` are keys and values of the source, [B, S, H, E], of each layer; `source_mask_B11S` is boolean."""
        (k_BSHE, v_BSHE), n_layers = memory[0], len(memory)
        n_sentences, _, n_heads, _ = k_BSHE.shape
        family = beam_size if 1 < beam_size <= LARGEST_FAMILY else 1
        n_families, n_past = n_sentences * beam_size // family, max_length * family
        own = torch.zeros(family, family, device=k_BSHE.device).fill_diagonal_(1).log()  # 0 for oneself, else -inf
        return cls(
            keys_YGHME=k_BSHE.new_empty(n_layers, n_families, n_heads, n_past, k_BSHE.size(-1)),
            values_YGHME=v_BSHE.new_empty(n_layers, n_families, n_heads, n_past, v_BSHE.size(-1)),
            memory_keys_BHSE=[k.transpose(1, 2).contiguous() for k, _ in memory],
            memory_values_BHSE=[v.transpose(1, 2).contiguous() for _, v in memory],
            source_mask_B11S=added(source_mask_B11S, k_BSHE.dtype),
            past_mask_GFM=own.to(k_BSHE.dtype).repeat(n_families, 1, max_length) if family > 1 else None,
            beam_size=beam_size,
            keeps_attention=keeps_attention,
        )

    @property
    def family(self) -> int:
        return 1 if self.past_mask_GFM is None else self.past_mask_GFM.size(1)

    @property
    def mask_G1FM(self) -> Tensor | None:
        """Of the tokens so far; in the first step, in which the rows of a family are alike, for one of them."""
        if self.past_mask_GFM is None:
            return None
        n_rows = 1 if self.length == 1 else self.family
        return self.past_mask_GFM[:, None, :n_rows, : self.length * self.family]

    def grow(self) -> None:
        """Make room for the newest token of each row."""
        self.length += 1
        assert self.length * self.family <= self.keys_YGHME.size(-2), "more steps than `start` was told of"

    def write(self, layer: int, k_RHE: Tensor, v_RHE: Tensor) -> tuple[Tensor, Tensor]:
        """Put down what the newest tokens are looked up by, and return that of all so far."""
        end = self.length * self.family
        past = self.keys_YGHME[layer][:, :, :end], self.values_YGHME[layer][:, :, :end]
        for past_GHME, new_RHE in zip(past, (k_RHE, v_RHE), strict=True):
            new_GFHE = new_RHE.unflatten(0, (len(past_GHME), -1))  # F is 1 in the first step, whose rows are alike
            past_GHME[:, :, -self.family :] = new_GFHE.transpose(1, 2)
        return past

    def reorder(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        """Go on with these rows, and these sentences (None: all): each new one is named by its number until now."""
        used = self.length * self.family
        families_G = sentences_B
        if self.past_mask_GFM is None:
            families_G = rows_R if sentences_B is not None or self.beam_size > 1 else None
        if families_G is not None:
            moved = moved_rows(families_G)
            for past_YGHME in (self.keys_YGHME, self.values_YGHME):
                for past_GHME in past_YGHME:
                    take(past_GHME[:, :, :used], moved)
            self.keys_YGHME = self.keys_YGHME[:, : len(families_G)]
            self.values_YGHME = self.values_YGHME[:, : len(families_G)]
        if self.past_mask_GFM is not None:
            if sentences_B is not None:
                self.past_mask_GFM = self.past_mask_GFM[sentences_B]
            beam_GF1 = (rows_R % self.family).view(-1, self.family, 1)  # [R] -> [G, F, 1]
            used_GFM = self.past_mask_GFM[:, :, :used]
            used_GFM.copy_(used_GFM.gather(1, beam_GF1.expand_as(used_GFM)))
        if sentences_B is not None:
            self._keep(sentences_B)

    def _keep(self, sentences_B: Tensor) -> None:
        moved, n = moved_rows(sentences_B), len(sentences_B)
        for memory_BHSE in (self.memory_keys_BHSE, self.memory_values_BHSE):
            for x_BHSE in memory_BHSE:
                take(x_BHSE, moved)
            memory_BHSE[:] = [x_BHSE[:n] for x_BHSE in memory_BHSE]
        self.source_mask_B11S = self.source_mask_B11S[sentences_B]


def added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A boolean mask, True where a query may look, as what is added to scores."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, -math.inf)


def moved_rows(from_G: Tensor) -> tuple[Tensor, Tensor]:
    """Where something else goes than what is there, and where that comes from."""
    to_K = (from_G != torch.arange(len(from_G), device=from_G.device)).nonzero().squeeze(1)
    return to_K, from_G[to_K]


def take(x_G: Tensor, moved: tuple[Tensor, Tensor]) -> None:
    """In place; what moves is read before anything is written."""
    to_K, from_K = moved
    if len(to_K):
        x_G[to_K] = x_G[from_K]
