"""Position encodings as colour maps, and how similar each position is to the others. The values are the models' own.

Shapes: L positions, D width of the model, E width of a head's queries and keys, C columns of a colour map.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transformer_cli.config.model import ModelConfig, Positions
from transformer_cli.errors import CheckpointError, ConfigError
from transformer_cli.models.embeddings import (
    LearnedPositions,
    RotaryPositions,
    SinesAndCosines,
    SinusoidalPositions,
    sinusoid_table,
)
from transformer_cli.models.layouts import PaddedLayout
from transformer_cli.models.transformer import Stack, make_positions

MAX_VALUES = 2**18  # of a colour map: 512 positions of width 512, a page of 6 MB that opens in a second

PositionModule = SinusoidalPositions | LearnedPositions | RotaryPositions


@dataclass(frozen=True)
class ColourMap:
    """Values of positions (rows) and dimensions (columns)."""

    name: str  # interleaved or concatenated; encoder or decoder; angle, cos or sin
    used: bool  # not another layout of what the model uses
    functions: list[str]  # of each column: sin, cos or angle; learned
    dimensions: list[int]  # of each column: the dimension of the model that has its values; of rotary ones, the pair
    values_LC: Tensor  # float32; angles in [0, 2π]


@dataclass(frozen=True)
class Similarity:
    """Similarity of each position to each other one."""

    name: str  # as of the colour map with the same vectors, where there are several
    dot_LL: Tensor | None  # float32; None of rotary positions, which are no vectors
    cosine_LL: Tensor  # of rotary positions: the mean over the pairs of the cosine of the angle between them


@dataclass(frozen=True)
class PositionEncodings:
    title: str  # name of the run or file, if there is one, kind and width
    kind: Positions
    width: int  # D, or E of rotary positions
    first: int  # number of the first position
    length: int  # L
    wavelengths: list[float]  # of each dimension or pair, in positions; none where they are learned
    maps: list[ColourMap]
    similarities: list[Similarity]


def modules_of_config(config: ModelConfig) -> dict[str, PositionModule]:
    """What a model with this config begins with; of learned positions there is nothing to see before training."""
    if config.positions is Positions.learned:
        raise ConfigError(
            "model.positions=learned: a table that training fills. Name a trained model with --checkpoint"
        )
    return {"": make_positions(config) or RotaryPositions(config.key_width)}


def modules_of_model(model: nn.Module) -> dict[str, PositionModule]:
    """The position modules by the name of their stack, as `encoder`. Raises CheckpointError if there are none."""
    stacks = {name: stack for name, stack in model.named_modules() if isinstance(stack, Stack)}
    found: dict[str, PositionModule] = {}
    for name, stack in stacks.items():
        module = stack.rotary if stack.positions is None else stack.positions
        if module is not None:
            found[name] = module
    if not found:
        raise CheckpointError("--checkpoint: a model without position encodings of tfm. Choose another one")
    return found


def compute_encodings(
    modules: Mapping[str, PositionModule], config: ModelConfig, length: int, *, title: str
) -> PositionEncodings:
    """The first `length` positions. Raises ConfigError for more than there are, or than can be shown."""
    kind = config.positions
    width = config.key_width if kind is Positions.rotary else config.d_model
    if length * width > MAX_VALUES:
        most = MAX_VALUES // width
        advice = f"Choose {most:,} or fewer" if most else "Choose another model"
        raise ConfigError(
            f"--positions {length}: of width {width:,} these are {length * width:,} values, more than the"
            f" {MAX_VALUES:,} that can be shown. {advice}"
        )
    module = next(iter(modules.values()))  # sinusoids and rotary positions are those of every stack
    wavelengths: list[float] = []
    if isinstance(module, SinusoidalPositions):
        maps = sinusoidal_maps(module, length, width)
        similarities = [_similarity("", maps[0].values_LC)]
        of_pairs = _wavelengths(width, tensor2tensor=module.tensor2tensor)
        pair_of = {dimension: column // 2 for column, dimension in enumerate(maps[0].dimensions)}
        wavelengths = [of_pairs[pair_of[dimension]] for dimension in range(width)]
    elif isinstance(module, RotaryPositions):
        maps = rotary_maps(module, length)
        cos_LC, sin_LC = (map_.values_LC.double() for map_ in maps if map_.name != "angle")
        similarities = [Similarity("", None, ((cos_LC @ cos_LC.T + sin_LC @ sin_LC.T) / (width // 2)).float())]
        wavelengths = _wavelengths(width, tensor2tensor=False)
    else:
        tables = {name: module for name, module in modules.items() if isinstance(module, LearnedPositions)}
        maps = [learned_map(name, module, length) for name, module in tables.items()]
        similarities = [_similarity(map_.name, map_.values_LC) for map_ in maps]
    full_title = (
        f"{title}{': ' if title else ''}{kind.name}, {'d_k' if kind is Positions.rotary else 'd_model'} {width}"
    )
    return PositionEncodings(full_title, kind, width, config.first_position, length, wavelengths, maps, similarities)


def sinusoidal_maps(used: SinusoidalPositions, length: int, width: int) -> list[ColourMap]:
    """The model's table, and the same numbers in the other layout; the interleaved one first."""
    halves = list(range(0, width, 2)), list(range(1, width, 2))
    maps = []
    for interleaved in (True, False):
        module = SinusoidalPositions(interleaved=interleaved, tensor2tensor=used.tensor2tensor, first=used.first)
        if interleaved == used.interleaved:
            dimensions = list(range(width))
        elif interleaved:  # its column 2i has the sine that the model has in column i
            dimensions = [i // 2 + (i % 2) * (width // 2) for i in range(width)]
        else:
            dimensions = halves[0] + halves[1]
        functions = ["sin", "cos"] * (width // 2) if interleaved else ["sin"] * (width // 2) + ["cos"] * (width // 2)
        name = "interleaved" if interleaved else "concatenated"
        is_used = interleaved == used.interleaved
        maps.append(ColourMap(name, is_used, functions, dimensions, module.table(length, width)))
    return maps


def rotary_maps(module: RotaryPositions, length: int) -> list[ColourMap]:
    """Angle, cosine and sine of each pair (i, i + E/2) of a query or key, at each position."""
    rotation = module(torch.zeros(length, 1), PaddedLayout(length))
    assert isinstance(rotation, SinesAndCosines)
    # The second column of each pair: the sine of the first one is negative.
    _, sin_LC = rotation.sin_L1E.squeeze(1).chunk(2, dim=1)
    _, cos_LC = rotation.cos_L1E.squeeze(1).chunk(2, dim=1)
    angle_LC = torch.atan2(sin_LC.double(), cos_LC.double()) % (2 * math.pi)
    pairs = list(range(sin_LC.size(1)))
    named = {"angle": angle_LC.float(), "cos": cos_LC, "sin": sin_LC}
    return [ColourMap(name, True, [name] * len(pairs), pairs, values_LC) for name, values_LC in named.items()]


def learned_map(name: str, module: LearnedPositions, length: int) -> ColourMap:
    n_rows, width = module.weight.shape
    if length > n_rows:
        raise ConfigError(
            f"--positions {length}: the table of the {name or 'model'} has {n_rows:,} rows"
            f" (model.max_positions={n_rows}). Choose {n_rows:,} or fewer"
        )
    values_LC = module.weight.detach()[:length].float().cpu()
    return ColourMap(name, True, ["learned"] * width, list(range(width)), values_LC)


def _similarity(name: str, vectors_LD: Tensor) -> Similarity:
    """Dot products and cosines, computed in float64. A vector of zeros has cosine 0 with every other one."""
    x_LD = vectors_LD.double()
    unit_LD = nn.functional.normalize(x_LD, dim=1)
    return Similarity(name, (x_LD @ x_LD.T).float(), (unit_LD @ unit_LD.T).float())


def _wavelengths(width: int, *, tensor2tensor: bool) -> list[float]:
    """Positions in which each pair of dimensions goes round once, from its angle at position 1."""
    row_D = sinusoid_table(
        2, width, interleaved=False, tensor2tensor=tensor2tensor, dtype=torch.float64, device=torch.device("cpu")
    )[1]
    sin_C, cos_C = row_D.chunk(2)
    found: list[float] = (2 * math.pi / torch.atan2(sin_C, cos_C)).tolist()
    return found


def to_json(encodings: PositionEncodings) -> Iterator[str]:
    """All of `encodings` as chunks of one JSON object, each number as the shortest decimal of its float32."""
    facts = {
        "title": encodings.title,
        "kind": encodings.kind.name,
        "width": encodings.width,
        "positions": [encodings.first + i for i in range(encodings.length)],
        "wavelengths": encodings.wavelengths,
    }
    yield json.dumps(facts, ensure_ascii=False, indent=1).removesuffix("\n}")
    yield ',\n "maps": ['
    for i, one in enumerate(encodings.maps):
        labels = {"name": one.name, "used": one.used, "functions": one.functions, "dimensions": one.dimensions}
        yield f'{"," if i else ""}\n  {json.dumps(labels).removesuffix("}")}, "values": {_matrix(one.values_LC)}}}'
    yield '],\n "similarities": ['
    for i, pair in enumerate(encodings.similarities):
        dot = "" if pair.dot_LL is None else f', "dot": {_matrix(pair.dot_LL)}'
        name = json.dumps(pair.name)
        yield f'{"," if i else ""}\n  {{"name": {name}, "cosine": {_matrix(pair.cosine_LL)}{dot}}}'
    yield "]\n}\n"


def _matrix(matrix: Tensor) -> str:
    rows = (",".join(row.astype(str)) for row in matrix.numpy())
    return "[\n   " + ",\n   ".join(f"[{row}]" for row in rows) + "]"
