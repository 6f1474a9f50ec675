"""The engine of CTranslate2: a converted model, searched and force-decoded by that library.

Its beam search keeps the same number of hypotheses, but a sentence is done as soon as N of them have ended, or without
a length penalty as soon as the likeliest has. Results are scored and ranked as those of TorchEngine, so that scores
mean the same.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from transformer_cli.addons.interop.ctranslate2 import VOCABULARY_MAP, vocabulary_map
from transformer_cli.config.checks import AUTO
from transformer_cli.config.decode import DecodeConfig, DecodePrecision, Quantize
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.decoding.engine import Capabilities, DecodeRequest, Engine, SearchedBatch
from transformer_cli.decoding.plan import Segment
from transformer_cli.decoding.search import ControlIds, Hypothesis, rows_per_sentence
from transformer_cli.decoding.search.scores import divisor
from transformer_cli.decoding.shortlist import Shortlist
from transformer_cli.decoding.torch_engine import batches
from transformer_cli.decoding.training_text import TrainingText
from transformer_cli.errors import CheckpointError, ConfigError, EnvironmentFault, quoted
from transformer_cli.extras import imported
from transformer_cli.files import wrap_os_errors
from transformer_cli.inference.batch_size import BatchTokens, forward_tokens
from transformer_cli.inference.force_decode import ForcedScores, IdPair
from transformer_cli.logs import LOGGER
from transformer_cli.models.memory import SplitBatches

DRAWS_BY_ITSELF = (
    "engine=ctranslate2 draws by a seed of its own for each thread, so that no sample could be had again."
    " Leave engine=ctranslate2 out, or choose decode=beam"
)
CAPABILITIES = Capabilities(
    "ctranslate2",
    searches=frozenset({"greedy", "beam"}),
    keys=frozenset(
        {
            *("beam_size", "length_penalty", "length_normalization", "n_best", "no_repeat_ngram", "early_stopping"),
            *("max_extra_length", "max_length", "min_length", "batch_tokens", "precision"),
        }
    ),
    lexical_constraints=False,
    prefixes=False,
    attention=False,
    traces=False,
    quantizations=frozenset({"none", "int8"}),
    remedies={
        "decode.search=sample": DRAWS_BY_ITSELF,
        "decode.search=mbr": DRAWS_BY_ITSELF,
        "--explain": "engine=ctranslate2 does not show its steps. Use `--engine torch` with the model file",
        "decode.shortlist": "is for translating with a model file. Leave it out here",
    },
)
# Of a model file: torch has the same model, to force-decode with it.
WITH_TORCH = replace(CAPABILITIES, attention=True, shortlist=True)
DAMAGED = (ValueError, LookupError)  # what the library raises for contents that do not fit together
COMPUTE_TYPES = {  # auto: that of the folder
    DecodePrecision.auto: "default",
    DecodePrecision.fp32: "float32",
    DecodePrecision.bf16: "bfloat16",
    DecodePrecision.fp16: "float16",
}
_REMEDY = "Write it again with `tfm export ctranslate2 --overwrite`"
MAX_BATCH_TOKENS = 1024  # source tokens that one CPU thread gets: with more, others may be idle at the end
BATCHES_AHEAD = 3  # for each thread: enough to keep all busy while results are used, few enough to stop soon


class CTranslate2Engine:
    """A folder in CTranslate2's format. Raises CheckpointError for a damaged one.

    `max_positions` is the most tokens that a sentence may have there; None: any number. `with_torch` opens the same
    model with torch, which force-decodes where attention is asked for. With a `shortlist` each sentence is searched
    alone: a batch would have the lists of all its sentences.
    """

    def __init__(
        self,
        directory: Path,
        tokenizers: Tokenizers,
        *,
        text: TrainingText,
        device: torch.device,
        quantize: Quantize = Quantize.none,
        precision: DecodePrecision = DecodePrecision.auto,
        with_torch: Callable[[], Engine] | None = None,
        shortlist: Shortlist | None = None,
    ) -> None:
        self.capabilities = CAPABILITIES if with_torch is None else WITH_TORCH
        self.with_torch, self.one_at_a_time = with_torch, threading.Lock()
        self.torch_engine: Engine | None = None
        self.directory, self.tokenizers, self.text = directory, tokenizers, text
        self.device, self.n_searches, self.process = device, torch.get_num_threads(), os.getpid()
        self.control = ControlIds.of(tokenizers.target)
        self.banned = frozenset(self.control.banned)
        library = imported("ctranslate2", needs="engine=ctranslate2")
        # A folder of float32 or int16 can be computed with in int8 as well; one of int8 stays as it is.
        kind = "cpu" if device.type == "mps" else device.type
        if kind != device.type:
            LOGGER.info("engine=ctranslate2: computes on the CPU, as it has no device=mps")
        compute_type = COMPUTE_TYPES[precision]
        if quantize is Quantize.int8:
            compute_type = "int8" if precision is DecodePrecision.auto else f"int8_{compute_type}"
            if "int8" not in _compute_types(library, kind):
                raise EnvironmentFault(
                    "decode.quantize=int8: CTranslate2 has no products in int8 for this processor."
                    " Use decode.quantize=none"
                )
        self.max_batch_tokens = MAX_BATCH_TOKENS if kind == "cpu" else forward_tokens(AUTO, device)
        self.has_shortlist = shortlist is not None
        files = None if shortlist is None else _files_with(vocabulary_map(shortlist, tokenizers), directory)
        try:
            if precision is not DecodePrecision.auto and compute_type not in _compute_types(library, kind):
                raise EnvironmentFault(
                    f"decode.precision={precision.name}: CTranslate2 does not compute in {compute_type} on this"
                    f" {kind}. Use decode.precision=fp32, or leave it out"
                )
            # Each thread takes batches of its own: one product is too small to be shared.
            self.library = library.Translator(
                os.fsencode(directory),
                files=files,
                device=kind,
                compute_type=compute_type,
                inter_threads=self.n_searches,
                intra_threads=1,
            )
        except (RuntimeError, MemoryError, *DAMAGED) as error:
            raise CheckpointError(
                f"{directory}: CTranslate2 cannot load it ({quoted(str(error))}). {_REMEDY}"
            ) from error
        self.source_pieces = tokenizers.source.pieces(range(len(tokenizers.source)))
        target = tokenizers.target
        self.target_pieces = target.pieces(range(len(target)))
        self.ids = {piece: number for number, piece in enumerate(self.target_pieces)}

    def tokens_per_batch(self, config: DecodeConfig) -> int:
        if self.has_shortlist:
            return 1
        rows = forward_tokens(config.batch_tokens, self.device) // rows_per_sentence(config)
        return min(rows, self.max_batch_tokens)

    def search(self, segments: Sequence[Segment], request: DecodeRequest) -> Iterator[SearchedBatch]:
        """The longest first; the library's threads search the next batches while the caller uses the one it got."""
        config = request.config
        max_tokens = self.tokens_per_batch(config)
        ahead: deque[tuple[list[Segment], list[Any]]] = deque()
        for batch in batches(segments, most=lambda n_source: max_tokens // n_source):
            ahead.append((batch, self._submit(batch, config)))
            if len(ahead) > BATCHES_AHEAD * self.n_searches:
                yield self._finished(*ahead.popleft(), request)
        while ahead:
            yield self._finished(*ahead.popleft(), request)

    def score(
        self, pairs: Sequence[IdPair], *, batch_tokens: BatchTokens, with_attention: bool = False
    ) -> list[ForcedScores]:
        """Log-probabilities of all tokens, EOS last; the library has no attention of given translations."""
        if with_attention:
            with self.one_at_a_time:
                return self._torch().score(pairs, batch_tokens=batch_tokens, with_attention=True)
        target = self.tokenizers.target
        with self._errors():
            found = self.library.score_batch(
                [self._source(ids) for ids, _ in pairs],
                [target.pieces(ids) for _, ids in pairs],
                max_batch_size=forward_tokens(batch_tokens, self.device),
                batch_type="tokens",
                max_input_length=0,
            )
        return [ForcedScores(list(one.log_probs)) for one in found]

    def _torch(self) -> Engine:
        """Opened when it is first needed."""
        assert self.with_torch is not None, "see `capabilities`"
        if self.torch_engine is None:
            self.torch_engine = self.with_torch()
        return self.torch_engine

    def _finished(self, batch: Sequence[Segment], pending: Sequence[Any], request: DecodeRequest) -> SearchedBatch:
        """A submitted batch, when it is done."""
        results = self._wait(batch, pending, request.config)
        return batch, [self._checked(segment, result, request) for segment, result in zip(batch, results, strict=True)]

    def _checked(self, segment: Segment, result: Any, request: DecodeRequest) -> list[Hypothesis]:
        """Hypotheses of a segment; it is searched again on its own where a banned token or the length requires it.

        The library has one longest length for a batch.
        """
        config = request.config
        hypotheses = self._hypotheses(result, config)
        if request.is_cancelled is not None and request.is_cancelled(segment):
            return hypotheses
        suppressed: Sequence[int] = ()
        if any(not self.banned.isdisjoint(h.ids) for h in hypotheses):
            suppressed = sorted(self.banned)
        longest = self._longest([segment], config, is_scored=_is_rescored(config, suppressed))
        if suppressed or any(len(h.ids) + h.finished > longest for h in hypotheses):
            pending = self._submit([segment], config, suppressed=suppressed)
            (again,) = self._wait([segment], pending, config, suppressed=suppressed)
            hypotheses = self._hypotheses(again, config)
        if _is_rescored(config, suppressed):
            hypotheses = self._rescored(segment, hypotheses, config)
        return hypotheses

    def _rescored(self, segment: Segment, hypotheses: Sequence[Hypothesis], config: DecodeConfig) -> list[Hypothesis]:
        """The hypotheses with the model's scores: the library gives the probability of banned tokens to others."""
        scores = self.score([(segment.ids, h.ids) for h in hypotheses], batch_tokens=config.batch_tokens)
        return self._ranked(
            (
                (h.ids, sum(forced.log_probs[: len(h.ids) + h.finished]), h.finished)
                for h, forced in zip(hypotheses, scores, strict=True)
            ),
            config,
        )

    def _source(self, ids: Sequence[int]) -> list[str]:
        return [self.source_pieces[i] for i in ids]

    def _submit(self, batch: Sequence[Segment], config: DecodeConfig, *, suppressed: Sequence[int] = ()) -> list[Any]:
        """Pending results, one for each segment; `suppressed` are banned tokens."""
        has_length_penalty = self._has_length_penalty(config)
        longest = self._longest(batch, config, is_scored=_is_rescored(config, suppressed))
        pending: list[Any] = self.library.translate_batch(
            [self._source(segment.ids) for segment in batch],
            target_prefix=[list(map(self.target_pieces.__getitem__, one.prefix)) for one in batch]
            if any(one.prefix for one in batch)
            else None,
            asynchronous=True,
            beam_size=config.beam_size,
            # With a length penalty it goes on until N have ended; all of them are returned, and ranked here.
            num_hypotheses=config.beam_size if has_length_penalty else config.n_best,
            length_penalty=1.0 if has_length_penalty else 0.0,
            max_decoding_length=longest,
            min_decoding_length=min(config.min_length, longest - 1),  # with its EOS, where positions are few
            no_repeat_ngram_size=config.no_repeat_ngram or 0,
            max_input_length=0,
            use_vmap=self.has_shortlist,
            return_scores=True,
            return_end_token=True,
            suppress_sequences=[[piece] for piece in self.tokenizers.target.pieces(suppressed)] or None,
        )
        return pending

    def _wait(
        self, batch: Sequence[Segment], pending: Sequence[Any], config: DecodeConfig, *, suppressed: Sequence[int] = ()
    ) -> list[Any]:
        """The results; where memory did not suffice, of fewer segments at a time."""
        first = iter([pending])

        def wait(part: Sequence[Segment]) -> list[Any]:
            results = next(first, None) or self._submit(part, config, suppressed=suppressed)
            return [result.result() for result in results]

        split = SplitBatches(
            lower="decode.batch_tokens",
            alone="Lower decode.beam_size or decode.max_source_length, or choose another device=",
        )
        with self._errors():
            return split(batch, wait)

    def _longest(self, batch: Sequence[Segment], config: DecodeConfig, *, is_scored: bool) -> int:
        """The most tokens a translation may have; both sides count their EOS.

        One that is to be scored has an EOS, which needs a position, even where the search came to no end.
        """
        n_source = max(len(segment.ids) for segment in batch) + len(self.tokenizers.source.end_ids)
        longest, most = self.text.longest_translation(config, n_source), self.text.max_positions
        return min(longest, most - 1) if is_scored and most is not None else longest

    def _has_length_penalty(self, config: DecodeConfig) -> bool:
        return divisor(2, config) > 1 and config.beam_size > 1

    def _hypotheses(self, result: Any, config: DecodeConfig) -> list[Hypothesis]:
        found = []
        is_normalised = self._has_length_penalty(config)
        for pieces, score in zip(result.hypotheses, result.scores, strict=True):
            try:
                ids = [self.ids[piece] for piece in pieces]
            except KeyError as error:
                raise CheckpointError(
                    f"{self.directory}: the model predicts {quoted(str(error.args[0]))}, which its tokenizer does not"
                    f" have, so they are not of one export. {_REMEDY}"
                ) from error
            finished = ids[-1:] == [self.control.eos]
            log_prob = score * len(ids) if is_normalised else score  # theirs is divided by the length
            found.append((ids[:-1] if finished else ids, log_prob, finished))
        return self._ranked(found, config)

    def _ranked(self, found: Iterable[tuple[list[int], float, bool]], config: DecodeConfig) -> list[Hypothesis]:
        """The best, from ids without EOS, log-probability, and whether it has ended."""
        hypotheses = [
            Hypothesis(ids, log_prob / divisor(len(ids) + finished, config), log_prob, finished)
            for ids, log_prob, finished in found
        ]
        hypotheses.sort(key=lambda h: (h.finished, h.score), reverse=True)
        return hypotheses[: config.n_best]

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """The library's own errors while it translates, as ours; a forked process has none of its threads."""
        if os.getpid() != self.process:
            raise EnvironmentFault(
                "engine=ctranslate2: this process was forked from the one that opened the model, and would wait for"
                " ever. Open the model in this one, or use engine=torch"
            )
        try:
            yield
        except DAMAGED as error:
            raise CheckpointError(
                f"{self.directory}: CTranslate2 cannot translate with it ({quoted(str(error))}). {_REMEDY}"
            ) from error
        except RuntimeError as error:  # of the device
            raise EnvironmentFault(
                f"{self.directory}: CTranslate2 failed while it translated ({quoted(str(error))})."
                " Add --device cpu, or check the device"
            ) from error


def _files_with(vocabulary_map: bytes, directory: Path) -> dict[str, bytes]:
    """The files of a model in memory, with a vocabulary map that its folder does not have."""
    with wrap_os_errors(directory, "read the model"):
        files = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
    return {**files, VOCABULARY_MAP: vocabulary_map}


def _compute_types(library: Any, kind: str) -> set[str]:
    found: set[str] = library.get_supported_compute_types(kind)
    return found


def _is_rescored(config: DecodeConfig, suppressed: Sequence[int]) -> bool:
    """Whether translations get their scores by force-decoding, as the search bans tokens that the model predicts."""
    return bool(suppressed) or config.min_length > 0 or config.no_repeat_ngram is not None


def check_lengths(config: DecodeConfig, directory: Path, max_positions: int | None) -> None:
    """Raise ConfigError for longer sentences than the folder has positions for."""
    if max_positions is not None and config.min_length + 2 > max_positions:  # with its EOS, and one that is scored
        raise ConfigError(
            f"decode.min_length={config.min_length}: {directory} has {max_positions} positions, for translations of"
            f" {max_positions - 2} tokens at most. Lower it, or use engine=torch"
        )
    if config.max_source_length is None:
        return  # the limit is the folder's
    longest = config.max_source_length + config.max_extra_length + 1
    if max_positions is not None and longest > max_positions:
        raise ConfigError(
            f"decode.max_source_length={config.max_source_length}: with decode.max_extra_length"
            f"={config.max_extra_length} up to {longest} tokens, and {directory} has {max_positions} positions."
            " Lower one of them"
        )
