"""Token embeddings and positional encodings (Vaswani et al. 2017, sections 3.4 and 3.5).

Shapes: L tokens of all sentences (or B, L: padded), D width, W width of narrow embeddings, H heads, E head width,
V vocabulary.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_cli.config.model import ModelConfig
from transformer_cli.data.transfer import to_device
from transformer_cli.errors import ConfigError
from transformer_cli.models.layouts import SequenceLayout
from transformer_cli.models.linear import Linear, project


class TokenEmbedding(nn.Module):
    """One row for each token of a vocabulary, and the same rows as an output layer where weights are tied.

    Rows start as N(0, 1 / d_model): scaled by √d_model they enter the stack with unit variance, like the
    positions, and unscaled they give logits of unit variance. The row of the padding starts at zero, as in
    fairseq: nothing attends to it, and as an output it starts neutral.

    As an output layer it may have a `bias`. The embedding of `zero_id`, if there is one, is a vector of zeros, whatever
    its row: the decoder's first input in Marian.

    In training the output layer is padded to a multiple of `multiple_of` rows, where that makes its product faster. The
    logits of the padding are cut off. The parameter is never padded, nor are model files and the optimizer's state.
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        *,
        pad_id: int,
        scaled: bool,
        multiple_of: int = 1,
        bias: bool = False,
        zero_id: int | None = None,
    ) -> None:
        super().__init__()
        self.n_padding_rows = -vocab_size % multiple_of
        self.pad_id, self.zero_id, self.scale = pad_id, zero_id, math.sqrt(d_model) if scaled else 1.0
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        nn.init.normal_(self.weight, std=d_model**-0.5)
        nn.init.zeros_(self.weight[pad_id])
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None
        self.dtype: torch.dtype | None = None  # of the vectors; None: of the weight, which in memory may have 16 bits
        self.as_output: nn.Module | None = None  # the same product with prepacked weights, for inference

    def forward(self, ids_L: Tensor) -> Tensor:
        x_LD = self._rows(ids_L) * self.scale
        return x_LD if self.zero_id is None else x_LD.masked_fill((ids_L == self.zero_id).unsqueeze(-1), 0)

    def _rows(self, ids_L: Tensor) -> Tensor:
        x_LD = F.embedding(ids_L, self.weight, padding_idx=self.pad_id)
        return x_LD if self.dtype is None else x_LD.to(self.dtype)

    def logits(self, x_LD: Tensor) -> Tensor:
        if self.as_output is not None:
            logits_LV: Tensor = self.as_output(x_LD)
            return logits_LV
        return project(x_LD, self.weight, self.bias)

    def restricted(self, ids_BK: Tensor, is_behind_BK: Tensor) -> "RestrictedOutput":
        """The output layer for the tokens `ids_BK` of each sentence; those that are `is_behind_BK` have no chance."""
        weight_BKD = self._rows(ids_BK).detach()
        bias_BK = weight_BKD.new_zeros(ids_BK.shape) if self.bias is None else self.bias.detach()[ids_BK]
        bias_BK = bias_BK.masked_fill(is_behind_BK, -math.inf)
        return RestrictedOutput(weight_BKD, bias_BK)

    def training_logits(self, x_LD: Tensor) -> Tensor:
        """`logits` of many tokens at once, from the padded product."""
        if not self.n_padding_rows:
            return self.logits(x_LD)
        weight_VD = F.pad(self.weight, (0, 0, 0, self.n_padding_rows))
        bias_V = None if self.bias is None else F.pad(self.bias, (0, self.n_padding_rows))
        return project(x_LD, weight_VD, bias_V)[..., : len(self.weight)]


class NarrowEmbedding(TokenEmbedding):
    """Embeddings of `d_embedding` columns, projected to the `d_model` of the layers, as in ALBERT (Lan et al. 2020).

        x = P_in (√d_embedding · e),    and with `is_output` also    logits = E (P_out y)

    P_in is where the decoder of fairseq has its `project_in_dim`: after the scaling, and before positions and dropout,
    which are as wide as the model. Neither has a bias: the vector of zeros, and that of the padding, stay zeros.

    Both projections start as N(0, 1 / columns in), which keeps the unit variance of a `TokenEmbedding` on either way.
    """

    def __init__(self, vocab_size: int, d_model: int, *, d_embedding: int, is_output: bool, **options: Any) -> None:
        super().__init__(vocab_size, d_embedding, **options)
        self.project_in = narrow_projection(d_embedding, d_model)
        self.project_out = narrow_projection(d_model, d_embedding) if is_output else None

    def forward(self, ids_L: Tensor) -> Tensor:
        x_LW = super().forward(ids_L)
        x_LD: Tensor = self.project_in(x_LW)
        return x_LD.to(x_LW.dtype)  # autocast gives 16 bits, in which positions would be added

    def logits(self, x_LD: Tensor) -> Tensor:
        return super().logits(self._narrowed(x_LD))

    def restricted(self, ids_BK: Tensor, is_behind_BK: Tensor) -> "RestrictedOutput":
        return replace(super().restricted(ids_BK, is_behind_BK), narrow=self._narrowed)

    def training_logits(self, x_LD: Tensor) -> Tensor:
        if not self.n_padding_rows:
            return self.logits(x_LD)
        return super().training_logits(self._narrowed(x_LD))

    def _narrowed(self, x_LD: Tensor) -> Tensor:
        assert self.project_out is not None, "no output layer"
        x_LW: Tensor = self.project_out(x_LD)
        return x_LW


