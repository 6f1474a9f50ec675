"""Beam search, also diverse beam search in groups (Vijayakumar et al. 2016).

Shapes: B sentences, N live hypotheses of each, K finished ones that are kept, C candidates, E of them that finish if
they end, P = K + E, M any number, V vocabulary, R = B × N rows (row b·N + n is hypothesis n of sentence b).
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from transformer_cli.decoding.search.constraints import LexicalConstraints
from transformer_cli.decoding.search.greedy import greedy_search
from transformer_cli.decoding.search.loop import run_search
from transformer_cli.decoding.search.registry import SearchMethod, register_search
from transformer_cli.decoding.search.request import Hypothesis, SearchRequest
from transformer_cli.decoding.search.scores import Length, Scoring
from transformer_cli.decoding.search.steps import SearchState, StepResult
from transformer_cli.decoding.search.top_k import is_near_tie, largest, largest_sums, lowest_of_the_largest
from transformer_cli.decoding.search.trace import TraceRecorder


@dataclass
class Candidates:
    """Continuations of each sentence's hypotheses, in the order in which they are taken."""

    ranking_BM: Tensor  # what they are ordered by
    log_prob_BM: Tensor
    ids_BM: Tensor
    beam_BM: Tensor

    def take(self, order_BM: Tensor) -> "Candidates":
        ranking_BM = log_prob_BM = self.log_prob_BM.gather(1, order_BM)
        if self.ranking_BM is not self.log_prob_BM:
            ranking_BM = self.ranking_BM.gather(1, order_BM)
        return Candidates(ranking_BM, log_prob_BM, self.ids_BM.gather(1, order_BM), self.beam_BM.gather(1, order_BM))


def beam_search(request: SearchRequest[Any]) -> list[list[Hypothesis]]:
    """Keep the N best partial hypotheses of each sentence, and the best finished ones.

    As in fairseq, each step considers the 2N likeliest continuations: those of the first N that end are finished, the
    first N others stay live, and a beam of one is greedy search. With groups, each is such a search of its part of the
    beam, see `Groups`. With terms, `LexicalConstraints` orders the continuations, and all 2N may finish.
    """
    config, n_groups = request.config, request.config.diversity_groups
    if config.beam_size == 1 and not request.has_terms:
        return greedy_search(request)
    assert n_groups == 1 or not request.has_terms
    scoring, terms = Scoring(request), LexicalConstraints(request) if request.has_terms else None
    beam = Beam(request, scoring, terms)
    # Each group keeps `n_best`: groups may find the same hypothesis, which then counts once.
    n_kept = beam.n_live if config.early_stopping else config.n_best
    state = SearchState.start(request, n_live=config.beam_size, n_finished=n_groups * n_kept)
    state.live_log_prob_BN.view(-1, n_groups, beam.n_live)[..., 1:] = -math.inf  # equals are one
    advance = beam if n_groups == 1 else Groups(beam, n_groups, config.diversity_strength)
    states = [] if terms is None else [terms]
    can = {"can_capture": terms is None, "shares_first": terms is None and n_groups == 1}
    return run_search(request, state, advance, scoring, states, reorders=True, **can)


register_search(
    SearchMethod(
        "beam",
        beam_search,
        rows_key="beam_size",
        options=frozenset({"beam_size"}),
        has_lexical_constraints=True,
        has_trace=True,
    )
)


@dataclass
class FinishedHypotheses:
    """The finished hypotheses that are kept, best first, and the score of the one behind them (-inf: there is none)."""

    log_prob_BK: Tensor
    score_BK1: Tensor
    at_BK: Tensor


