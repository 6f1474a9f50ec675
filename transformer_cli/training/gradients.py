"""The gradient of all ranks, reduced in buckets while the backward pass still computes the rest of it.

Why not torch's DistributedDataParallel: it needs every rank to finish every backward pass, while ours may run out of
memory in one, or have no batch at all; it divides by the number of ranks, while ours divide by the target tokens of the
whole update; and it must be called through `forward`.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn

from transformer_cli.training.ranks import Ranks

OVERLAPPING = {"cuda"}  # devices that compute while they communicate; on a CPU the two compete
BUCKET_BYTES = 25 * 2**20  # as DistributedDataParallel has it: large enough for the links, small enough to begin early


class GradientReducer:
    """The gradients of `parameters` as views of a few flat buckets, which are summed over the ranks one after another.

    Call `clear`, any number of backward passes, the last of them in `overlapped`, then `start_remaining` and `finish`.
    All ranks start the buckets in the same order, that in which a backward pass mostly completes them, whatever each of
    them computes. One rank alone leaves the gradients as autograd makes them; `in_place` it adds them up in memory that
    stays the same, as the replay of a CUDA graph needs it.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], ranks: Ranks, *, in_place: bool = False) -> None:
        self._ranks, self._parameters = ranks, list(parameters)
        self._views: dict[nn.Parameter, Tensor] = {}
        self._buckets: list[Tensor] = []
        self._missing: list[int] = []  # gradients of each bucket that are not complete yet
        self._works: list[dist.Work] = []
        self._step = 0
        self._is_last_pass = False
        bucket: list[nn.Parameter] = []
        for parameter in reversed(self._parameters) if ranks.world_size > 1 else ():
            if bucket and sum(one.nbytes for one in [*bucket, parameter]) > BUCKET_BYTES:
                self._add_bucket(bucket)
                bucket = []
            bucket.append(parameter)
        if bucket:
            self._add_bucket(bucket)
        self._kept: list[Tensor] = []
        if in_place and not self._buckets:  # without hooks
            self._kept = [torch.zeros_like(one) for one in self._parameters]
            self._views = dict(zip(self._parameters, self._kept, strict=True))
        self._sizes = list(self._missing)
        self._overlaps = bool(self._buckets) and self._buckets[0].device.type in OVERLAPPING

    def _add_bucket(self, parameters: list[nn.Parameter]) -> None:
        flat = torch.zeros(sum(one.numel() for one in parameters), device=parameters[0].device)
        for parameter, view in zip(parameters, torch.split(flat, [one.numel() for one in parameters]), strict=True):
            self._views[parameter] = view.view_as(parameter)
            when_complete = partial(self._complete, len(self._buckets))
            parameter.register_post_accumulate_grad_hook(when_complete)  # type: ignore[no-untyped-call]
        self._buckets.append(flat)
        self._missing.append(len(parameters))

    @property
    def n_buckets(self) -> int:
        return len(self._buckets)

    @property
    def n_started(self) -> int:
        """How many buckets the other ranks are already adding this rank's gradient to."""
        return len(self._works)

    def clear(self) -> None:
        """Begin a new gradient."""
        assert not self._works, "the last sum has not been waited for"
        for bucket in self._buckets:
            bucket.zero_()
        if self._kept:
            torch._foreach_zero_(self._kept)
        for parameter in self._parameters:
            parameter.grad = self._views.get(parameter)

    @contextmanager
    def overlapped(self, step: int) -> Iterator[None]:
        """Let this backward pass, the last one, start each bucket as soon as it and those before it are complete."""
        self._step, self._missing, self._is_last_pass = step, list(self._sizes), True
        try:
            yield
        finally:
            self._is_last_pass = False

    def _complete(self, bucket: int, parameter: Tensor) -> None:
        if self._is_last_pass and self._overlaps:
            self._missing[bucket] -= 1
            while self.n_started < self.n_buckets and not self._missing[self.n_started]:
                self._start(self._buckets[self.n_started])

    def _start(self, tensor: Tensor) -> None:
        self._works.append(self._ranks.start_all_reduce(tensor, self._step))

    def start_remaining(self, sums: Tensor, step: int) -> None:
        """Start the buckets that have not been started, complete or not, and `sums`, which is reduced along with them.

        Nothing on a CPU, where all ranks are first known to be alive.
        """
        self._step = step
        if self._overlaps:
            for tensor in [*self._buckets, sums][self.n_started :]:
                self._start(tensor)

    def finish(self, sums: Tensor, step: int) -> None:
        """Wait until all sums are there. Raises as `Ranks.synchronise` does."""
        works, self._works = self._works, []
        if self._overlaps:
            self._ranks.wait(works, step, on_gpu=sums.is_cuda)
        elif self._buckets:
            for tensor in [*self._buckets, sums]:
                self._ranks.wait([self._ranks.start_all_reduce(tensor, step)], step, on_gpu=False)
