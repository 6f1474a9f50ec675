"""The steps of a search: its state, and what one more token changes in it.

Shapes: B sentences, N live hypotheses of each, K finished ones that are kept, V vocabulary, R = B × N rows (row b·N + n
is hypothesis n of sentence b).
"""

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from transformer_cli.data.transfer import to_device
from transformer_cli.decoding.search.logits_processors import HypothesisState
from transformer_cli.decoding.search.request import SearchRequest
from transformer_cli.decoding.search.scores import Length, Scoring
from transformer_cli.inference.incremental import of_each_row
from transformer_cli.inference.static_steps import ModelStep
from transformer_cli.models.device import accumulation_dtype


@dataclass
class SearchState:
    """The state of a search, of the sentences that are not done. All live hypotheses have the same length.

    Log-probabilities are summed in float64 where the device has it, so that a long sentence loses no digits; -inf marks
    an empty slot.
    """

    sentence_index_B: Tensor  # in the batch that the search was given
    max_length_B: Tensor
    live_log_prob_BN: Tensor
    finished_log_prob_BK: Tensor
    finished_score_BK: Tensor
    finished_at_BK: Tensor  # n_tokens · N + n: it has `n_tokens`, EOS counted, and continued hypothesis n
    is_near_tie_B: Tensor

    @classmethod
    def start(cls, request: SearchRequest[Any], *, n_live: int, n_finished: int) -> "SearchState":
        """Every hypothesis is empty and has probability 1."""
        n_sentences, device = len(request.max_lengths_B), request.state_device
        wide = accumulation_dtype(device)
        empty_BK = torch.full((n_sentences, n_finished), -math.inf, dtype=wide, device=device)
        return cls(
            sentence_index_B=torch.arange(n_sentences, device=device),
            max_length_B=to_device(request.max_lengths_B, device),
            live_log_prob_BN=torch.zeros(n_sentences, n_live, dtype=wide, device=device),
            finished_log_prob_BK=empty_BK,
            finished_score_BK=empty_BK.clone(),
            finished_at_BK=torch.zeros_like(empty_BK, dtype=torch.long),
            is_near_tie_B=torch.zeros(n_sentences, dtype=torch.bool, device=device),
        )

    def select(self, sentences_B: Tensor) -> "SearchState":
        return replace(self, **{field.name: getattr(self, field.name)[sentences_B] for field in fields(self)})

    def tensors(self) -> list[Tensor]:
        return [getattr(self, field.name) for field in fields(self)]


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

    def __call__(self, state: SearchState, log_p_RV: Tensor, length: Length, *, exact: bool) -> StepResult: ...


