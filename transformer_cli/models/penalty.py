"""Penalties: what parts of a model add to the loss of training, beside that of its targets."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn


class Penalised(nn.Module):
    """A part of a model that may add to the loss in the forward pass of training."""

    penalties: list[Tensor] | None = None  # of the forward passes in a block of `recorded_penalties`; None outside

    def add_penalty(self, penalty: Tensor) -> None:
        """Add a number, in nats, summed over the sentences of the batch."""
        if self.penalties is not None:
            self.penalties.append(penalty)


def penalised_parts(model: nn.Module) -> list[Penalised]:
    return [module for module in model.modules() if isinstance(module, Penalised)]


@contextmanager
def recorded_penalties(parts: Sequence[Penalised]) -> Iterator[list[Tensor]]:
    """The penalties of the forward passes in the block."""
    recorded: list[Tensor] = []
    for part in parts:
        part.penalties = recorded
    try:
        yield recorded
    finally:
        for part in parts:
            part.penalties = None
