"""Decoder steps as CUDA graphs: a step is many small kernels, and launching each from Python takes its time.

A graph holds the addresses and the shapes of its tensors. So the buffers of a step are static, in one of a few shapes:
sentences are padded to them, the target has its longest length, and positions not yet written are masked. Finished
sentences become fillers, until half are: then the rest moves into the next smaller shape.

Shapes: B sentences, S source, R rows, V vocabulary.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_cli.inference.batch_invariance import FixedShapeCache
from transformer_cli.models.embeddings import LearnedPositions
from transformer_cli.models.ensemble import AnyModel, Ensemble

SOURCE_BUCKET = 16  # tokens
TARGET_BUCKET = 32
LEAST_ATTENDED = 16  # tokens; each further graph attends to twice as many
SHAPES_KEPT = 16  # the most recently used, with their memory and their graphs

Step = Callable[[], Tensor]
StepHistory = Callable[[Step], Step]  # a step on certain tensors -> its replay


class Shape(NamedTuple):
    n_sentences: int
    n_source: int
    beam_size: int
    max_length: int
    keeps_attention: bool


@dataclass
class StaticBuffers:
    """The static buffers of one shape, and the steps captured on them."""

    cache: Any  # a StaticCache, or that of an ensemble
    ids_R: Tensor
    captured: dict[int, Step] = field(default_factory=dict)  # by how many target tokens they attend to


@dataclass
class CudaGraphCache(FixedShapeCache):
    """The cache of a search, in buffers that it has until the next search of the same shape."""

    shape: Shape
    static: StaticBuffers
    find_buffers: Callable[[Shape], StaticBuffers]

    def reorder(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        super().reorder(rows_R, sentences_B)
        n_sentences = self.shape.n_sentences
        while 2 * self.n_live <= n_sentences:
            n_sentences = -(-n_sentences // 2)  # always the same halves, whose steps are captured already
        if n_sentences < self.shape.n_sentences:
            self._move(self.shape._replace(n_sentences=n_sentences))

    def _move(self, shape: Shape) -> None:
        static = self.find_buffers(shape)
        static.cache.take_over(self.static.cache)
        self.shape, self.static, self.cache = shape, static, static.cache
        self.n_sentences, self.n_rows = shape.n_sentences, len(static.ids_R)


class CudaGraphDecoder:
    """A model for one search at a time, with its `start` and `step`; results differ in the last bits."""

    def __init__(self, model: AnyModel, *, source_pad_id: int, capture: StepHistory) -> None:
        self.model, self.source_pad_id, self.capture = model, source_pad_id, capture
        self.buffers: OrderedDict[Shape, StaticBuffers] = OrderedDict()

    def start(
        self, source_BS: Tensor, *, beam_size: int, max_length: int, keeps_attention: bool = False
    ) -> CudaGraphCache:
        """As `Transformer.start`."""
        n_sentences, n_source = source_BS.shape
        shape = Shape(
            rounded_up(n_sentences),
            -(-n_source // SOURCE_BUCKET) * SOURCE_BUCKET,
            beam_size,
            -(-max_length // TARGET_BUCKET) * TARGET_BUCKET,
            keeps_attention,
        )
        static = self._buffers_of(shape)
        padded_BS = F.pad(source_BS, (0, shape.n_source - n_source), value=self.source_pad_id)
        self.model.restart(padded_BS, static.cache)
        return CudaGraphCache(
            static.cache,
            shape.n_sentences,
            n_rows=len(static.ids_R),
            n_live=n_sentences,
            shape=shape,
            static=static,
            find_buffers=self._buffers_of,
        )

    def step(self, ids_R: Tensor, cache: CudaGraphCache) -> Tensor:
        """As `Transformer.step`; the result is valid until the next step."""
        static, n_rows = cache.static, len(ids_R)
        attended = LEAST_ATTENDED
        while attended <= static.cache.length:
            attended *= 2
        static.ids_R[:n_rows].copy_(ids_R)
        static.cache.advance(min(attended, cache.shape.max_length))
        if attended not in static.captured:
            static.captured[attended] = self.capture(partial(self.model.step, static.ids_R, static.cache))
        return static.captured[attended]()[:n_rows]

    def _buffers_of(self, shape: Shape) -> StaticBuffers:
        if shape in self.buffers:
            self.buffers.move_to_end(shape)
        else:
            while len(self.buffers) >= SHAPES_KEPT:
                self.buffers.popitem(last=False)
            self.buffers[shape] = self._new(shape)
        return self.buffers[shape]

    def _new(self, shape: Shape) -> StaticBuffers:
        device = next(self.model.parameters()).device
        fillers_BS = torch.full((shape.n_sentences, shape.n_source), self.source_pad_id, device=device)
        cache = self.model.start_static(
            fillers_BS,
            beam_size=shape.beam_size,
            max_length=shape.max_length,
            keeps_attention=shape.keeps_attention,
        )
        return StaticBuffers(cache, torch.zeros(shape.n_sentences * shape.beam_size, dtype=torch.long, device=device))


def rounded_up(n: int) -> int:
    """`n` rounded up to a quarter of a power of two, so that there are few sizes, and less than a quarter is added."""
    quarter = max(1 << (n - 1).bit_length() >> 3, 1)
    return -(-n // quarter) * quarter


def cuda_graph_capture(device: torch.device) -> StepHistory:
    """Captures CUDA graphs, which share the memory that is free after a step."""
    pool = torch.cuda.graph_pool_handle()

    def capture(step: Step) -> Step:
        with torch.cuda.device(device):
            now, aside = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
            aside.wait_stream(now)
            with torch.cuda.stream(aside):
                step()  # tables and workspaces of the first call cannot be allocated during capture
            now.wait_stream(aside)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                logits_RV = step()

        def replay() -> Tensor:
            graph.replay()
            return logits_RV

        return replay

    return capture


def can_capture(model: AnyModel, device: torch.device) -> bool:
    """Whether steps of `model` can be captured: not of learned positions, whose end a graph does not check."""
    members = model.members if isinstance(model, Ensemble) else [model]
    return device.type == "cuda" and not any(isinstance(m.decoder.positions, LearnedPositions) for m in members)
