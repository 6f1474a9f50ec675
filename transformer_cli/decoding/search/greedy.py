"""Greedy search and sampling: every hypothesis goes its own way.

Shapes: B sentences, N hypotheses of each that go on, V vocabulary, R = B × N rows.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transformer_cli.decoding.search.loop import Move, SearchState, run
from transformer_cli.decoding.search.request import Hypothesis, Task
from transformer_cli.decoding.search.scores import Scoring
from transformer_cli.decoding.search.top_k import is_close, largest


@dataclass
class Choice:
    ids_R: Tensor
    is_close_R: Tensor | None = None
    is_unsure: Tensor | None = None


Choose = Callable[[SearchState, Tensor, int, bool], Choice]  # state, log_p_RV, length, exact


def greedy_search(task: Task[Any]) -> list[list[Hypothesis]]:
    """Take the likeliest token, every time."""
    assert not task.has_terms
    scoring = Scoring(task)
    state = SearchState.start(task, n_live=1, n_ended=1)
    return run(task, state, partial(follow, likeliest, scoring, task.control.eos), scoring)


def likeliest(state: SearchState, log_p_RV: Tensor, length: int, exact: bool) -> Choice:
    log_p_R2, ids_R2 = largest(log_p_RV, 2)
    ids_R = log_p_RV.max(dim=-1).indices if exact else ids_R2[:, 0]  # of equals the first, as torch promises for max
    first_R, second_R = log_p_R2.unbind(dim=1)
    return Choice(ids_R, is_close(first_R, second_R), (first_R == second_R).any())


def sample(task: Task[Any]) -> list[list[Hypothesis]]:
    """Draw `config.n_best` translations of each sentence from the model, independently; the same may come twice.

    What is drawn depends on the sentence's seed and on the sample's number, and on nothing beside them.
    """
    config, device, scoring = task.config, task.max_lengths_B.device, Scoring(task)
    assert len(task.seeds) == len(task.max_lengths_B)
    assert not task.has_terms
    n_tokens = int(task.max_lengths_B.max())
    # In float32: 24 random bits, so that no product with one rounds up to the whole in `draw`.
    draws = [
        [np.random.default_rng([*seed, n]).random(n_tokens, dtype=np.float32) for n in range(config.n_best)]
        for seed in task.seeds
    ]
    draw_BNT = torch.from_numpy(np.array(draws)).to(device, torch.float64)

    def drawn(state: SearchState, log_p_RV: Tensor, length: int, exact: bool) -> Choice:
        p_RV = (log_p_RV / config.temperature).softmax(dim=-1)
        if config.top_k is not None:
            p_RV = keep_top_k(p_RV, config.top_k)
        if config.top_p is not None:
            p_RV = keep_top_p(p_RV, config.top_p)
        return Choice(draw(p_RV, draw_BNT[state.place_B, :, length - 1].view(-1, 1)))  # [B, N] -> [R, 1]

    state = SearchState.start(task, n_live=config.n_best, n_ended=config.n_best)
    return run(task, state, partial(follow, drawn, scoring, task.control.eos), scoring)


def follow(
    choose: Choose, scoring: Scoring, eos_id: int, state: SearchState, log_p_RV: Tensor, length: int, *, exact: bool
) -> Move:
    """Every hypothesis goes on until its EOS; it ends in the place that it lived in."""
    choice = choose(state, log_p_RV, length, exact)
    n_live = state.live_log_prob_BN.size(1)
    log_p_R1 = log_p_RV.gather(1, choice.ids_R[:, None])
    log_prob_BN = state.live_log_prob_BN + log_p_R1.view(-1, n_live)  # [R, 1] -> [B, N]
    ids_BN = choice.ids_R.view(-1, n_live)  # [R] -> [B, N]
    ends_BN = (ids_BN == eos_id) & (state.live_log_prob_BN > -math.inf)
    ended_at_N = torch.arange(length * n_live, (length + 1) * n_live, device=ids_BN.device)
    live_log_prob_BN = log_prob_BN.masked_fill(ends_BN, -math.inf)
    new = replace(
        state,
        live_log_prob_BN=live_log_prob_BN,
        ended_log_prob_BK=torch.where(ends_BN, log_prob_BN, state.ended_log_prob_BK),
        ended_score_BK=torch.where(ends_BN, scoring(log_prob_BN, length), state.ended_score_BK),
        ended_at_BK=torch.where(ends_BN, ended_at_N, state.ended_at_BK),
    )
    if choice.is_close_R is not None:
        new.is_close_B = state.is_close_B | choice.is_close_R.view(-1, n_live).any(dim=1)
    return Move(new, ids_BN, (live_log_prob_BN == -math.inf).all(dim=1), is_unsure=choice.is_unsure)


def keep_top_k(p_RV: Tensor, top_k: int) -> Tensor:
    """0 for all but the `top_k` likeliest tokens, and what is exactly as likely as the last of them."""
    least_R1 = p_RV.topk(min(top_k, p_RV.size(1))).values[:, -1:]
    return p_RV.masked_fill(p_RV < least_R1, 0)


def keep_top_p(p_RV: Tensor, top_p: float) -> Tensor:
    """0 for all but the likeliest tokens that hold the share `top_p`, and what is exactly as likely as the last."""
    share_RV = p_RV / p_RV.sum(dim=-1, keepdim=True)
    n_first, n_vocab = 32, p_RV.size(1)
    while True:  # the first few hold it nearly always, and sorting a vocabulary takes longer than the model does
        ordered_RV = share_RV.topk(min(n_first, n_vocab)).values
        before_RV = ordered_RV.cumsum(dim=-1, dtype=torch.float64) - ordered_RV
        n_kept_R1 = (before_RV < top_p).sum(dim=-1, keepdim=True)  # the token that reaches `top_p` is still in
        if n_first >= n_vocab or bool((n_kept_R1 < n_first).all()):
            break
        n_first *= 8
    least_R1 = ordered_RV.gather(1, (n_kept_R1 - 1).clamp(min=0))  # NaN counts as none
    return p_RV.masked_fill(share_RV < least_R1, 0)


def draw(p_RV: Tensor, draw_R1: Tensor) -> Tensor:
    """The token that the point `draw_R1` of [0, 1) falls on, when each is as wide as it is likely."""
    edge_RV = p_RV.cumsum(dim=-1, dtype=torch.float64)
    ids_R1 = torch.searchsorted(edge_RV, draw_R1 * edge_RV[:, -1:], right=True)
    return ids_R1.squeeze(1).clamp(max=p_RV.size(1) - 1)  # NaN falls beyond the last; `settle` reports it
