"""A record of a search: the likeliest tokens of every step, and what became of each continuation.

A search that is asked for one records it as it goes, so that it is the record of the very choices that gave the
hypotheses. It costs a copy to the host in every step, and nothing where it is not asked for.

Shapes: B sentences, N live hypotheses of each, C continuations, K likeliest tokens, V vocabulary, R = B × N rows (row
b·N + n is hypothesis n of sentence b).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

import torch
from torch import Tensor

ROOT = 0  # the empty hypothesis, with which every search begins


class Fate(Enum):
    """What a step does with a continuation that it considers."""

    kept = "kept"  # it is live in the next step
    finished = "finished"  # it ends with EOS
    dropped = "dropped"  # others are better


@dataclass(frozen=True)
class TokenOption:
    """One of the likeliest next tokens of a hypothesis."""

    id: int
    log_prob: float  # of the model, natural logarithm
    allowed: bool  # False: a logits processor bans it
    drawn: float | None = None  # sampling: its probability after temperature, top_k and top_p


@dataclass(frozen=True)
class Continuation:
    """A hypothesis that a step considers: one of the step before, and one more token."""

    parent: int  # index in `SearchTrace.nodes`
    token: int
    token_log_prob: float
    log_prob: float  # of the whole hypothesis
    score: float  # normalised for its length
    fate: Fate
    lacks_terms: bool = False  # finished without a term that it must contain: ranks behind those that lack none
    drawn: float | None = None  # sampling: the probability that the token was drawn with


@dataclass
class SearchTrace:
    """One sentence's search: a tree of hypotheses, those of each step together, and the empty one before all."""

    nodes: list[Continuation] = field(default_factory=lambda: [Continuation(-1, -1, 0.0, 0.0, 0.0, Fate.kept)])
    depths: list[int] = field(default_factory=lambda: [0])  # tokens of each node, EOS counted
    children: dict[int, list[int]] = field(default_factory=dict)  # by node
    options: dict[int, list[TokenOption]] = field(default_factory=dict)  # by node: its likeliest next tokens
    live: list[int] = field(default_factory=list)  # nodes that were live when the search ended

    def add(self, node: Continuation) -> int:
        self.nodes.append(node)
        self.depths.append(self.depths[node.parent] + 1)
        self.children.setdefault(node.parent, []).append(len(self.nodes) - 1)
        return len(self.nodes) - 1

    def path(self, node: int) -> list[int]:
        """The node's hypotheses of one token, of two, … up to itself."""
        found = []
        while node != ROOT:
            found.append(node)
            node = self.nodes[node].parent
        return found[::-1]

    def find(self, ids: Sequence[int], *, finished: bool) -> list[int]:
        """The nodes of a hypothesis, given without BOS and EOS: samples and groups may find several equal ones."""
        fates = [Fate.kept] * len(ids) + [Fate.finished] * finished
        nodes = [ROOT]
        for depth, fate in enumerate(fates, start=1):
            token = ids[depth - 1] if depth <= len(ids) else None
            nodes = [n for node in nodes for n in self._children(node, token, fate)]
        return nodes

    def _children(self, parent: int, token: int | None, fate: Fate) -> Iterator[int]:
        for index in self.children.get(parent, ()):
            node = self.nodes[index]
            if node.fate is fate and token in (None, node.token):
                yield index

    def ranking(self) -> list[int]:
        """The hypotheses that finished, then those that were truncated, best first."""
        finished = [index for index, node in enumerate(self.nodes) if node.fate is Fate.finished]
        finished.sort(key=lambda index: (self.nodes[index].lacks_terms, -self.nodes[index].score))
        return [*finished, *sorted(self.live, key=lambda index: -self.nodes[index].score)]


@dataclass
class _Considered:
    """The continuations that a step considers, of all sentences. `parent_BC` are indices of live hypotheses."""

    ids_BC: Tensor
    parent_BC: Tensor
    log_prob_BC: Tensor
    score_BC: Tensor
    finishes_BC: Tensor
    lacks_terms_BC: Tensor | None = None


