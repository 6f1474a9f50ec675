"""What a search is asked, and what it answers.

Shapes: B sentences, N hypotheses of each that go on, T target, V vocabulary, S source, R = B × N rows (row b·N + n is
hypothesis n of sentence b).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from torch import Tensor

from transformer_cli.config.decode import DecodeConfig, SearchKind
from transformer_cli.data.tokenizer import Tokenizer


class Cache(Protocol):
    """What a model keeps from step to step."""

    def reorder(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        """Go on with these rows, and these sentences (None: all): each new one is named by its number until now."""


class AttendingCache(Cache, Protocol):
    """A cache that was told to keep where the model looks."""

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
        """Tokens that no translation contains."""
        return [self.pad, self.bos, *([] if self.unk is None else [self.unk])]


@dataclass(frozen=True)
class Demands:
    """What a translation has to be like."""

    prefix: tuple[int, ...] = ()  # it begins with these
    terms: tuple[tuple[int, ...], ...] = ()  # it contains each, in one piece; one that stands twice, at two places


@dataclass(frozen=True)
class Hypothesis:
    ids: list[int]  # without BOS and EOS
    score: float
    log_prob: float  # natural logarithm
    finished: bool  # False: cut at the longest length allowed
    is_close: bool = field(default=False, compare=False)  # one of this sentence's choices was
    unmet: tuple[int, ...] = ()  # which of the terms demanded it does not contain


@dataclass(frozen=True)
class Task(Generic[CacheT]):
    """What a search is given: a batch of sentences, as a model that has read them."""

    step: Callable[[Tensor, CacheT], Tensor]  # newest token of each row, cache -> logits_RV of the next one
    cache: CacheT  # with `rows_per_sentence` rows for each sentence; an AttendingCache for a coverage penalty
    control: ControlIds
    max_lengths_B: Tensor
    config: DecodeConfig
    seeds: Sequence[Sequence[int]] = ()  # for each sentence the numbers that its random choices are made from
    demands: Sequence[Demands] = ()  # for each sentence; none: for no sentence
    source_lengths_B: Tensor | None = None  # tokens, EOS counted; for a coverage penalty

    def __post_init__(self) -> None:
        n_sentences = len(self.max_lengths_B)
        assert len(self.demands) in (0, n_sentences)
        assert self.config.coverage_penalty == 0 or self.source_lengths_B is not None
        for demanded, longest in zip(self.demands, self.max_lengths_B.tolist() if self.demands else (), strict=True):
            assert len(demanded.prefix) <= longest, "a prefix that has no room"
            assert all(demanded.terms), "a term of no tokens"
            said = {*demanded.prefix, *(v for term in demanded.terms for v in term)}
            assert not said & {*self.control.banned, self.control.eos}, "a token that stands for no text"

    @property
    def has_terms(self) -> bool:
        return any(demanded.terms for demanded in self.demands)


# At most `config.n_best` hypotheses of each sentence, best first. Raises CheckpointError if logits are not numbers.
Search = Callable[[Task[Any]], list[list[Hypothesis]]]


def rows_per_sentence(config: DecodeConfig) -> int:
    """N: how many hypotheses of a sentence a search follows at once."""
    if config.search is SearchKind.mbr:
        return config.n_samples
    return config.n_best if config.search is SearchKind.sample else config.beam_size


def longest_translation(config: DecodeConfig, n_source_tokens: int) -> int:
    """How many tokens a translation may have; both sides count their EOS."""
    longest = n_source_tokens + config.max_extra_length
    if config.max_length is not None:
        longest = min(longest, config.max_length)
    return max(longest, config.min_length + 1)