@dataclass
class RestrictedOutput:
    """The rows of an output layer that some sentences of a search need, each its own."""

    weight_BKD: Tensor
    bias_BK: Tensor
    narrow: Callable[[Tensor], Tensor] | None = None

    def __call__(self, x_RD: Tensor) -> Tensor:
        """Logits, [R, K], of the rows of the sentences, as many of each."""
        if self.narrow is not None:
            x_RD = self.narrow(x_RD)
        x_BND = x_RD.view(len(self.weight_BKD), -1, x_RD.size(1))
        logits_BNK = torch.baddbmm(self.bias_BK[:, None], x_BND, self.weight_BKD.transpose(1, 2))
        return logits_BNK.flatten(0, 1)

    def keep(self, sentences_B: Tensor) -> None:
        """Keep these sentences, in this order. Only what changes its place is copied: most of them stay."""
        n = len(sentences_B)
        to_M = (sentences_B != torch.arange(n, device=sentences_B.device)).nonzero().squeeze(1)
        for x_BX in (self.weight_BKD, self.bias_BK):
            x_BX.index_copy_(0, to_M, x_BX.index_select(0, sentences_B[to_M]))
        self.weight_BKD, self.bias_BK = self.weight_BKD[:n], self.bias_BK[:n]


def narrow_projection(n_in: int, n_out: int) -> Linear:
    projection = Linear(n_in, n_out, bias=False)
    nn.init.normal_(projection.weight, std=n_in**-0.5)
    return projection


def make_embedding(
    config: ModelConfig,
    vocab_size: int,
    *,
    pad_id: int,
    is_output: bool = False,
    multiple_of: int = 1,
    bias: bool = False,
    zero_id: int | None = None,
) -> TokenEmbedding:
    """The embedding of a vocabulary as `config` wants it; `is_output`: it is the output layer, too."""
    options: dict[str, Any] = {
        "pad_id": pad_id,
        "scaled": config.scale_embeddings,
        "multiple_of": multiple_of,
        "bias": bias,
        "zero_id": zero_id,
    }
    width = config.embedding_width
    if width == config.d_model:
        return TokenEmbedding(vocab_size, config.d_model, **options)
    return NarrowEmbedding(vocab_size, config.d_model, d_embedding=width, is_output=is_output, **options)


def make_output(config: ModelConfig, vocab_size: int, *, pad_id: int, multiple_of: int) -> TokenEmbedding:
    """An output layer with a matrix of its own."""
    bias = config.output_bias
    return TokenEmbedding(vocab_size, config.d_model, pad_id=pad_id, scaled=False, multiple_of=multiple_of, bias=bias)


