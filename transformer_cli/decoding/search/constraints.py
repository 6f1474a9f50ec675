"""Lexical constraints by dynamic beam allocation (Post and Vilar 2018): translations that contain given terms.

The progress of a hypothesis is its number of constraint tokens: those of the terms it contains, and those of the one it
has begun. Hypotheses of equal progress form a bank. A step takes the best continuation of every bank, then the second
best of every bank, and so on. Two come before all: the best end of a hypothesis that lacks no term, and the best of the
fullest bank, which so grows by a token in each step. Terms are therefore satisfied wherever their tokens and an end
have room, unless a logits processor bans them: with `no_repeat_ngram` a term may be a repeated n-gram.

A term is satisfied by a contiguous occurrence, which may overlap others: "a b" and "b c" are in "a b c". One that is
listed twice needs two occurrences. A finished hypothesis that lacks a term ranks behind all that lack none. Where a
sentence has terms, every end among the 2N candidates of a step is finished, and not only those among the first N, as
they are not the likeliest. A sentence without terms has one bank, which is beam search.

Shapes: B sentences, N live hypotheses of each, J different terms, Q states of the automaton, A tokens that occur in
terms, X continuations, C = 2N that are taken, M in a row, V vocabulary, R = B × N rows.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transformer_cli.data.transfer import to_device
from transformer_cli.decoding.search.request import Constraints, SearchRequest

# Subtracted from the score by which a finished hypothesis that lacks a term is ranked: more than two scores can differ
# by. Float64 has ten digits left behind it.
UNSATISFIED_PENALTY = 1e6


@dataclass(frozen=True)
class Automaton:
    """Finds the terms that a text contains and ends with (Aho and Corasick 1975): a state is a prefix of a term."""

    tokens: list[int]
    next_QA: list[list[int]]  # the state after each of them; after any other token it is 0, the empty prefix
    completed_QJ: list[list[int]]  # 1 where the last token completes the term
    begun_QJ: list[list[int]]  # tokens of the longest proper prefix of the term that the text ends with


def automaton(terms: list[tuple[int, ...]]) -> Automaton:
    prefixes = sorted({term[:n] for term in terms for n in range(len(term) + 1)} | {()}, key=len)
    number = {prefix: q for q, prefix in enumerate(prefixes)}
    tokens = sorted({token for term in terms for token in term})

    def state(text: tuple[int, ...]) -> int:
        return next(number[text[i:]] for i in range(len(text) + 1) if text[i:] in number)

    def ends_with(text: tuple[int, ...], end: tuple[int, ...]) -> bool:
        return text[len(text) - len(end) :] == end and len(end) <= len(text)

    return Automaton(
        tokens,
        [[state((*prefix, token)) for token in tokens] for prefix in prefixes],
        [[int(ends_with(prefix, term)) for term in terms] for prefix in prefixes],
        [[max(n for n in range(len(term)) if ends_with(prefix, term[:n])) for term in terms] for prefix in prefixes],
    )


def unsatisfied_terms(ids: list[int], constraints: Constraints) -> tuple[int, ...]:
    """Indices of the terms that `ids` lack; of equal ones the last."""
    missing, seen = [], Counter[tuple[int, ...]]()
    for index, term in enumerate(constraints.terms):
        seen[term] += 1
        n_found = sum(tuple(ids[i : i + len(term)]) == term for i in range(len(ids)))
        if n_found < seen[term]:
            missing.append(index)
    return tuple(missing)


class LexicalConstraints:
    """The progress of every hypothesis with the terms of its sentence."""

    def __init__(self, request: SearchRequest[Any]) -> None:
        device, self.near_tie = request.state_device, request.near_tie
        counts = [Counter(constraints.terms) for constraints in request.constraints]
        automata = [automaton(list(count)) for count in counts]
        self.eos_id = request.control.eos
        # Where there are terms, EOS must be among the candidates of a step as well.
        self.tokens_BA = stacked([[*a.tokens, *[self.eos_id] * bool(a.tokens)] for a in automata], -1, device)
        self.next_BQA = stacked([a.next_QA for a in automata], 0, device)
        self.completed_BQJ = stacked([a.completed_QJ for a in automata], 0, device)
        self.begun_BQJ = stacked([a.begun_QJ for a in automata], 0, device)
        self.required_BJ = stacked([list(count.values()) for count in counts], 0, device)
        self.size_BJ = stacked([list(map(len, count)) for count in counts], 0, device)
        self.has_terms_B1 = self.required_BJ.any(dim=1, keepdim=True)
        shape = (len(counts), request.config.beam_size)
        self.state_BN = torch.zeros(shape, dtype=torch.long, device=device)
        self.found_BNJ = self.required_BJ.new_zeros(
            *shape, self.required_BJ.size(1)
        )  # times, at most as often as required

    @property
    def n_tokens(self) -> int:
        """How many tokens `add` may add to each row."""
        return self.tokens_BA.size(1)

    def before(self, log_p_RV: Tensor, length: int) -> None:
        pass

    def after(self, beam_BN: Tensor | None, ids_BN: Tensor) -> None:
        assert beam_BN is not None
        self.state_BN, self.found_BNJ = self._reach(ids_BN, beam_BN)

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

    def order(self, ranking_BX: Tensor, ids_BX: Tensor, beam_BX: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """The first `n` = 2N + 1 of continuations sorted by ranking score; and near ties, where there are terms."""
        state_BX, found_BXJ = self._reach(ids_BX, beam_BX)
        is_open_BXJ = found_BXJ < self.required_BJ[:, None]
        begun_BXJ = at(self.begun_BQJ, state_BX) * is_open_BXJ
        bank_BX = (found_BXJ * self.size_BJ[:, None]).sum(dim=2) + begun_BXJ.amax(dim=2)
        is_end_BX = ids_BX == self.eos_id
        is_good_end_BX = is_end_BX & self.has_terms_B1 & ~is_open_BXJ.any(dim=2)
        bank_BX = bank_BX + is_good_end_BX  # which is one of its own

        n_all, device = ranking_BX.size(1), ranking_BX.device
        index_X = torch.arange(n_all, device=device)
        sorted_BX, by_bank_BX = bank_BX.sort(dim=1, stable=True)
        in_bank_BX = index_X - torch.searchsorted(sorted_BX, sorted_BX)
        rank_BX = torch.zeros_like(bank_BX).scatter_(1, by_bank_BX, in_bank_BX)
        is_dead_BX = ranking_BX == -math.inf
        key_BX = rank_BX * n_all + index_X + is_dead_BX * n_all**2
        continues_BX = self.has_terms_B1 & ~is_end_BX & ~is_dead_BX
        fullest_BX = torch.where(continues_BX, bank_BX, -1)
        best_B1 = (fullest_BX == fullest_BX.amax(dim=1, keepdim=True)).long().argmax(dim=1, keepdim=True)
        key_BX.scatter_(1, best_B1, -1)
        key_BX = key_BX.masked_fill(is_good_end_BX & (rank_BX == 0) & ~is_dead_BX, -2)
        order_Bn = key_BX.topk(n, largest=False).indices

        # Candidates of nearly the same ranking score must all end, or continue, or be dropped: else it is a near tie.
        taken_BC = order_Bn[:, :-1]
        ends_BC = is_end_BX.gather(1, taken_BC)
        continues_BC = ~ends_BC & ((~ends_BC).cumsum(dim=1) <= n // 2)
        fate_BX = torch.zeros_like(bank_BX).scatter_(1, taken_BC, 1 + ends_BC.long() + 2 * continues_BC.long())
        is_near_tie_BX = ranking_BX[:, :-1] - ranking_BX[:, 1:] < self.near_tie  # not so of infinities
        is_near_tie_BX &= (fate_BX[:, :-1] != fate_BX[:, 1:]) & self.has_terms_B1
        return order_Bn, is_near_tie_BX.any(dim=1)

    def penalty(self, beam_BM: Tensor) -> Tensor:
        """What is subtracted from the ranking score of hypotheses that end after these."""
        lacks_BN = (self.found_BNJ < self.required_BJ[:, None]).any(dim=2)
        return lacks_BN.gather(1, beam_BM) * UNSATISFIED_PENALTY

    def _reach(self, ids_BM: Tensor, beam_BM: Tensor) -> tuple[Tensor, Tensor]:
        """State, and occurrences of each term, when these hypotheses are continued with these tokens."""
        is_token_BMA = ids_BM[..., None] == self.tokens_BA[:, None]
        row_BMA = at(self.next_BQA, self.state_BN.gather(1, beam_BM))
        state_BM = (row_BMA * is_token_BMA[..., : row_BMA.size(2)]).sum(dim=2)
        found_BMJ = at(self.found_BNJ, beam_BM) + at(self.completed_BQJ, state_BM)
        return state_BM, found_BMJ.minimum(self.required_BJ[:, None])


def at(x_BQJ: Tensor, which_BM: Tensor) -> Tensor:
    """[B, M, J]: rows `which_BM` of each sentence."""
    return x_BQJ.gather(1, which_BM[..., None].expand(-1, -1, x_BQJ.size(2)))


def stacked(tables: Sequence[Sequence[Any]], filler: int, device: torch.device) -> Tensor:
    """One tensor of tables of different sizes."""
    parts = [torch.tensor(table, dtype=torch.long) for table in tables]
    sizes = [max(part.size(d) for part in parts) for d in range(parts[0].dim())]
    whole = torch.full((len(parts), *sizes), filler)
    for target, part in zip(whole, parts, strict=True):
        target[tuple(map(slice, part.shape))] = part
    return to_device(whole, device)
