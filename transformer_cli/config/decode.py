"""Keys of the group `decode`: the search and what it may produce."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from transformer_cli.config.checks import AUTO, check_range
from transformer_cli.errors import ConfigError

LARGEST_BEAM = 1000


class LengthNormalization(Enum):
    gnmt = "gnmt"  # ((5 + n) / 6)^decode.length_penalty for n tokens
    average = "average"  # n
    none = "none"  # 1


class Quantize(Enum):
    none = "none"
    int8 = "int8"  # engine=ctranslate2 only


class LongLines(Enum):
    split = "split"  # into parts of whole sentences, translated one by one and joined again
    cut = "cut"


@dataclass
class DecodeConfig:
    """How a translation is searched for; the defaults are section 6.1 of the paper."""

    search: str = "beam"  # greedy, beam, sample, mbr, or another that is registered
    beam_size: int = 4
    length_normalization: LengthNormalization = LengthNormalization.gnmt  # what a log-probability is divided by
    length_penalty: float = 0.6  # α of gnmt (Wu et al. 2016, equation 14)
    coverage_penalty: float = 0.0  # β of the same equation: how much it costs not to look at a source token
    max_extra_length: int = 50  # a translation has at most source length + this many tokens, both with their end
    max_length: int | None = None  # and at most this many, its end counted
    min_length: int = 0  # tokens that come before the end
    no_repeat_ngram: int | None = None  # so many tokens in a row are not said twice
    n_best: int = 1
    diversity_groups: int = 1  # beam only: parts of the beam that look for different translations
    diversity_strength: float = 0.5  # what a token's log-probability loses for each hypothesis of an earlier group
    temperature: float = 1.0  # sampling only
    top_k: int | None = None  # sampling only: keep the k likeliest tokens
    top_p: float | None = None  # sampling only: keep the likeliest tokens that hold this probability
    n_samples: int = 32  # mbr only: drawn for each sentence
    max_source_length: int | None = None  # tokens of a source that is translated whole; unset: what the model has met
    long_lines: LongLines = LongLines.split  # what longer lines are, which a warning names
    split_sentences: Any = AUTO  # translate a line sentence by sentence; auto: if the model was trained on single ones
    batch_tokens: int = 4096  # source cells (rows × longest) × beam in one batch
    max_misplaced_cost: float | None = 1.5  # nats a token that a misplaced term of --terms may cost; null: any number
    quantize: Quantize = Quantize.none
    exact: bool = False  # scores equal to the last bit whatever the neighbours; CPU, one thread, any batch_tokens

    def __post_init__(self) -> None:
        check_range("decode.beam_size", self.beam_size, 1, LARGEST_BEAM)
        check_range("decode.length_penalty", self.length_penalty, 0, 10)
        check_range("decode.max_extra_length", self.max_extra_length, 0, 100_000)
        check_range("decode.coverage_penalty", self.coverage_penalty, 0, 10)
        check_range("decode.max_length", self.max_length, 1, 100_000)
        check_range("decode.min_length", self.min_length, 0, 100_000)
        check_range("decode.no_repeat_ngram", self.no_repeat_ngram, 1, 1000)
        check_range("decode.n_best", self.n_best, 1, 1000)
        check_range("decode.diversity_groups", self.diversity_groups, 1, 1000)
        check_range("decode.diversity_strength", self.diversity_strength, 0, 100)
        if self.temperature == 0:
            raise ConfigError("decode.temperature=0: is greedy search. Choose decode=greedy, or give 0.001 or more")
        check_range("decode.temperature", self.temperature, 1e-3, 1e3)
        check_range("decode.top_k", self.top_k, 1)
        check_range("decode.top_p", self.top_p, 1e-6, 1)
        check_range("decode.n_samples", self.n_samples, 2, 1000)
        check_range("decode.max_source_length", self.max_source_length, 2, 100_000)
        if self.split_sentences != AUTO and not isinstance(self.split_sentences, bool):
            raise ConfigError(f"decode.split_sentences={self.split_sentences}: unknown. Choose auto, true or false")
        check_range("decode.batch_tokens", self.batch_tokens, 1)
        check_range("decode.max_misplaced_cost", self.max_misplaced_cost, 0, 1000)
        self._refuse_what_says_nothing_together()

    def _refuse_what_says_nothing_together(self) -> None:
        if self.length_normalization is not LengthNormalization.gnmt and self.length_penalty != 0.6:
            raise ConfigError(
                f"decode.length_penalty={self.length_penalty}: needs decode.length_normalization=gnmt, not"
                f" {self.length_normalization.name}. Leave one of them out"
            )
        if self.max_length is not None and self.min_length >= self.max_length:
            raise ConfigError(
                f"decode.min_length={self.min_length}: leaves no room for an end in decode.max_length="
                f"{self.max_length}. Raise decode.max_length to {self.min_length + 1}"
            )
        if self.diversity_groups > 1 and self.beam_size % self.diversity_groups:
            # Which also says that there is a beam.
            raise ConfigError(
                f"decode.diversity_groups={self.diversity_groups}: does not divide decode.beam_size={self.beam_size}."
                f" Set decode.beam_size={self.diversity_groups * -(-self.beam_size // self.diversity_groups)}"
            )
        if self.diversity_groups == 1 and self.diversity_strength != 0.5:
            raise ConfigError(
                f"decode.diversity_strength={self.diversity_strength}: does nothing in one group."
                " Set decode.diversity_groups, or leave it out"
            )
