"""What may be said next. A rule takes tokens away, and never gives their probability to others.

1. PAD, BOS and the unknown token never, and EOS not before `min_length` tokens.
2. With `no_repeat_ngram=n`, no token that would say n tokens in a row again. A hypothesis that this leaves nothing to
   say ends, however short it is.
3. While a prefix lasts, its next token and no other, whatever the rules above say of it. It counts in them later.

Shapes: B sentences, N hypotheses of each that go on, T target, V vocabulary, G n-grams, R = B × N rows.
"""

import math
from typing import Any, Protocol

import torch
from torch import Tensor

from transformer_cli.decoding.search.request import Task


class Follower(Protocol):
    """What is kept of every hypothesis, beside its tokens and its log-probability."""

    def before(self, log_p_RV: Tensor, length: int) -> None:
        """Hypotheses have `length` tokens; what is changed in the log-probabilities of the next is not chosen."""

    def after(self, beam_BN: Tensor | None, ids_BN: Tensor) -> None:
        """Each hypothesis continues this one of its sentence (None: itself) with this token."""

    def select(self, sentences_B: Tensor) -> None:
        """Go on with these sentences."""


class Rules:
    def __init__(self, task: Task[Any]) -> None:
        control, config, device = task.control, task.config, task.max_lengths_B.device
        self.eos_id, self.min_length, self.n_gram = control.eos, config.min_length, config.no_repeat_ngram
        self.never = torch.tensor(control.banned, device=device)
        self.not_yet = torch.tensor([*control.banned, control.eos], device=device)
        self.said_BNT: Tensor | None = None  # kept to look for n-grams
        self.longest_prefix = max((len(demanded.prefix) for demanded in task.demands), default=0)
        padded = [(*demanded.prefix, *[-1] * self.longest_prefix)[: self.longest_prefix] for demanded in task.demands]
        self.prefix_BT = torch.tensor(padded, dtype=torch.long, device=device)  # -1 behind each

    def before(self, log_p_RV: Tensor, length: int) -> None:
        prefix = self._next_of_prefix(log_p_RV, length) if length < self.longest_prefix else None
        never = self.never if length >= self.min_length else self.not_yet
        if self.n_gram is None or self.said_BNT is None or length < self.n_gram:
            log_p_RV.index_fill_(1, never, -math.inf)
        else:
            end_R = log_p_RV[:, self.eos_id].clone()
            log_p_RV.index_fill_(1, never, -math.inf)
            ban_repeats(log_p_RV, self.said_BNT.flatten(0, 1), self.n_gram)
            is_stuck_R = log_p_RV.amax(dim=1) == -math.inf
            log_p_RV[:, self.eos_id] = torch.where(is_stuck_R, end_R, log_p_RV[:, self.eos_id])
        if prefix is not None:
            ids_R1, log_p_R1, is_forced_R1 = prefix
            log_p_RV.masked_fill_(is_forced_R1, -math.inf)
            log_p_RV.scatter_(1, ids_R1, torch.where(is_forced_R1, log_p_R1, log_p_RV.gather(1, ids_R1)))

    def _next_of_prefix(self, log_p_RV: Tensor, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """[R, 1] each: the next token of the prefix, how likely it is, and whether there is one."""
        ids_B = self.prefix_BT[:, length]
        ids_R1 = ids_B.repeat_interleave(len(log_p_RV) // len(ids_B))[:, None]
        some_R1 = ids_R1.clamp(min=0)
        return some_R1, log_p_RV.gather(1, some_R1), ids_R1 >= 0

    def after(self, beam_BN: Tensor | None, ids_BN: Tensor) -> None:
        if self.n_gram is None:
            return
        said_BNT = ids_BN.new_empty(*ids_BN.shape, 0) if self.said_BNT is None else self.said_BNT
        if beam_BN is not None:
            said_BNT = said_BNT.gather(1, beam_BN[..., None].expand(-1, -1, said_BNT.size(2)))
        self.said_BNT = torch.cat([said_BNT, ids_BN[..., None]], dim=2)

    def select(self, sentences_B: Tensor) -> None:
        if self.said_BNT is not None:
            self.said_BNT = self.said_BNT[sentences_B]
        if self.longest_prefix:
            self.prefix_BT = self.prefix_BT[sentences_B]


def ban_repeats(log_p_RV: Tensor, said_RT: Tensor, n: int) -> None:
    """Make it impossible to say, after `said_RT`, n tokens in a row that are in it."""
    grams_RGn = said_RT.unfold(1, n, 1)
    newest_R1n = said_RT[:, None, said_RT.size(1) - n + 1 :]
    is_again_RG = (grams_RGn[..., :-1] == newest_R1n).all(dim=2)
    change_RG = torch.zeros_like(is_again_RG, dtype=log_p_RV.dtype).masked_fill_(is_again_RG, -math.inf)
    log_p_RV.scatter_add_(1, grams_RGn[..., -1], change_RG)