class SearchSteps:
    """Takes the steps of a search.

    If the host synchronises after each, the sentences that are done leave at once. If not, nothing waits for the
    device: sentences that are done stay as they are until a sync, and tensors are written in place, so that a step can
    be captured, which then serves other searches (`padded` and `load`).
    """

    def __init__(
        self,
        request: SearchRequest[Any],
        state: SearchState,
        advance: Advance,
        scoring: Scoring,
        hypothesis_states: Sequence[HypothesisState],
        *,
        reorders: bool,
        shares_first: bool,
    ) -> None:
        self.shares_first = shares_first and request.recorder is None
        self.advance, self.scoring, self.hypothesis_states = advance, scoring, hypothesis_states
        self.control, self.exact, self.freezes = request.control, request.exact, request.steps_between_syncs > 1
        self.model = ModelStep(
            lambda ids_R: request.step(ids_R, request.cache), lambda rows_R: request.cache.reorder(rows_R)
        )
        self.recorder = request.recorder
        self.n_taken = 0  # steps; not to be read in a captured one
        n_sentences, n_live = state.live_log_prob_BN.shape
        self.own_N = torch.arange(n_live, device=request.state_device)
        # The cache is reordered by `beam_BN` at the beginning of the next step.
        first_beam_BN = self.own_N.repeat(n_sentences, 1) if self.freezes and reorders else None
        self._continue(state, torch.full_like(first_row(state), self.control.bos).expand(-1, n_live), first_beam_BN)

    def _continue(self, state: SearchState, ids_BN: Tensor, beam_BN: Tensor | None) -> None:
        """Go on with these sentences, of which none is done."""
        self.state, self.ids_BN, self.beam_BN = state, ids_BN.contiguous(), beam_BN
        self.row_B1 = first_row(state)
        if self.freezes:
            self.done_at_B = torch.zeros_like(state.sentence_index_B)  # after which step; 0: live
            self.broken_at_1 = self.done_at_B.new_zeros(1)  # the first step whose logits were not numbers; 0: none
            self.length_1 = torch.full_like(self.broken_at_1, self.n_taken)
            self.live_score_BN = torch.zeros_like(state.live_log_prob_BN)

    # ---- One step

    def take(self) -> None:
        """One more token for every live hypothesis."""
        if self.beam_BN is not None:
            self.model.reorder((self.row_B1 + self.beam_BN).flatten())  # [B, N] -> [R]
        self.scratch = None
        log_p_RV = log_probabilities(self.model.logits(self.ids_BN.flatten()))  # [B, N] -> [R]
        if not self.shares_first or log_p_RV.size(1) <= 2 * len(self.own_N):
            log_p_RV = of_each_row(log_p_RV, self.ids_BN.numel())
        is_broken_R = log_p_RV[:, self.control.eos].isnan()
        if self.recorder is not None:
            self.recorder.start_step(log_p_RV, len(self.own_N))
        for each in self.hypothesis_states:
            each.before(log_p_RV, self.n_taken)
        length: Length = self.length_1.add_(1) if self.freezes else self.n_taken + 1
        result = self._advance(log_p_RV, length, exact=self.exact)
        # Where the host does not wait, equal candidates that a choice depends on are near ties, to be decoded again.
        if not self.freezes and result.is_unsure is not None and bool(result.is_unsure):
            result = self._advance(log_p_RV, length, exact=True)
        if self.recorder is not None:
            self.recorder.end_step(
                self.state.sentence_index_B,
                self.state.live_log_prob_BN,
                log_p_RV,
                ids_BN=result.ids_BN,
                beam_BN=result.beam_BN,
                log_prob_BN=result.state.live_log_prob_BN,
            )
        for each in self.hypothesis_states:
            each.after(result.beam_BN, result.ids_BN)
        done_B = result.done_B | (self.state.max_length_B <= length)
        if self.freezes:
            self._write(result, done_B, is_broken_R)
        else:
            self.scratch = log_p_RV  # until the next step has its own: a CPU would give the memory back
            self.state, self.ids_BN, self.beam_BN = result.state, result.ids_BN, result.beam_BN
            self.done_at_B, self.broken_at_1 = done_B, is_broken_R.any()[None]  # at this step: read at once

    def _advance(self, log_p_RV: Tensor, length: Length, *, exact: bool) -> StepResult:
        if self.recorder is not None:
            self.recorder.restart()
        return self.advance(self.state, log_p_RV, length, exact=exact)

    def _write(self, result: StepResult, done_B: Tensor, is_broken_R: Tensor) -> None:
        """Keep the result in place, but for sentences that were done before."""
        was_live_B = self.done_at_B == 0
        was_live_B1 = was_live_B[:, None]
        score_BN = self.scoring(result.state.live_log_prob_BN, self.length_1)
        pairs = [*zip(self.state.tensors(), result.state.tensors(), strict=True), (self.live_score_BN, score_BN)]
        for kept, new in pairs:
            if new is not kept:
                torch.where(was_live_B if new.dim() == 1 else was_live_B1, new, kept, out=kept)
        is_broken_B = is_broken_R.view(len(was_live_B), -1).any(dim=1) & was_live_B  # [R] -> [B, N]
        is_first_1 = is_broken_B.any()[None] & (self.broken_at_1 == 0)
        self.broken_at_1.add_(is_first_1 * self.length_1)
        self.done_at_B.add_((done_B & was_live_B) * self.length_1)
        self.ids_BN.copy_(result.ids_BN)
        if self.beam_BN is not None and result.beam_BN is not None:
            self.beam_BN.copy_(result.beam_BN)

    # ---- Between steps

    def choices(self, n_sentences: int) -> tuple[Tensor, Tensor | None]:
        """The newest tokens of the first sentences, and the hypotheses that they continue."""
        ids_BN, beam_BN = self.ids_BN, self.beam_BN
        if not self.freezes:
            return ids_BN, beam_BN
        # The next step overwrites them.
        return ids_BN[:n_sentences].clone(), None if beam_BN is None else beam_BN[:n_sentences].clone()

    @property
    def score_BN(self) -> Tensor:
        """The score of each live hypothesis when its sentence was done."""
        return self.live_score_BN if self.freezes else self.scoring(self.state.live_log_prob_BN, self.n_taken)

    def select(self, sentences_B: Tensor) -> tuple["SearchSteps", Tensor]:
        """The search of these sentences only, and the rows that the cache has to keep for it."""
        selected, has_beams = copy(self), self.beam_BN is not None
        kept_BN = self.own_N if self.beam_BN is None else self.beam_BN[sentences_B]
        beam_BN = self.own_N.repeat(len(sentences_B), 1) if has_beams and self.freezes else None
        selected._continue(self.state.select(sentences_B), self.ids_BN[sentences_B], beam_BN)
        for each in self.hypothesis_states:
            each.select(sentences_B)
        return selected, (self.row_B1[sentences_B] + kept_BN).flatten()  # [B, N] -> [R]

    # ---- On static buffers

    def tensors(self) -> list[Tensor]:
        """The tensors that a step writes, and that `load` fills."""
        written = [self.ids_BN, self.done_at_B, self.live_score_BN, *([] if self.beam_BN is None else [self.beam_BN])]
        return [*self.state.tensors(), *written]

    def padded(self, n_sentences: int, model: ModelStep) -> "SearchSteps":
        """The same steps for as many sentences, on tensors and a model's step of their own."""
        static = copy(self)
        static.model = model
        state = SearchState(*(x.new_zeros(n_sentences, *x.shape[1:]) for x in self.state.tensors()))
        ids_BN, beam_BN = (
            None if x is None else x.new_zeros(n_sentences, x.size(1)) for x in (self.ids_BN, self.beam_BN)
        )
        assert ids_BN is not None
        static._continue(state, ids_BN, beam_BN)
        return static

    def load(self, other: "SearchSteps") -> None:
        """Go on with another search, whose sentences are fewer or as many; the rows behind them are done."""
        n_sentences = len(other.done_at_B)
        for own, new in zip(self.tensors(), other.tensors(), strict=True):
            own[:n_sentences].copy_(new)
        self.done_at_B[n_sentences:].fill_(1)
        self.length_1.copy_(other.length_1)
        self.broken_at_1.zero_()
        self.n_taken = other.n_taken


def log_probabilities(logits_RV: Tensor) -> Tensor:
    """log softmax, in float32 at least; on a CPU in the place of the logits, since new memory costs more than a pass.

    One kernel: on a CPU logsumexp alone takes twice as long as all of this.
    """
    dtype = torch.promote_types(logits_RV.dtype, torch.float32)
    if logits_RV.is_cpu and logits_RV.dtype is dtype:
        return torch.log_softmax(logits_RV, dim=-1, out=logits_RV)
    return logits_RV.log_softmax(dim=-1, dtype=dtype)


def first_row(state: SearchState) -> Tensor:
    """[B, 1]: of each sentence."""
    n_sentences, n_live = state.live_log_prob_BN.shape
    return torch.arange(0, n_sentences * n_live, n_live, device=state.live_log_prob_BN.device)[:, None]
