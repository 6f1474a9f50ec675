"""Tokens to vectors, and where they stand (Vaswani et al. 2017, sections 3.4 and 3.5).

Shapes: B batch, L length, D width, E head width, V vocabulary.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_cli.errors import ConfigError


class TokenEmbedding(nn.Module):
    """One row for each token of a vocabulary, and the same rows as an output layer where weights are tied.

    Rows start as N(0, 1 / d_model): scaled by √d_model they enter the stack with unit variance, like the
    positions, and unscaled they give logits of unit variance. The row of the padding starts at zero, as in
    fairseq: nobody looks at it, and as an output it starts neutral.
    """

    def __init__(self, vocab_size: int, d_model: int, *, pad_id: int, scaled: bool) -> None:
        super().__init__()
        self.pad_id, self.scale = pad_id, math.sqrt(d_model) if scaled else 1.0
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        nn.init.normal_(self.weight, std=d_model**-0.5)
        nn.init.zeros_(self.weight[pad_id])

    def forward(self, ids_BL: Tensor) -> Tensor:
        return F.embedding(ids_BL, self.weight, padding_idx=self.pad_id) * self.scale

    def logits(self, x_BLD: Tensor) -> Tensor:
        return F.linear(x_BLD, self.weight)


@lru_cache(maxsize=16)
def waves(length: int, width: int, *, interleaved: bool, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The table of section 3.5, [length, width]: sines and cosines of position / 10000^(2i / width).

    Interleaved as printed in the paper (sin, cos, sin, cos, …), or all sines and then all cosines.
    """
    with torch.inference_mode(False):  # a table first needed by a search also serves the training after it
        exponent_D = torch.arange(0, width, 2, dtype=torch.float64) / width
        angle_LD = torch.outer(torch.arange(length, dtype=torch.float64), 10_000**-exponent_D)
        pair = [angle_LD.sin(), angle_LD.cos()]
        table_LD = torch.stack(pair, dim=-1).flatten(1) if interleaved else torch.cat(pair, dim=-1)
        return table_LD.to(device, dtype)


def waves_for(x_BLD: Tensor, first: int, width: int, *, interleaved: bool) -> Tensor:
    """The rows of `waves` for the positions of `x_BLD`, counted from `first`."""
    end = first + x_BLD.size(1)
    n_rows = max(256, 1 << (end - 1).bit_length())  # powers of two, so that few tables serve all lengths
    return waves(n_rows, width, interleaved=interleaved, dtype=x_BLD.dtype, device=x_BLD.device)[first:end]


class SinusoidalPositions(nn.Module):
    """Adds the waves of section 3.5 to the embeddings; has no parameters and no longest sentence.

    tensor2tensor, which arranges sines before cosines, also spreads their frequencies over one step less; here both
    arrangements follow the paper's formula, and so the second one agrees with Hugging Face's Marian.
    """

    def __init__(self, *, interleaved: bool) -> None:
        super().__init__()
        self.interleaved = interleaved

    def forward(self, x_BLD: Tensor, first: int) -> Tensor:
        return x_BLD + waves_for(x_BLD, first, x_BLD.size(-1), interleaved=self.interleaved)


class LearnedPositions(nn.Module):
    """Adds a learned vector for each position (table 3, row E)."""

    def __init__(self, d_model: int, *, max_positions: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_positions, d_model))
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(self, x_BLD: Tensor, first: int) -> Tensor:
        end = first + x_BLD.size(1)
        if end > len(self.weight):
            raise ConfigError(
                f"model.max_positions={len(self.weight)}: fewer than the {end} tokens of a sentence."
                f" Train with model.max_positions={end} or more, or allow only shorter sentences"
            )
        return x_BLD + self.weight[first:end]


class Rotation(NamedTuple):
    """By how much each position turns the pairs of a head's query or key."""

    sin_LE: Tensor
    cos_LE: Tensor

    def turn(self, x_BHLE: Tensor) -> Tensor:
        """Turn the pair (i, i + E/2) of each position as a point of the plane."""
        a_BHLE, b_BHLE = x_BHLE.chunk(2, dim=-1)
        sin_LE, cos_LE = self
        turned = torch.cat([a_BHLE * cos_LE - b_BHLE * sin_LE, b_BHLE * cos_LE + a_BHLE * sin_LE], dim=-1)
        return turned.type_as(x_BHLE)


class RotaryPositions(nn.Module):
    """Turns queries and keys of self-attention: their product then knows how far apart they are (Su et al. 2021)."""

    def __init__(self, d_k: int) -> None:
        super().__init__()
        self.d_k = d_k

    def forward(self, x_BLD: Tensor, first: int) -> Rotation:
        return Rotation(*waves_for(x_BLD, first, self.d_k, interleaved=False).chunk(2, dim=-1))
