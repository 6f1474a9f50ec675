"""The input and the result of a search.

Shapes: B sentences, N live hypotheses of each, T target, V vocabulary, S source, R = B × N rows (row b·N + n is
hypothesis n of sentence b).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from transformer_cli.config.decode import DecodeConfig
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.decoding.search.top_k import NEAR_TIE
from transformer_cli.decoding.search.trace import SearchTrace, TraceRecorder

SYNC_INTERVAL = 8  # steps of an accelerator, which a sentence that is done may take for nothing


class Cache(Protocol):
    """What a model keeps from step to step."""

    def reorder(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        """Keep these rows, and these sentences (None: all), each given by its current index."""


class AttendingCache(Cache, Protocol):
    """A cache that keeps the cross-attention weights."""

    attention_BNS: Tensor  # of the newest step: each row sums to 1 over the source, 0 at padding


CacheT = TypeVar("CacheT", bound=Cache)


@dataclass(frozen=True)
class ControlIds:
    """The ids of the target vocabulary that stand for no text."""

    pad: int
    bos: int
    eos: int
    unk: int | None  # None: the vocabulary has none

    @classmethod
    def of(cls, target: Tokenizer) -> "ControlIds":
        return cls(pad=target.pad_id, bos=target.bos_id, eos=target.eos_id, unk=target.unk_id)

    @property
    def banned(self) -> list[int]:
        """Tokens that no translation contains. In fairseq's models EOS is also what the decoder starts with."""
        return sorted({self.pad, self.bos, *([] if self.unk is None else [self.unk])} - {self.eos})


@dataclass(frozen=True)
class Constraints:
    """What a translation has to contain."""

    prefix: tuple[int, ...] = ()  # it begins with these
    n_first: int = 0  # of them, tokens that count as certain: nothing but them was ever possible
    terms: tuple[tuple[int, ...], ...] = ()  # it contains each, contiguously; one that is listed twice, at two places
    whole: frozenset[tuple[int, ...]] = frozenset()  # terms that no token after them may make a longer word


@dataclass(frozen=True)
class Hypothesis:
    ids: list[int]  # without BOS and EOS
    score: float
    log_prob: float  # natural logarithm
    finished: bool  # False: truncated at the longest length allowed
    is_near_tie: bool = field(default=False, compare=False)  # a choice of this sentence was
    unsatisfied: tuple[int, ...] = ()  # indices of the required terms that it does not contain
    trace: SearchTrace | None = field(default=None, compare=False, repr=False)  # of its sentence, where it is recorded
    text: str | None = None  # of an engine that gives text: `ids` are those that our tokenizer has for it


@dataclass(frozen=True)
class SearchRequest(Generic[CacheT]):
    """The input of a search: a batch of encoded sentences."""

    # Newest token of each row, cache -> logits_RV to write over, in the first step one row for identical ones.
    step: Callable[[Tensor, CacheT], Tensor]
    cache: CacheT  # with `rows_per_sentence` rows for each sentence; an AttendingCache for a coverage penalty
    control: ControlIds
    max_lengths_B: Tensor  # best on the host, with `device`: reading them from a device waits for it
    config: DecodeConfig
    seeds: Sequence[Sequence[int]] = ()  # for each sentence the numbers that its random choices are made from
    constraints: Sequence[Constraints] = ()  # one for each sentence, or none at all
    source_lengths_B: Tensor | None = None  # tokens, EOS counted; for a coverage penalty, and for plugins
    to_text: Callable[[Sequence[int]], str] | None = None  # for searches that compare texts
    device: torch.device | None = None  # of the logits; None: that of `max_lengths_B`
    near_tie: float = NEAR_TIE  # log-probabilities less than this apart may change places by rounding
    exact: bool = False  # put equal candidates in order in every step, instead of marking sentences that have some
    # Steps after which the host reads which sentences are done; None: 1 on a CPU, SYNC_INTERVAL elsewhere.
    sync_interval: int | None = None
    recorder: TraceRecorder | None = None  # records the search; the host then synchronises after every step
    # Which sentences no one waits for any more: they leave the batch, with what was found. Read at every sync.
    cancelled: Callable[[], Sequence[bool]] | None = None
    continuing_V: Tensor | None = None  # which tokens make the word before them longer; for terms that are `whole`

    def __post_init__(self) -> None:
        n_sentences = len(self.max_lengths_B)
        assert len(self.constraints) in (0, n_sentences)
        assert self.config.coverage_penalty == 0 or self.source_lengths_B is not None
        max_lengths = self.max_lengths_B.tolist() if self.constraints else ()
        for constraints, longest in zip(self.constraints, max_lengths, strict=True):
            assert len(constraints.prefix) <= longest, "a prefix that has no room"
            assert all(constraints.terms), "a term of no tokens"
            assert not constraints.whole or self.continuing_V is not None
            required = {*constraints.prefix, *(v for term in constraints.terms for v in term)}
            assert not required & {*self.control.banned, self.control.eos}, "a token that stands for no text"

    @property
    def state_device(self) -> torch.device:
        return self.max_lengths_B.device if self.device is None else self.device

    @property
    def steps_between_syncs(self) -> int:
        if self.recorder is not None:
            return 1
        if self.sync_interval is not None:
            return self.sync_interval
        return 1 if self.state_device.type == "cpu" else SYNC_INTERVAL

    @property
    def longest(self) -> int:
        return int(self.max_lengths_B.max())

    @property
    def has_terms(self) -> bool:
        return any(constraints.terms for constraints in self.constraints)


# At most `config.n_best` hypotheses of each sentence, best first. Raises CheckpointError if logits are not finite.
Search = Callable[[SearchRequest[Any]], list[list[Hypothesis]]]


def longest_translation(config: DecodeConfig, n_source_tokens: int) -> int:
    """The most tokens a translation may have; both sides count their EOS."""
    longest = n_source_tokens + config.max_extra_length
    if config.max_length is not None:
        longest = min(longest, config.max_length)
    return max(longest, config.min_length + 1)
