"""What all searches share: the loop over tokens, and reading the hypotheses from its backpointers.

Shapes: B sentences, N live hypotheses of each, K finished ones that are kept, H hypotheses, T target,
V vocabulary, R = B × N rows (row b·N + n is hypothesis n of sentence b).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transformer_cli.data.transfer import to_device
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

    sentence_indices: list[int]
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
        columns = zip(*(part.state.tensors() for part in parts), strict=True)
        return cls(
            SearchState(*(torch.cat(column).cpu() for column in columns)),
            np.concatenate([part.n_tokens_B for part in parts]),
            torch.cat([part.live_score_BN for part in parts]).cpu(),
        )


def run_search(
    request: SearchRequest[Any],
    state: SearchState,
    advance: Advance,
    scoring: Scoring,
    hypothesis_states: Sequence[HypothesisState] = (),
    *,
    reorders: bool = False,
    can_capture: bool = False,
) -> list[list[Hypothesis]]:
    """Take steps until every sentence is done; each leaves the batch, and the cache, when the host sees that it is.

    `reorders`: a hypothesis may continue another one. `can_capture`: `advance` is the same for all requests of equal
    settings, and reads no number that changes from step to step but the `length` that it is given.
    """
    processors, every = LogitsProcessors(request), request.steps_between_syncs
    kept = [processors, *hypothesis_states, *([] if scoring.coverage is None else [scoring.coverage])]
    steps = SearchSteps(request, state, advance, scoring, kept, reorders=reorders)
    static: StaticSteps | None = None
    if can_capture and every > 1 and len(kept) == 1 and not processors.depends_on_history:
        static = request.cache if isinstance(request.cache, StaticSteps) else None
    max_lengths, indices = request.max_lengths_B.tolist(), list(range(len(request.max_lengths_B)))
    longest = max(max_lengths)
    history: list[_Step] = []
    finished: list[FinishedSentences] = []
    while indices:
        if static is not None:
            steps = on_static_buffers(steps, static, request, scoring)
        for _ in range(min(every, longest - steps.n_taken)):
            steps.take() if static is None else static.take_step(steps)
            steps.n_taken += 1
            history.append(_Step(indices, *steps.choices(len(indices))))
        done_at = read_done_at(steps)[: len(indices)]
        if request.cancelled is not None:
            cancelled = request.cancelled()
            done_at = [n or steps.n_taken * cancelled[index] for n, index in zip(done_at, indices, strict=True)]
        if not any(done_at):
            continue
        leaving, staying = compact([n > 0 for n in done_at])
        longest = max((max_lengths[indices[b]] for b in staying), default=0)
        if static is not None and staying and not static.fits_smaller(len(staying)):
            continue
        leave_B, stay_B = (torch.tensor(which, dtype=torch.long) for which in (leaving, staying))
        leave_B, stay_B = (to_device(x_B, request.state_device) for x_B in (leave_B, stay_B))
        n_tokens_B = np.array([done_at[b] for b in leaving])
        finished.append(FinishedSentences(steps.state.select(leave_B), n_tokens_B, steps.score_BN[leave_B]))
        indices = [indices[b] for b in staying]
        if indices:
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
    sentence_index_B, n_best = finished.state.sentence_index_B.numpy(), request.config.n_best
    found: list[list[Hypothesis]] = [[] for _ in sentence_index_B]
    for hypotheses_B in hypotheses(StepHistory(steps), sentence_index_B, finished):
        for index, of_one_kind in zip(sentence_index_B.tolist(), hypotheses_B, strict=True):
            found[index] += sorted(of_one_kind, key=lambda hypothesis: -hypothesis.score)
    near_ties = set(sentence_index_B[finished.state.is_near_tie_B.numpy()].tolist())
    for index, ranked in enumerate(found):
        if request.config.diversity_groups > 1:
            ranked = _distinct(ranked)
        if request.has_terms:
            constraints = request.constraints[index]
            known = automaton(list(dict.fromkeys(constraints.terms)))
            ranked = [with_unsatisfied(hypothesis, constraints, known) for hypothesis in ranked]
        is_near_tie = index in near_ties or any(
            one.score - other.score < request.near_tie and may_swap(one, other)
            for one, other in pairwise(ranked[: n_best + 1])
        )
        trace = None if request.recorder is None else request.recorder.traces[index]
        found[index] = [replace(one, is_near_tie=is_near_tie, trace=trace) for one in ranked[:n_best]]
    return found


def may_swap(one: Hypothesis, other: Hypothesis) -> bool:
    """Whether only the score decides their order. Equal samples do not count."""
    are_behind = [hypothesis.finished and bool(hypothesis.unsatisfied) for hypothesis in (one, other)]
    return one.ids != other.ids and one.finished == other.finished and are_behind[0] == are_behind[1]


def hypotheses(
    history: "StepHistory", sentence_index_B: _Array, part: FinishedSentences
) -> Iterator[list[list[Hypothesis]]]:
    """The finished hypotheses of each sentence; then those of each that are truncated."""
    n_live = part.live_score_BN.size(1)
    at_BK = part.state.finished_at_BK.numpy()
    live_BN = np.broadcast_to(np.arange(n_live), part.live_score_BN.shape)
    finished = (at_BK // n_live - 1, at_BK % n_live, part.state.finished_log_prob_BK, part.state.finished_score_BK)
    live = (
        np.broadcast_to(part.n_tokens_B[:, None], live_BN.shape),
        live_BN,
        part.state.live_log_prob_BN,
        part.live_score_BN,
    )
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
        # Copied to the host at once.
        self.ids_XN = torch.cat([step.ids_BN for step in steps]).cpu().numpy()  # X: the sentences of all steps in turn
        beams = [step.beam_BN for step in steps if step.beam_BN is not None]
        self.beam_XN = torch.cat(beams).cpu().numpy() if beams else None
        self.row_TB = np.zeros((len(steps), len(steps[0].sentence_indices)), dtype=np.int64)
        n_rows = 0
        for t, step in enumerate(steps):
            self.row_TB[t, step.sentence_indices] = np.arange(n_rows, n_rows + len(step.sentence_indices))
            n_rows += len(step.sentence_indices)

    def trace(self, sentence_index_B: _Array, n_tokens_BM: _Array, last_BM: _Array) -> _Array:
        """[B, M, T]: the tokens of hypotheses, each given by its index within its sentence after its last token."""
        beam_BM, length = last_BM, max(int(n_tokens_BM.max()), 0)
        ids_BMT = np.zeros((*beam_BM.shape, length), dtype=np.int64)
        for t in reversed(range(length)):
            has_begun_BM, row_B1 = n_tokens_BM > t, self.row_TB[t, sentence_index_B][:, None]
            ids_BMT[..., t] = self.ids_XN[row_B1, beam_BM]
            if self.beam_XN is not None:
                beam_BM = np.where(has_begun_BM, self.beam_XN[row_B1, beam_BM], beam_BM)
        return ids_BMT
