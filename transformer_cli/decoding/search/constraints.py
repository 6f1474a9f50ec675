"""Translations that contain what they are told to, after the dynamic beam allocation of Post and Vilar 2018.

Each hypothesis knows how many tokens of its terms it has: those of the terms it contains, and those of the one that it
has begun. Hypotheses with as many form a bank. A step takes the best continuation of every bank, then the second best
of every bank, and so on. Two come before all: the best end of what lacks no term, and the best of the fullest bank,
which so grows by a token in each step. Terms are therefore met wherever they have room, for their tokens and an end,
unless a rule (`rules.py`) bans them: with `no_repeat_ngram` a term may be what would be said again.

A term is met where it stands in one piece, also across others: "a b" and "b c" are in "a b c". One that is demanded
twice must stand at two places, which may overlap. A finished hypothesis that lacks a term ranks behind all that lack
none. Where a sentence has terms, whatever ends among the 2N candidates of a step is finished, and not only among the
first N: they are not the likeliest. A sentence without terms has one bank, which is beam search.

Shapes: B sentences, N hypotheses of each that go on, J different terms, Q states of the automaton, A tokens that occur
in terms, X continuations, C = 2N that are taken, M in a row, V vocabulary, R = B × N rows.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transformer_cli.decoding.search.request import Demands, Task
from transformer_cli.decoding.search.top_k import CLOSE

# More than two scores can differ by: a finished hypothesis that lacks a term is ranked as if its score were so much
# lower. Float64 has ten digits left behind it.
BEHIND = 1e6


@dataclass(frozen=True)
class Automaton:
    """Which terms a text has just said, and begun (Aho and Corasick 1975): a state is what may become a term."""

    tokens: list[int]
    next_QA: list[list[int]]  # the state after each of them; after any other token it is 0: nothing begun
    said_QJ: list[list[int]]  # 1 where the term has been completed by the last token
    begun_QJ: list[list[int]]  # tokens of the term that the text ends with, less than all


def automaton(terms: list[tuple[int, ...]]) -> Automaton:
    beginnings = sorted({term[:n] for term in terms for n in range(len(term) + 1)} | {()}, key=len)
    number = {beginning: q for q, beginning in enumerate(beginnings)}
    tokens = sorted({token for term in terms for token in term})

    def state(text: tuple[int, ...]) -> int:
        return next(number[text[i:]] for i in range(len(text) + 1) if text[i:] in number)

    def ends_with(text: tuple[int, ...], end: tuple[int, ...]) -> bool:
        return text[len(text) - len(end) :] == end and len(end) <= len(text)

    return Automaton(
        tokens,
        [[state((*beginning, token)) for token in tokens] for beginning in beginnings],
        [[int(ends_with(beginning, term)) for term in terms] for beginning in beginnings],
        [
            [max(n for n in range(len(term)) if ends_with(beginning, term[:n])) for term in terms]
            for beginning in beginnings
        ],
    )


def unmet(ids: list[int], demanded: Demands) -> tuple[int, ...]:
    """Which terms `ids` lack, by their place among those demanded; of equal ones the last."""
    lacking, seen = [], Counter[tuple[int, ...]]()
    for place, term in enumerate(demanded.terms):
        seen[term] += 1
        n_found = sum(tuple(ids[i : i + len(term)]) == term for i in range(len(ids)))
        if n_found < seen[term]:
            lacking.append(place)
    return tuple(lacking)


class Terms:
    """How far every hypothesis is with the terms of its sentence."""

    def __init__(self, task: Task[Any]) -> None:
        device = task.max_lengths_B.device
        counts = [Counter(demanded.terms) for demanded in task.demands]
        automata = [automaton(list(count)) for count in counts]
        self.eos_id = task.control.eos
        # Where there are terms, the end must be among what a step looks at as well.
        self.tokens_BA = stacked([[*a.tokens, *[self.eos_id] * bool(a.tokens)] for a in automata], -1, device)
        self.next_BQA = stacked([a.next_QA for a in automata], 0, device)
        self.said_BQJ = stacked([a.said_QJ for a in automata], 0, device)
        self.begun_BQJ = stacked([a.begun_QJ for a in automata], 0, device)
        self.wanted_BJ = stacked([list(count.values()) for count in counts], 0, device)
        self.size_BJ = stacked([list(map(len, count)) for count in counts], 0, device)
        self.has_some_B1 = self.wanted_BJ.any(dim=1, keepdim=True)
        shape = (len(counts), task.config.beam_size)
        self.state_BN = torch.zeros(shape, dtype=torch.long, device=device)
        self.met_BNJ = self.wanted_BJ.new_zeros(*shape, self.wanted_BJ.size(1))  # times, at most as often as wanted

    @property
    def n_tokens(self) -> int:
        """How many tokens `add` may add to each row."""
        return self.tokens_BA.size(1)

    def before(self, log_p_RV: Tensor, length: int) -> None:
        pass

    def after(self, beam_BN: Tensor | None, ids_BN: Tensor) -> None:
        assert beam_BN is not None
        self.state_BN, self.met_BNJ = self._reach(ids_BN, beam_BN)

    def select(self, sentences_B: Tensor) -> None:
        for name, x in vars(self).items():
            if isinstance(x, Tensor):
                setattr(self, name, x[sentences_B])

    def add(self, log_p_RM: Tensor, ids_RM: Tensor, log_p_RV: Tensor) -> tuple[Tensor, Tensor]:
        """The likeliest tokens of each row, and those of its terms that are not among them."""
        more_RA = self.tokens_BA.repeat_interleave(len(ids_RM) // len(self.tokens_BA), dim=0)
        is_new_RA = (more_RA >= 0) & (more_RA[:, :, None] != ids_RM[:, None]).all(dim=2)
        more_RA = more_RA.clamp(min=0)
        log_p_RA = log_p_RV.gather(1, more_RA).masked_fill(~is_new_RA, -math.inf)
        return torch.cat([log_p_RM, log_p_RA], dim=1), torch.cat([ids_RM, more_RA], dim=1)

    def order(self, worth_BX: Tensor, ids_BX: Tensor, beam_BX: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """The first `n` = 2N + 1 continuations; they are given by worth. And where there are terms, close calls."""
        state_BX, met_BXJ = self._reach(ids_BX, beam_BX)
        is_open_BXJ = met_BXJ < self.wanted_BJ[:, None]
        begun_BXJ = at(self.begun_BQJ, state_BX) * is_open_BXJ
        bank_BX = (met_BXJ * self.size_BJ[:, None]).sum(dim=2) + begun_BXJ.amax(dim=2)
        is_end_BX = ids_BX == self.eos_id
        is_good_end_BX = is_end_BX & self.has_some_B1 & ~is_open_BXJ.any(dim=2)
        bank_BX = bank_BX + is_good_end_BX  # which is one of its own

        n_all, device = worth_BX.size(1), worth_BX.device
        index_X = torch.arange(n_all, device=device)
        sorted_BX, by_bank_BX = bank_BX.sort(dim=1, stable=True)
        in_bank_BX = index_X - torch.searchsorted(sorted_BX, sorted_BX)
        rank_BX = torch.zeros_like(bank_BX).scatter_(1, by_bank_BX, in_bank_BX)
        is_dead_BX = worth_BX == -math.inf
        key_BX = rank_BX * n_all + index_X + is_dead_BX * n_all**2
        goes_on_BX = self.has_some_B1 & ~is_end_BX & ~is_dead_BX
        fullest_BX = torch.where(goes_on_BX, bank_BX, -1)
        best_B1 = (fullest_BX == fullest_BX.amax(dim=1, keepdim=True)).long().argmax(dim=1, keepdim=True)
        key_BX.scatter_(1, best_B1, -1)
        key_BX = key_BX.masked_fill(is_good_end_BX & (rank_BX == 0) & ~is_dead_BX, -2)
        order_Bn = key_BX.topk(n, largest=False).indices

        # Of those that have nearly the same worth, all must end, or go on, or be neither: else it was a close call.
        taken_BC = order_Bn[:, :-1]
        ends_BC = is_end_BX.gather(1, taken_BC)
        goes_BC = ~ends_BC & ((~ends_BC).cumsum(dim=1) <= n // 2)
        fate_BX = torch.zeros_like(bank_BX).scatter_(1, taken_BC, 1 + ends_BC.long() + 2 * goes_BC.long())
        is_close_BX = worth_BX[:, :-1] - worth_BX[:, 1:] < CLOSE  # not so of infinities
        is_close_BX &= (fate_BX[:, :-1] != fate_BX[:, 1:]) & self.has_some_B1
        return order_Bn, is_close_BX.any(dim=1)

    def behind(self, beam_BM: Tensor) -> Tensor:
        """How much lower hypotheses that end after these are ranked."""
        lacks_BN = (self.met_BNJ < self.wanted_BJ[:, None]).any(dim=2)
        return lacks_BN.gather(1, beam_BM) * BEHIND

    def _reach(self, ids_BM: Tensor, beam_BM: Tensor) -> tuple[Tensor, Tensor]:
        """State, and how often each term is met, when these hypotheses are continued with these tokens."""
        is_token_BMA = ids_BM[..., None] == self.tokens_BA[:, None]
        row_BMA = at(self.next_BQA, self.state_BN.gather(1, beam_BM))
        state_BM = (row_BMA * is_token_BMA[..., : row_BMA.size(2)]).sum(dim=2)
        met_BMJ = at(self.met_BNJ, beam_BM) + at(self.said_BQJ, state_BM)
        return state_BM, met_BMJ.minimum(self.wanted_BJ[:, None])


def at(x_BQJ: Tensor, which_BM: Tensor) -> Tensor:
    """[B, M, J]: of each sentence the rows that `which_BM` names."""
    return x_BQJ.gather(1, which_BM[..., None].expand(-1, -1, x_BQJ.size(2)))


def stacked(tables: Sequence[Sequence[Any]], filler: int, device: torch.device) -> Tensor:
    """One tensor of tables of different sizes."""
    parts = [torch.tensor(table, dtype=torch.long) for table in tables]
    sizes = [max(part.size(d) for part in parts) for d in range(parts[0].dim())]
    whole = torch.full((len(parts), *sizes), filler)
    for place, part in zip(whole, parts, strict=True):
        place[tuple(map(slice, part.shape))] = part
    return whole.to(device)
