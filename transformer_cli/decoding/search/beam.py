"""Beam search, alone and in groups that differ (Vijayakumar et al. 2016).

Shapes: B sentences, N hypotheses of each that go on, K finished ones that are kept, C candidates, E of them that finish
if they end, P = K + E, M any number, V vocabulary, R = B × N rows (row b·N + n is hypothesis n of sentence b).
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from transformer_cli.decoding.search.constraints import Terms
from transformer_cli.decoding.search.greedy import greedy_search
from transformer_cli.decoding.search.loop import Move, SearchState, run
from transformer_cli.decoding.search.request import Hypothesis, Task
from transformer_cli.decoding.search.scores import Scoring
from transformer_cli.decoding.search.top_k import is_close, largest, lowest_of_the_largest


@dataclass
class Candidates:
    """Continuations of each sentence's hypotheses, in the order in which they are taken."""

    worth_BM: Tensor  # what they are ordered by
    log_prob_BM: Tensor
    ids_BM: Tensor
    beam_BM: Tensor

    def take(self, order_BM: Tensor) -> "Candidates":
        worth_BM = log_prob_BM = self.log_prob_BM.gather(1, order_BM)
        if self.worth_BM is not self.log_prob_BM:
            worth_BM = self.worth_BM.gather(1, order_BM)
        return Candidates(worth_BM, log_prob_BM, self.ids_BM.gather(1, order_BM), self.beam_BM.gather(1, order_BM))


def beam_search(task: Task[Any]) -> list[list[Hypothesis]]:
    """Follow the N likeliest beginnings of each sentence, and keep the best that finish.

    As in fairseq, the 2N likeliest continuations are looked at in each step: those of the first N that end are
    finished, the first N others go on, and a beam of one is greedy search. With groups, each is such a search of its
    part of the beam, see `Groups`. Where terms are demanded, `Terms` says which continuations come first, and all 2N
    may finish.
    """
    config, n_groups = task.config, task.config.diversity_groups
    if config.beam_size == 1 and not task.has_terms:
        return greedy_search(task)
    assert n_groups == 1 or not task.has_terms
    scoring, terms = Scoring(task), Terms(task) if task.has_terms else None
    beam = Beam(task, scoring, terms)
    # Each group keeps as many as all are asked for: others may find the same, which then counts once.
    state = SearchState.start(task, n_live=config.beam_size, n_ended=n_groups * config.n_best)
    state.live_log_prob_BN.view(-1, n_groups, beam.n_live)[..., 1:] = -math.inf  # equals are one
    advance = beam if n_groups == 1 else Groups(beam, n_groups, config.diversity_strength)
    return run(task, state, advance, scoring, [] if terms is None else [terms])


@dataclass
class Ended:
    """The finished hypotheses that are kept, best first, and the score of the one behind them (-inf: there is none)."""

    log_prob_BK: Tensor
    score_BK1: Tensor
    at_BK: Tensor


