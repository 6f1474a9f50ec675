"""Greedy search, and the step that it shares with sampling: every hypothesis continues independently.

Shapes: B sentences, N live hypotheses of each, V vocabulary, R = B × N rows.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from transformer_cli.decoding.search.loop import run_search
from transformer_cli.decoding.search.registry import SearchMethod, register_search
from transformer_cli.decoding.search.request import Hypothesis, SearchRequest
from transformer_cli.decoding.search.scores import Length, Scoring
from transformer_cli.decoding.search.steps import SearchState, StepResult
from transformer_cli.decoding.search.top_k import is_near_tie, largest_two
from transformer_cli.decoding.search.trace import TraceRecorder


@dataclass
class Choice:
    ids_R: Tensor
    is_near_tie_R: Tensor | None = None
    is_unsure: Tensor | None = None


_Choose = Callable[[SearchState, Tensor, Length, bool], Choice]  # state, log_p_RV, length, exact


def greedy_search(request: SearchRequest[Any]) -> list[list[Hypothesis]]:
    """Take the likeliest token at every step."""
    assert not request.has_terms
    scoring = Scoring(request)
    state = SearchState.start(request, n_live=1, n_finished=1)
    advance = partial(
        advance_each, partial(likeliest, request.near_tie), scoring, request.control.eos, recorder=request.recorder
    )
    return run_search(request, state, advance, scoring, can_capture=True)


register_search(SearchMethod("greedy", greedy_search, has_trace=True))


def likeliest(near_tie: float, state: SearchState, log_p_RV: Tensor, length: Length, exact: bool) -> Choice:
    first_R, second_R, ids_R = largest_two(log_p_RV)
    if exact:
        ids_R = log_p_RV.max(dim=-1).indices  # of equals the first, as torch promises
    return Choice(ids_R, is_near_tie(first_R, second_R, near_tie), None if exact else (first_R == second_R).any())


def advance_each(
    choose: _Choose,
    scoring: Scoring,
    eos_id: int,
    state: SearchState,
    log_p_RV: Tensor,
    length: Length,
    *,
    exact: bool,
    recorder: TraceRecorder | None = None,
) -> StepResult:
    """Continue every hypothesis by the token that `choose` gives; one that chooses EOS finishes at its own index."""
    choice = choose(state, log_p_RV, length, exact)
    n_live = state.live_log_prob_BN.size(1)
    log_p_R1 = log_p_RV.gather(1, choice.ids_R[:, None])
    log_prob_BN = state.live_log_prob_BN + log_p_R1.view(-1, n_live)  # [R, 1] -> [B, N]
    ids_BN = choice.ids_R.view(-1, n_live)  # [R] -> [B, N]
    ends_BN = (ids_BN == eos_id) & (state.live_log_prob_BN > -math.inf)
    finished_at_N = torch.arange(n_live, device=ids_BN.device) + length * n_live
    live_log_prob_BN, score_BN = log_prob_BN.masked_fill(ends_BN, -math.inf), scoring(log_prob_BN, length)
    new = replace(
        state,
        live_log_prob_BN=live_log_prob_BN,
        finished_log_prob_BK=torch.where(ends_BN, log_prob_BN, state.finished_log_prob_BK),
        finished_score_BK=torch.where(ends_BN, score_BN, state.finished_score_BK),
        finished_at_BK=torch.where(ends_BN, finished_at_N, state.finished_at_BK),
    )
    if choice.is_near_tie_R is not None:
        new.is_near_tie_B = state.is_near_tie_B | choice.is_near_tie_R.view(-1, n_live).any(dim=1)
    if recorder is not None:
        own_BN = torch.arange(n_live, device=ids_BN.device).expand_as(ids_BN)
        recorder.consider(ids_BN, own_BN, log_prob_BN, score_BC=score_BN, finishes_BC=ends_BN)
    done_B = (live_log_prob_BN == -math.inf).all(dim=1)
    return StepResult(new, ids_BN, done_B, is_unsure=choice.is_unsure)
