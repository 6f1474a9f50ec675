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

Shapes: B sentences, N live hypotheses of each, J different terms, Q states of all automata, E edges between them, A
tokens that occur in terms, X continuations, C = 2N that are taken, M in a row, V vocabulary, R = B × N rows.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_cli.data.transfer import to_device
from transformer_cli.decoding.search.automaton import Automaton, automaton
from transformer_cli.decoding.search.request import Constraints, SearchRequest

# Subtracted from the score by which a finished hypothesis that lacks a term is ranked: more than two scores can differ
# by. Float64 has ten digits left behind it.
UNSATISFIED_PENALTY = 1e6


def unsatisfied_terms(ids: Sequence[int], constraints: Constraints, known: Automaton | None = None) -> tuple[int, ...]:
    """Indices of the terms that `ids` lack; of equal ones the last. `known` is the automaton of the terms."""
    known = known or automaton(list(dict.fromkeys(constraints.terms)))
    n_found = dict(zip(known.terms, known.counts(ids), strict=True))
    missing, seen = [], Counter[tuple[int, ...]]()
    for index, term in enumerate(constraints.terms):
        seen[term] += 1
        if n_found[term] < seen[term]:
            missing.append(index)
    return tuple(missing)


class Automata:
    """The automata of all sentences of a batch in one set of tables: the states of a sentence are behind the others'.

    Every table has an entry for each token of the terms, however long or many they are.
    """

    def __init__(self, automata: Sequence[Automaton], device: torch.device) -> None:
        starts = [0, *accumulate(len(one.depth_Q) for one in automata)][:-1]
        each = list(zip(automata, starts, strict=True))
        # A number that is in no term stands for all tokens behind it.
        self.n_tokens = 2 + max((token for one in automata for _, token in one.edges), default=0)
        edges = sorted(
            ((start + q) * self.n_tokens + token, start + to)
            for one, start in each
            for (q, token), to in one.edges.items()
        )

        def tensor(numbers: Iterable[int]) -> Tensor:
            return to_device(torch.tensor(list(numbers), dtype=torch.long), device)

        def states(columns: Iterable[Sequence[int]]) -> Tensor:
            return tensor(start + q for start, column in zip(starts, columns, strict=True) for q in column)

        self.root_B = tensor(starts)
        self.edge_E, self.target_E = tensor(key for key, _ in edges), tensor(to for _, to in edges)
        self.retry_Q = states(one.retry_Q for one in automata)
        self.found_Q, self.next_found_Q = (
            states(one.found_Q for one in automata),
            states(one.next_found_Q for one in automata),
        )
        self.begun_Q, self.next_begun_Q = (
            states(one.begun_Q for one in automata),
            states(one.next_begun_Q for one in automata),
        )
        self.depth_Q = tensor(n for one in automata for n in one.depth_Q)
        self.term_Q = tensor(n for one in automata for n in one.term_Q)
        self.first_longer_Q = tensor(first for one in automata for first, _ in one.longer_Q)
        self.end_longer_Q = tensor(end for one in automata for _, end in one.longer_Q)
        self.n_lookups = 2 + max(one.most_retries for one in automata)  # with the state itself, and the empty prefix
        self.most_found = max(one.most_found for one in automata)
        self.most_begun = max(one.most_begun for one in automata)

    def follow(self, state_BM: Tensor, ids_BM: Tensor, root_B: Tensor) -> Tensor:
        """The states that these tokens lead to."""
        next_BM = root_B[:, None].expand_as(state_BM)
        is_open_BM = torch.ones_like(state_BM, dtype=torch.bool)
        for _ in range(self.n_lookups):
            wanted_BM = state_BM * self.n_tokens + ids_BM.clamp(max=self.n_tokens - 1)
            edge_BM = torch.searchsorted(self.edge_E, wanted_BM).clamp(max=len(self.edge_E) - 1)
            has_edge_BM = (self.edge_E[edge_BM] == wanted_BM) & is_open_BM
            next_BM = torch.where(has_edge_BM, self.target_E[edge_BM], next_BM)
            is_open_BM &= ~has_edge_BM
            state_BM = self.retry_Q[state_BM]
        return next_BM

    def terms_ending(self, state_BM: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The terms that texts of these states end with, each a tensor of their numbers, and where there is one."""
        found_BM = self.found_Q[state_BM]
        for _ in range(self.most_found):
            term_BM = self.term_Q[found_BM]
            yield term_BM.clamp(min=0), term_BM >= 0
            found_BM = self.next_found_Q[found_BM]

    def prefixes_ending(self, state_BM: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The ends of these texts that longer terms begin with: their tokens, and the range of these terms."""
        begun_BM = self.begun_Q[state_BM]
        for _ in range(self.most_begun):
            depth_BM = self.depth_Q[begun_BM]
            yield depth_BM, self.first_longer_Q[begun_BM], self.end_longer_Q[begun_BM]
            begun_BM = self.next_begun_Q[begun_BM]


class LexicalConstraints:
    """The progress of every hypothesis with the terms of its sentence."""

    def __init__(self, request: SearchRequest[Any]) -> None:
        device, self.near_tie = request.state_device, request.near_tie
        counts = [Counter(constraints.terms) for constraints in request.constraints]
        automata = [automaton(list(count)) for count in counts]
        tokens = [sorted({token for term in count for token in term}) for count in counts]
        self.eos_id = request.control.eos
        # Where there are terms, EOS must be among the candidates of a step as well.
        self.tokens_BA = stacked([[*ids, *[self.eos_id] * bool(ids)] for ids in tokens], -1, device)
        self.automata = Automata(automata, device)
        self.root_B = self.automata.root_B
        self.required_BJ = stacked(
            [[count[term] for term in one.terms] for count, one in zip(counts, automata, strict=True)], 0, device
        )
        self.size_BJ = stacked([list(map(len, one.terms)) for one in automata], 0, device)
        self.whole_BJ = stacked(
            [
                [int(term in of.whole) for term in one.terms]
                for of, one in zip(request.constraints, automata, strict=True)
            ],
            0,
            device,
        )
        # In a tuple, as it has no row for each sentence.
        self.continuing = (request.continuing_V,) if any(one.whole for one in request.constraints) else ()
        self.has_terms_B1 = self.required_BJ.any(dim=1, keepdim=True)
        self.state_BN = self.root_B[:, None].repeat(1, request.config.beam_size)
        # How often each term was found, at most as often as it is required.
        self.found_BNJ = torch.zeros_like(self.required_BJ)[:, None].repeat(1, request.config.beam_size, 1)

    @property
    def n_tokens(self) -> int:
        """How many tokens `add` may add to each row."""
        return self.tokens_BA.size(1)

    def before(self, log_p_RV: Tensor, length: int) -> None:
        """Ban tokens that make a longer word of a whole term which a hypothesis ends with."""
        for continuing_V in self.continuing:
            assert continuing_V is not None
            ends_BN = torch.zeros_like(self.state_BN, dtype=torch.bool)
            for term_BN, is_found_BN in self.automata.terms_ending(self.state_BN):
                ends_BN |= (self.whole_BJ.gather(1, term_BN) > 0) & is_found_BN
            n_more = log_p_RV.size(1) - len(continuing_V)  # rows of the output layer that stand for no token
            log_p_RV.masked_fill_(ends_BN.flatten()[:, None] & F.pad(continuing_V, (0, n_more)), -math.inf)

    def after(self, beam_BN: Tensor | None, ids_BN: Tensor) -> None:
        assert beam_BN is not None
        self.state_BN = self._follow(ids_BN, beam_BN)
        found_BNJ = self.found_BNJ.gather(1, beam_BN[..., None].expand(-1, -1, self.found_BNJ.size(2)))
        for term_BN, is_found_BN in self.automata.terms_ending(self.state_BN):
            found_BNJ.scatter_add_(2, term_BN[..., None], is_found_BN.long()[..., None])
        self.found_BNJ = found_BNJ.minimum(self.required_BJ[:, None])

    def select(self, sentences_B: Tensor) -> None:
        for name, x in vars(self).items():
            if isinstance(x, Tensor):
                setattr(self, name, x[sentences_B])

    def add(self, log_p_RM: Tensor, ids_RM: Tensor, log_p_RV: Tensor) -> tuple[Tensor, Tensor]:
        """The likeliest tokens of each row, and those of its terms that are not among them."""
        more_RA = self.tokens_BA.repeat_interleave(len(ids_RM) // len(self.tokens_BA), dim=0)
        sorted_RM = ids_RM.sort(dim=1).values
        place_RA = torch.searchsorted(sorted_RM, more_RA).clamp(max=ids_RM.size(1) - 1)
        is_new_RA = (more_RA >= 0) & (sorted_RM.gather(1, place_RA) != more_RA)
        more_RA = more_RA.clamp(min=0)
        log_p_RA = log_p_RV.gather(1, more_RA).masked_fill(~is_new_RA, -math.inf)
        return torch.cat([log_p_RM, log_p_RA], dim=1), torch.cat([ids_RM, more_RA], dim=1)

    def order(self, ranking_BX: Tensor, ids_BX: Tensor, beam_BX: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """The first `n` = 2N + 1 of continuations sorted by ranking score; and near ties, where there are terms."""
        is_end_BX = ids_BX == self.eos_id
        is_good_end_BX = is_end_BX & self.has_terms_B1 & ~self._lacks(beam_BX)
        bank_BX = self.progress(ids_BX, beam_BX) + is_good_end_BX  # which is one of its own

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
        """The penalty that is subtracted from the ranking score of hypotheses that end after these."""
        return self._lacks(beam_BM) * UNSATISFIED_PENALTY

    def _lacks(self, beam_BM: Tensor) -> Tensor:
        """Whether these hypotheses lack a term."""
        return (self.found_BNJ < self.required_BJ[:, None]).any(dim=2).gather(1, beam_BM)

    def _follow(self, ids_BM: Tensor, beam_BM: Tensor) -> Tensor:
        """The states of these hypotheses, continued with these tokens."""
        return self.automata.follow(self.state_BN.gather(1, beam_BM), ids_BM, self.root_B)

    def progress(self, ids_BX: Tensor, beam_BX: Tensor) -> Tensor:
        """The constraint tokens of these hypotheses, continued with these tokens."""
        n_terms = self.required_BJ.size(1)
        left_BNJ = self.required_BJ[:, None] - self.found_BNJ  # how often each term is still required
        bank_BX = (self.found_BNJ * self.size_BJ[:, None]).sum(dim=2).gather(1, beam_BX)
        state_BX = self._follow(ids_BX, beam_BX)
        closed: list[tuple[Tensor, Tensor]] = []  # terms that these tokens complete for the last time
        for term_BX, is_found_BX in self.automata.terms_ending(state_BX):
            left_BX = left_BNJ.flatten(1).gather(1, beam_BX * n_terms + term_BX) * is_found_BX
            bank_BX = bank_BX + self.size_BJ.gather(1, term_BX) * (left_BX > 0)
            closed.append((term_BX, left_BX == 1))
        # Prefix sums give the number of open terms in a range.
        n_open_BN1J = F.pad((left_BNJ > 0).cumsum(dim=2), (1, 0)).flatten(1)
        begun_BX = torch.zeros_like(bank_BX)
        for depth_BX, first_BX, end_BX in self.automata.prefixes_ending(state_BX):
            base_BX = beam_BX * (n_terms + 1)
            n_open_BX = n_open_BN1J.gather(1, base_BX + end_BX) - n_open_BN1J.gather(1, base_BX + first_BX)
            for term_BX, closes_BX in closed:
                n_open_BX = n_open_BX - (closes_BX & (term_BX >= first_BX) & (term_BX < end_BX)).long()
            begun_BX = begun_BX.maximum(depth_BX * (n_open_BX > 0))
        return bank_BX + begun_BX


def stacked(tables: Sequence[Sequence[Any]], filler: int, device: torch.device) -> Tensor:
    """One tensor of tables of different sizes."""
    parts = [torch.tensor(table, dtype=torch.long) for table in tables]
    sizes = [max(part.size(d) for part in parts) for d in range(parts[0].dim())]
    whole = torch.full((len(parts), *sizes), filler)
    for target, part in zip(whole, parts, strict=True):
        target[tuple(map(slice, part.shape))] = part
    return to_device(whole, device)
