"""What all searches share: the loop over tokens, and how hypotheses are found again when it is over.

Shapes: B sentences, N hypotheses of each that go on, K finished ones that are kept, H hypotheses, T target,
V vocabulary, R = B × N rows (row b·N + n is hypothesis n of sentence b).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transformer_cli.decoding.search.constraints import BEHIND, unmet
from transformer_cli.decoding.search.logits_processors import Follower, Rules
from transformer_cli.decoding.search.request import Demands, Hypothesis, Task
from transformer_cli.decoding.search.scores import Scoring
from transformer_cli.decoding.search.top_k import CLOSE
from transformer_cli.errors import CheckpointError

Array = npt.NDArray[np.int64]


@dataclass
class SearchState:
    """Where a search stands; sentences that are done have left it. All hypotheses that go on have the same length.

    Log-probabilities are summed in float64, so that a long sentence loses no digits; -inf marks an empty place.
    """

    place_B: Tensor  # of each sentence in the batch that the search was given
    live_log_prob_BN: Tensor
    ended_log_prob_BK: Tensor
    ended_score_BK: Tensor
    ended_at_BK: Tensor  # n_tokens · N + n: one of `n_tokens`, EOS counted, whose last one hypothesis n would have said
    is_close_B: Tensor

    @classmethod
    def start(cls, task: Task[Any], *, n_live: int, n_ended: int) -> "SearchState":
        """Every hypothesis is empty and certain."""
        n_sentences, device = len(task.max_lengths_B), task.max_lengths_B.device
        nothing_BK = torch.full((n_sentences, n_ended), -math.inf, dtype=torch.float64, device=device)
        return cls(
            place_B=torch.arange(n_sentences, device=device),
            live_log_prob_BN=torch.zeros(n_sentences, n_live, dtype=torch.float64, device=device),
            ended_log_prob_BK=nothing_BK,
            ended_score_BK=nothing_BK,
            ended_at_BK=torch.zeros_like(nothing_BK, dtype=torch.long),
            is_close_B=torch.zeros(n_sentences, dtype=torch.bool, device=device),
        )

    def select(self, sentences_B: Tensor) -> "SearchState":
        return replace(self, **{field.name: getattr(self, field.name)[sentences_B] for field in fields(self)})


@dataclass
class Move:
    """One more token for every hypothesis."""

    state: SearchState
    ids_BN: Tensor
    done_B: Tensor  # nothing better can follow
    beam_BN: Tensor | None = None  # which hypothesis each one continues; None: itself
    is_unsure: Tensor | None = None  # equal candidates may be in the wrong order: ask again for `exact`


class Advance(Protocol):
    """How a search goes on to hypotheses of `length` tokens, given the log-probabilities of the next one."""

    def __call__(self, state: SearchState, log_p_RV: Tensor, length: int, *, exact: bool) -> Move: ...


@dataclass
class Said:
    """What was chosen in one step."""

    places: list[int]  # of its sentences
    ids_BN: Tensor
    beam_BN: Tensor | None


@dataclass
class Left:
    """Sentences that were done after the same step."""

    state: SearchState
    n_tokens: int
    live_score_BN: Tensor


def run(
    task: Task[Any], state: SearchState, advance: Advance, scoring: Scoring, followers: Sequence[Follower] = ()
) -> list[list[Hypothesis]]:
    """Take steps until every sentence is done; each leaves the batch, and the cache, as soon as it is."""
    n_sentences, n_live = state.live_log_prob_BN.shape
    control, device = task.control, state.place_B.device
    max_lengths, places = task.max_lengths_B.tolist(), list(range(n_sentences))
    follows: list[Follower] = [Rules(task), *followers, *([] if scoring.coverage is None else [scoring.coverage])]
    ids_R = torch.full((n_sentences * n_live,), control.bos, device=device)
    row_B1 = torch.arange(0, len(ids_R), n_live, device=device)[:, None]  # the first of each sentence
    said: list[Said] = []
    left: list[Left] = []
    while places:
        logits_RV = task.step(ids_R, task.cache)
        # In float32 at least. One kernel: on a CPU logsumexp alone takes twice as long as all of this.
        log_p_RV = logits_RV.log_softmax(dim=-1, dtype=torch.promote_types(logits_RV.dtype, torch.float32))
        is_broken = log_p_RV[:, control.eos].isnan().any()
        for follower in follows:
            follower.before(log_p_RV, len(said))
        move, done = settle(advance, state, log_p_RV, len(said) + 1, is_broken=is_broken)
        said.append(Said(places, move.ids_BN, move.beam_BN))
        for follower in follows:
            follower.after(move.beam_BN, move.ids_BN)

        state, ids_BN, beam_BN = move.state, move.ids_BN, move.beam_BN
        done = [is_done or len(said) == max_lengths[place] for is_done, place in zip(done, places, strict=True)]
        if any(done):
            over, going = leave(done)
            over_B, stay_B = (torch.tensor(which, dtype=torch.long, device=device) for which in (over, going))
            live_score_BN = scoring(state.live_log_prob_BN, len(said))
            left.append(Left(state.select(over_B), len(said), live_score_BN[over_B]))
            state, places = state.select(stay_B), [places[b] for b in going]
            if places:
                kept_BN = torch.arange(n_live, device=device) if beam_BN is None else beam_BN[stay_B]
                task.cache.reorder((row_B1[stay_B] + kept_BN).flatten(), stay_B)  # [B, N] -> [R]
                row_B1, ids_BN = row_B1[: len(places)], ids_BN[stay_B]
                for follower in follows:
                    follower.select(stay_B)
        elif beam_BN is not None:
            task.cache.reorder((row_B1 + beam_BN).flatten())  # [B, N] -> [R]
        ids_R = ids_BN.flatten()  # [B, N] -> [R]
    return rank(task, said, left)


def leave(done: Sequence[bool]) -> tuple[list[int], list[int]]:
    """Who leaves, and who stands in which place from now on: no more move than leave, the last into their places."""
    over, going = ([b for b, is_done in enumerate(done) if is_done is wanted] for wanted in (True, False))
    n_going = len(going)
    movers = iter(going[n_going - sum(b < n_going for b in over) :])
    return over, [next(movers) if done[b] else b for b in range(n_going)]


def settle(
    advance: Advance, state: SearchState, log_p_RV: Tensor, length: int, *, is_broken: Tensor
) -> tuple[Move, list[bool]]:
    """The next move, and which sentences it ends: but for rare ties, the only wait for the device in a step."""
    move = advance(state, log_p_RV, length, exact=False)
    is_unsure = torch.zeros_like(is_broken) if move.is_unsure is None else move.is_unsure
    *done, broken, unsure = torch.cat([move.done_B, is_broken[None], is_unsure[None]]).tolist()
    if broken:
        raise CheckpointError(
            f"the model: its scores are not numbers (NaN or infinite) at token {length} of a translation."
            " Its training diverged or its file is damaged: use an earlier checkpoint"
        )
    if unsure:
        move = advance(state, log_p_RV, length, exact=True)
        done = move.done_B.tolist()
    return move, done


def rank(task: Task[Any], said: Sequence[Said], left: Sequence[Left]) -> list[list[Hypothesis]]:
    """The hypotheses of each sentence: the finished ones, then those that were cut, each kind by its score."""
    found: list[list[Hypothesis]] = [[] for _ in range(len(task.max_lengths_B))]
    close_places: set[int] = set()
    record, n_best = Record(said), task.config.n_best
    for part in left:
        places_B = part.state.place_B.cpu().numpy()
        close_places.update(places_B[part.state.is_close_B.cpu().numpy()].tolist())
        for hypotheses_B in hypotheses(record, places_B, part):
            for place, of_one_kind in zip(places_B.tolist(), hypotheses_B, strict=True):
                found[place] += sorted(of_one_kind, key=lambda hypothesis: -hypothesis.score)
    for place, ranked in enumerate(found):
        if task.config.diversity_groups > 1:
            ranked = different(ranked)
        if task.has_terms:
            ranked = [with_unmet(hypothesis, task.demands[place]) for hypothesis in ranked]
        is_close = place in close_places or any(
            one.score - other.score < CLOSE and may_change_places(one, other)
            for one, other in pairwise(ranked[: n_best + 1])
        )
        found[place] = [replace(hypothesis, is_close=is_close) for hypothesis in ranked[:n_best]]
    return found


def may_change_places(one: Hypothesis, other: Hypothesis) -> bool:
    """Whether only the score says which comes first. Samples may be equal, which makes no difference."""
    are_behind = [hypothesis.finished and bool(hypothesis.unmet) for hypothesis in (one, other)]
    return one.ids != other.ids and one.finished == other.finished and are_behind[0] == are_behind[1]


def hypotheses(record: "Record", places_B: Array, part: Left) -> Iterator[list[list[Hypothesis]]]:
    """Of each sentence those that are finished; then of each those that are cut here."""
    n_live = part.live_score_BN.size(1)
    at_BK = part.state.ended_at_BK.cpu().numpy()
    live_BN = np.broadcast_to(np.arange(n_live), part.live_score_BN.shape)
    ended = (at_BK // n_live - 1, at_BK % n_live, part.state.ended_log_prob_BK, part.state.ended_score_BK)
    live = (np.full_like(live_BN, part.n_tokens), live_BN, part.state.live_log_prob_BN, part.live_score_BN)
    for finished, (n_text_BM, last_BM, log_prob_BM, score_BM) in ((True, ended), (False, live)):
        columns = (record.trace(places_B, n_text_BM, last_BM), n_text_BM, score_BM, log_prob_BM)
        yield [
            [
                Hypothesis(ids[:n_text], score, log_prob, finished)
                for ids, n_text, score, log_prob in zip(*row, strict=True)
                if log_prob > -math.inf
            ]
            for row in zip(*(column.tolist() for column in columns), strict=True)
        ]


def different(hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
    """The first of those that are equal, which several groups may have found."""
    found: dict[tuple[bool, tuple[int, ...]], Hypothesis] = {}
    for hypothesis in hypotheses:
        found.setdefault((hypothesis.finished, tuple(hypothesis.ids)), hypothesis)
    return list(found.values())


def with_unmet(hypothesis: Hypothesis, demanded: Demands) -> Hypothesis:
    lacking = unmet(hypothesis.ids, demanded)
    score = hypothesis.score + BEHIND if lacking and hypothesis.finished else hypothesis.score
    return replace(hypothesis, unmet=lacking, score=score)


class Record:
    """What every hypothesis was in every step: who said which token, continuing whom."""

    def __init__(self, said: Sequence[Said]) -> None:
        # On the host, and fetched at once.
        self.ids_XN = torch.cat([step.ids_BN for step in said]).cpu().numpy()  # X: the sentences of all steps in turn
        beams = [step.beam_BN for step in said if step.beam_BN is not None]
        self.beam_XN = torch.cat(beams).cpu().numpy() if beams else None
        self.row_TB = np.zeros((len(said), len(said[0].places)), dtype=np.int64)
        n_rows = 0
        for t, step in enumerate(said):
            self.row_TB[t, step.places] = np.arange(n_rows, n_rows + len(step.places))
            n_rows += len(step.places)

    def trace(self, places_B: Array, n_tokens_BM: Array, last_BM: Array) -> Array:
        """[B, M, T]: the first tokens of hypotheses, each named by which of its sentence it was after the last."""
        beam_BM, length = last_BM, max(int(n_tokens_BM.max()), 0)
        ids_BMT = np.zeros((*beam_BM.shape, length), dtype=np.int64)
        for t in reversed(range(length)):
            has_begun_BM, row_B1 = n_tokens_BM > t, self.row_TB[t, places_B][:, None]
            ids_BMT[..., t] = self.ids_XN[row_B1, beam_BM]
            if self.beam_XN is not None:
                beam_BM = np.where(has_begun_BM, self.beam_XN[row_B1, beam_BM], beam_BM)
        return ids_BMT
