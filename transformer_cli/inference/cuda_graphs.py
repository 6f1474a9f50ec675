"""Decoder steps as CUDA graphs: a step is many small kernels, and launching each from Python takes its time.

A graph holds the addresses and the shapes of its tensors. So the buffers of a step are static, in one of a few shapes:
source and target are padded to them, and positions not yet written are masked. Sentences are padded as well, to a size
of which there is a graph: it works on the first rows of the buffers, so that a search whose sentences end goes on with
the graph of half as many, in the same memory. Buffers and graphs serve all later searches.

Greedy and beam search capture their own small kernels together with the model's. Other searches replay its step only.

Shapes: B sentences, S source, R rows, V vocabulary.
"""

import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_cli.inference.batch_invariance import FixedShapeCache
from transformer_cli.inference.incremental import incremental_decoder
from transformer_cli.inference.static_steps import ModelStep, ProgramT, StaticProgram
from transformer_cli.models.embeddings import LearnedPositions
from transformer_cli.models.ensemble import AnyModel, Ensemble
from transformer_cli.models.memory import free_memory

LEAST_SOURCE = 16  # tokens; more are rounded up by `rounded_up`
LEAST_TARGET = 32  # tokens; more are rounded up to a power of two, which takes memory only
LEAST_ATTENDED = 16  # tokens; each further graph attends to twice as many
SHARE_OF_MEMORY = 0.25  # of the device, for static buffers

StepFunction = Callable[[], object]
Capture = Callable[[StepFunction], StepFunction]  # takes the step once, and returns its replay


class Shape(NamedTuple):
    n_source: int
    beam_size: int
    max_length: int
    keeps_attention: bool


@dataclass
class StaticBuffers:
    """The static buffers of one shape, and the steps captured on their first rows."""

    cache: Any  # a StaticCache, or that of an ensemble
    n_sentences: int
    ids_R: Tensor
    logits_RV: Tensor | None = None  # of steps of the model alone
    fronts: dict[int, Any] = field(default_factory=dict)  # caches of the first sentences, by their number
    programs: dict[tuple[Hashable, int], StaticProgram] = field(default_factory=dict)  # by key and number of sentences
    captured: dict[tuple[int, int, int], StepFunction] = field(
        default_factory=dict
    )  # sentences, attended tokens, program

    def front(self, n_sentences: int) -> Any:
        if n_sentences not in self.fronts:
            self.fronts[n_sentences] = self.cache.front(n_sentences)
        return self.fronts[n_sentences]

    @property
    def n_bytes(self) -> int:
        own = [self.ids_R, *([] if self.logits_RV is None else [self.logits_RV])]
        programs = [x for program in self.programs.values() for x in program.tensors()]
        return sum(x.nbytes for x in (*self.cache.tensors(), *own, *programs))


