"""The engine of our own models: batches, precision, CUDA graphs, worker processes, and near ties decoded again.

Shapes: B sentences, S source.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transformer_cli.config.decode import DecodeConfig, DecodePrecision
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.data.transfer import to_device
from transformer_cli.decoding.engine import Capabilities, DecodeRequest, SearchedBatch
from transformer_cli.decoding.plan import Segment
from transformer_cli.decoding.results import DEFAULT_OPTIONS, TranslateOptions
from transformer_cli.decoding.search import (
    NEAR_TIE,
    SEARCHES,
    Constraints,
    ControlIds,
    Hypothesis,
    SearchRequest,
    rows_per_sentence,
)
from transformer_cli.decoding.search.trace import TraceRecorder
from transformer_cli.decoding.shortlist import BatchShortlist, Shortlist
from transformer_cli.decoding.terminology import words_of
from transformer_cli.decoding.training_text import UNKNOWN_TEXT, TrainingText, training_text
from transformer_cli.decoding.translator import Translator
from transformer_cli.errors import ConfigError
from transformer_cli.inference.batch_invariance import (
    EXACT_BUCKET,
    FixedShapeCache,
    batch_size_of,
    bucket_length,
    check_batch_invariance,
    fixed_shape,
    one_thread,
)
from transformer_cli.inference.batch_size import BatchTokens, forward_tokens, sentences_per_batch
from transformer_cli.inference.cuda_graphs import CudaGraphDecoder, can_capture, cuda_graph_capture
from transformer_cli.inference.force_decode import ForcedScores, IdPair, force_decode
from transformer_cli.inference.incremental import incremental_decoder
from transformer_cli.inference.precision import dtype_of, in_precision, overflow_named
from transformer_cli.inference.prepack import can_prepack, prepack
from transformer_cli.inference.rounded_batches import RoundedDecoder
from transformer_cli.inference.worker_pool import WorkerPool
from transformer_cli.models.ensemble import AnyModel, Ensemble, build_all
from transformer_cli.models.file import ModelFile
from transformer_cli.models.linear import has_onednn
from transformer_cli.models.memory import SplitBatches, free_memory

# In 16 bits rounding moves scores by as much as choices differ: none is decoded again (scripts/bench_near_ties.py).
NEAR_TIES = {torch.float64: NEAR_TIE, torch.float32: NEAR_TIE, torch.bfloat16: 0.0, torch.float16: 0.0}
SENTENCES_PER_WORKER = 8  # at least: with fewer, batches are not made smaller for all workers to have one
REMEDIES = {
    "decode.quantize": (
        "engine=torch computes in float32. Add `--engine ctranslate2 decode.quantize=int8`, or leave it out"
    ),
    "decode.shortlist": "is for translating with a model file. Leave it out here",
    "--terms": "may have tokens that no list has. Leave decode.shortlist out",
    "--explain": "shows the tokens of the whole vocabulary. Leave decode.shortlist out",
}


def torch_capabilities(*, batch_invariant: bool = False, shortlist: bool = False) -> Capabilities:
    return Capabilities("torch", batch_invariant=batch_invariant, shortlist=shortlist, remedies=REMEDIES)


def continuing_tokens(target: Tokenizer) -> Tensor:
    """A mask of the tokens that make the word before them longer, as Terminology divides text into words."""
    texts = ((i, target.decode([i])) for i in range(len(target)))
    word, written = next(((i, text) for i, text in texts if text.isalpha() and words_of(text) == (text,)), (0, ""))
    is_continuing = [written != "" and words_of(target.decode([word, i]))[:1] != (written,) for i in range(len(target))]
    return torch.tensor(is_continuing)


class TorchEngine:
    """A model, or an ensemble, decoded by torch.

    In float32 a translation does not depend on the batch that it is in: sentences with a near tie are decoded again, on
    a CPU on their own, on an accelerator together in shapes that depend on the length of each alone. Scores are equal
    up to the rounding of kernels, and with `batch_invariant` to the last bit. In 16 bits rounding decides near ties.
    With `parallel` every CPU core takes batches of its own, in a forked process, and a GPU replays captured steps.

    It is for the weights that `model` has when it is made: some are copied, others shared, so that a model in training
    needs a new engine. Raises ConfigError where batch invariance is not proved, and EnvironmentFault for a precision
    that the device lacks.
    """

    n_searches = 1  # its products are shared by all cores

    def __init__(
        self,
        model: AnyModel,
        tokenizers: Tokenizers,
        *,
        device: torch.device,
        text: TrainingText = UNKNOWN_TEXT,
        precision: DecodePrecision = DecodePrecision.auto,
        batch_invariant: bool = False,
        parallel: bool = False,
        shortlist: Shortlist | None = None,
    ) -> None:
        if batch_invariant:
            check_batch_invariance(model, device)
        if shortlist is not None:
            check_shortlist(device, batch_invariant=batch_invariant)
        self.capabilities = torch_capabilities(batch_invariant=batch_invariant, shortlist=shortlist is not None)
        model = in_precision(model, precision, device)
        self.dtype = dtype_of(model)
        self.near_tie = NEAR_TIES[self.dtype]
        self.second_pass, self.redecodes_together = self.near_tie > 0, device.type != "cpu"
        self.model = model if batch_invariant else prepacked(model)
        self.tokenizers, self.device, self.text, self.batch_invariant = tokenizers, device, text, batch_invariant
        self.control, self.shortlist = ControlIds.of(tokenizers.target), shortlist
        self.pool: WorkerPool[tuple[list[Segment], DecodeRequest], list[list[Hypothesis]]] | None = None
        if parallel and device.type == "cpu" and not batch_invariant:
            self.pool = WorkerPool(lambda item: self._decode(*item, self._split_batches(item[1].config)))
        source_pad_id, has_free_shapes = tokenizers.source.pad_id, device.type == "cpu" and not batch_invariant
        self.decoder: Any = incremental_decoder(self.model, packs_source=has_free_shapes)  # has `start` and `step`
        if has_free_shapes:
            self.decoder = RoundedDecoder(self.decoder, source_pad_id=source_pad_id)
        if parallel and can_capture(self.model, device):
            self.decoder = CudaGraphDecoder(self.model, source_pad_id=source_pad_id, capture=cuda_graph_capture(device))
        self.free = free_memory(device)  # now: later the buffers of graphs have taken some

    @cached_property
    def _continuing_V(self) -> Tensor:
        return to_device(continuing_tokens(self.tokenizers.target), self.device)

    def tokens_per_batch(self, config: DecodeConfig) -> int:
        return max(1, forward_tokens(config.batch_tokens, self.device) // rows_per_sentence(config))

    def search(self, segments: Sequence[Segment], request: DecodeRequest) -> Iterator[SearchedBatch]:
        """Raises CheckpointError if logits are not finite, and EnvironmentFault if memory does not suffice for one."""
        split = self._split_batches(request.config)
        if self.pool is not None:
            request = replace(request, is_cancelled=None)  # which other processes cannot ask
        work = ((batch, request) for batch in self._batches(segments, request.config))
        results = ((item, self._decode(*item, split)) for item in work) if self.pool is None else self.pool(work)
        ties: list[Segment] = []
        for (batch, _), hypotheses in results:
            if not (self.second_pass and self.redecodes_together):
                yield batch, hypotheses
                continue
            ties += [segment for segment, found in zip(batch, hypotheses, strict=True) if found[0].is_near_tie]
            if sure := [pair for pair in zip(batch, hypotheses, strict=True) if not pair[1][0].is_near_tie]:
                yield [segment for segment, _ in sure], [found for _, found in sure]
        bucket = partial(self._bucket, config=request.config)
        for batch in batch_invariant_batches(ties, bucket=bucket):
            yield batch, self._redecode(batch, request, split)

    def score(
        self, pairs: Sequence[IdPair], *, batch_tokens: BatchTokens, with_attention: bool = False
    ) -> list[ForcedScores]:
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
        """Turns off gradients and dropout, and in batch-invariant mode all threads but one."""
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
        return batches(segments, most=self._most_sentences(segments, config))

    def _most_sentences(self, segments: Sequence[Segment], config: DecodeConfig) -> Callable[[int], int]:
        """How many sentences a batch has, by its longest; fewer where not all workers would have equal work."""
        most = sentences_per_batch(
            config.batch_tokens,
            self.model,
            self.device,
            n_beams=rows_per_sentence(config),
            n_target_of=partial(self.text.longest_translation, config),
            free=self.free,
        )
        if self.pool is None or len(segments) < self.pool.n_workers * SENTENCES_PER_WORKER:
            return most
        lengths = [len(segment.ids) + 1 for segment in segments]
        allowed = max(1, most(max(lengths))) * max(lengths)  # padded source tokens
        rounds = math.ceil(sum(lengths) / (allowed * self.pool.n_workers))
        equal = min(allowed, math.ceil(sum(lengths) / (rounds * self.pool.n_workers)) + max(lengths))
        return lambda n_source: min(most(n_source), equal // n_source)

    def _bucket(self, segment: Segment, config: DecodeConfig) -> int:
        """The length that a source is padded to in batch-invariant mode."""
        longest = self.text.longest_source(config) + 1
        return bucket_length(len(segment.ids) + 1, size=EXACT_BUCKET, longest=longest)

    # ---- One batch

    def _decode(self, batch: Sequence[Segment], request: DecodeRequest, split: SplitBatches) -> list[list[Hypothesis]]:
        """The hypotheses of each segment; on a CPU a near tie, where batch composition may decide, is decoded alone."""
        search = partial(self._search, request=request)
        with self._ready():
            found = split(batch, search)
            if self.batch_invariant or not self.second_pass or self.redecodes_together or len(batch) == 1:
                return found
            return [
                split([segment], search)[0] if hypotheses[0].is_near_tie else hypotheses
                for segment, hypotheses in zip(batch, found, strict=True)
            ]

    def _redecode(self, ties: Sequence[Segment], request: DecodeRequest, split: SplitBatches) -> list[list[Hypothesis]]:
        """The hypotheses of near ties of one bucket, in its shape, filled with repetitions of the last segment."""
        n_fillers = batch_size_of(self._bucket(ties[0], request.config)) - len(ties)
        with self._ready():
            found = split([*ties, *[ties[-1]] * n_fillers], partial(self._search, request=request, fixed=True))
        return found[: len(ties)]

    def _split_batches(self, config: DecodeConfig) -> SplitBatches:
        rows_key = SEARCHES[config.search].rows_key or "beam_size"
        return SplitBatches(
            lower="decode.batch_tokens",
            alone=f"Lower decode.{rows_key} or decode.max_source_length, or choose another device=",
            on_split=self._free_graphs,
        )

    def _free_graphs(self) -> None:
        """CUDA graphs keep the memory that they were captured with: those of smaller batches are captured anew."""
        if isinstance(self.decoder, CudaGraphDecoder):
            self.decoder.release()

    def _search(
        self, batch: Sequence[Segment], request: DecodeRequest, *, fixed: bool = False
    ) -> list[list[Hypothesis]]:
        """`fixed`: in shapes that the first segment's bucket sets, which all others are of."""
        config, source = request.config, self.tokenizers.source
        rows = [[*segment.ids, *source.end_ids] for segment in batch]
        longest, n_sentences, n_beams = max(map(len, rows)), len(rows), rows_per_sentence(config)
        if self.batch_invariant or fixed:
            longest = max(longest, self._bucket(batch[0], config))
        if self.batch_invariant:
            n_sentences = batch_size_of(longest)
        lengths = list(map(len, rows))
        source_BS = np.full((n_sentences, longest), source.pad_id, dtype=np.int64)  # and fillers, of padding alone
        source_BS[: len(rows)][np.arange(longest) < np.array(lengths)[:, None]] = list(chain.from_iterable(rows))
        cache = self.decoder.start(
            to_device(torch.from_numpy(source_BS), self.device),
            beam_size=n_beams,
            max_length=self.text.longest_translation(config, longest),
            keeps_attention=config.coverage_penalty > 0,
        )
        has_constraints = any(segment.prefix or segment.required for segment in batch)
        is_cancelled = request.is_cancelled
        search_request: SearchRequest[Any] = SearchRequest(
            self.decoder.step,
            cache,
            self.control,
            torch.tensor([self.text.longest_translation(config, length) for length in lengths]),
            config,
            seeds=[(request.seed, request.first_line + segment.line, segment.part) for segment in batch],
            constraints=[Constraints(s.prefix, s.n_first, s.required, s.whole) for s in batch]
            if has_constraints
            else [],
            continuing_V=self._continuing_V if any(segment.whole for segment in batch) else None,
            source_lengths_B=to_device(torch.tensor(lengths), self.device),
            to_text=self.tokenizers.target.decode,
            device=self.device,
            near_tie=self.near_tie,
            exact=fixed,
            recorder=TraceRecorder(len(batch), request.n_likeliest) if request.n_likeliest else None,
            cancelled=None if is_cancelled is None else lambda: [is_cancelled(segment) for segment in batch],
        )
        if self.batch_invariant or fixed:
            fixed_cache = FixedShapeCache(cache, n_sentences, n_beams, n_live=len(batch))
            search_request = replace(search_request, step=fixed_shape(self.decoder.step), cache=fixed_cache)
        if self.shortlist is None:
            return self._run(search_request)
        lists = [self.shortlist.of(row, one.prefix) for row, one in zip(rows, batch, strict=True)]
        short = BatchShortlist(lists, self.control, self.device)
        return short.hypotheses(self._run(short.request(search_request, self.decoder)))

    def _run(self, request: SearchRequest[Any]) -> list[list[Hypothesis]]:
        with overflow_named(self.dtype):
            return SEARCHES[request.config.search](request)