def sinusoid_table(
    length: int,
    width: int,
    *,
    interleaved: bool,
    tensor2tensor: bool = False,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """The table of section 3.5, [length, width]: sines and cosines of position / 10000^(2i / width).

    Interleaved as printed in the paper (sin, cos, sin, cos, …), or all sines and then all cosines. With `tensor2tensor`
    the exponent is i / (width/2 - 1), as in the paper's own program, fairseq and Marian.
    """
    return _sinusoid_table(length, width, interleaved, tensor2tensor, dtype, device)


@cache  # for good: captured CUDA graphs hold the address of a table
def _sinusoid_table(
    length: int, width: int, interleaved: bool, tensor2tensor: bool, dtype: torch.dtype, device: torch.device
) -> Tensor:
    with torch.inference_mode(False):  # a table first needed by a search also serves the training after it
        last = max(width - 2, 1) if tensor2tensor else width
        exponent_D = torch.arange(0, width, 2, dtype=torch.float64) / last
        angle_LD = torch.outer(torch.arange(length, dtype=torch.float64), 10_000**-exponent_D)
        pair = [angle_LD.sin(), angle_LD.cos()]
        table_LD = torch.stack(pair, dim=-1).flatten(1) if interleaved else torch.cat(pair, dim=-1)
        return to_device(table_LD.to(dtype), device)


def sinusoids_at(
    x_LD: Tensor,
    layout: SequenceLayout,
    width: int,
    *,
    interleaved: bool,
    tensor2tensor: bool = False,
    first: int = 0,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The rows of the table for the positions of `x_LD`, of which the first is `first`; by default of its type."""
    longest = layout.max_length + first
    n_rows = max(256, 1 << (longest - 1).bit_length())  # powers of two, so that few tables serve all lengths
    table_LD = sinusoid_table(
        n_rows,
        width,
        interleaved=interleaved,
        tensor2tensor=tensor2tensor,
        dtype=dtype or x_LD.dtype,
        device=x_LD.device,
    )
    return table_LD[first:][layout.positions]


class SinusoidalPositions(nn.Module):
    """Adds the sinusoids of section 3.5 to the embeddings. There are no parameters and no limit of the length.

    The paper's formula interleaves sines and cosines; Hugging Face's Marian has all sines first; `tensor2tensor` also
    spreads the frequencies over one step less, as fairseq and Marian do. `first` is the position of the first token.
    """

    def __init__(self, *, interleaved: bool, tensor2tensor: bool = False, first: int = 0) -> None:
        super().__init__()
        self.interleaved, self.tensor2tensor, self.first = interleaved, tensor2tensor, first

    def forward(self, x_LD: Tensor, layout: SequenceLayout) -> Tensor:
        return x_LD + sinusoids_at(
            x_LD,
            layout,
            x_LD.size(-1),
            interleaved=self.interleaved,
            tensor2tensor=self.tensor2tensor,
            first=self.first,
        )

    def table(self, length: int, width: int) -> Tensor:
        """The sinusoids that are added to the first `length` tokens, [length, width], in float32."""
        cpu, rows = torch.device("cpu"), length + self.first
        kind = {"interleaved": self.interleaved, "tensor2tensor": self.tensor2tensor}
        return sinusoid_table(rows, width, **kind, dtype=torch.float32, device=cpu)[self.first :]


class LearnedPositions(nn.Module):
    """Adds a learned vector for each position (table 3, row E)."""

    def __init__(self, d_model: int, *, max_positions: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_positions, d_model))
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(self, x_LD: Tensor, layout: SequenceLayout) -> Tensor:
        if layout.max_length > len(self.weight):
            raise ConfigError(
                f"model.max_positions={len(self.weight)}: fewer than the {layout.max_length} tokens of a sentence."
                f" Train with model.max_positions={layout.max_length} or more, or allow only shorter sentences"
            )
        return x_LD + self.weight[layout.positions]


class SinesAndCosines(NamedTuple):
    """Sine and cosine of the angles by which the pairs of a head's query or key are rotated at each position.

    Both are given for each column; the sine is negative for the first half of them, E/2.
    """

    sin_L1E: Tensor
    cos_L1E: Tensor


# Or complex factors, [L, 1, E/2], for pairs that stand side by side.
Rotation: TypeAlias = SinesAndCosines | Tensor


def apply_rotary(x_LHE: Tensor, rotation: Rotation) -> Tensor:
    """Rotate the pair (i, i + E/2) of each query or key by the angle of its position.

    Complex factors multiply the pairs (2i, 2i + 1).
    """
    if isinstance(rotation, Tensor):
        pairs_LHP = torch.view_as_complex(torch.unflatten(x_LHE, -1, (-1, 2))) * rotation
        return torch.view_as_real(pairs_LHP).flatten(-2)
    a_LHE, b_LHE = x_LHE.chunk(2, dim=-1)
    rotated_LHE = x_LHE * rotation.cos_L1E + torch.cat([b_LHE, a_LHE], dim=-1) * rotation.sin_L1E
    return rotated_LHE.type_as(x_LHE)


class RotaryPositions(nn.Module):
    """Rotary embeddings of queries and keys: their product depends on their relative position (Su et al. 2021).

    With `is_complex` they are complex factors: see `inference.prepack`.
    """

    is_complex = False

    def __init__(self, d_k: int) -> None:
        super().__init__()
        self.d_k = d_k

    def forward(self, x_LD: Tensor, layout: SequenceLayout) -> Rotation:
        wide = torch.promote_types(x_LD.dtype, torch.float32)  # sines of 16 bits are wrong by up to 0.004
        table_L1E = sinusoids_at(x_LD, layout, self.d_k, interleaved=False, dtype=wide).unsqueeze(1)
        sin_L1E, cos_L1E = table_L1E.chunk(2, dim=-1)  # of the first half
        if self.is_complex:
            return torch.complex(cos_L1E, sin_L1E)
        return SinesAndCosines(torch.cat([-sin_L1E, sin_L1E], dim=-1), torch.cat([cos_L1E, cos_L1E], dim=-1))
