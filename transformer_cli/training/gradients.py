"""The gradient of all ranks together, added up in pieces while the rest of it is still being computed.

Why not torch's DistributedDataParallel: it counts on every rank to finish every backward pass, while ours may run out
of memory in one, or have no batch at all; it divides by the number of ranks, while ours divide by the target tokens of
the whole update; and it wants to be called through `forward`.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn

from transformer_cli.training.ranks import Ranks

OVERLAPPING = {"cuda"}  # devices that compute while they communicate; processors have better things to do than both
PIECE_BYTES = 25 * 2**20  # as DistributedDataParallel has it: large enough for the links, small enough to begin early


class GradientSum:
    """The gradients of `parameters` as views of a few flat pieces, which are summed over the ranks one after another.

    `clear`, any number of backward passes, the last of them in `as_it_comes`, then `begin_rest` and `finish`. All ranks
    begin the pieces in the same order, that in which a backward pass mostly completes them, whatever each of them
    computes. One rank alone keeps the gradients as autograd leaves them.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], ranks: Ranks) -> None:
        self._ranks, self._parameters = ranks, list(parameters)
        self._views: dict[nn.Parameter, Tensor] = {}
        self._pieces: list[Tensor] = []
        self._missing: list[int] = []  # gradients of each piece that are not complete yet
        self._works: list[dist.Work] = []
        self._step = 0
        self._comes = False  # whether the last pass is under way
        piece: list[nn.Parameter] = []
        for parameter in reversed(self._parameters) if ranks.world_size > 1 else ():
            if piece and sum(one.nbytes for one in [*piece, parameter]) > PIECE_BYTES:
                self._add_piece(piece)
                piece = []
            piece.append(parameter)
        if piece:
            self._add_piece(piece)
        self._sizes = list(self._missing)
        self._overlaps = bool(self._pieces) and self._pieces[0].device.type in OVERLAPPING

    def _add_piece(self, parameters: list[nn.Parameter]) -> None:
        flat = torch.zeros(sum(one.numel() for one in parameters), device=parameters[0].device)
        for parameter, view in zip(parameters, torch.split(flat, [one.numel() for one in parameters]), strict=True):
            self._views[parameter] = view.view_as(parameter)
            when_complete = partial(self._complete, len(self._pieces))
            parameter.register_post_accumulate_grad_hook(when_complete)  # type: ignore[no-untyped-call]
        self._pieces.append(flat)
        self._missing.append(len(parameters))

    @property
    def n_pieces(self) -> int:
        return len(self._pieces)

    @property
    def n_begun(self) -> int:
        """How many pieces the other ranks are already adding this rank's gradient to."""
        return len(self._works)

    def clear(self) -> None:
        """Begin a new gradient."""
        assert not self._works, "the last sum has not been waited for"
        for piece in self._pieces:
            piece.zero_()
        for parameter in self._parameters:
            parameter.grad = self._views.get(parameter)

    @contextmanager
    def as_it_comes(self, step: int) -> Iterator[None]:
        """Let this backward pass, the last one, begin each piece as soon as it is complete, and those before it are."""
        self._step, self._missing, self._comes = step, list(self._sizes), True
        try:
            yield
        finally:
            self._comes = False

    def _complete(self, piece: int, parameter: Tensor) -> None:
        if self._comes and self._overlaps:
            self._missing[piece] -= 1
            while self.n_begun < self.n_pieces and not self._missing[self.n_begun]:
                self._begin(self._pieces[self.n_begun])

    def _begin(self, tensor: Tensor) -> None:
        self._works.append(self._ranks.begin_sum(tensor, self._step))

    def begin_rest(self, sums: Tensor, step: int) -> None:
        """Begin the pieces that have not been begun, complete or not, and `sums`, which they are summed along with.

        Nothing on a CPU, where a rank should first know that all others are alive.
        """
        self._step = step
        if self._overlaps:
            for tensor in [*self._pieces, sums][self.n_begun :]:
                self._begin(tensor)

    def finish(self, sums: Tensor, step: int) -> None:
        """Wait until all sums are there. Raises as `Ranks.agree` does."""
        works, self._works = self._works, []
        if self._overlaps:
            self._ranks.wait(works, step, on_gpu=sums.is_cuda)
        elif self._pieces:
            for tensor in [*self._pieces, sums]:
                self._ranks.wait([self._ranks.begin_sum(tensor, step)], step, on_gpu=False)
