"""Measured costs of layers by sequence length and width, and the exponents of their growth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from scripts.layer_costs.exponents import crossover, exponent, upper
from transformer_cli.addons.benchmarks.timing import Spread


class LayerSize(NamedTuple):
    """A layer of one kind and size."""

    name: str
    n: int
    d: int


@dataclass(frozen=True)
class Costs:
    """Seconds of each round, and bytes held for the backward pass."""

    n: list[int]
    d: list[int]
    seconds: Mapping[str, Mapping[LayerSize, list[float]]]  # by way
    held: Mapping[LayerSize, int]

    def median(self, way: str, name: str, n: int, d: int) -> float:
        return Spread.of(self.seconds[way][LayerSize(name, n, d)]).median

    def in_n(self, way: str, name: str, d: int) -> Spread:
        """The exponent of time in n, fitted to each round."""
        sizes = upper(self.n)
        return self._spread(sizes, [self.seconds[way][LayerSize(name, n, d)] for n in sizes])

    def in_d(self, way: str, name: str, n: int) -> Spread:
        sizes = upper(self.d)
        return self._spread(sizes, [self.seconds[way][LayerSize(name, n, d)] for d in sizes])

    def _spread(self, sizes: Sequence[int], times: Sequence[Sequence[float]]) -> Spread:
        return Spread.of([exponent(sizes, of_round) for of_round in zip(*times, strict=True)])

    def held_in_n(self, name: str, d: int) -> float:
        return exponent(upper(self.n), [self.held[LayerSize(name, n, d)] for n in upper(self.n)])

    def held_in_d(self, name: str, n: int) -> float:
        return exponent(upper(self.d), [self.held[LayerSize(name, n, d)] for d in upper(self.d)])

    def overtaken(self, way: str, by: str, d: int) -> float:
        """The n from which self-attention takes longer than layer `by`."""
        attention, others = ([self.median(way, name, n, d) for n in self.n] for name in ("self-attention", by))
        return crossover(self.n, attention, others)
