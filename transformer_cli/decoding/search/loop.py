"""What all searches share: the loop over tokens, and reading the hypotheses from its backpointers.

Shapes: B sentences, N live hypotheses of each, K finished ones that are kept, H hypotheses, T target,
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

from transformer_cli.decoding.search.constraints import UNSATISFIED_PENALTY, unsatisfied_terms
from transformer_cli.decoding.search.logits_processors import HypothesisState, LogitsProcessors
from transformer_cli.decoding.search.request import Constraints, Hypothesis, SearchRequest
from transformer_cli.decoding.search.scores import Scoring
from transformer_cli.decoding.search.top_k import NEAR_TIE
from transformer_cli.errors import CheckpointError

Array = npt.NDArray[np.int64]


@dataclass
class SearchState:
    """The state of a search, of the sentences that are not done. All live hypotheses have the same length.

    Log-probabilities are summed in float64, so that a long sentence loses no digits; -inf marks an empty slot.
    """

    sentence_index_B: Tensor  # in the batch that the search was given
    live_log_prob_BN: Tensor
    finished_log_prob_BK: Tensor
    finished_score_BK: Tensor
    finished_at_BK: Tensor  # n_tokens · N + n: it has `n_tokens`, EOS counted, and continued hypothesis n
    is_near_tie_B: Tensor

    @classmethod
    def start(cls, request: SearchRequest[Any], *, n_live: int, n_finished: int) -> "SearchState":
        """Every hypothesis is empty and has probability 1."""
        n_sentences, device = len(request.max_lengths_B), request.max_lengths_B.device
        empty_BK = torch.full((n_sentences, n_finished), -math.inf, dtype=torch.float64, device=device)
        return cls(
            sentence_index_B=torch.arange(n_sentences, device=device),
            live_log_prob_BN=torch.zeros(n_sentences, n_live, dtype=torch.float64, device=device),
            finished_log_prob_BK=empty_BK,
            finished_score_BK=empty_BK,
            finished_at_BK=torch.zeros_like(empty_BK, dtype=torch.long),
            is_near_tie_B=torch.zeros(n_sentences, dtype=torch.bool, device=device),
        )

    def select(self, sentences_B: Tensor) -> "SearchState":
        return replace(self, **{field.name: getattr(self, field.name)[sentences_B] for field in fields(self)})


@dataclass
class StepResult:
    """One more token for every hypothesis."""

    state: SearchState
    ids_BN: Tensor
    done_B: Tensor  # nothing better can follow
    beam_BN: Tensor | None = None  # which hypothesis each one continues; None: itself
    is_unsure: Tensor | None = None  # equal candidates may be in the wrong order: repeat with `exact`


class Advance(Protocol):
    """One step of a search, to hypotheses of `length` tokens, given the log-probabilities of the next token."""

    def __call__(self, state: SearchState, log_p_RV: Tensor, length: int, *, exact: bool) -> StepResult: ...


@dataclass
class Step:
    """The choices of one step."""

    sentence_indices: list[int]
    ids_BN: Tensor
    beam_BN: Tensor | None


@dataclass
class FinishedSentences:
    """Sentences that were done after the same step."""

    state: SearchState
    n_tokens: int
    live_score_BN: Tensor


def run(
    request: SearchRequest[Any],
    state: SearchState,
    advance: Advance,
    scoring: Scoring,
    hypothesis_states: Sequence[HypothesisState] = (),
) -> list[list[Hypothesis]]:
    """Take steps until every sentence is done; each leaves the batch, and the cache, as soon as it is."""
    n_sentences, n_live = state.live_log_prob_BN.shape
    control, device = request.control, state.sentence_index_B.device
    max_lengths, indices = request.max_lengths_B.tolist(), list(range(n_sentences))
    kept: list[HypothesisState] = [LogitsProcessors(request), *hypothesis_states]
    kept += [] if scoring.coverage is None else [scoring.coverage]
    ids_R = torch.full((n_sentences * n_live,), control.bos, device=device)
    row_B1 = torch.arange(0, len(ids_R), n_live, device=device)[:, None]  # the first of each sentence
    steps: list[Step] = []
    finished: list[FinishedSentences] = []
    while indices:
        logits_RV = request.step(ids_R, request.cache)
        # In float32 at least. One kernel: on a CPU logsumexp alone takes twice as long as all of this.
        log_p_RV = logits_RV.log_softmax(dim=-1, dtype=torch.promote_types(logits_RV.dtype, torch.float32))
        is_broken = log_p_RV[:, control.eos].isnan().any()
        for each in kept:
            each.before(log_p_RV, len(steps))
        result, done = advance_exactly(advance, state, log_p_RV, len(steps) + 1, is_broken=is_broken)
        steps.append(Step(indices, result.ids_BN, result.beam_BN))
        for each in kept:
            each.after(result.beam_BN, result.ids_BN)

        state, ids_BN, beam_BN = result.state, result.ids_BN, result.beam_BN
        done = [is_done or len(steps) == max_lengths[index] for is_done, index in zip(done, indices, strict=True)]
        if any(done):
            leaving, staying = compact(done)
            leave_B, stay_B = (torch.tensor(which, dtype=torch.long, device=device) for which in (leaving, staying))
            live_score_BN = scoring(state.live_log_prob_BN, len(steps))
            finished.append(FinishedSentences(state.select(leave_B), len(steps), live_score_BN[leave_B]))
            state, indices = state.select(stay_B), [indices[b] for b in staying]
            if indices:
                kept_BN = torch.arange(n_live, device=device) if beam_BN is None else beam_BN[stay_B]
                request.cache.reorder((row_B1[stay_B] + kept_BN).flatten(), stay_B)  # [B, N] -> [R]
                row_B1, ids_BN = row_B1[: len(indices)], ids_BN[stay_B]
                for each in kept:
                    each.select(stay_B)
        elif beam_BN is not None:
            request.cache.reorder((row_B1 + beam_BN).flatten())  # [B, N] -> [R]
        ids_R = ids_BN.flatten()  # [B, N] -> [R]
    return rank(request, steps, finished)


def compact(done: Sequence[bool]) -> tuple[list[int], list[int]]:
    """Indices that leave the batch, and the new order of the rest: the last ones move into the gaps."""
    leaving, live = ([b for b, is_done in enumerate(done) if is_done is wanted] for wanted in (True, False))
    n_live = len(live)
    movers = iter(live[n_live - sum(b < n_live for b in leaving) :])
    return leaving, [next(movers) if done[b] else b for b in range(n_live)]


def advance_exactly(
    advance: Advance, state: SearchState, log_p_RV: Tensor, length: int, *, is_broken: Tensor
) -> tuple[StepResult, list[bool]]:
    """The next step, and which sentences it ends. Except for rare ties, the only device synchronisation of a step."""
    result = advance(state, log_p_RV, length, exact=False)
    is_unsure = torch.zeros_like(is_broken) if result.is_unsure is None else result.is_unsure
    *done, broken, unsure = torch.cat([result.done_B, is_broken[None], is_unsure[None]]).tolist()
    if broken:
        raise CheckpointError(
            f"the model: its scores are not numbers (NaN or infinite) at token {length} of a translation."
            " Its training diverged or its file is damaged: use an earlier checkpoint"
        )
    if unsure:
        result = advance(state, log_p_RV, length, exact=True)
        done = result.done_B.tolist()
    return result, done


def rank(
    request: SearchRequest[Any], steps: Sequence[Step], finished: Sequence[FinishedSentences]
) -> list[list[Hypothesis]]:
    """The hypotheses of each sentence: the finished ones, then the truncated ones, each kind by its score."""
    found: list[list[Hypothesis]] = [[] for _ in range(len(request.max_lengths_B))]
    near_ties: set[int] = set()
    history, n_best = StepHistory(steps), request.config.n_best
    for part in finished:
        sentence_index_B = part.state.sentence_index_B.cpu().numpy()
        near_ties.update(sentence_index_B[part.state.is_near_tie_B.cpu().numpy()].tolist())
        for hypotheses_B in hypotheses(history, sentence_index_B, part):
            for index, of_one_kind in zip(sentence_index_B.tolist(), hypotheses_B, strict=True):
                found[index] += sorted(of_one_kind, key=lambda hypothesis: -hypothesis.score)
    for index, ranked in enumerate(found):
        if request.config.diversity_groups > 1:
            ranked = distinct(ranked)
        if request.has_terms:
            ranked = [with_unsatisfied(hypothesis, request.constraints[index]) for hypothesis in ranked]
        is_near_tie = index in near_ties or any(
            one.score - other.score < NEAR_TIE and may_swap(one, other) for one, other in pairwise(ranked[: n_best + 1])
        )
        found[index] = [replace(hypothesis, is_near_tie=is_near_tie) for hypothesis in ranked[:n_best]]
    return found


def may_swap(one: Hypothesis, other: Hypothesis) -> bool:
    """Whether only the score decides their order. Equal samples do not count."""
    are_behind = [hypothesis.finished and bool(hypothesis.unsatisfied) for hypothesis in (one, other)]
    return one.ids != other.ids and one.finished == other.finished and are_behind[0] == are_behind[1]


def hypotheses(
    history: "StepHistory", sentence_index_B: Array, part: FinishedSentences
) -> Iterator[list[list[Hypothesis]]]:
    """The finished hypotheses of each sentence; then those of each that are truncated here."""
    n_live = part.live_score_BN.size(1)
    at_BK = part.state.finished_at_BK.cpu().numpy()
    live_BN = np.broadcast_to(np.arange(n_live), part.live_score_BN.shape)
    finished = (at_BK // n_live - 1, at_BK % n_live, part.state.finished_log_prob_BK, part.state.finished_score_BK)
    live = (np.full_like(live_BN, part.n_tokens), live_BN, part.state.live_log_prob_BN, part.live_score_BN)
    for is_finished, (n_text_BM, last_BM, log_prob_BM, score_BM) in ((True, finished), (False, live)):
        columns = (history.trace(sentence_index_B, n_text_BM, last_BM), n_text_BM, score_BM, log_prob_BM)
        yield [
            [
                Hypothesis(ids[:n_text], score, log_prob, is_finished)
                for ids, n_text, score, log_prob in zip(*row, strict=True)
                if log_prob > -math.inf
            ]
            for row in zip(*(column.tolist() for column in columns), strict=True)
        ]


def distinct(hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
    """The first of each set of equal hypotheses, which several groups may have found."""
    found: dict[tuple[bool, tuple[int, ...]], Hypothesis] = {}
    for hypothesis in hypotheses:
        found.setdefault((hypothesis.finished, tuple(hypothesis.ids)), hypothesis)
    return list(found.values())


def with_unsatisfied(hypothesis: Hypothesis, constraints: Constraints) -> Hypothesis:
    missing = unsatisfied_terms(hypothesis.ids, constraints)
    score = hypothesis.score + UNSATISFIED_PENALTY if missing and hypothesis.finished else hypothesis.score
    return replace(hypothesis, unsatisfied=missing, score=score)


class StepHistory:
    """The tokens and backpointers of all steps, from which hypotheses are read."""

    def __init__(self, steps: Sequence[Step]) -> None:
        # Copied to the host at once.
        self.ids_XN = torch.cat([step.ids_BN for step in steps]).cpu().numpy()  # X: the sentences of all steps in turn
        beams = [step.beam_BN for step in steps if step.beam_BN is not None]
        self.beam_XN = torch.cat(beams).cpu().numpy() if beams else None
        self.row_TB = np.zeros((len(steps), len(steps[0].sentence_indices)), dtype=np.int64)
        n_rows = 0
        for t, step in enumerate(steps):
            self.row_TB[t, step.sentence_indices] = np.arange(n_rows, n_rows + len(step.sentence_indices))
            n_rows += len(step.sentence_indices)

    def trace(self, sentence_index_B: Array, n_tokens_BM: Array, last_BM: Array) -> Array:
        """[B, M, T]: the tokens of hypotheses, each given by its index within its sentence after its last token."""
        beam_BM, length = last_BM, max(int(n_tokens_BM.max()), 0)
        ids_BMT = np.zeros((*beam_BM.shape, length), dtype=np.int64)
        for t in reversed(range(length)):
            has_begun_BM, row_B1 = n_tokens_BM > t, self.row_TB[t, sentence_index_B][:, None]
            ids_BMT[..., t] = self.ids_XN[row_B1, beam_BM]
            if self.beam_XN is not None:
                beam_BM = np.where(has_begun_BM, self.beam_XN[row_B1, beam_BM], beam_BM)
        return ids_BMT
