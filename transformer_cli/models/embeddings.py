"""Tokens to vectors, and where they stand (Vaswani et al. 2017, sections 3.4 and 3.5).

Shapes: L positions of all sentences (or B, L: padded), D width, H heads, E head width, V vocabulary.
"""

import math
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_cli.errors import ConfigError
from transformer_cli.models.layouts import Places
from transformer_cli.models.linear import project


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
        self.as_output: nn.Module | None = None  # the same product, arranged for a search

    def forward(self, ids_L: Tensor) -> Tensor:
        return F.embedding(ids_L, self.weight, padding_idx=self.pad_id) * self.scale

    def logits(self, x_LD: Tensor, *, multiple_of: int = 1) -> Tensor:
        """`multiple_of` is how many columns a matrix product likes; those that are added for it are left out again."""
        if self.as_output is not None:
            logits_LV: Tensor = self.as_output(x_LD)
            return logits_LV
        n_added = -len(self.weight) % multiple_of
        if not n_added:
            return project(x_LD, self.weight)
        return project(x_LD, F.pad(self.weight, (0, 0, 0, n_added)))[..., : len(self.weight)]


def waves(length: int, width: int, *, interleaved: bool, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The table of section 3.5, [length, width]: sines and cosines of position / 10000^(2i / width).

    Interleaved as printed in the paper (sin, cos, sin, cos, …), or all sines and then all cosines.
    """
    return _waves(length, width, interleaved, dtype, device)


@cache  # for good: what was recorded for a GPU reads a table where it lies
def _waves(length: int, width: int, interleaved: bool, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # a table first needed by a search also serves the training after it
        exponent_D = torch.arange(0, width, 2, dtype=torch.float64) / width
        angle_LD = torch.outer(torch.arange(length, dtype=torch.float64), 10_000**-exponent_D)
        pair = [angle_LD.sin(), angle_LD.cos()]
        table_LD = torch.stack(pair, dim=-1).flatten(1) if interleaved else torch.cat(pair, dim=-1)
        return table_LD.to(device, dtype)


def waves_for(x_LD: Tensor, sentences: Places, width: int, *, interleaved: bool) -> Tensor:
    """The rows of `waves` for the positions of `x_LD`."""
    n_rows = max(256, 1 << (sentences.longest - 1).bit_length())  # powers of two, so that few tables serve all lengths
    table_LD = waves(n_rows, width, interleaved=interleaved, dtype=x_LD.dtype, device=x_LD.device)
    return table_LD[sentences.positions]


class SinusoidalPositions(nn.Module):
    """Adds the waves of section 3.5 to the embeddings; has no parameters and no longest sentence.

    tensor2tensor, which arranges sines before cosines, also spreads their frequencies over one step less; here both
    arrangements follow the paper's formula, and so the second one agrees with Hugging Face's Marian.
    """

    def __init__(self, *, interleaved: bool) -> None:
        super().__init__()
        self.interleaved = interleaved

    def forward(self, x_LD: Tensor, sentences: Places) -> Tensor:
        return x_LD + waves_for(x_LD, sentences, x_LD.size(-1), interleaved=self.interleaved)


class LearnedPositions(nn.Module):
    """Adds a learned vector for each position (table 3, row E)."""

    def __init__(self, d_model: int, *, max_positions: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_positions, d_model))
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(self, x_LD: Tensor, sentences: Places) -> Tensor:
        if sentences.longest > len(self.weight):
            raise ConfigError(
                f"model.max_positions={len(self.weight)}: fewer than the {sentences.longest} tokens of a sentence."
                f" Train with model.max_positions={sentences.longest} or more, or allow only shorter sentences"
            )
        return x_LD + self.weight[sentences.positions]


class Rotation(NamedTuple):
    """By how much each position turns the pairs of a head's query or key."""

    sin_L1E: Tensor
    cos_L1E: Tensor

    def turn(self, x_LHE: Tensor) -> Tensor:
        """Turn the pair (i, i + E/2) of each position as a point of the plane."""
        a_LHE, b_LHE = x_LHE.chunk(2, dim=-1)
        sin_L1E, cos_L1E = self
        turned = torch.cat([a_LHE * cos_L1E - b_LHE * sin_L1E, b_LHE * cos_L1E + a_LHE * sin_L1E], dim=-1)
        return turned.type_as(x_LHE)


class RotaryPositions(nn.Module):
    """Turns queries and keys of self-attention: their product then knows how far apart they are (Su et al. 2021)."""

    def __init__(self, d_k: int) -> None:
        super().__init__()
        self.d_k = d_k

    def forward(self, x_LD: Tensor, sentences: Places) -> Rotation:
        sin_LE, cos_LE = waves_for(x_LD, sentences, self.d_k, interleaved=False).chunk(2, dim=-1)
        return Rotation(sin_LE.unsqueeze(1), cos_LE.unsqueeze(1))