class Beam:
    """One step of beam search."""

    def __init__(self, request: SearchRequest[Any], scoring: Scoring, terms: LexicalConstraints | None) -> None:
        config, device = request.config, request.state_device
        self.beam_size, self.eos_id, self.scoring, self.terms = config.beam_size, request.control.eos, scoring, terms
        self.recorder = request.recorder
        self.near_tie, self.settles_equals = request.near_tie, request.steps_between_syncs == 1
        self.n_live = config.beam_size // config.diversity_groups  # of one group
        self.n_wanted = min(config.n_best, self.n_live)  # finished ones, and no better live one: the sentence is done
        self.stops_early = config.early_stopping  # also when as many have finished as are live
        self.index_C1, self.behind_C1 = torch.arange(4 * self.n_live + 2, device=device).chunk(2)
        self.is_first_C1 = self.index_C1 < self.n_live

    def __call__(
        self,
        state: SearchState,
        log_p_RV: Tensor,
        length: Length,
        *,
        exact: bool,
        ranking_RV: Tensor | None = None,
        first: int = 0,
    ) -> StepResult:
        """`state` may be a group, from hypothesis `first`; `ranking_RV` is what its choices are ranked by."""
        found, is_unsure, is_near_tie_B = self._candidates(state, log_p_RV, ranking_RV, exact=exact)
        ends_BC1 = found.ids_BM == self.eos_id
        live = self._live_candidates(found, ends_BC1)
        finished = self._finished(state, found, ends_BC1, length, first)
        if self.recorder is not None:
            self._record(self.recorder, found, ends_BC1, length, first)

        log_prob_BN, worst_B = live.log_prob_BM[:, :-1], finished.score_BK1[:, self.n_wanted - 1]
        bound_B = self.scoring.best_possible(log_prob_BN.amax(dim=1), state.max_length_B)
        done_B = bound_B <= worst_B
        if self.stops_early:
            done_B = done_B | (finished.score_BK1[:, self.n_live - 1] > -math.inf)
        if self.n_live == 1:  # greedy search, which stops at its first end
            is_greedy_B = True if self.terms is None else ~self.terms.has_terms_B1.squeeze(1)
            done_B = done_B | (worst_B > -math.inf) & is_greedy_B

        new = SearchState(
            sentence_index_B=state.sentence_index_B,
            max_length_B=state.max_length_B,
            live_log_prob_BN=log_prob_BN,
            finished_log_prob_BK=finished.log_prob_BK,
            finished_score_BK=finished.score_BK1[:, :-1],
            finished_at_BK=finished.at_BK,
            is_near_tie_B=is_near_tie_B | self._near_ties(found, ends_BC1, live, finished, bound_B),
        )
        return StepResult(new, live.ids_BM[:, :-1], done_B, live.beam_BM[:, :-1], is_unsure)

    def _live_candidates(self, found: Candidates, ends_BC1: Tensor) -> Candidates:
        """The first N that do not end stay live; one more is returned, to find near ties."""
        next_BN1 = torch.where(ends_BC1, self.behind_C1, self.index_C1).topk(self.n_live + 1, largest=False).indices
        return found.take(next_BN1)

    def _finished(
        self, state: SearchState, found: Candidates, ends_BC1: Tensor, length: Length, first: int
    ) -> FinishedHypotheses:
        """The best of the finished hypotheses and of those that end, earlier ones first at equal scores."""
        n_kept = state.finished_score_BK.size(1)
        n_ends = self.n_live if self.terms is None else 2 * self.n_live
        beam_BE, log_prob_BE = found.beam_BM[:, :n_ends], found.log_prob_BM[:, :n_ends]
        finishes_BE = self._finishing(ends_BC1)[:, :n_ends]
        log_prob_BE = log_prob_BE.masked_fill(~finishes_BE, -math.inf)
        score_BE = self.scoring(log_prob_BE, length, beam_BE + first)
        if self.terms is not None:
            score_BE = score_BE - self.terms.penalty(beam_BE)
        sorted_BP, order_BP = torch.cat([state.finished_score_BK, score_BE], dim=1).sort(descending=True, stable=True)
        best_BK = order_BP[:, :n_kept]
        log_prob_BP = torch.cat([state.finished_log_prob_BK, log_prob_BE], dim=1)
        at_BP = torch.cat([state.finished_at_BK, beam_BE + (length * self.beam_size + first)], dim=1)
        return FinishedHypotheses(log_prob_BP.gather(1, best_BK), sorted_BP[:, : n_kept + 1], at_BP.gather(1, best_BK))

    def _finishing(self, ends_BC1: Tensor) -> Tensor:
        """The finished hypotheses among those that end: the first N, and where there are terms, all."""
        return ends_BC1 & (self.is_first_C1 if self.terms is None else self.is_first_C1 | self.terms.has_terms_B1)

    def _record(self, recorder: TraceRecorder, found: Candidates, ends_BC1: Tensor, length: Length, first: int) -> None:
        """The 2N candidates."""
        n, beam_BC = 2 * self.n_live, found.beam_BM[:, : 2 * self.n_live]
        recorder.consider(
            found.ids_BM[:, :n],
            beam_BC + first,
            found.log_prob_BM[:, :n],
            score_BC=self.scoring(found.log_prob_BM[:, :n], length, beam_BC + first),
            finishes_BC=self._finishing(ends_BC1)[:, :n],
            lacks_terms_BC=None if self.terms is None else self.terms.penalty(beam_BC) > 0,
        )

    def _near_ties(
        self, found: Candidates, ends_BC1: Tensor, live: Candidates, finished: FinishedHypotheses, bound_B: Tensor
    ) -> Tensor:
        """[B]: whether rounding may change a choice of this step."""
        # Which ones finish: an end that may swap with the first candidate beyond the N, or with the last of them.
        beyond_B1, last_B1 = found.ranking_BM[:, self.n_live, None], found.ranking_BM[:, self.n_live - 1, None]
        other_BC1 = torch.where(self.is_first_C1, beyond_B1, last_B1)
        is_near_tie_end_BC1 = is_near_tie(found.ranking_BM, other_BC1, self.near_tie) & ends_BC1
        if self.terms is not None:
            is_near_tie_end_BC1 = (
                is_near_tie_end_BC1 & ~self.terms.has_terms_B1
            )  # `LexicalConstraints.order` has marked theirs
        # Which ones stay live, which finished ones are kept, and whether the sentence is done.
        worst_B = finished.score_BK1[:, self.n_wanted - 1]
        one_XB = torch.stack([live.ranking_BM[:, -2], finished.score_BK1[:, -2], bound_B])
        other_XB = torch.stack([live.ranking_BM[:, -1], finished.score_BK1[:, -1], worst_B])
        return torch.cat([is_near_tie(one_XB, other_XB, self.near_tie), is_near_tie_end_BC1.T]).any(dim=0)

    def _candidates(
        self, state: SearchState, log_p_RV: Tensor, ranking_RV: Tensor | None, *, exact: bool
    ) -> tuple[Candidates, Tensor | None, Tensor]:
        """The first C + 1 = 2N + 1; whether some are equal, and not yet ordered by `exact`; near ties.

        A row's C + 1 likeliest tokens are enough: if the last of them came before the C-th candidate of its sentence,
        that one and the next would be equal. The same holds in each bank of `LexicalConstraints`; tokens that occur in
        no term are in one bank.
        """
        n_sentences, n_candidates = len(state.live_log_prob_BN), 2 * self.n_live + 1
        key_RV = log_p_RV if ranking_RV is None else ranking_RV
        before_BN = state.live_log_prob_BN[:, : len(key_RV) // n_sentences]  # in the first step, maybe one
        if not exact and self.terms is None:
            ranking_BM, ids_BM, beam_BM = largest_sums(before_BN, key_RV, n_candidates)
        else:
            before_R1 = before_BN.reshape(-1, 1)  # [B, N] -> [R, 1]
            n_row = min(n_candidates if self.terms is None else n_candidates + self.terms.n_tokens, log_p_RV.size(1))
            if exact:
                ids_RM = lowest_of_the_largest(before_R1 + key_RV, n_row)
                key_RM = key_RV.gather(1, ids_RM)
            else:
                key_RM, ids_RM = largest(key_RV, n_row)
            if self.terms is not None:
                key_RM, ids_RM = self.terms.add(key_RM, ids_RM, log_p_RV)
            ranking_BM, ids_BM = (x_RM.view(n_sentences, -1) for x_RM in (before_R1 + key_RM, ids_RM))  # [B, N·M]
            n_sorted = n_candidates if self.terms is None else ranking_BM.size(1)
            if exact:
                order_BM = by_tie_rule(ranking_BM, ids_BM, before_BN.size(1))[:, :n_sorted]
                ranking_BM = ranking_BM.gather(1, order_BM)
            else:
                ranking_BM, order_BM = ranking_BM.topk(n_sorted)
            ids_BM, beam_BM = ids_BM.gather(1, order_BM), order_BM.div(ids_RM.size(1), rounding_mode="floor")
        log_prob_BM = ranking_BM
        if ranking_RV is not None:
            at_BM = beam_BM * log_p_RV.size(1) + ids_BM
            log_p_BM = log_p_RV.reshape(n_sentences, -1).gather(1, at_BM)  # [R, V] -> [B, N·V]
            log_prob_BM = before_BN.gather(1, beam_BM) + log_p_BM
        found = Candidates(ranking_BM, log_prob_BM, ids_BM, beam_BM)
        # Between infinities there is no difference.
        is_unsure = None
        if self.settles_equals and not exact:
            is_unsure = (ranking_BM[:, :-1] - ranking_BM[:, 1:] == 0).any()
        if self.terms is None:
            return found, is_unsure, state.is_near_tie_B
        order_BM, is_near_tie_B = self.terms.order(found.ranking_BM, found.ids_BM, found.beam_BM, n_candidates)
        return found.take(order_BM), is_unsure, state.is_near_tie_B | is_near_tie_B


def by_tie_rule(ranking_BM: Tensor, ids_BM: Tensor, n_live: int) -> Tensor:
    """The order of candidates, equally many of each hypothesis: by score, then lower token, then earlier hypothesis."""
    beam_M = torch.arange(n_live, device=ids_BM.device).repeat_interleave(ids_BM.size(1) // n_live)
    by_token_BM = (ids_BM * n_live + beam_M).argsort(dim=1)
    by_ranking_BM = ranking_BM.gather(1, by_token_BM).argsort(dim=1, descending=True, stable=True)
    return by_token_BM.gather(1, by_ranking_BM)


class Groups:
    """Diverse beam search (Vijayakumar et al. 2016): each step is taken by one group after the other.

    The ranking score of a token is `strength` lower for each hypothesis of an earlier group that chose it in the same
    step (the paper's Hamming diversity). This is never part of a score. A group that is done takes no more steps.
    With strength 0 all groups find the same, which is what a beam of their size finds.
    """

    def __init__(self, beam: Beam, n_groups: int, strength: float) -> None:
        self.beam, self.n_groups, self.strength = beam, n_groups, strength

    def __call__(self, state: SearchState, log_p_RV: Tensor, length: Length, *, exact: bool) -> StepResult:
        n_sentences, n_live = state.live_log_prob_BN.shape
        size, n_kept = n_live // self.n_groups, state.finished_score_BK.size(1) // self.n_groups
        log_p_BNV = log_p_RV.view(n_sentences, n_live, -1)  # [R, V] -> [B, N, V]
        cost_BV = log_p_RV.new_zeros(n_sentences, log_p_RV.size(1))
        results: list[StepResult] = []
        for first in range(0, n_live, size):
            live, finished = slice(first, first + size), slice(first // size * n_kept, (first // size + 1) * n_kept)
            part = replace(
                state,
                live_log_prob_BN=state.live_log_prob_BN[:, live],
                finished_log_prob_BK=state.finished_log_prob_BK[:, finished],
                finished_score_BK=state.finished_score_BK[:, finished],
                finished_at_BK=state.finished_at_BK[:, finished],
            )
            own_BNV = log_p_BNV[:, live]
            ranking_RV = (own_BNV - cost_BV[:, None]).flatten(0, 1) if results else None  # [B, N, V] -> [R, V]
            result = self.beam(part, own_BNV.flatten(0, 1), length, exact=exact, ranking_RV=ranking_RV, first=first)
            log_prob_BN = result.state.live_log_prob_BN.masked_fill(result.done_B[:, None], -math.inf)
            result.state.live_log_prob_BN = log_prob_BN
            cost_BV.scatter_add_(1, result.ids_BN, (log_prob_BN > -math.inf).to(cost_BV.dtype) * self.strength)
            results.append(result)
        return self._merge(results)

    def _merge(self, results: list[StepResult]) -> StepResult:
        states = [result.state for result in results]
        state = replace(
            states[0],
            live_log_prob_BN=torch.cat([part.live_log_prob_BN for part in states], dim=1),
            finished_log_prob_BK=torch.cat([part.finished_log_prob_BK for part in states], dim=1),
            finished_score_BK=torch.cat([part.finished_score_BK for part in states], dim=1),
            finished_at_BK=torch.cat([part.finished_at_BK for part in states], dim=1),
            is_near_tie_B=torch.stack([part.is_near_tie_B for part in states]).any(dim=0),
        )
        size = results[0].ids_BN.size(1)
        beams = [result.beam_BN + g * size for g, result in enumerate(results) if result.beam_BN is not None]
        unsure = [result.is_unsure for result in results if result.is_unsure is not None]
        return StepResult(
            state,
            torch.cat([result.ids_BN for result in results], dim=1),
            torch.stack([result.done_B for result in results]).all(dim=0),
            torch.cat(beams, dim=1),
            torch.stack(unsure).any() if unsure else None,
        )