class Beam:
    """One step of beam search."""

    def __init__(self, task: Task[Any], scoring: Scoring, terms: Terms | None) -> None:
        config, device = task.config, task.max_lengths_B.device
        self.beam_size, self.eos_id, self.scoring, self.terms = config.beam_size, task.control.eos, scoring, terms
        self.n_live = config.beam_size // config.diversity_groups  # of the part of the beam that takes a step at once
        self.n_wanted = min(config.n_best, self.n_live)  # finished, and nothing better to follow: it is done
        divisor_T = torch.tensor(scoring.divisors, dtype=torch.float64, device=device)
        self.divisor_B = divisor_T[task.max_lengths_B]  # of the longest hypothesis that a sentence may have
        self.index_C1, self.behind_C1 = torch.arange(4 * self.n_live + 2, device=device).chunk(2)
        self.is_first_C1 = self.index_C1 < self.n_live

    def __call__(
        self,
        state: SearchState,
        log_p_RV: Tensor,
        length: int,
        *,
        exact: bool,
        wanted_RV: Tensor | None = None,
        first: int = 0,
    ) -> Move:
        """`state` may be a part of the beam, from hypothesis `first`; `wanted_RV` is what its choices go by."""
        found, is_unsure, is_close_B = self._candidates(state, log_p_RV, wanted_RV, exact=exact)
        ends_BC1 = found.ids_BM == self.eos_id
        going = self._going(found, ends_BC1)
        ended = self._ended(state, found, ends_BC1, length, first)

        log_prob_BN, worst_B = going.log_prob_BM[:, :-1], ended.score_BK1[:, self.n_wanted - 1]
        bound_B = self.scoring.best_possible(log_prob_BN.amax(dim=1), self.divisor_B.index_select(0, state.place_B))
        done_B = bound_B <= worst_B
        if self.n_live == 1:  # greedy search, which looks no further than its first end
            is_greedy_B = True if self.terms is None else ~self.terms.has_some_B1.squeeze(1)
            done_B = done_B | (worst_B > -math.inf) & is_greedy_B

        new = SearchState(
            place_B=state.place_B,
            live_log_prob_BN=log_prob_BN,
            ended_log_prob_BK=ended.log_prob_BK,
            ended_score_BK=ended.score_BK1[:, :-1],
            ended_at_BK=ended.at_BK,
            is_close_B=is_close_B | self._are_close(found, ends_BC1, going, ended, bound_B),
        )
        return Move(new, going.ids_BM[:, :-1], done_B, going.beam_BM[:, :-1], is_unsure)

    def _going(self, found: Candidates, ends_BC1: Tensor) -> Candidates:
        """The first N that do not end go on; one more is looked at, to see how close they are."""
        next_BN1 = torch.where(ends_BC1, self.behind_C1, self.index_C1).topk(self.n_live + 1, largest=False).indices
        return found.take(next_BN1)

    def _ended(self, state: SearchState, found: Candidates, ends_BC1: Tensor, length: int, first: int) -> Ended:
        """Those that end compete with the finished ones, which stand first and so win at equal scores."""
        n_kept = state.ended_score_BK.size(1)
        n_ends = self.n_live if self.terms is None else 2 * self.n_live
        beam_BE, log_prob_BE = found.beam_BM[:, :n_ends], found.log_prob_BM[:, :n_ends]
        finishes_BE = ends_BC1[:, :n_ends]
        if self.terms is not None:
            finishes_BE = finishes_BE & (self.is_first_C1[:n_ends] | self.terms.has_some_B1)
        log_prob_BE = log_prob_BE.masked_fill(~finishes_BE, -math.inf)
        score_BE = self.scoring(log_prob_BE, length, beam_BE)
        if self.terms is not None:
            score_BE = score_BE - self.terms.behind(beam_BE)
        sorted_BP, order_BP = torch.cat([state.ended_score_BK, score_BE], dim=1).sort(descending=True, stable=True)
        best_BK = order_BP[:, :n_kept]
        log_prob_BP = torch.cat([state.ended_log_prob_BK, log_prob_BE], dim=1)
        at_BP = torch.cat([state.ended_at_BK, beam_BE + (length * self.beam_size + first)], dim=1)
        return Ended(log_prob_BP.gather(1, best_BK), sorted_BP[:, : n_kept + 1], at_BP.gather(1, best_BK))

    def _are_close(
        self, found: Candidates, ends_BC1: Tensor, going: Candidates, ended: Ended, bound_B: Tensor
    ) -> Tensor:
        """[B]: whether rounding may turn what this step does."""
        # Who finishes: an end that the first candidate beyond the N, or the last of them, may change places with.
        beyond_B1, last_B1 = found.worth_BM[:, self.n_live, None], found.worth_BM[:, self.n_live - 1, None]
        is_close_end_BC1 = is_close(found.worth_BM, torch.where(self.is_first_C1, beyond_B1, last_B1)) & ends_BC1
        if self.terms is not None:
            is_close_end_BC1 = is_close_end_BC1 & ~self.terms.has_some_B1  # `Terms.order` has marked theirs
        # Who goes on, which finished ones are kept, and whether to look further.
        worst_B = ended.score_BK1[:, self.n_wanted - 1]
        one_XB = torch.stack([going.worth_BM[:, -2], ended.score_BK1[:, -2], bound_B])
        other_XB = torch.stack([going.worth_BM[:, -1], ended.score_BK1[:, -1], worst_B])
        return torch.cat([is_close(one_XB, other_XB), is_close_end_BC1.T]).any(dim=0)

    def _candidates(
        self, state: SearchState, log_p_RV: Tensor, wanted_RV: Tensor | None, *, exact: bool
    ) -> tuple[Candidates, Tensor | None, Tensor]:
        """The C + 1 = 2N + 1 that come first; whether some are equal, and not yet ordered by `exact`; close calls.

        A row's C + 1 likeliest tokens are enough: if the last of them came before the C-th candidate of its sentence,
        that one and the next would be equal. So it is in a bank of `Terms`, and the tokens that are in no term are in
        one bank.
        """
        n_sentences, n_candidates = len(state.live_log_prob_BN), 2 * self.n_live + 1
        n_row = min(n_candidates if self.terms is None else n_candidates + self.terms.n_tokens, log_p_RV.size(1))
        before_R1 = state.live_log_prob_BN.reshape(-1, 1)  # [B, N] -> [R, 1]
        asked_RV = log_p_RV if wanted_RV is None else wanted_RV
        if exact:
            ids_RM = lowest_of_the_largest(before_R1 + asked_RV, n_row)
            asked_RM = asked_RV.gather(1, ids_RM)
        else:
            asked_RM, ids_RM = largest(asked_RV, n_row)
        if self.terms is not None:
            asked_RM, ids_RM = self.terms.add(asked_RM, ids_RM, log_p_RV)

        worth_BM, ids_BM = (x_RM.view(n_sentences, -1) for x_RM in (before_R1 + asked_RM, ids_RM))  # [R, M] -> [B, N·M]
        n_sorted = n_candidates if self.terms is None else worth_BM.size(1)
        if exact:
            order_BM = by_rule(worth_BM, ids_BM, self.n_live)[:, :n_sorted]
            sorted_BM = worth_BM.gather(1, order_BM)
        else:
            sorted_BM, order_BM = worth_BM.topk(n_sorted)
        log_prob_BM = sorted_BM
        if wanted_RV is not None:
            log_prob_RM = before_R1 + log_p_RV.gather(1, ids_RM)
            log_prob_BM = log_prob_RM.view(n_sentences, -1).gather(1, order_BM)  # [R, M] -> [B, N·M]
        beam_BM = order_BM.div(ids_RM.size(1), rounding_mode="floor")
        found = Candidates(sorted_BM, log_prob_BM, ids_BM.gather(1, order_BM), beam_BM)
        # Between infinities there is no difference.
        is_unsure = None if exact else (sorted_BM[:, :-1] - sorted_BM[:, 1:] == 0).any()
        if self.terms is None:
            return found, is_unsure, state.is_close_B
        order_BM, is_close_B = self.terms.order(found.worth_BM, found.ids_BM, found.beam_BM, n_candidates)
        return found.take(order_BM), is_unsure, state.is_close_B | is_close_B


