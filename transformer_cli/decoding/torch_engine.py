"""The engine of our own models: batches, CUDA graphs, a pool of worker processes, and near ties decoded again.

Shapes: B sentences, S source.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import groupby, islice
from typing import Any

import torch

from transformer_cli.config.decode import DecodeConfig
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.decoding.engine import Batch, Capabilities, DecodeRequest
from transformer_cli.decoding.plan import Segment
from transformer_cli.decoding.results import DEFAULT_OPTIONS, TranslateOptions
from transformer_cli.decoding.search import (
    SEARCHES,
    Constraints,
    ControlIds,
    Hypothesis,
    SearchRequest,
    rows_per_sentence,
)
from transformer_cli.decoding.training_text import UNKNOWN_TEXT, TrainingText
from transformer_cli.decoding.translator import Translator
from transformer_cli.inference.batch_invariance import (
    EXACT_BUCKET,
    FixedShapeCache,
    batch_size_of,
    bucket_length,
    check_batch_invariance,
    fixed_shape,
    one_thread,
)
from transformer_cli.inference.cuda_graphs import CudaGraphDecoder, can_capture, cuda_graph_capture
from transformer_cli.inference.force_decode import ForcedScores, Pair, force_decode
from transformer_cli.inference.incremental import incremental_decoder
from transformer_cli.inference.prepack import can_prepack, prepack
from transformer_cli.inference.worker_pool import WorkerPool
from transformer_cli.models.ensemble import AnyModel, Ensemble
from transformer_cli.models.memory import in_halves
from transformer_cli.models.transformer import Transformer

SENTENCES_PER_WORKER = 8  # at least: with fewer, batches are not made smaller for all workers to have one
INT8_REMEDY = "engine=torch computes in float32. Add `--engine ctranslate2 decode.quantize=int8`, or leave it out"


class TorchEngine:
    """A model, or an ensemble, decoded by torch.

    A translation does not depend on the batch that it is in: sentences with a near tie are decoded again on their own.
    Scores are equal up to the rounding of kernels, and with `batch_invariant` to the last bit. With `parallel` every
    CPU core takes batches of its own, in a forked process, and a GPU replays captured steps.

    It is for the weights that `model` has when it is made: some are copied, others shared, so that a model in training
    needs a new engine. Raises ConfigError where batch invariance is not proved.
    """

    def __init__(
        self,
        model: AnyModel,
        tokenizers: Tokenizers,
        *,
        device: torch.device,
        text: TrainingText = UNKNOWN_TEXT,
        batch_invariant: bool = False,
        parallel: bool = False,
    ) -> None:
        if batch_invariant:
            check_batch_invariance(model, device)
        self.model = model if batch_invariant else prepacked(model)
        self.tokenizers, self.device, self.text, self.batch_invariant = tokenizers, device, text, batch_invariant
        self.control = ControlIds.of(tokenizers.target)
        self.pool: WorkerPool[tuple[list[Segment], DecodeRequest], list[list[Hypothesis]]] | None = None
        if parallel and device.type == "cpu" and not batch_invariant:
            self.pool = WorkerPool(lambda item: self._decode(*item))
        self.decoder: Any = incremental_decoder(self.model)  # has `start` and `step`
        if parallel and can_capture(self.model, device):
            source_pad_id = tokenizers.source.pad_id
            self.decoder = CudaGraphDecoder(self.model, source_pad_id=source_pad_id, capture=cuda_graph_capture(device))

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities("torch", batch_invariant=self.batch_invariant, remedies={"decode.quantize": INT8_REMEDY})

    def search(self, segments: Sequence[Segment], request: DecodeRequest) -> Iterator[Batch]:
        """Raises CheckpointError if logits are not finite, and EnvironmentFault if memory does not suffice for one."""
        work = ((batch, request) for batch in self._batches(segments, request.config))
        results = ((item, self._decode(*item)) for item in work) if self.pool is None else self.pool(work)
        for (batch, _), hypotheses in results:
            yield batch, hypotheses

    def score(self, pairs: Sequence[Pair], *, batch_tokens: int, with_attention: bool = False) -> list[ForcedScores]:
        with self._ready():
            return force_decode(
                self.model,
                pairs,
                self.tokenizers,
                device=self.device,
                batch_tokens=batch_tokens,
                with_attention=with_attention,
            )

    @contextmanager
    def _ready(self) -> Iterator[None]:
        """Without gradients and dropout, and with one thread in batch-invariant mode."""
        was_training = self.model.training
        if was_training:  # setting the mode of every module takes longer than some steps
            self.model.eval()
        try:
            with torch.inference_mode(), one_thread() if self.batch_invariant else nullcontext():
                yield
        finally:
            if was_training:
                self.model.train()

    # ---- Batches

    def _batches(self, segments: Sequence[Segment], config: DecodeConfig) -> Iterator[list[Segment]]:
        if self.batch_invariant:
            return batch_invariant_batches(segments, bucket=lambda segment: self._bucket(segment, config))
        return batches(segments, max_tokens=self._batch_size(segments, config))

    def _batch_size(self, segments: Sequence[Segment], config: DecodeConfig) -> int:
        """Padded source tokens that `batch_tokens` allows; fewer where not all workers would have equal work."""
        allowed = config.batch_tokens // rows_per_sentence(config)
        if self.pool is None or len(segments) < self.pool.n_workers * SENTENCES_PER_WORKER:
            return allowed
        lengths = [len(segment.ids) + 1 for segment in segments]
        rounds = math.ceil(sum(lengths) / (allowed * self.pool.n_workers))
        return min(allowed, math.ceil(sum(lengths) / (rounds * self.pool.n_workers)) + max(lengths))

    def _bucket(self, segment: Segment, config: DecodeConfig) -> int:
        """The length that a source is padded to in batch-invariant mode."""
        longest = self.text.longest_source(config) + 1
        return bucket_length(len(segment.ids) + 1, size=EXACT_BUCKET, longest=longest)

    # ---- One batch

    def _decode(self, batch: Sequence[Segment], request: DecodeRequest) -> list[list[Hypothesis]]:
        """The hypotheses of each segment; a near tie, where batch composition may decide, is decoded on its own."""
        with self._ready():
            found = self._search_in_halves(batch, request)
            if self.batch_invariant or len(batch) == 1:
                return found
            return [
                self._search_in_halves([segment], request)[0] if hypotheses[0].is_near_tie else hypotheses
                for segment, hypotheses in zip(batch, found, strict=True)
            ]

    def _search_in_halves(self, batch: Sequence[Segment], request: DecodeRequest) -> list[list[Hypothesis]]:
        """`_search` of as many segments at a time as memory suffices for."""
        rows_key = SEARCHES[request.config.search].rows_key or "beam_size"
        return in_halves(
            batch,
            lambda part: self._search(part, request),
            lower="decode.batch_tokens",
            alone=f"Lower decode.{rows_key} or decode.max_source_length, or choose another device=",
            on_split=self._drop_graphs,
        )

    def _drop_graphs(self) -> None:
        """CUDA graphs keep the memory that they were captured with."""
        self.decoder = incremental_decoder(self.model)

    def _search(self, batch: Sequence[Segment], request: DecodeRequest) -> list[list[Hypothesis]]:
        config, source = request.config, self.tokenizers.source
        rows = [[*segment.ids, source.eos_id] for segment in batch]
        longest, n_sentences, n_beams = max(map(len, rows)), len(rows), rows_per_sentence(config)
        if self.batch_invariant:
            longest = self._bucket(batch[0], config)
            n_sentences = batch_size_of(longest)
        source_BS = torch.full((n_sentences, longest), source.pad_id)
        for row_S, ids in zip(source_BS, rows, strict=False):  # the rows behind the last are fillers
            row_S[: len(ids)] = torch.tensor(ids)
        max_lengths = [self.text.longest_translation(config, len(row)) for row in rows]
        cache = self.decoder.start(
            source_BS.to(self.device),
            beam_size=n_beams,
            max_length=self.text.longest_translation(config, longest),
            keeps_attention=config.coverage_penalty > 0,
        )
        has_constraints = any(segment.prefix or segment.required for segment in batch)
        search_request: SearchRequest[Any] = SearchRequest(
            self.decoder.step,
            cache,
            self.control,
            torch.tensor(max_lengths),
            config,
            seeds=[(request.seed, request.first_line + segment.line, segment.part) for segment in batch],
            constraints=[Constraints(s.prefix, s.required) for s in batch] if has_constraints else [],
            source_lengths_B=torch.tensor(list(map(len, rows))).to(self.device, non_blocking=True),
            to_text=self.tokenizers.target.decode,
            device=self.device,
        )
        if self.batch_invariant:
            fixed_cache = FixedShapeCache(cache, n_sentences, n_rows=n_sentences * n_beams, n_live=len(batch))
            search_request = replace(search_request, step=fixed_shape(self.decoder.step), cache=fixed_cache)
        return self._run(search_request)

    def _run(self, request: SearchRequest[Any]) -> list[list[Hypothesis]]:
        return SEARCHES[request.config.search](request)


def torch_translator(
    model: AnyModel,
    tokenizers: Tokenizers,
    config: DecodeConfig,
    *,
    device: torch.device,
    seed: int = 1,
    options: TranslateOptions = DEFAULT_OPTIONS,
    text: TrainingText = UNKNOWN_TEXT,
    parallel: bool = False,
) -> Translator:
    """A Translator of a model that is already built."""
    engine = TorchEngine(
        model, tokenizers, device=device, text=text, batch_invariant=config.batch_invariant, parallel=parallel
    )
    return Translator(engine, config, seed=seed, options=options)


def prepacked(model: AnyModel) -> AnyModel:
    """`model` with prepacked weights, where its device has kernels for them."""
    if isinstance(model, Ensemble):
        members = [prepack(member) if can_prepack(member) else member for member in model.members]
        return Ensemble(members).train(model.training)
    return prepack(model) if isinstance(model, Transformer) and can_prepack(model) else model


def batches(segments: Sequence[Segment], *, max_tokens: int) -> Iterator[list[Segment]]:
    """The longest first, so that memory runs out at once or never: rows × longest ≤ `max_tokens`, or a single one."""
    batch: list[Segment] = []
    for segment in sorted(segments, key=lambda segment: -len(segment.ids)):
        # The longest of a batch is its first; EOS is one more token.
        if batch and (len(batch) + 1) * (len(batch[0].ids) + 1) > max_tokens:
            yield batch
            batch = []
        batch.append(segment)
    if batch:
        yield batch


def batch_invariant_batches(
    segments: Sequence[Segment], *, bucket: Callable[[Segment], int]
) -> Iterator[list[Segment]]:
    """The longest first; each batch has segments of one bucket, and at most the fixed number of its bucket."""
    for length, in_bucket in groupby(sorted(segments, key=lambda segment: -len(segment.ids)), key=bucket):
        while batch := list(islice(in_bucket, batch_size_of(length))):
            yield batch
