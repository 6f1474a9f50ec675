"""What a hypothesis is worth: its log-probability, for its length, less what it leaves untranslated.

Shapes: B sentences, N hypotheses of each that go on, T target, S source.
"""

import math
from typing import Any

import torch
from torch import Tensor

from transformer_cli.config.decode import DecodeConfig, LengthNormalization
from transformer_cli.decoding.search.request import AttendingCache, Task


def length_penalty(n_tokens: int, alpha: float) -> float:
    """((5 + n) / 6)^α for n tokens, EOS counted (Wu et al. 2016, equation 14)."""
    return math.pow((5 + n_tokens) / 6, alpha)


def divisor(n_tokens: int, config: DecodeConfig) -> float:
    """What the log-probability of `n_tokens` tokens, EOS counted, is divided by: never less than for fewer."""
    if config.length_normalization is LengthNormalization.gnmt:
        return length_penalty(n_tokens, config.length_penalty)
    return float(n_tokens) if config.length_normalization is LengthNormalization.average else 1.0


class Coverage:
    """How much of the source each hypothesis has looked at (Wu et al. 2016, equation 14).

    The penalty is β · Σ_s log(min(Σ_t attention to s, 1)), over the tokens of the source, its EOS counted, and all
    steps until the hypothesis ended. It is never above 0, so that a hypothesis is worth no more than without it.
    """

    def __init__(self, task: Task[Any]) -> None:
        assert task.source_lengths_B is not None
        self.cache: AttendingCache = task.cache
        self.beta = task.config.coverage_penalty
        self.lengths_B1 = task.source_lengths_B[:, None]
        self.sum_BNS: Tensor | None = None

    def before(self, log_p_RV: Tensor, length: int) -> None:
        newest_BNS = self.cache.attention_BNS.double()
        self.sum_BNS = newest_BNS if self.sum_BNS is None else self.sum_BNS + newest_BNS

    def penalty(self) -> Tensor:
        """[B, N]: of each hypothesis, whatever it says next."""
        assert self.sum_BNS is not None
        # What nobody looks at costs much, but not all: the hypothesis keeps a score.
        seen_BNS = self.sum_BNS.clamp(torch.finfo(torch.float64).tiny, 1)
        is_real_BS = torch.arange(seen_BNS.size(2), device=seen_BNS.device) < self.lengths_B1
        return self.beta * (seen_BNS.log() * is_real_BS[:, None]).sum(dim=2)

    def after(self, beam_BN: Tensor | None, ids_BN: Tensor) -> None:
        if beam_BN is not None and self.sum_BNS is not None:
            self.sum_BNS = self.sum_BNS.gather(1, beam_BN[..., None].expand(-1, -1, self.sum_BNS.size(2)))

    def select(self, sentences_B: Tensor) -> None:
        assert self.sum_BNS is not None
        self.sum_BNS, self.lengths_B1 = self.sum_BNS[sentences_B], self.lengths_B1[sentences_B]


class Scoring:
    """The score of hypotheses that end, or are cut, in one step; they all have the same length."""

    def __init__(self, task: Task[Any]) -> None:
        self.divisors = [1.0, *(divisor(n, task.config) for n in range(1, int(task.max_lengths_B.max()) + 1))]
        self.coverage = Coverage(task) if task.config.coverage_penalty else None

    def __call__(self, log_prob_BM: Tensor, length: int, beam_BM: Tensor | None = None) -> Tensor:
        """Of hypotheses that continue these of the step before (None: each its own)."""
        score_BM = log_prob_BM / self.divisors[length]
        if self.coverage is None:
            return score_BM
        penalty_BN = self.coverage.penalty()
        return score_BM + (penalty_BN if beam_BM is None else penalty_BN.gather(1, beam_BM))

    def best_possible(self, log_prob_B: Tensor, divisor_B: Tensor) -> Tensor:
        """What no continuation exceeds.

        It gets no likelier, is divided by no more than the longest one is (`divisor_B`), and its coverage penalty ends
        at 0 at best.
        """
        return log_prob_B / divisor_B