def by_rule(worth_BM: Tensor, ids_BM: Tensor, n_live: int) -> Tensor:
    """The order of candidates, as many of each hypothesis: the best, the lower token, the earlier hypothesis first."""
    beam_M = torch.arange(n_live, device=ids_BM.device).repeat_interleave(ids_BM.size(1) // n_live)
    by_token_BM = (ids_BM * n_live + beam_M).argsort(dim=1)
    by_worth_BM = worth_BM.gather(1, by_token_BM).argsort(dim=1, descending=True, stable=True)
    return by_token_BM.gather(1, by_worth_BM)


class Groups:
    """Groups of the beam that differ (Vijayakumar et al. 2016): each step is taken by one group after the other.

    To a group a token is worth `strength` less for each hypothesis of an earlier group that says it in the same step
    (the paper's Hamming diversity). That is forgotten in the next step, and never part of a score. A group that is done
    says nothing more. Without strength all groups find the same, which is what a beam of their size finds.
    """

    def __init__(self, beam: Beam, n_groups: int, strength: float) -> None:
        self.beam, self.n_groups, self.strength = beam, n_groups, strength

    def __call__(self, state: SearchState, log_p_RV: Tensor, length: int, *, exact: bool) -> Move:
        n_sentences, n_live = state.live_log_prob_BN.shape
        size, n_kept = n_live // self.n_groups, state.ended_score_BK.size(1) // self.n_groups
        log_p_BNV = log_p_RV.view(n_sentences, n_live, -1)  # [R, V] -> [B, N, V]
        cost_BV = log_p_RV.new_zeros(n_sentences, log_p_RV.size(1))
        moves: list[Move] = []
        for first in range(0, n_live, size):
            live, ended = slice(first, first + size), slice(first // size * n_kept, (first // size + 1) * n_kept)
            part = replace(
                state,
                live_log_prob_BN=state.live_log_prob_BN[:, live],
                ended_log_prob_BK=state.ended_log_prob_BK[:, ended],
                ended_score_BK=state.ended_score_BK[:, ended],
                ended_at_BK=state.ended_at_BK[:, ended],
            )
            own_BNV = log_p_BNV[:, live]
            wanted_RV = (own_BNV - cost_BV[:, None]).flatten(0, 1) if moves else None  # [B, N, V] -> [R, V]
            move = self.beam(part, own_BNV.flatten(0, 1), length, exact=exact, wanted_RV=wanted_RV, first=first)
            log_prob_BN = move.state.live_log_prob_BN.masked_fill(move.done_B[:, None], -math.inf)
            move.state.live_log_prob_BN = log_prob_BN
            cost_BV.scatter_add_(1, move.ids_BN, (log_prob_BN > -math.inf).to(cost_BV.dtype) * self.strength)
            moves.append(move)
        return self._together(moves)

    def _together(self, moves: list[Move]) -> Move:
        states = [move.state for move in moves]
        state = replace(
            states[0],
            live_log_prob_BN=torch.cat([part.live_log_prob_BN for part in states], dim=1),
            ended_log_prob_BK=torch.cat([part.ended_log_prob_BK for part in states], dim=1),
            ended_score_BK=torch.cat([part.ended_score_BK for part in states], dim=1),
            ended_at_BK=torch.cat([part.ended_at_BK for part in states], dim=1),
            is_close_B=torch.stack([part.is_close_B for part in states]).any(dim=0),
        )
        size = moves[0].ids_BN.size(1)
        beams = [move.beam_BN + g * size for g, move in enumerate(moves) if move.beam_BN is not None]
        unsure = [move.is_unsure for move in moves if move.is_unsure is not None]
        return Move(
            state,
            torch.cat([move.ids_BN for move in moves], dim=1),
            torch.stack([move.done_B for move in moves]).all(dim=0),
            torch.cat(beams, dim=1),
            torch.stack(unsure).any() if unsure else None,
        )
