"""What all searches share: the loop over tokens, and reading the hypotheses from its backpointers.

Shapes: B sentences, N live hypotheses of each, K finished ones that are kept, H hypotheses, T target,
V vocabulary, R = B × N rows (row b·N + n is hypothesis n of sentence b).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transformer_cli.data.transfer import on_host, to_device
from transformer_cli.decoding.search.automaton import Automaton, automaton
from transformer_cli.decoding.search.constraints import UNSATISFIED_PENALTY, unsatisfied_terms
from transformer_cli.decoding.search.logits_processors import HypothesisState, LogitsProcessors
from transformer_cli.decoding.search.request import Constraints, Hypothesis, SearchRequest
from transformer_cli.decoding.search.scores import Scoring
from transformer_cli.decoding.search.steps import Advance, SearchState, SearchSteps
from transformer_cli.errors import CheckpointError
from transformer_cli.inference.static_steps import StaticSteps

_Array = npt.NDArray[np.int64]


@dataclass
class _Step:
    """The choices of one step."""

    sentence_index_B: _Array
    ids_BN: Tensor
    beam_BN: Tensor | None


@dataclass
class FinishedSentences:
    """Sentences that are done."""

    state: SearchState
    n_tokens_B: _Array
    live_score_BN: Tensor

    @classmethod
    def concatenated(cls, parts: "Sequence[FinishedSentences]") -> "FinishedSentences":
        columns = zip(*((*part.state.tensors(), part.live_score_BN) for part in parts), strict=True)
        *state, live_score_BN = on_host([torch.cat(column) for column in columns])
        return cls(SearchState(*state), np.concatenate([part.n_tokens_B for part in parts]), live_score_BN)


def run_search(
    request: SearchRequest[Any],
    state: SearchState,
    advance: Advance,
    scoring: Scoring,
    hypothesis_states: Sequence[HypothesisState] = (),
    *,
    reorders: bool = False,
    can_capture: bool = False,
    shares_first: bool = False,
) -> list[list[Hypothesis]]:
    """Take steps until every sentence is done; each leaves the batch, and the cache, when the host sees that it is.

    `reorders`: a hypothesis may continue another one. `can_capture`: `advance` is the same for all requests of equal
    settings, and reads no number that changes from step to step but the `length` that it is given. `shares_first`: it
    takes the log-probabilities of the first step once for each sentence, whose hypotheses are identical.
    """
    processors, every = LogitsProcessors(request), request.steps_between_syncs
    kept = [processors, *hypothesis_states, *([] if scoring.coverage is None else [scoring.coverage])]
    steps = SearchSteps(request, state, advance, scoring, kept, reorders=reorders, shares_first=shares_first)
    static: StaticSteps | None = None
    if can_capture and every > 1 and len(kept) == 1 and not processors.depends_on_history:
        static = request.cache if isinstance(request.cache, StaticSteps) else None
    max_length_B, index_B = np.array(request.max_lengths_B.tolist()), np.arange(len(request.max_lengths_B))
    longest = int(max_length_B.max())
    history: list[_Step] = []
    finished: list[FinishedSentences] = []
    while len(index_B):
        if static is not None:
            steps = on_static_buffers(steps, static, request, scoring)
        for _ in range(min(every, longest - steps.n_taken)):
            steps.take() if static is None else static.take_step(steps)
            steps.n_taken += 1
            history.append(_Step(index_B, *steps.choices(len(index_B))))
        done_at = read_done_at(steps)[: len(index_B)]
        if request.cancelled is not None:
            cancelled = request.cancelled()
            done_at = [n or steps.n_taken * cancelled[i] for n, i in zip(done_at, index_B.tolist(), strict=True)]
        if not any(done_at):
            continue
        leaving, staying = compact([n > 0 for n in done_at])
        longest = int(max_length_B[index_B[staying]].max(initial=0))
        if static is not None and staying and not static.fits_smaller(len(staying)):
            continue
        leave_B, stay_B = (torch.tensor(which, dtype=torch.long) for which in (leaving, staying))
        leave_B, stay_B = (to_device(x_B, request.state_device) for x_B in (leave_B, stay_B))
        n_tokens_B = np.array([done_at[b] for b in leaving])
        finished.append(FinishedSentences(steps.state.select(leave_B), n_tokens_B, steps.score_BN[leave_B]))
        index_B = index_B[staying]
        if staying:
            steps, rows_R = steps.select(stay_B)
            request.cache.reorder(rows_R, stay_B)
    return rank(request, history, FinishedSentences.concatenated(finished))


def on_static_buffers(
    steps: SearchSteps, static: StaticSteps, request: SearchRequest[Any], scoring: Scoring
) -> SearchSteps:
    """The steps captured by an earlier search with the same settings, with the state of `steps`."""
    key = (repr(request.config), request.control, request.near_tie, request.exact, len(scoring.divisors))
    program = static.program(key, lambda model: steps.padded(static.n_sentences, model))
    if program is not steps:
        program.load(steps)
    return program


def read_done_at(steps: SearchSteps) -> list[int]:
    """The step that ended each sentence, 0 if it is live: the only value that a search waits for its device for.

    Raises CheckpointError if logits of a live sentence were not numbers.
    """
    at_once = 1 if steps.freezes else steps.n_taken
    *done_at, broken_at = (at_once * n for n in to_host(torch.cat([steps.done_at_B, steps.broken_at_1])))
    if broken_at:
        raise CheckpointError(
            f"the model: its scores are not numbers (NaN or infinite) at token {broken_at} of a translation."
            " Its training diverged or its file is damaged: use an earlier checkpoint"
        )
    return done_at


def to_host(x_X: Tensor) -> list[int]:
    numbers: list[int] = x_X.tolist()
    return numbers


def compact(done: Sequence[bool]) -> tuple[list[int], list[int]]:
    """Indices that leave the batch, and the new order of the rest: the last ones move into the gaps."""
    leaving, live = ([b for b, is_done in enumerate(done) if is_done is wanted] for wanted in (True, False))
    n_live = len(live)
    movers = iter(live[n_live - sum(b < n_live for b in leaving) :])
    return leaving, [next(movers) if done[b] else b for b in range(n_live)]


def rank(request: SearchRequest[Any], steps: Sequence[_Step], finished: FinishedSentences) -> list[list[Hypothesis]]:
    """The hypotheses of each sentence: the finished ones, then the truncated ones, each kind by its score."""
    state, n_best = finished.state, request.config.n_best
    has_groups, has_terms = request.config.diversity_groups > 1, request.has_terms
    # The one behind the last may be a near tie of it. Of groups equal ones count once, and terms change scores.
    n_ranked = None if has_groups or has_terms else n_best + 1
    index_B, is_near_tie_B = state.sentence_index_B.tolist(), state.is_near_tie_B.tolist()
    found: dict[int, list[Hypothesis]] = {}
    ranked_B = hypotheses(StepHistory(steps), finished, n_ranked)
    for index, is_near_tie, ranked in zip(index_B, is_near_tie_B, ranked_B, strict=True):
        if has_groups:
            ranked = _distinct(ranked)
        if has_terms:
            constraints = request.constraints[index]
            known = automaton(list(dict.fromkeys(constraints.terms)))
            ranked = [with_unsatisfied(hypothesis, constraints, known) for hypothesis in ranked]
        is_near_tie = is_near_tie or any(
            one.score - other.score < request.near_tie and may_swap(one, other)
            for one, other in pairwise(ranked[: n_best + 1])
        )
        found[index] = ranked[:n_best]
        if is_near_tie or request.recorder is not None:
            trace = None if request.recorder is None else request.recorder.traces[index]
            found[index] = [replace(one, is_near_tie=is_near_tie, trace=trace) for one in found[index]]
    return [found[index] for index in range(len(found))]


def may_swap(one: Hypothesis, other: Hypothesis) -> bool:
    """Whether only the score decides their order. Equal samples do not count."""
    are_behind = [hypothesis.finished and bool(hypothesis.unsatisfied) for hypothesis in (one, other)]
    return one.ids != other.ids and one.finished == other.finished and are_behind[0] == are_behind[1]


def hypotheses(history: "StepHistory", part: FinishedSentences, n_most: int | None) -> Iterator[list[Hypothesis]]:
    """The first `n_most` of each sentence (None: all): finished ones, then truncated ones, each kind by its score."""
    state, (n_sentences, n_live), n_kept = part.state, part.live_score_BN.shape, part.state.finished_at_BK.size(1)
    live_at_BN = (part.n_tokens_B[:, None] + 1) * n_live + np.arange(n_live)  # as `finished_at_BK` counts
    at_BM = np.concatenate([state.finished_at_BK.numpy(), live_at_BN], axis=1)  # M = K + N
    score_BM = torch.cat([state.finished_score_BK, part.live_score_BN], dim=1).numpy()
    log_prob_BM = torch.cat([state.finished_log_prob_BK, state.live_log_prob_BN], dim=1).numpy()
    kind_BM = np.where(log_prob_BM > -math.inf, np.arange(n_kept + n_live) >= n_kept, 2)  # 0 finished, 1 live, 2 none
    order = np.arange(n_sentences)[:, None], np.lexsort((-score_BM, kind_BM))[:, :n_most]
    at_BM, kind_BM, score_BM, log_prob_BM = (x_BM[order] for x_BM in (at_BM, kind_BM, score_BM, log_prob_BM))
    n_text_BM, is_some_BM = at_BM // n_live - 1, kind_BM < 2
    ids_BMT = history.trace(state.sentence_index_B.numpy(), n_text_BM, at_BM % n_live)
    columns = (ids_BMT, n_text_BM, score_BM, log_prob_BM, kind_BM == 0)
    rows = zip(*(column[is_some_BM].tolist() for column in columns), strict=True)
    found = iter([Hypothesis(ids[:n_text], *values) for ids, n_text, *values in rows])
    for n_some in is_some_BM.sum(axis=1).tolist():
        yield list(islice(found, n_some))


def _distinct(hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
    """The first of each set of equal hypotheses, which several groups may have found."""
    found: dict[tuple[bool, tuple[int, ...]], Hypothesis] = {}
    for hypothesis in hypotheses:
        found.setdefault((hypothesis.finished, tuple(hypothesis.ids)), hypothesis)
    return list(found.values())


def with_unsatisfied(hypothesis: Hypothesis, constraints: Constraints, known: Automaton) -> Hypothesis:
    missing = unsatisfied_terms(hypothesis.ids, constraints, known)
    score = hypothesis.score + UNSATISFIED_PENALTY if missing and hypothesis.finished else hypothesis.score
    return replace(hypothesis, unsatisfied=missing, score=score)


class StepHistory:
    """The tokens and backpointers of all steps, from which hypotheses are read."""

    def __init__(self, steps: Sequence[_Step]) -> None:
        columns = [[step.ids_BN for step in steps], [step.beam_BN for step in steps if step.beam_BN is not None]]
        # X: the sentences of all steps in turn
        self.ids_XN, *beam = (x.numpy() for x in on_host([torch.cat(column) for column in columns if column]))
        self.beam_XN = beam[0] if beam else None
        self.row_TB = np.zeros((len(steps), len(steps[0].sentence_index_B)), dtype=np.int64)
        n_rows = 0
        for t, step in enumerate(steps):
            self.row_TB[t, step.sentence_index_B] = np.arange(n_rows, n_rows + len(step.sentence_index_B))
            n_rows += len(step.sentence_index_B)

    def trace(self, sentence_index_B: _Array, n_tokens_BM: _Array, last_BM: _Array) -> _Array:
        """[B, M, T]: the tokens of hypotheses, each given by its index within its sentence after its last token."""
        length = max(int(n_tokens_BM.max()), 0)
        row_TB1 = self.row_TB[:length, sentence_index_B, None]
        beam_TBM = last_BM[None]
        if self.beam_XN is not None:
            beam_TBM = beam_TBM.repeat(length, axis=0)
            for t in range(length - 1, 0, -1):
                before_BM = self.beam_XN[row_TB1[t], beam_TBM[t]]
                beam_TBM[t - 1] = np.where(n_tokens_BM > t, before_BM, last_BM)
        return self.ids_XN[row_TB1, beam_TBM].transpose(1, 2, 0)