@dataclass
class CudaGraphCache(FixedShapeCache):
    """The cache of a search, in buffers that it has until the next search of the same shape."""

    cache: Any  # the first sentences of that of `static`
    shape: Shape
    static: StaticBuffers
    decoder: "CudaGraphDecoder"
    length: int = 0  # tokens so far

    def reorder(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        super().reorder(rows_R, sentences_B)
        n_sentences = smaller(self.n_sentences, self.n_live)
        if n_sentences < self.n_sentences:
            self.n_sentences = n_sentences
            self.cache = self.static.front(n_sentences)

    def fits_smaller(self, n_sentences: int) -> bool:
        return smaller(self.n_sentences, n_sentences) < self.n_sentences

    def program(self, key: Hashable, new: Callable[[ModelStep], ProgramT]) -> ProgramT:
        programs: dict[Any, Any] = self.static.programs
        if (key, self.n_sentences) not in programs:
            step = partial(self.decoder.decoder.step, cache=self.cache)
            programs[key, self.n_sentences] = new(ModelStep(step, self.cache.reorder))
        program: ProgramT = programs[key, self.n_sentences]
        return program

    def take_step(self, program: StaticProgram) -> None:
        self.replay(program.take, id(program))

    def replay(self, step: StepFunction, name: int) -> None:
        """Take the step, captured if it was not before."""
        attended = LEAST_ATTENDED
        while attended <= self.length:
            attended *= 2
        self.cache.advance(self.length, min(attended, self.shape.max_length))
        self.length += 1
        key = (self.n_sentences, attended, name)
        if key in self.static.captured:
            self.static.captured[key]()
        else:
            self.static.captured[key] = self.decoder.capture(step)


class CudaGraphDecoder:
    """A model for one search at a time, with its `start` and `step`; results differ in the last bits.

    Static buffers take at most `max_bytes`, or as much as one search needs; those used least recently are given back.
    """

    def __init__(self, model: AnyModel, *, source_pad_id: int, capture: Capture, max_bytes: int | None = None) -> None:
        self.model, self.source_pad_id, self.capture = model, source_pad_id, capture
        self.max_bytes = share_of_memory(model) if max_bytes is None else max_bytes
        self.decoder: Any = incremental_decoder(model)
        self.buffers: OrderedDict[Shape, StaticBuffers] = OrderedDict()

    def start(
        self, source_BS: Tensor, *, beam_size: int, max_length: int, keeps_attention: bool = False
    ) -> CudaGraphCache:
        """Starts a search as `TransformerDecoder.start` does."""
        n_live, n_source = source_BS.shape
        longest = max(LEAST_TARGET, 1 << (max_length - 1).bit_length())
        shape = Shape(max(LEAST_SOURCE, rounded_up(n_source)), beam_size, longest, keeps_attention)
        n_sentences = rounded_up(n_live)
        static = self._buffers_of(shape, n_sentences, source_BS)
        padded_BS = F.pad(source_BS, (0, shape.n_source - n_source), value=self.source_pad_id)
        self.decoder.restart(padded_BS, static.cache)
        return CudaGraphCache(
            static.front(n_sentences),
            n_sentences,
            beam_size,
            n_live=n_live,
            shape=shape,
            static=static,
            decoder=self,
        )

    def step(self, ids_R: Tensor, cache: CudaGraphCache) -> Tensor:
        """Computes a step as `TransformerDecoder.step` does; the result is valid until the next step."""
        static, n_rows = cache.static, len(ids_R)
        static.ids_R[:n_rows].copy_(ids_R)
        own_ids_R, model_cache = static.ids_R[: cache.n_rows], cache.cache
        if static.logits_RV is None:
            model_cache.advance(cache.length, LEAST_ATTENDED)
            like_RV = self.decoder.step(own_ids_R, model_cache)  # the replay repeats it
            static.logits_RV = like_RV.new_zeros(len(static.ids_R), like_RV.size(1))
            self._make_room(0, keep=static)
        logits_RV = static.logits_RV[: cache.n_rows]

        def model_step() -> None:
            logits_RV.copy_(self.decoder.step(own_ids_R, model_cache))

        cache.replay(model_step, 0)
        return logits_RV[:n_rows]

    def release(self) -> None:
        """Give all buffers and graphs back; the next search makes its own again."""
        self.buffers.clear()

    def _buffers_of(self, shape: Shape, n_sentences: int, example_BS: Tensor) -> StaticBuffers:
        if shape in self.buffers and self.buffers[shape].n_sentences < n_sentences:
            del self.buffers[shape]
        if shape not in self.buffers:
            n_bytes = self._allocate(shape, n_sentences, example_BS, torch.device("meta")).n_bytes
            self._make_room(n_bytes)
            self.buffers[shape] = self._allocate(shape, n_sentences, example_BS, example_BS.device)
        self.buffers.move_to_end(shape)
        return self.buffers[shape]

    def _make_room(self, n_bytes: int, *, keep: StaticBuffers | None = None) -> None:
        """Drop the shapes that were not used for longest, until there is room for so many bytes more."""
        for shape, static in list(self.buffers.items()):
            if n_bytes + sum(each.n_bytes for each in self.buffers.values()) <= self.max_bytes:
                return
            if static is not keep:
                del self.buffers[shape]

    def _allocate(self, shape: Shape, n_sentences: int, example_BS: Tensor, device: torch.device) -> StaticBuffers:
        n_source, beam_size, max_length, keeps_attention = shape
        cache = self.decoder.static_cache(
            example_BS,
            n_sentences,
            n_source,
            beam_size=beam_size,
            max_length=max_length,
            keeps_attention=keeps_attention,
            device=device,
        )
        ids_R = torch.zeros(n_sentences * beam_size, dtype=torch.long, device=device)
        return StaticBuffers(cache, n_sentences, ids_R)


def rounded_up(n: int) -> int:
    """`n` rounded up to 2^k or 3 · 2^k, so that there are few sizes, whose halves are such again."""
    power = 1 << (n - 1).bit_length()
    return power // 4 * 3 if n <= power // 4 * 3 else power


def smaller(n_sentences: int, n_live: int) -> int:
    """The size that a search goes on with: halves, so that there are few graphs, while at most half are live."""
    while 2 * n_live <= n_sentences:
        n_sentences = -(-n_sentences // 2)
    return n_sentences


def share_of_memory(model: AnyModel) -> int:
    """Bytes, of the memory that is free now; without a bound where there is no CUDA device."""
    free = free_memory(next(model.parameters()).device)
    return sys.maxsize if free is None else int(SHARE_OF_MEMORY * free)


def cuda_graph_capture(device: torch.device) -> Capture:
    """Captures CUDA graphs, which share the memory that is free after a step.

    On a stream of their own: torch keeps the workspaces of a stream in the memory of the graphs captured on it, and
    those of two engines must not be mixed. A pool whose graphs are all gone cannot be used again.
    """
    stream, live = torch.cuda.Stream(device), weakref.WeakSet[torch.cuda.CUDAGraph]()  # type: ignore[no-untyped-call]
    pool: Any = None

    def capture(step: StepFunction) -> StepFunction:
        nonlocal pool
        with torch.cuda.device(device):
            step()  # the step itself; tables of a first call cannot be made during capture
            if not live:
                pool = torch.cuda.graph_pool_handle()
            graph = torch.cuda.CUDAGraph()
            # In this mode other threads may allocate memory meanwhile.
            with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                step()  # which is not executed
        live.add(graph)
        return graph.replay

    return capture


def can_capture(model: AnyModel, device: torch.device) -> bool:
    """Whether steps of `model` can be captured: not of learned positions, whose end a graph does not check."""
    members = model.members if isinstance(model, Ensemble) else [model]
    return device.type == "cuda" and not any(isinstance(m.decoder.positions, LearnedPositions) for m in members)
