"""Sampling: each token is drawn from the model's distribution, optionally truncated to the top k or the top p.

Shapes: B sentences, N samples of each, T target, V vocabulary, R = B × N rows.
"""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transformer_cli.data.transfer import to_device
from transformer_cli.decoding.search.greedy import Choice, advance_each
from transformer_cli.decoding.search.loop import run_search
from transformer_cli.decoding.search.registry import SAMPLING_OPTIONS, SearchMethod, register_search
from transformer_cli.decoding.search.request import Hypothesis, SearchRequest
from transformer_cli.decoding.search.scores import Length, Scoring
from transformer_cli.decoding.search.steps import SearchState
from transformer_cli.models.device import accumulation_dtype


def sample(request: SearchRequest[Any]) -> list[list[Hypothesis]]:
    """Draw `config.n_best` translations of each sentence from the model, independently; the same may come twice.

    A draw depends on the sentence's seed and on the sample's number, and on nothing else.
    """
    config, device, scoring = request.config, request.state_device, Scoring(request)
    assert len(request.seeds) == len(request.max_lengths_B)
    assert not request.has_terms
    # In float32: 24 random bits, so that no product with one rounds up to the whole in `draw`.
    draws = [
        [np.random.default_rng([*seed, n]).random(request.longest, dtype=np.float32) for n in range(config.n_best)]
        for seed in request.seeds
    ]
    draw_BNT = to_device(torch.from_numpy(np.array(draws)).to(accumulation_dtype(device)), device)

    def drawn(state: SearchState, log_p_RV: Tensor, length: Length, exact: bool) -> Choice:
        p_RV = (log_p_RV / config.temperature).softmax(dim=-1)
        if config.top_k is not None:
            p_RV = keep_top_k(p_RV, config.top_k)
        if config.top_p is not None:
            p_RV = keep_top_p(p_RV, config.top_p)
        if request.recorder is not None:
            request.recorder.drawn_from(p_RV)
        return Choice(draw(p_RV, draw_BNT[state.sentence_index_B, :, length - 1].view(-1, 1)))  # [B, N] -> [R, 1]

    state = SearchState.start(request, n_live=config.n_best, n_finished=config.n_best)
    advance = partial(advance_each, drawn, scoring, request.control.eos, recorder=request.recorder)
    return run_search(request, state, advance, scoring)


register_search(
    SearchMethod("sample", sample, rows_key="n_best", options=frozenset(SAMPLING_OPTIONS), draws=True, has_trace=True)
)


def keep_top_k(p_RV: Tensor, top_k: int) -> Tensor:
    """0 for all but the `top_k` likeliest tokens and those exactly as likely as the last of them."""
    least_R1 = p_RV.topk(min(top_k, p_RV.size(1))).values[:, -1:]
    return p_RV.masked_fill(p_RV < least_R1, 0)


def keep_top_p(p_RV: Tensor, top_p: float) -> Tensor:
    """0 for all but the likeliest tokens whose probabilities reach `top_p`, and those exactly as likely as the last."""
    share_RV = p_RV / p_RV.sum(dim=-1, keepdim=True)
    # The first few reach it nearly always. On a CPU sorting a vocabulary takes longer than the model does; elsewhere
    # waiting for the answer does.
    n_vocab = p_RV.size(1)
    n_first = 32 if p_RV.is_cpu else n_vocab
    while True:
        ordered_RV = share_RV.topk(min(n_first, n_vocab)).values
        before_RV = ordered_RV.cumsum(dim=-1, dtype=accumulation_dtype(p_RV.device)) - ordered_RV
        n_kept_R1 = (before_RV < top_p).sum(dim=-1, keepdim=True)  # the token that reaches `top_p` is kept
        if n_first >= n_vocab or bool((n_kept_R1 < n_first).all()):
            break
        n_first *= 8
    least_R1 = ordered_RV.gather(1, (n_kept_R1 - 1).clamp(min=0))  # NaN counts as none
    return p_RV.masked_fill(share_RV < least_R1, 0)


def draw(p_RV: Tensor, draw_R1: Tensor) -> Tensor:
    """The token whose interval of the cumulative distribution contains `draw_R1`, a point of [0, 1)."""
    edge_RV = p_RV.cumsum(dim=-1, dtype=accumulation_dtype(p_RV.device))
    ids_R1 = torch.searchsorted(edge_RV, draw_R1 * edge_RV[:, -1:], right=True)
    return ids_R1.squeeze(1).clamp(max=p_RV.size(1) - 1)  # NaN gives an index beyond the last; `advance` reports it
