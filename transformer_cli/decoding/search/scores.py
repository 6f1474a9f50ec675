"""Scores of hypotheses: length-normalised log-probability plus the coverage penalty.

Shapes: B sentences, N live hypotheses of each, T target, S source.
"""

import math
from typing import Any, TypeAlias

import torch
from torch import Tensor

from transformer_cli.config.decode import DecodeConfig, LengthNormalization
from transformer_cli.data.transfer import to_device
from transformer_cli.decoding.search.request import AttendingCache, SearchRequest
from transformer_cli.models.device import accumulation_dtype

# Tokens of a hypothesis: a number, or a tensor of one element on the device, which a captured step reads.
Length: TypeAlias = int | Tensor


def length_penalty(n_tokens: int, alpha: float) -> float:
    """((5 + n) / 6)^α for n tokens, EOS counted (Wu et al. 2016, equation 14)."""
    return math.pow((5 + n_tokens) / 6, alpha)


def divisor(n_tokens: int, config: DecodeConfig) -> float:
    """What the log-probability of `n_tokens` tokens, EOS counted, is divided by: never less than for fewer."""
    if config.length_normalization is LengthNormalization.gnmt:
        return length_penalty(n_tokens, config.alpha)
    return float(n_tokens) if config.length_normalization is LengthNormalization.average else 1.0


class Coverage:
    """The coverage penalty (Wu et al. 2016, equation 14).

    The penalty is β · Σ_s log(min(Σ_t attention to s, 1)), over the tokens of the source, its EOS counted, and all
    steps until the hypothesis ended. It is never above 0, so that it raises no score.
    """

    def __init__(self, request: SearchRequest[Any]) -> None:
        assert request.source_lengths_B is not None
        self.cache: AttendingCache = request.cache
        self.beta = request.config.coverage_penalty
        self.lengths_B1 = request.source_lengths_B[:, None]
        self.sum_BNS: Tensor | None = None

    def before(self, log_p_RV: Tensor, length: int) -> None:
        newest_BNS = self.cache.attention_BNS.to(accumulation_dtype(self.cache.attention_BNS.device))
        self.sum_BNS = newest_BNS if self.sum_BNS is None else self.sum_BNS + newest_BNS

    def penalty(self) -> Tensor:
        """[B, N]: of each hypothesis, whatever its next token is."""
        assert self.sum_BNS is not None
        # A token without attention costs much, but the score stays finite.
        covered_BNS = self.sum_BNS.clamp(torch.finfo(self.sum_BNS.dtype).tiny, 1)
        is_real_BS = torch.arange(covered_BNS.size(2), device=covered_BNS.device) < self.lengths_B1
        return self.beta * (covered_BNS.log() * is_real_BS[:, None]).sum(dim=2)

    def after(self, beam_BN: Tensor | None, ids_BN: Tensor) -> None:
        if beam_BN is not None and self.sum_BNS is not None:
            self.sum_BNS = self.sum_BNS.gather(1, beam_BN[..., None].expand(-1, -1, self.sum_BNS.size(2)))

    def select(self, sentences_B: Tensor) -> None:
        assert self.sum_BNS is not None
        self.sum_BNS, self.lengths_B1 = self.sum_BNS[sentences_B], self.lengths_B1[sentences_B]


class Scoring:
    """The score of hypotheses that finish, or are truncated, in one step; they all have the same length."""

    def __init__(self, request: SearchRequest[Any]) -> None:
        # Up to a power of two, so that a captured step serves many batches.
        longest = 1 << (request.longest - 1).bit_length()
        self.divisors = [1.0, *(divisor(n, request.config) for n in range(1, longest + 1))]
        device = request.state_device
        self.divisor_T = to_device(torch.tensor(self.divisors, dtype=accumulation_dtype(device)), device)
        self.coverage = Coverage(request) if request.config.coverage_penalty else None

    def __call__(self, log_prob_BM: Tensor, length: Length, beam_BM: Tensor | None = None) -> Tensor:
        """Scores; `beam_BM` are the hypotheses of the step before that they continue (None: each its own)."""
        score_BM = log_prob_BM / (
            self.divisors[length] if isinstance(length, int) else self.divisor_T.index_select(0, length)
        )
        if self.coverage is None:
            return score_BM
        penalty_BN = self.coverage.penalty()
        return score_BM + (penalty_BN if beam_BM is None else penalty_BN.gather(1, beam_BM))

    def best_possible(self, log_prob_B: Tensor, max_length_B: Tensor) -> Tensor:
        """An upper bound of the scores of all continuations.

        Their log-probability is no higher, their divisor is at most that of the longest one (`max_length_B`), and their
        coverage penalty is at best 0.
        """
        return log_prob_B / self.divisor_T.index_select(0, max_length_B)
