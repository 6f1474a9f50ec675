"""Keys of the group `decode`: the search and what it may produce."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from transformer_cli.config.checks import AUTO
from transformer_cli.config.fields import Affects, check_ranges, key
from transformer_cli.errors import ConfigError

LARGEST_BEAM = 1000
LENGTH_PENALTY = 0.6  # of the paper, where neither the config nor the model has one


class LengthNormalization(Enum):
    gnmt = "gnmt"  # ((5 + n) / 6)^decode.length_penalty for n tokens
    average = "average"  # n
    none = "none"  # 1


class Quantize(Enum):
    none = "none"
    int8 = "int8"  # engine=ctranslate2 only


class DecodePrecision(Enum):
    """The number format of weights and activations; softmax, scores and sums have float32 or float64 in any."""

    auto = "auto"  # bf16 on a GPU that has it, else fp16 there; fp32 on a CPU and on MPS
    fp32 = "fp32"
    bf16 = "bf16"
    fp16 = "fp16"


class LongLines(Enum):
    auto = "auto"  # cut for a model that was trained so (data.truncate_source), else split
    split = "split"  # into segments of whole sentences, translated one by one and concatenated
    cut = "cut"  # truncated


class TermForms(Enum):
    """The forms of a term's translation that satisfy it."""

    ending = "ending"  # as it is written; the last word may have an ending
    inflected = "inflected"  # each word may also have another ending of up to three letters


