"""Steps that a GPU records once and replays: one is many small kernels, and starting each from Python takes its time.

A recording holds the addresses and the shapes of its tensors. So what a step works on stays where it is, in one of a
few shapes: sentences are padded to them, the translation so far is as long as it may become, and what is not yet
written is hidden. Sentences that are done are followed by fillers, until half are: then the rest moves into the next
smaller shape.

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

from transformer_cli.inference.batch_invariance import FixedCache
from transformer_cli.inference.incremental import incremental_decoder
from transformer_cli.models.embeddings import LearnedPositions
from transformer_cli.models.ensemble import AnyModel, Ensemble

SOURCE_BUCKET = 16  # tokens
TARGET_BUCKET = 32
LEAST_ATTENDED = 16  # tokens; from there on every recording looks at twice as many
SHAPES_KEPT = 16  # the latest, with their memory and their recordings

Step = Callable[[], Tensor]
Record = Callable[[Step], Step]  # a step of certain tensors -> the same, quicker


class Shape(NamedTuple):
    n_sentences: int
    n_source: int
    beam_size: int
    max_length: int
    keeps_attention: bool


@dataclass
class Stage:
    """What the steps of one shape work on, and those that are recorded."""

    cache: Any  # a StaticCache, or that of an ensemble
    ids_R: Tensor
    recorded: dict[int, Step] = field(default_factory=dict)  # by how many tokens they look at


@dataclass
class ReplayedCache(FixedCache):
    """The cache of a search, on a stage that it has until the next search of the same shape."""

    shape: Shape
    stage: Stage
    find_stage: Callable[[Shape], Stage]

    def reorder(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        super().reorder(rows_R, sentences_B)
        n_sentences = self.shape.n_sentences
        while 2 * self.n_going <= n_sentences:
            n_sentences = -(-n_sentences // 2)  # always the same halves, which are recorded already
        if n_sentences < self.shape.n_sentences:
            self._move(self.shape._replace(n_sentences=n_sentences))

    def _move(self, shape: Shape) -> None:
        stage = self.find_stage(shape)
        stage.cache.copy_from(self.stage.cache)
        self.shape, self.stage, self.cache = shape, stage, stage.cache
        self.n_sentences, self.n_rows = shape.n_sentences, len(stage.ids_R)


class Replayed:
    """A model, for one search at a time: its `start` and `step`, but for the last bits of what they find."""

    def __init__(self, model: AnyModel, *, source_pad_id: int, record: Record) -> None:
        self.model, self.source_pad_id, self.record = model, source_pad_id, record
        self.decoder: Any = incremental_decoder(model)
        self.stages: OrderedDict[Shape, Stage] = OrderedDict()

    def start(
        self, source_BS: Tensor, *, beam_size: int, max_length: int, keeps_attention: bool = False
    ) -> ReplayedCache:
        """As `TransformerDecoder.start`."""
        n_sentences, n_source = source_BS.shape
        shape = Shape(
            quartered(n_sentences),
            -(-n_source // SOURCE_BUCKET) * SOURCE_BUCKET,
            beam_size,
            -(-max_length // TARGET_BUCKET) * TARGET_BUCKET,
            keeps_attention,
        )
        stage = self._stage(shape)
        padded_BS = F.pad(source_BS, (0, shape.n_source - n_source), value=self.source_pad_id)
        self.decoder.restart(padded_BS, stage.cache)
        return ReplayedCache(
            stage.cache,
            shape.n_sentences,
            n_rows=len(stage.ids_R),
            n_going=n_sentences,
            shape=shape,
            stage=stage,
            find_stage=self._stage,
        )

    def step(self, ids_R: Tensor, cache: ReplayedCache) -> Tensor:
        """As `TransformerDecoder.step`; what it returns is there until the next step."""
        stage, n_rows = cache.stage, len(ids_R)
        attended = LEAST_ATTENDED
        while attended <= stage.cache.length:
            attended *= 2
        stage.ids_R[:n_rows].copy_(ids_R)
        stage.cache.advance(min(attended, cache.shape.max_length))
        if attended not in stage.recorded:
            stage.recorded[attended] = self.record(partial(self.decoder.step, stage.ids_R, stage.cache))
        return stage.recorded[attended]()[:n_rows]

    def _stage(self, shape: Shape) -> Stage:
        if shape in self.stages:
            self.stages.move_to_end(shape)
        else:
            while len(self.stages) >= SHAPES_KEPT:
                self.stages.popitem(last=False)
            self.stages[shape] = self._new(shape)
        return self.stages[shape]

    def _new(self, shape: Shape) -> Stage:
        device = next(self.model.parameters()).device
        fillers_BS = torch.full((shape.n_sentences, shape.n_source), self.source_pad_id, device=device)
        cache = self.decoder.start_static(
            fillers_BS,
            beam_size=shape.beam_size,
            max_length=shape.max_length,
            keeps_attention=shape.keeps_attention,
        )
        return Stage(cache, torch.zeros(shape.n_sentences * shape.beam_size, dtype=torch.long, device=device))


def quartered(n: int) -> int:
    """`n` rounded up to a quarter of a power of two, so that few sizes serve all and less than a quarter is added."""
    quarter = max(1 << (n - 1).bit_length() >> 3, 1)
    return -(-n // quarter) * quarter


def on_cuda(device: torch.device) -> Record:
    """Recordings are CUDA graphs; they share the memory that nobody needs after a step."""
    pool = torch.cuda.graph_pool_handle()

    def record(step: Step) -> Step:
        with torch.cuda.device(device):
            now, aside = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
            aside.wait_stream(now)
            with torch.cuda.stream(aside):
                step()  # what is made the first time, as tables and work space, cannot be made while it is recorded
            now.wait_stream(aside)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                logits_RV = step()

        def replay() -> Tensor:
            graph.replay()
            return logits_RV

        return replay

    return record


def can_replay(model: AnyModel, device: torch.device) -> bool:
    """Whether steps of `model` may be recorded: not of learned positions, whose end a recording would not notice."""
    members = model.members if isinstance(model, Ensemble) else [model]
    return device.type == "cuda" and not any(isinstance(m.decoder.positions, LearnedPositions) for m in members)
