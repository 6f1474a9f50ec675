"""Logits processors: which tokens may come next. Banned tokens keep their probability; it is not redistributed.

1. PAD, BOS and the unknown token are banned, and EOS before `min_length` tokens.
2. With `no_repeat_ngram=n`, a token that would repeat an n-gram of the hypothesis is banned. A hypothesis that has no
   other token left ends, however short it is.
3. Within a prefix only its next token is allowed, even if banned above. It counts in later n-grams.

Shapes: B sentences, N live hypotheses of each, T target, V vocabulary, G n-grams, R = B × N rows.
"""

import math
from typing import Any, Protocol

import torch
from torch import Tensor

from transformer_cli.data.transfer import to_device
from transformer_cli.decoding.search.request import SearchRequest


class HypothesisState(Protocol):
    """State that is kept for every hypothesis, beside its tokens and its log-probability."""

    def before(self, log_p_RV: Tensor, length: int) -> None:
        """Called before hypotheses of `length` tokens choose; may set log-probabilities of the next token to -inf."""

    def after(self, beam_BN: Tensor | None, ids_BN: Tensor) -> None:
        """Called after a choice: each hypothesis continues this one of its sentence (None: itself) with this token."""

    def select(self, sentences_B: Tensor) -> None:
        """Keep these sentences."""


class LogitsProcessors:
    """All of them, in one pass over the log-probabilities."""

    def __init__(self, request: SearchRequest[Any]) -> None:
        control, config, device = request.control, request.config, request.state_device
        self.eos_id, self.min_length, self.n_gram = control.eos, config.min_length, config.no_repeat_ngram
        self.banned = to_device(torch.tensor(control.banned), device)
        self.banned_before_end = to_device(torch.tensor([*control.banned, control.eos]), device)
        self.past_BNT: Tensor | None = None  # kept for its n-grams
        self.longest_prefix = max((len(constraints.prefix) for constraints in request.constraints), default=0)
        prefixes = [constraints.prefix for constraints in request.constraints]
        padded = [(*prefix, *[-1] * self.longest_prefix)[: self.longest_prefix] for prefix in prefixes]
        self.prefix_BT = to_device(torch.tensor(padded, dtype=torch.long), device)  # -1 behind each
        n_first = [constraints.n_first for constraints in request.constraints]
        self.n_first_B = to_device(torch.tensor(n_first, dtype=torch.long), device)

    @property
    def depends_on_history(self) -> bool:
        """Whether a step differs from others in what is banned."""
        return self.min_length > 0 or self.n_gram is not None or self.longest_prefix > 0

    def before(self, log_p_RV: Tensor, length: int) -> None:
        prefix = self._next_of_prefix(log_p_RV, length) if length < self.longest_prefix else None
        banned = self.banned if length >= self.min_length else self.banned_before_end
        if self.n_gram is None or self.past_BNT is None or length < self.n_gram:
            log_p_RV.index_fill_(1, banned, -math.inf)
        else:
            end_R = log_p_RV[:, self.eos_id].clone()
            log_p_RV.index_fill_(1, banned, -math.inf)
            ban_repeats(log_p_RV, self.past_BNT.flatten(0, 1), self.n_gram)
            is_stuck_R = log_p_RV.amax(dim=1) == -math.inf
            log_p_RV[:, self.eos_id] = torch.where(is_stuck_R, end_R, log_p_RV[:, self.eos_id])
        if prefix is not None:
            ids_R1, log_p_R1, is_forced_R1 = prefix
            log_p_RV.masked_fill_(is_forced_R1, -math.inf)
            log_p_RV.scatter_(1, ids_R1, torch.where(is_forced_R1, log_p_R1, log_p_RV.gather(1, ids_R1)))

    def _next_of_prefix(self, log_p_RV: Tensor, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """[R, 1] each: the next token of the prefix, its log-probability, and whether there is one."""
        ids_B = self.prefix_BT[:, length]
        ids_R1 = ids_B.repeat_interleave(len(log_p_RV) // len(ids_B))[:, None]
        some_R1 = ids_R1.clamp(min=0)
        is_first_R1 = self.n_first_B.repeat_interleave(len(log_p_RV) // len(ids_B))[:, None] > length
        return some_R1, log_p_RV.gather(1, some_R1).masked_fill(is_first_R1, 0.0), ids_R1 >= 0

    def after(self, beam_BN: Tensor | None, ids_BN: Tensor) -> None:
        if self.n_gram is None:
            return
        past_BNT = ids_BN.new_empty(*ids_BN.shape, 0) if self.past_BNT is None else self.past_BNT
        if beam_BN is not None:
            past_BNT = past_BNT.gather(1, beam_BN[..., None].expand(-1, -1, past_BNT.size(2)))
        self.past_BNT = torch.cat([past_BNT, ids_BN[..., None]], dim=2)

    def select(self, sentences_B: Tensor) -> None:
        if self.past_BNT is not None:
            self.past_BNT = self.past_BNT[sentences_B]
        if self.longest_prefix:
            self.prefix_BT, self.n_first_B = self.prefix_BT[sentences_B], self.n_first_B[sentences_B]


def ban_repeats(log_p_RV: Tensor, past_RT: Tensor, n: int) -> None:
    """Ban the tokens that would complete, after `past_RT`, an n-gram that it contains."""
    grams_RGn = past_RT.unfold(1, n, 1)
    newest_R1n = past_RT[:, None, past_RT.size(1) - n + 1 :]
    is_again_RG = (grams_RGn[..., :-1] == newest_R1n).all(dim=2)
    change_RG = torch.zeros_like(is_again_RG, dtype=log_p_RV.dtype).masked_fill_(is_again_RG, -math.inf)
    log_p_RV.scatter_add_(1, grams_RGn[..., -1], change_RG)
