"""Greedy search, beam search and sampling over any model that can tell what comes next.

A search knows `step(ids_R, cache) -> logits_RV`, which takes the newest token of each row, and a cache that can be
reordered; not what either is made of.

A hypothesis has at most its sentence's `max_length` tokens, EOS counted. Its score is log_prob / ((5 + n) / 6)^α for n
tokens, EOS counted (Wu et al. 2016, equation 14; section 6.1 of the paper). One that comes to `max_length` without EOS
is cut: it is marked, and ranks behind all finished ones, because it has not paid for its end.
Of equal candidates the lower token id goes first, then the earlier beam; of equal finished hypotheses the one that
finished first. PAD and BOS are never generated, but their share of the probability is not given to others: a score is
what the model says of the sentence when it is read back.
A choice between log-probabilities less than CLOSE apart may be turned by the rounding of kernels, which depends on the
shape of the batch. Greedy and beam search mark the hypotheses of a sentence in which they had to make such a choice.

Shapes: B sentences, N hypotheses of each that go on, K finished ones that are kept, C candidates, P = K + C, T target,
V vocabulary, R = B × N rows (row b·N + n is hypothesis n of sentence b).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from transformer_cli.errors import CheckpointError
from transformer_cli.registry import Registry
from transformer_cli.schema import DecodeConfig, SearchKind

# Ten times the largest difference that company made to the score of a real line (9.4e-6, tests/test_invariance.py).
CLOSE = 1e-4


class Cache(Protocol):
    """What a model keeps from step to step."""

    def reorder(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        """Go on with these rows, and these sentences (None: all): each new one is named by its number until now."""


CacheT = TypeVar("CacheT", bound=Cache)


@dataclass(frozen=True)
class ControlIds:
    """The ids of the target vocabulary that stand for no text."""

    pad: int
    bos: int
    eos: int


@dataclass(frozen=True)
class Hypothesis:
    ids: list[int]  # without BOS and EOS
    score: float
    log_prob: float  # natural logarithm
    finished: bool  # False: cut at the longest length allowed
    is_close: bool = field(default=False, compare=False)  # one of this sentence's choices was


@dataclass(frozen=True)
class Task(Generic[CacheT]):
    """What a search is given: a batch of sentences, as a model that has read them."""

    step: Callable[[Tensor, CacheT], Tensor]  # newest token of each row, cache -> logits_RV of the next one
    cache: CacheT  # with `rows_per_sentence` rows for each sentence
    control: ControlIds
    max_lengths_B: Tensor
    config: DecodeConfig
    seeds: Sequence[Sequence[int]] = ()  # for each sentence the numbers that its random choices are made from


# At most `config.n_best` hypotheses of each sentence, best first. Raises CheckpointError if logits are not numbers.
Search = Callable[[Task[Any]], list[list[Hypothesis]]]
SEARCHES: Registry[Search] = Registry("search")


def rows_per_sentence(config: DecodeConfig) -> int:
    """N: how many hypotheses of a sentence a search follows at once."""
    if config.search is SearchKind.mbr:
        return config.n_samples
    return config.n_best if config.search is SearchKind.sample else config.beam_size


def length_penalty(n_tokens: int, alpha: float) -> float:
    """What the log-probability of `n_tokens` tokens, EOS counted, is divided by."""
    return math.pow((5 + n_tokens) / 6, alpha)


@dataclass
class SearchState:
    """Where a search stands; sentences that are done have left it.

    Log-probabilities are summed in float64, so that a long sentence loses no digits; -inf marks an empty place.
    """

    length: int  # tokens of each hypothesis that goes on
    place_B: Tensor  # of each sentence in the batch that the search was given
    max_length_B: Tensor
    live_ids_BNT: Tensor
    live_log_prob_BN: Tensor
    ended_ids_BKT: Tensor
    ended_log_prob_BK: Tensor
    ended_length_BK: Tensor  # tokens, EOS counted
    is_close_B: Tensor

    @classmethod
    def start(cls, task: Task[Any], *, n_live: int, n_ended: int) -> "SearchState":
        """Every hypothesis is empty and certain."""
        max_lengths_B = task.max_lengths_B
        shape, n_tokens = max_lengths_B.shape, int(max_lengths_B.max())
        log_prob_B = torch.zeros(shape, dtype=torch.float64, device=max_lengths_B.device)
        return cls(
            length=0,
            place_B=torch.arange(len(max_lengths_B), device=max_lengths_B.device),
            max_length_B=max_lengths_B,
            live_ids_BNT=max_lengths_B.new_zeros(*shape, n_live, n_tokens),
            live_log_prob_BN=log_prob_B[:, None].repeat(1, n_live),
            ended_ids_BKT=max_lengths_B.new_zeros(*shape, n_ended, n_tokens),
            ended_log_prob_BK=log_prob_B[:, None].repeat(1, n_ended) - math.inf,
            ended_length_BK=max_lengths_B.new_zeros(*shape, n_ended),
            is_close_B=torch.zeros_like(max_lengths_B, dtype=torch.bool),
        )

    def select(self, sentences_B: Tensor) -> "SearchState":
        return SearchState(
            length=self.length,
            place_B=self.place_B[sentences_B],
            max_length_B=self.max_length_B[sentences_B],
            live_ids_BNT=self.live_ids_BNT[sentences_B],
            live_log_prob_BN=self.live_log_prob_BN[sentences_B],
            ended_ids_BKT=self.ended_ids_BKT[sentences_B],
            ended_log_prob_BK=self.ended_log_prob_BK[sentences_B],
            ended_length_BK=self.ended_length_BK[sentences_B],
            is_close_B=self.is_close_B[sentences_B],
        )


@dataclass
class Move:
    """One more token for every hypothesis."""

    state: SearchState
    done_B: Tensor  # nothing better can follow
    beam_BN: Tensor | None = None  # which hypothesis each one continues; None: itself
    is_unsure: Tensor | None = None  # equal candidates may be in the wrong order: ask again for `exact`


class Advance(Protocol):
    """How a search goes on, given the log-probabilities of the next token."""

    def __call__(self, state: SearchState, log_p_RV: Tensor, *, exact: bool = False) -> Move: ...


def run(task: Task[Any], state: SearchState, advance: Advance) -> list[list[Hypothesis]]:
    """Take steps until every sentence is done; each leaves the batch, and the cache, as soon as it is."""
    n_sentences, n_live, _ = state.live_ids_BNT.shape
    control, device = task.control, state.place_B.device
    never = torch.tensor([control.pad, control.bos], device=device)
    ids_R = torch.full((n_sentences * n_live,), control.bos, device=device)
    left: list[SearchState] = []
    while len(ids_R):
        logits_RV = task.step(ids_R, task.cache)
        # In float32 at least; and in one pass, where logsumexp takes four on a CPU.
        log_p_RV = logits_RV.log_softmax(dim=-1, dtype=torch.promote_types(logits_RV.dtype, torch.float32))
        log_p_RV.index_fill_(1, never, -math.inf)
        move, done = settle(advance, state, log_p_RV, is_broken=log_p_RV[:, control.eos].isnan().any())

        state, stay_B = move.state, None
        rows_BN = torch.arange(len(ids_R), device=device).view(-1, n_live)  # [R] -> [B, N]
        if move.beam_BN is not None:
            rows_BN = rows_BN.gather(1, move.beam_BN)
        if any(done):
            over, going = ([b for b, is_done in enumerate(done) if is_done is wanted] for wanted in (True, False))
            left.append(state.select(torch.tensor(over, device=device)))
            stay_B = torch.tensor(going, dtype=torch.long, device=device)
            state, rows_BN = state.select(stay_B), rows_BN[stay_B]
        if len(rows_BN) and (stay_B is not None or move.beam_BN is not None):
            task.cache.reorder(rows_BN.flatten(), stay_B)  # [B, N] -> [R]
        ids_R = state.live_ids_BNT[:, :, state.length - 1].flatten()  # [B, N] -> [R]

    found: list[list[Hypothesis]] = [[] for _ in range(n_sentences)]
    for part in left:
        for place, hypotheses in zip(part.place_B.tolist(), rank(part, task.config.length_penalty), strict=True):
            found[place] = hypotheses[: task.config.n_best]
    return found


def settle(advance: Advance, state: SearchState, log_p_RV: Tensor, *, is_broken: Tensor) -> tuple[Move, list[bool]]:
    """The next move, and which sentences it ends: but for rare ties, the only wait for the device in a step."""
    move = advance(state, log_p_RV)
    is_unsure = torch.zeros_like(is_broken) if move.is_unsure is None else move.is_unsure
    *done, broken, unsure = torch.cat([move.done_B, torch.stack([is_broken, is_unsure])]).tolist()
    if broken:
        raise CheckpointError(
            f"the model: its scores are not numbers (NaN or infinite) at token {state.length + 1} of a translation."
            " Its training diverged or its file is damaged: use an earlier checkpoint"
        )
    if unsure:
        move = advance(state, log_p_RV, exact=True)
        done = move.done_B.tolist()
    return move, done


def rank(state: SearchState, alpha: float) -> list[list[Hypothesis]]:
    """The hypotheses of each sentence: the finished ones, then those that are cut here, each kind by its score."""
    ended = (state.ended_ids_BKT, state.ended_log_prob_BK, state.ended_length_BK)
    live_length_BN = torch.full_like(state.live_log_prob_BN, state.length, dtype=torch.long)
    live = (state.live_ids_BNT, state.live_log_prob_BN, live_length_BN)
    ranked: list[list[Hypothesis]] = [[] for _ in range(len(state.place_B))]
    is_close_B = state.is_close_B.tolist()
    for finished, tensors in ((True, ended), (False, live)):
        for b, rows in enumerate(zip(*(tensor.tolist() for tensor in tensors), strict=True)):
            found = [
                Hypothesis(ids[: n_tokens - finished], log_prob / length_penalty(n_tokens, alpha), log_prob, finished)
                for ids, log_prob, n_tokens in zip(*rows, strict=True)
                if log_prob > -math.inf
            ]
            ranked[b] += sorted(found, key=lambda hypothesis: -hypothesis.score)
    for b, hypotheses in enumerate(ranked):
        if is_close_B[b] or any(one.score - other.score < CLOSE for one, other in pairwise(hypotheses)):
            ranked[b] = [replace(hypothesis, is_close=True) for hypothesis in hypotheses]
    return ranked


@SEARCHES.register("greedy")
def greedy_search(task: Task[Any]) -> list[list[Hypothesis]]:
    """Take the likeliest token, every time."""

    def likeliest(state: SearchState, log_p_RV: Tensor) -> Tensor:
        best_R = log_p_RV.max(dim=-1)
        state.is_close_B |= (log_p_RV > best_R.values[:, None] - CLOSE).sum(dim=-1) > 1
        return best_R.indices  # of equals the first, as torch promises for max

    return run(task, SearchState.start(task, n_live=1, n_ended=1), partial(follow, likeliest, task.control.eos))


@SEARCHES.register("sample")
def sample(task: Task[Any]) -> list[list[Hypothesis]]:
    """Draw `config.n_best` translations of each sentence from the model, independently; the same may come twice.

    What is drawn depends on the sentence's seed and on the sample's number, and on nothing beside them.
    """
    config, device = task.config, task.max_lengths_B.device
    assert len(task.seeds) == len(task.max_lengths_B)
    n_tokens = int(task.max_lengths_B.max())
    # In float32: 24 random bits, so that no product with one rounds up to the whole in `draw`.
    draws = [
        [np.random.default_rng([*seed, n]).random(n_tokens, dtype=np.float32) for n in range(config.n_best)]
        for seed in task.seeds
    ]
    draw_BNT = torch.from_numpy(np.array(draws)).to(device, torch.float64)

    def drawn(state: SearchState, log_p_RV: Tensor) -> Tensor:
        p_RV = (log_p_RV / config.temperature).softmax(dim=-1)
        if config.top_k is not None:
            p_RV = keep_top_k(p_RV, config.top_k)
        if config.top_p is not None:
            p_RV = keep_top_p(p_RV, config.top_p)
        return draw(p_RV, draw_BNT[state.place_B, :, state.length].view(-1, 1))  # [B, N] -> [R, 1]

    state = SearchState.start(task, n_live=config.n_best, n_ended=config.n_best)
    return run(task, state, partial(follow, drawn, task.control.eos))


def follow(
    choose: Callable[[SearchState, Tensor], Tensor],
    eos_id: int,
    state: SearchState,
    log_p_RV: Tensor,
    *,
    exact: bool = False,
) -> Move:
    """Every hypothesis goes its own way, until its EOS; it ends in the place that it lived in."""
    ids_R = choose(state, log_p_RV)
    log_p_R1, length = log_p_RV.gather(1, ids_R[:, None]), state.length + 1
    log_prob_BN = state.live_log_prob_BN + log_p_R1.view_as(state.live_log_prob_BN)  # [R, 1] -> [B, N]
    ids_BN = ids_R.view_as(log_prob_BN)  # [R] -> [B, N]
    state.live_ids_BNT[:, :, state.length] = ids_BN
    ends_BN = (ids_BN == eos_id) & (state.live_log_prob_BN > -math.inf)
    new = replace(
        state,
        length=length,
        live_log_prob_BN=log_prob_BN.masked_fill(ends_BN, -math.inf),
        ended_ids_BKT=state.live_ids_BNT,
        ended_log_prob_BK=torch.where(ends_BN, log_prob_BN, state.ended_log_prob_BK),
        ended_length_BK=state.ended_length_BK.masked_fill(ends_BN, length),
    )
    return Move(new, done_B=(new.live_log_prob_BN == -math.inf).all(dim=1) | (new.max_length_B == length))


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


@SEARCHES.register("beam")
def beam_search(task: Task[Any]) -> list[list[Hypothesis]]:
    """Follow the N likeliest beginnings of each sentence, and keep the best that finish.

    As in tensor2tensor, the 2N likeliest continuations are looked at in each step: those that end are finished, the
    first N others go on, and a beam of one is greedy search.
    """
    config, max_lengths_B = task.config, task.max_lengths_B
    if config.beam_size == 1:
        return greedy_search(task)
    state = SearchState.start(task, n_live=config.beam_size, n_ended=config.n_best)
    state.live_log_prob_BN[:, 1:] = -math.inf  # N equal beginnings are one
    penalties = [length_penalty(n_tokens, config.length_penalty) for n_tokens in range(int(max_lengths_B.max()) + 1)]
    penalty_T = torch.tensor(penalties, dtype=torch.float64, device=max_lengths_B.device)
    return run(task, state, partial(extend, penalty_T, task.control.eos))


def extend(
    penalty_T: Tensor,
    eos_id: int,
    state: SearchState,
    log_p_RV: Tensor,
    *,
    exact: bool = False,
) -> Move:
    """One step of beam search."""
    n_live, n_ended, length = state.live_ids_BNT.size(1), state.ended_ids_BKT.size(1), state.length + 1
    (log_prob_BC1, ids_BC1, beam_BC1), is_unsure = likeliest_continuations(state, log_p_RV, exact=exact)
    ends_BC1 = ids_BC1 == eos_id
    log_prob_BC, ids_BC, beam_BC, ends_BC = (x[:, :-1] for x in (log_prob_BC1, ids_BC1, beam_BC1, ends_BC1))

    # The first N that do not end go on.
    open_BC = log_prob_BC.masked_fill(ends_BC, -math.inf)
    next_BN = open_BC.argsort(dim=1, descending=True, stable=True)[:, :n_live]
    beam_BN = beam_BC.gather(1, next_BN)
    live_ids_BNT = pick(state.live_ids_BNT, beam_BN)
    live_ids_BNT[:, :, state.length] = ids_BC.gather(1, next_BN)

    # Those that end compete with the finished ones, which stand first and so win at equal scores.
    log_prob_BP = torch.cat([state.ended_log_prob_BK, log_prob_BC.masked_fill(~ends_BC, -math.inf)], dim=1)
    length_BP = torch.cat([state.ended_length_BK, torch.full_like(ids_BC, length)], dim=1)
    score_BP = log_prob_BP / penalty_T[length_BP]
    best_BK = score_BP.argsort(dim=1, descending=True, stable=True)[:, :n_ended]
    # Where the tokens of each of them are: K finished hypotheses, then the N that are continued.
    home_BP = torch.cat([torch.arange(n_ended, device=beam_BC.device).expand_as(best_BK), n_ended + beam_BC], dim=1)
    ids_BQT = torch.cat([state.ended_ids_BKT, state.live_ids_BNT], dim=1)

    new = replace(
        state,
        length=length,
        live_ids_BNT=live_ids_BNT,
        live_log_prob_BN=open_BC.gather(1, next_BN),
        ended_ids_BKT=pick(ids_BQT, home_BP.gather(1, best_BK)),
        ended_log_prob_BK=log_prob_BP.gather(1, best_BK),
        ended_length_BK=length_BP.gather(1, best_BK),
    )
    # No hypothesis gets likelier, and none is divided by more than the longest: a beginning that cannot beat the worst
    # finished one even so never will.
    bound_B = new.live_log_prob_BN[:, 0] / penalty_T[new.max_length_B]
    worst_B = score_BP.gather(1, best_BK)[:, -1]
    done_B = (bound_B <= worst_B) | (new.max_length_B == length)
    new.is_close_B = (
        state.is_close_B
        | is_close_call(log_prob_BC1.masked_fill(ends_BC1, -math.inf), n_live)  # who goes on
        | is_close_call(log_prob_BC1, 2 * n_live) & ends_BC1[:, -2:].any(dim=1)  # who ends
        | is_close_call(score_BP, n_ended)  # which of those are kept
        | ((bound_B - worst_B).abs() < CLOSE)  # whether to look further
    )
    return Move(new, done_B, beam_BN, is_unsure)


def likeliest_continuations(
    state: SearchState, log_p_RV: Tensor, *, exact: bool
) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor | None]:
    """Log-probability, newest token and beam of the C + 1 = 2N + 1 likeliest of each sentence, in order.

    torch.topk takes any of equal values. It is asked for one candidate more than a row can need; where that one is as
    good as the C-th of its sentence, the last result is True, and only `exact` keeps to the rule.
    """
    n_sentences, n_live = state.live_log_prob_BN.shape
    n_candidates, n_vocab = 2 * n_live, log_p_RV.size(1)
    n_row = min(n_candidates + 1, n_vocab)
    before_R1 = state.live_log_prob_BN.view(-1, 1)  # [B, N] -> [R, 1]
    ids_RM = lowest_of_the_largest(before_R1 + log_p_RV, n_row) if exact else log_p_RV.topk(n_row).indices
    log_prob_RM = before_R1 + log_p_RV.gather(1, ids_RM)

    log_prob_BM, ids_BM = (x_RM.view(n_sentences, -1) for x_RM in (log_prob_RM, ids_RM))  # [R, M] -> [B, N·M]
    beam_BM = torch.arange(n_live, device=ids_RM.device).repeat_interleave(n_row).expand_as(ids_BM)
    by_rule_BM = (ids_BM * n_live + beam_BM).argsort(dim=1)
    by_value_BM = log_prob_BM.gather(1, by_rule_BM).argsort(dim=1, descending=True, stable=True)
    order_BC1 = by_rule_BM.gather(1, by_value_BM)[:, : n_candidates + 1]
    log_prob_BC1 = log_prob_BM.gather(1, order_BC1)

    is_unsure = None
    if n_row < n_vocab and not exact:
        last_BN = log_prob_RM[:, -1].view(n_sentences, n_live)
        is_unsure = ((last_BN >= log_prob_BC1[:, -2, None]) & (last_BN > -math.inf)).any()
    return (log_prob_BC1, ids_BM.gather(1, order_BC1), beam_BM.gather(1, order_BC1)), is_unsure


def is_close_call(x_BM: Tensor, n: int) -> Tensor:
    """Of each row whether its n-th largest number is hardly larger than the next; not so between infinities."""
    largest_BM = x_BM.topk(n + 1).values
    return largest_BM[:, n - 1] - largest_BM[:, n] < CLOSE


def lowest_of_the_largest(x_RV: Tensor, n: int) -> Tensor:
    """Indices of the `n` largest of each row, in no order; of equals the lowest indices."""
    least_R1 = x_RV.topk(n).values[:, -1:]
    rank_RV = (x_RV > least_R1).long() + (x_RV >= least_R1).long()  # 2 in, 1 as far as there is room, 0 out
    n_columns = x_RV.size(1)
    return (rank_RV * n_columns - torch.arange(n_columns, device=x_RV.device)).topk(n).indices


def pick(x_BNT: Tensor, which_BM: Tensor) -> Tensor:
    """[B, M, T]: of each sentence the rows that `which_BM` names."""
    return x_BNT.gather(1, which_BM[..., None].expand(-1, -1, x_BNT.size(2)))