def torch_engine(
    models: Sequence[ModelFile],
    config: DecodeConfig,
    device: torch.device,
    *,
    parallel: bool = False,
    shortlist: Path | None = None,
) -> TorchEngine:
    """The engine of the models of files. Raises CheckpointError for a `shortlist` of another model."""
    languages = models[0].source_lang, models[0].target_lang
    is_prepacked = device.type == "cpu" and has_onednn() and not config.batch_invariant
    return TorchEngine(
        build_all(models, device, copies=not is_prepacked),  # prepacked matrices are copies themselves
        models[0].tokenizers,
        device=device,
        text=training_text(models),
        precision=config.precision,
        batch_invariant=config.batch_invariant,
        parallel=parallel,
        shortlist=None if shortlist is None else Shortlist.read(shortlist, models[0].tokenizers, languages),
    )


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
        model,
        tokenizers,
        device=device,
        text=text,
        precision=config.precision,
        batch_invariant=config.batch_invariant,
        parallel=parallel,
    )
    return Translator(engine, config, seed=seed, options=options)


def check_shortlist(device: torch.device, *, batch_invariant: bool) -> None:
    """Raise ConfigError where decode.shortlist would not serve: on a GPU, and in fixed shapes."""
    if device.type != "cpu":
        raise ConfigError(
            f"decode.shortlist: is for a CPU, not device={device.type}. Leave it out, or add --device cpu"
        )
    if batch_invariant:
        raise ConfigError(
            "decode.batch_invariant=true: not with decode.shortlist, whose products have as many columns as the lists"
            " of a batch have tokens. Leave one of them out"
        )


def prepacked(model: AnyModel) -> AnyModel:
    """`model` with prepacked weights, where its device has kernels for them."""
    if isinstance(model, Ensemble):
        members = [prepack(member) if can_prepack(member) else member for member in model.members]
        return Ensemble(members).train(model.training)
    return prepack(model) if can_prepack(model) else model


def batches(segments: Sequence[Segment], *, most: Callable[[int], int]) -> Iterator[list[Segment]]:
    """The longest first, so that memory runs out at once or never: `most` segments of the longest's tokens, or one."""
    ordered = sorted(segments, key=lambda segment: -len(segment.ids))
    while ordered:
        n_sentences = max(1, most(len(ordered[0].ids) + 1))  # EOS is one more token
        yield ordered[:n_sentences]
        ordered = ordered[n_sentences:]


def batch_invariant_batches(
    segments: Sequence[Segment], *, bucket: Callable[[Segment], int]
) -> Iterator[list[Segment]]:
    """The longest first; each batch has segments of one bucket, and at most the fixed number of its bucket."""
    for length, in_bucket in groupby(sorted(segments, key=lambda segment: -len(segment.ids)), key=bucket):
        while batch := list(islice(in_bucket, batch_size_of(length))):
            yield batch
