"""What training gives to a model: a batch on the device, as packed sequences.

Shapes: S source and T target tokens of all pairs.
"""

from dataclasses import dataclass

from torch import Tensor

from transformer_cli.data.fixed_size import PaddedTensors, Side, Sizes
from transformer_cli.models.layouts import PackedLayout


@dataclass(frozen=True)
class Inputs:
    """A batch on the device."""

    source_S: Tensor
    source: PackedLayout
    target_in_T: Tensor
    target: PackedLayout
    target_out_T: Tensor

    @classmethod
    def of_memory(cls, memory: Tensor, sizes: Sizes) -> "Inputs":
        """The inputs of a memory that `padded` returned, for variable-length attention."""
        found = PaddedTensors.of(memory, sizes)

        def layout(side: Side) -> PackedLayout:
            return PackedLayout(sizes.longest, side.positions, cu_seqlens_N=side.starts)

        target_out_T = found.target_out_T.long()
        return cls(found.source_S, layout(found.source), found.target_in_T, layout(found.target), target_out_T)

    def twice(self) -> "Inputs":
        """The same sentences followed by themselves, for two passes at once; the targets are there once."""
        return Inputs(
            self.source_S.repeat(2),
            self.source.twice(),
            self.target_in_T.repeat(2),
            self.target.twice(),
            self.target_out_T,
        )