@dataclass
class DecodeConfig:
    """How a translation is searched for; the defaults are section 6.1 of the paper."""

    AFFECTS: ClassVar[Affects] = "scores"

    search: str = key("beam", "Search algorithm: greedy, beam, sample, mbr, or one of a plugin.")
    beam_size: int = key(4, "Partial hypotheses that beam search keeps of each sentence.", low=1, high=LARGEST_BEAM)
    length_normalization: LengthNormalization = key(
        LengthNormalization.gnmt,
        "What the log-probability of n tokens is divided by: ((5 + n) / 6)^length_penalty (gnmt), n (average), or 1.",
    )
    length_penalty: float | None = key(
        None,
        "Exponent α of gnmt length normalization (Wu et al. 2016); higher favours longer output. Unset: the model's"
        " own, if train.length_penalties chose it, else 0.6.",
        low=0,
        high=10,
    )
    early_stopping: bool = key(
        False,
        "End a beam search when beam_size hypotheses have ended, as fairseq does, even if another could become better.",
    )
    coverage_penalty: float = key(
        0.0, "Weight β of the GNMT coverage penalty on source tokens with little attention; 0 is off.", low=0, high=10
    )
    max_extra_length: int = key(
        50, "Most tokens of a translation beyond the length of its source, both with their EOS.", low=0, high=100_000
    )
    max_length: int | None = key(None, "Most tokens of a translation, EOS counted.", low=1, high=100_000)
    min_length: int = key(0, "Fewest tokens of a translation before EOS.", low=0, high=100_000)
    no_repeat_ngram: int | None = key(None, "Forbids any n-gram of this many tokens to occur twice.", low=1, high=1000)
    n_best: int = key(1, "Translations that are returned for each line, best first.", low=1, high=1000)
    diversity_groups: int = key(
        1, "Groups of diverse beam search (Vijayakumar et al. 2018); must divide beam_size.", low=1, high=1000
    )
    diversity_strength: float = key(
        0.5, "Penalty on a token for each hypothesis of an earlier group that chose it, in nats.", low=0, high=100
    )
    temperature: float = key(
        1.0, "Divides the logits before sampling; below 1 favours likely tokens. Sampling only.", low=1e-3, high=1e3
    )
    top_k: int | None = key(None, "Sample from the k likeliest tokens only. Sampling only.", low=1)
    top_p: float | None = key(
        None, "Sample from the likeliest tokens whose probabilities sum to p. Sampling only.", low=1e-6, high=1
    )
    n_samples: int = key(32, "Samples drawn for each sentence by minimum Bayes risk decoding.", low=2, high=1000)
    max_source_length: int | None = key(
        None,
        "Most tokens of a source that is translated whole; unset: the longest in training.",
        low=2,
        high=100_000,
        chosen_once=True,
        part="translator",
    )
    long_lines: LongLines = key(
        LongLines.auto,
        "Longer sources are split at sentence ends and the parts joined, or truncated (cut); auto: as with"
        " data.truncate_source in training.",
        part="translator",
    )
    split_sentences: Any = key(
        AUTO,
        "Translate a line sentence by sentence; auto: if the model was trained on single sentences.",
        choices=("auto", "true", "false"),
        part="translator",
    )
    copy_letterless: Any = key(
        AUTO,
        "Leave lines without a letter (12:30, !!!) as they are; auto: unless the training text translates such lines.",
        choices=("auto", "true", "false"),
        part="translator",
    )
    batch_tokens: Any = key(
        AUTO,
        "Padded source tokens × beam_size of one batch; lower it to save memory. auto: 4096 on a CPU, 8192 with a beam;"
        " what fits a GPU.",
        low=1,
        auto=True,
        affects="speed",
        part="engine",
    )
    precision: DecodePrecision = key(
        DecodePrecision.auto, "Number format of the model; auto: bf16 or fp16 on a GPU, fp32 elsewhere.", part="engine"
    )
    max_misplaced_cost: float | None = key(
        1.5,
        "Nats per token that a term of --terms in an unlikely place may cost; null: any.",
        low=0,
        high=1000,
        part="translator",
    )
    term_forms: TermForms = key(
        TermForms.ending,
        "Forms that satisfy a term of --terms: with any ending, or inflected, with other short endings, too.",
        part="translator",
    )
    quantize: Quantize = key(
        Quantize.none,
        "Matrix products in 8-bit integers (int8), for speed on a CPU. engine=ctranslate2 only.",
        part="engine",
    )
    batch_invariant: bool = key(
        False,
        "Scores equal to the last bit whatever else is in the batch; CPU only, with one thread for each process.",
        affects="rounding",
        part="engine",
    )
    shortlist: str | None = key(
        None,
        "File of `tfm shortlist`: the tokens that a translation may have, by those of its source, for speed on a CPU;"
        " auto: shortlist.safetensors beside the model. Unset: all.",
        path=True,
        part="engine",
    )
    options: dict[str, Any] = key({}, "Settings of a search that a plugin registers.", part="engine", entry="search")

    def __post_init__(self) -> None:
        if self.temperature == 0:
            raise ConfigError("decode.temperature=0: is greedy search. Choose decode=greedy, or give 0.001 or more")
        check_ranges(self, "decode")
        for name in ("split_sentences", "copy_letterless"):
            value = getattr(self, name)
            if value != AUTO and not isinstance(value, bool):
                raise ConfigError(f"decode.{name}={value}: unknown. Choose auto, true or false")
        self._refuse_without_effect()

    @property
    def alpha(self) -> float:
        """`length_penalty`, or that of the paper where it is unset."""
        return LENGTH_PENALTY if self.length_penalty is None else self.length_penalty

    def _refuse_without_effect(self) -> None:
        """Raise ConfigError for keys that have no effect, or no result, together."""
        is_default = self.length_penalty in (None, LENGTH_PENALTY)
        if self.length_normalization is not LengthNormalization.gnmt and not is_default:
            raise ConfigError(
                f"decode.length_penalty={self.length_penalty}: needs decode.length_normalization=gnmt, not"
                f" {self.length_normalization.name}. Leave one of them out"
            )
        if self.early_stopping and self.search in ("greedy", "sample", "mbr"):
            raise ConfigError(
                f"decode.early_stopping=true: of beam search, not decode.search={self.search}. Leave it out, or choose"
                " decode=beam"
            )
        if self.max_length is not None and self.min_length >= self.max_length:
            raise ConfigError(
                f"decode.min_length={self.min_length}: leaves no room for EOS within decode.max_length="
                f"{self.max_length}. Raise decode.max_length to {self.min_length + 1}"
            )
        if self.diversity_groups > 1 and self.beam_size % self.diversity_groups:
            raise ConfigError(
                f"decode.diversity_groups={self.diversity_groups}: does not divide decode.beam_size={self.beam_size}."
                f" Set decode.beam_size={self.diversity_groups * -(-self.beam_size // self.diversity_groups)}"
            )
        if self.diversity_groups == 1 and self.diversity_strength != 0.5:
            raise ConfigError(
                f"decode.diversity_strength={self.diversity_strength}: does nothing in one group."
                " Set decode.diversity_groups, or leave it out"
            )