class TraceRecorder:
    """Records the search of a batch; `SearchSteps` calls it in every step, and the search for what it considers."""

    def __init__(self, n_sentences: int, n_likeliest: int) -> None:
        self.traces = [SearchTrace() for _ in range(n_sentences)]
        self.n_likeliest = n_likeliest
        self.live: list[list[int | None]] = []  # the node of each live hypothesis of each sentence
        self.considered: list[_Considered] = []
        self.log_p_RV = self.drawn_RV = torch.empty(0)

    def start_step(self, log_p_RV: Tensor, n_live: int) -> None:
        """The distributions of the model, before any token is banned."""
        self.log_p_RV, self.drawn_RV = log_p_RV.clone(), torch.empty(0)
        self.live = self.live or [[ROOT] * n_live for _ in self.traces]

    def restart(self) -> None:
        """The choices of the step are made anew."""
        self.considered = []

    def drawn_from(self, p_RV: Tensor) -> None:
        """The distributions that tokens are drawn from."""
        self.drawn_RV = p_RV / p_RV.sum(dim=-1, keepdim=True)

    def consider(
        self,
        ids_BC: Tensor,
        parent_BC: Tensor,
        log_prob_BC: Tensor,
        *,
        score_BC: Tensor,
        finishes_BC: Tensor,
        lacks_terms_BC: Tensor | None = None,
    ) -> None:
        """Continuations in the order in which they are taken; those of probability 0 are left out."""
        self.considered.append(_Considered(ids_BC, parent_BC, log_prob_BC, score_BC, finishes_BC, lacks_terms_BC))

    def end_step(
        self,
        sentence_index_B: Tensor,
        before_BN: Tensor,
        processed_RV: Tensor,
        *,
        ids_BN: Tensor,
        beam_BN: Tensor | None,
        log_prob_BN: Tensor,
    ) -> None:
        """`before_BN` are the log-probabilities of the live hypotheses; the others belong to those after the step.

        `processed_RV` has -inf for banned tokens.
        """
        n_sentences, n_live = ids_BN.shape
        options = self._options(processed_RV)
        is_live = (before_BN > -math.inf).tolist()
        for b, sentence in enumerate(sentence_index_B.tolist()):
            trace, live = self.traces[sentence], self.live[sentence]
            for n in range(n_live):
                if (node := live[n]) is not None and is_live[b][n]:
                    trace.options[node] = options[b * n_live + n]
        parents = beam_BN.tolist() if beam_BN is not None else [list(range(n_live))] * n_sentences
        kept = [
            {(parent, token): n for n, (parent, token, p) in enumerate(zip(*row, strict=True)) if p > -math.inf}
            for row in zip(parents, ids_BN.tolist(), log_prob_BN.tolist(), strict=True)
        ]
        new: list[list[int | None]] = [[None] * n_live for _ in kept]
        for part in self.considered:
            self._add(part, sentence_index_B.tolist(), kept, new)
        for sentence, nodes in zip(sentence_index_B.tolist(), new, strict=True):
            self.live[sentence] = nodes
            self.traces[sentence].live = [node for node in nodes if node is not None]

    def _options(self, processed_RV: Tensor) -> list[list[TokenOption]]:
        """The likeliest tokens of each row."""
        top_RK = self.log_p_RV.topk(min(self.n_likeliest, self.log_p_RV.size(1)))
        allowed_RK = processed_RV.gather(1, top_RK.indices) > -math.inf
        drawn: list[list[float | None]] = [[None] * top_RK.indices.size(1)] * len(top_RK.indices)
        if self.drawn_RV.numel():
            drawn = self.drawn_RV.gather(1, top_RK.indices).tolist()
        columns = top_RK.indices.tolist(), top_RK.values.double().tolist(), allowed_RK.tolist(), drawn
        return [[TokenOption(*one) for one in zip(*row, strict=True)] for row in zip(*columns, strict=True)]

    def _add(
        self,
        part: _Considered,
        sentences: Sequence[int],
        kept: Sequence[dict[tuple[int, int], int]],
        new: Sequence[list[int | None]],
    ) -> None:
        n_live = len(new[0])
        row_BC = torch.arange(len(sentences), device=part.ids_BC.device)[:, None] * n_live + part.parent_BC
        token_BC = self.log_p_RV[row_BC, part.ids_BC].double()
        drawn_BC = self.drawn_RV[row_BC, part.ids_BC].tolist() if self.drawn_RV.numel() else None
        lacks_BC = part.lacks_terms_BC.tolist() if part.lacks_terms_BC is not None else None
        columns = (part.parent_BC, part.ids_BC, token_BC, part.log_prob_BC, part.score_BC, part.finishes_BC)
        for b, row in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            before = self.live[sentences[b]]
            for c, (parent, token, token_log_prob, log_prob, score, finishes) in enumerate(zip(*row, strict=True)):
                node = before[parent]
                if node is None or log_prob == -math.inf:
                    continue
                slot = None if finishes else kept[b].get((parent, token))
                fate = Fate.finished if finishes else Fate.dropped if slot is None else Fate.kept
                lacks = finishes and lacks_BC is not None and lacks_BC[b][c]
                drawn = None if drawn_BC is None else drawn_BC[b][c]
                index = self.traces[sentences[b]].add(
                    Continuation(node, token, token_log_prob, log_prob, score, fate, lacks, drawn)
                )
                if slot is not None:
                    new[b][slot] = index
