"""The searches over random tables: every prefix has its row of logits, so claims can be checked by hand or by force.

Shapes: B models, M prefixes, N hypotheses of a model that go on, R = B × N rows, V vocabulary.
"""

import itertools
import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.conftest import slow
from tests.support.each import each
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.decoding.search import NEAR_TIE, SEARCHES, ControlIds, Hypothesis, SearchRequest, rows_per_sentence
from transformer_cli.decoding.search import sampling as sampler
from transformer_cli.decoding.search import top_k as largest
from transformer_cli.decoding.search.loop import compact
from transformer_cli.decoding.search.scores import length_penalty
from transformer_cli.errors import CheckpointError

CONTROL = ControlIds(pad=2, bos=3, eos=5, unk=None)
WORDS = (0, 1, 4, 6)  # with EOS a vocabulary of five; PAD and BOS have logits as well, and must not be chosen
VOCABULARY = 7
LONGEST = 5
PREFIXES = sum(VOCABULARY**n for n in range(LONGEST))  # one table entry for each prefix that is shorter than LONGEST


@dataclass
class Tables:
    """A model for each sentence: its logits after prefix m. Prefixes are numbered like a heap, and wrap around."""

    logits_BMV: Tensor

    def child(self, node_R: Tensor, ids_R: Tensor) -> Tensor:
        return (node_R * self.logits_BMV.size(2) + ids_R + 1) % self.logits_BMV.size(1)

    def start(self, rows_per_sentence: int) -> "TableCache":
        n_sentences = len(self.logits_BMV)
        owner_R = torch.arange(n_sentences).repeat_interleave(rows_per_sentence)
        return TableCache(owner_R, torch.zeros_like(owner_R), torch.arange(n_sentences))

    def step(self, ids_R: Tensor, cache: "TableCache") -> Tensor:
        if cache.rows_seen:
            cache.node_R = self.child(cache.node_R, ids_R)
        else:
            assert (ids_R == CONTROL.bos).all()
        cache.rows_seen.append(len(ids_R))
        return self.logits_BMV[cache.owner_R, cache.node_R]


@dataclass
class TableCache:
    owner_R: Tensor
    node_R: Tensor
    sentence_B: Tensor
    rows_seen: list[int] = field(default_factory=list)

    def reorder(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        self.owner_R, self.node_R = self.owner_R[rows_R], self.node_R[rows_R]
        if sentences_B is not None:
            self.sentence_B = self.sentence_B[sentences_B]
        rows_of_each = len(self.owner_R) // len(self.sentence_B)
        assert self.owner_R.equal(self.sentence_B.repeat_interleave(rows_of_each)), "a row left its sentence"


def random_tables(n_models: int, *, seed: int, vocabulary: int = VOCABULARY, spread: float = 2.0) -> Tables:
    generator = torch.Generator().manual_seed(seed)
    shape = (n_models, PREFIXES, vocabulary)
    return Tables(spread * torch.randn(shape, generator=generator, dtype=torch.float64))


def run(
    tables: Tables, config: DecodeConfig, max_lengths: list[int], *, seeds: list[tuple[int, ...]] | None = None
) -> tuple[list[list[Hypothesis]], TableCache]:
    cache = tables.start(rows_per_sentence(config))
    seeds = [(1, b) for b in range(len(max_lengths))] if seeds is None else seeds
    request = SearchRequest(tables.step, cache, CONTROL, torch.tensor(max_lengths), config, seeds)
    return SEARCHES[config.search](request), cache


@each(
    "config",
    [
        DecodeConfig(search="greedy", beam_size=1),
        DecodeConfig(beam_size=3, n_best=3),
        DecodeConfig(beam_size=4, n_best=2, diversity_groups=2),
        DecodeConfig(search="sample", beam_size=1, n_best=5),
        DecodeConfig(beam_size=2, no_repeat_ngram=1, min_length=2),
    ],
)
def test_the_unknown_token_is_never_chosen_and_keeps_its_probability(config: DecodeConfig) -> None:
    tables, unk = random_tables(20, seed=31), WORDS[0]
    tables.logits_BMV[..., unk] += 5  # what every search would say
    cache, control = tables.start(rows_per_sentence(config)), replace(CONTROL, unk=unk)
    request = SearchRequest(tables.step, cache, control, torch.tensor([4] * 20), config, [(1, b) for b in range(20)])
    log_p_BMV = tables.logits_BMV.log_softmax(dim=-1)
    for b, hypotheses in enumerate(SEARCHES[config.search](request)):
        assert hypotheses
        for hypothesis in hypotheses:
            assert unk not in hypothesis.ids
            node, log_prob = torch.tensor([0]), 0.0
            for i in [*hypothesis.ids, *[CONTROL.eos] * hypothesis.finished]:
                log_prob += float(log_p_BMV[b, node, i])
                node = tables.child(node, torch.tensor([i]))
            assert hypothesis.log_prob == pytest.approx(log_prob)


def greedy() -> DecodeConfig:
    return DecodeConfig(search="greedy", beam_size=1)


def sampling(n_best: int, **options: float) -> DecodeConfig:
    return DecodeConfig(search="sample", beam_size=1, n_best=n_best, **options)


def every_sentence(tables: Tables, max_lengths: list[int], *, alpha: float, n_best: int) -> list[list[Hypothesis]]:
    """The best of all sentences that there are, by writing down all of them."""
    log_p_BMV = tables.logits_BMV.log_softmax(dim=-1)
    models = torch.arange(len(max_lengths))[:, None]
    longest_B1 = torch.tensor(max_lengths)[:, None]
    nodes, log_prob_BM = torch.zeros(1, dtype=torch.long), torch.zeros(len(max_lengths), 1, dtype=torch.float64)
    sentences: list[tuple[tuple[int, ...], bool]] = []  # and whether it ends
    scores, log_probs = [], []
    for length in range(LONGEST + 1):
        prefixes = list(itertools.product(WORDS, repeat=length))
        cut = (log_prob_BM, length, longest_B1 == length, False)
        ends_BM = log_prob_BM + log_p_BMV[models, nodes % PREFIXES, CONTROL.eos]
        for log_prob, n_tokens, exists, finished in (cut, (ends_BM, length + 1, longest_B1 > length, True)):
            behind = 0.0 if finished else -1e6  # the cut ones rank behind
            score = log_prob / ((5 + n_tokens) / 6) ** alpha + behind
            scores.append(score.masked_fill(~exists, -math.inf))
            log_probs.append(log_prob)
            sentences += [(ids, finished) for ids in prefixes]
        log_prob_BM = (log_prob_BM[..., None] + log_p_BMV[models, nodes % PREFIXES][..., WORDS]).flatten(1)
        nodes = (nodes[:, None] * VOCABULARY + torch.tensor(WORDS) + 1).flatten()
    best = torch.cat(scores, dim=1).topk(n_best)
    kept_log_probs = torch.cat(log_probs, dim=1).gather(1, best.indices)
    return [
        [
            Hypothesis(list(sentences[i][0]), score + (0 if sentences[i][1] else 1e6), log_prob, sentences[i][1])
            for score, i, log_prob in zip(*rows, strict=True)
            if score > -math.inf
        ]
        for rows in zip(best.values.tolist(), best.indices.tolist(), kept_log_probs.tolist(), strict=True)
    ]


def unhurried_beam(
    tables: Tables, model: int, *, beam_size: int, n_best: int, alpha: float, max_length: int, early: bool = False
) -> list[Hypothesis]:
    """Beam search in plain Python: it sorts every candidate by the rule, and never stops before the longest length.

    It does when `early`, as soon as N hypotheses have finished. The rule of fairseq: of the 2N likeliest candidates the
    first N finish a hypothesis if they end.
    """
    log_p = tables.logits_BMV[model].log_softmax(dim=-1).tolist()
    tokens = [v for v in range(len(log_p[0])) if v not in (CONTROL.pad, CONTROL.bos)]
    live: list[tuple[float, list[int], int]] = [(0.0, [], 0)]
    finished: list[Hypothesis] = []
    for n_tokens in range(1, max_length + 1):
        penalty = ((5 + n_tokens) / 6) ** alpha
        ordered = sorted(
            (-(log_prob + log_p[node][v]), v, beam) for beam, (log_prob, _, node) in enumerate(live) for v in tokens
        )
        going = []
        for place, (negative, v, beam) in enumerate(ordered[: 2 * beam_size]):
            _, ids, node = live[beam]
            if v == CONTROL.eos:
                if place < beam_size:
                    finished.append(Hypothesis(ids, -negative / penalty, -negative, finished=True))
            else:
                child = tables.child(torch.tensor(node), torch.tensor(v)).item()
                going.append((-negative, [*ids, v], int(child)))
        live = going[:beam_size]
        if early and len(finished) >= beam_size:
            break
    cut = [Hypothesis(ids, log_prob / penalty, log_prob, finished=False) for log_prob, ids, _ in live]
    by_score = [sorted(kind, key=lambda hypothesis: -hypothesis.score) for kind in (finished, cut)]
    return [*by_score[0], *by_score[1]][:n_best]


@pytest.mark.parametrize(("alpha", "first_seed"), [slow(0.0, 0), (0.6, 10), slow(1.0, 20), slow(2.5, 30)])
def test_beam_search_finds_what_trying_every_sentence_finds(alpha: float, first_seed: int) -> None:
    # 4 × 5 × 50 = 1,000 models. At most 4^4 prefixes live, with five continuations each: of these 1,280 the largest
    # beam loses ends among the last 280, which are none of the 8 best.
    config = DecodeConfig(beam_size=1000, n_best=8, length_penalty=alpha)
    for seed in range(first_seed, first_seed + 5):
        tables = random_tables(50, seed=seed)
        max_lengths = [1 + b % LONGEST for b in range(50)]
        found, _ = run(tables, config, max_lengths)
        expected = every_sentence(tables, max_lengths, alpha=alpha, n_best=8)
        assert [[(h.ids, h.finished) for h in row] for row in found] == [
            [(h.ids, h.finished) for h in row] for row in expected
        ]
        for ours, theirs in zip(itertools.chain(*found), itertools.chain(*expected), strict=True):
            assert ours.log_prob == pytest.approx(theirs.log_prob, abs=1e-9)
            assert ours.score == pytest.approx(theirs.score, abs=1e-9)


@pytest.mark.slow
@each("alpha", [0.0, 0.6, 3.0])
@each("beam_size, n_best", [(2, 1), (2, 2), (3, 1), (4, 4), (5, 2)])
def test_stopping_early_changes_nothing(beam_size: int, n_best: int, alpha: float) -> None:
    tables = random_tables(20, seed=beam_size, vocabulary=16)
    tables.logits_BMV[..., CONTROL.eos] += 2  # sentences of a few words
    config = DecodeConfig(beam_size=beam_size, n_best=n_best, length_penalty=alpha)
    max_lengths = [6 + b % 7 for b in range(20)]
    found, cache = run(tables, config, max_lengths)
    for b, max_length in enumerate(max_lengths):
        assert found[b] == unhurried_beam(
            tables, b, beam_size=beam_size, n_best=n_best, alpha=alpha, max_length=max_length
        )
    if alpha < 1:
        assert sum(cache.rows_seen) < 0.9 * beam_size * sum(max_lengths), "it did stop early"


@each("alpha", [0.6, 3.0])
@each("beam_size, n_best", [(2, 1), (3, 3), (4, 2)])
def test_early_stopping_ends_as_soon_as_the_beam_has_finished(beam_size: int, n_best: int, alpha: float) -> None:
    """It keeps what a search finds that goes on to the longest length, but for what ends later."""
    tables = random_tables(20, seed=beam_size, vocabulary=16)
    tables.logits_BMV[..., CONTROL.eos] += 1
    given = {"beam_size": beam_size, "n_best": n_best, "length_penalty": alpha}
    max_lengths = [6 + b % 7 for b in range(20)]
    found, cache = run(tables, DecodeConfig(**given, early_stopping=True), max_lengths)
    whole, whole_cache = run(tables, DecodeConfig(**given), max_lengths)
    assert sum(cache.rows_seen) < sum(whole_cache.rows_seen)
    assert found != whole or alpha < 1
    for b, longest in enumerate(max_lengths):
        known = {"beam_size": beam_size, "n_best": n_best, "alpha": alpha, "max_length": longest}
        best = unhurried_beam(tables, b, **known, early=True)
        assert found[b][0].score <= whole[b][0].score
        assert [h.ids for h in found[b] if h.finished] == [h.ids for h in best if h.finished]


@each("distinct", [1, 2, 3])
@each("beam_size", [2, 3, 5])
def test_D10_ties_go_to_the_lower_token_then_to_the_earlier_beam(beam_size: int, distinct: int) -> None:
    # Logits of 0, 1, …: many candidates are equal, more than a beam considers.
    tables = random_tables(20, seed=distinct, vocabulary=24)
    tables.logits_BMV = (tables.logits_BMV.abs() * 10).floor() % distinct
    config = DecodeConfig(beam_size=beam_size, n_best=beam_size)
    found, _ = run(tables, config, [4] * 20)
    for b in range(20):
        assert found[b] == unhurried_beam(tables, b, beam_size=beam_size, n_best=beam_size, alpha=0.6, max_length=4)


def test_D10_two_runs_are_equal() -> None:
    tables = random_tables(10, seed=0)
    tables.logits_BMV.round_()
    assert run(tables, DecodeConfig(), [5] * 10)[0] == run(tables, DecodeConfig(), [5] * 10)[0]


def test_D10_greedy_takes_the_lowest_of_equal_tokens() -> None:
    tables = Tables(torch.zeros(1, PREFIXES, VOCABULARY))
    tables.logits_BMV[..., 0] = -1
    (best,), _ = run(tables, greedy(), [3])
    assert best[0].ids == [1, 1, 1]


def test_the_lowest_of_the_largest_are_chosen_among_equals() -> None:
    x_RV = torch.tensor([[3.0, 5.0, 3.0, 3.0, 1.0], [0.0, 0.0, 0.0, 0.0, 0.0], [-math.inf, 2.0, 1.0, 2.0, -math.inf]])
    chosen = [sorted(row) for row in largest.lowest_of_the_largest(x_RV, 3).tolist()]
    assert chosen == [[0, 1, 2], [0, 1, 2], [1, 2, 3]]


def test_D11_a_beam_of_one_is_greedy_search() -> None:
    tables = random_tables(200, seed=3)
    max_lengths = [1 + b % 9 for b in range(200)]
    by_greedy, _ = run(tables, greedy(), max_lengths)
    by_beam, _ = run(tables, DecodeConfig(beam_size=1), max_lengths)
    assert by_greedy == by_beam
    for b, max_length in enumerate(max_lengths):
        ids, node, log_prob = [], torch.tensor(0), 0.0
        while len(ids) < max_length and CONTROL.eos not in ids:
            log_p_V = tables.logits_BMV[b, node].log_softmax(dim=-1)
            ids.append(max((*WORDS, CONTROL.eos), key=lambda v: float(log_p_V[v])))
            node, log_prob = tables.child(node, torch.tensor(ids[-1])), log_prob + float(log_p_V[ids[-1]])
        (best,) = by_greedy[b]
        assert best.finished == (CONTROL.eos in ids)
        assert best.ids == [v for v in ids if v != CONTROL.eos]
        assert best.log_prob == pytest.approx(log_prob, abs=1e-9)
        assert best.score == pytest.approx(log_prob / ((5 + len(ids)) / 6) ** 0.6, abs=1e-9)


@pytest.mark.parametrize("config", [greedy(), DecodeConfig(n_best=3), sampling(3)], ids=["greedy", "beam", "sample"])
def test_D12_without_an_end_it_stops_at_the_limit_and_says_so(config: DecodeConfig) -> None:
    tables = random_tables(4, seed=5)
    tables.logits_BMV[..., CONTROL.eos] = -math.inf
    found, cache = run(tables, config, [3, 1, 8, 8])
    assert [{(len(h.ids), h.finished) for h in row} for row in found] == [{(n, False)} for n in (3, 1, 8, 8)]
    assert [len(row) for row in found] == [config.n_best] * 4
    assert len(cache.rows_seen) == 8


def test_a_cut_hypothesis_ranks_behind_a_finished_one() -> None:
    logits_V = torch.tensor([0.9, 0.0, 0.0, 0.0, 0.0, 0.1, 0.0], dtype=torch.float64).log()  # word 0, EOS
    tables = Tables(logits_V.repeat(1, PREFIXES, 1))
    (found,), _ = run(tables, DecodeConfig(beam_size=2, n_best=2, length_penalty=0.0), [1])
    assert [(h.ids, h.finished) for h in found] == [([], True), ([0], False)]
    assert [h.log_prob for h in found] == pytest.approx([math.log(0.1), math.log(0.9)])


@each(
    "n_tokens, alpha, expected",
    [(1, 0.6, 1.0), (7, 1.0, 2.0), (7, 0.6, 1.515717), (13, 0.6, 1.933182), (25, 0.5, 2.236068), (99, 0.0, 1.0)],
)
def test_length_penalty_by_hand(n_tokens: int, alpha: float, expected: float) -> None:
    assert length_penalty(n_tokens, alpha) == pytest.approx(expected, abs=1e-6)  # 2^0.6, 3^0.6, √5


@pytest.mark.parametrize(("alpha", "expected"), [(0.0, [[], [0]]), (0.6, [[], [0]]), (1.0, [[0], []])])
def test_the_length_penalty_lets_a_longer_sentence_win(alpha: float, expected: list[list[int]]) -> None:
    # p("") = 0.5 and p("0") = 0.5 · 0.9, so ln: -0.6931 and -0.7985. The second is divided by (7/6)^α:
    # 1.0969 for α = 0.6, which gives -0.7279, and 1.1667 for α = 1, which gives -0.6844.
    tables = Tables(torch.full((1, PREFIXES, VOCABULARY), -math.inf, dtype=torch.float64))
    tables.logits_BMV[0, 0, [0, CONTROL.eos]] = torch.tensor([0.5, 0.5], dtype=torch.float64).log()
    tables.logits_BMV[0, 1:, 1] = math.log(0.1)
    tables.logits_BMV[0, 1:, CONTROL.eos] = math.log(0.9)
    (found,), _ = run(tables, DecodeConfig(beam_size=4, n_best=2, length_penalty=alpha), [4])
    assert [h.ids for h in found] == expected
    by_hand = {0.0: [-0.6931, -0.7985], 0.6: [-0.6931, -0.7279], 1.0: [-0.6844, -0.6931]}
    assert [h.score for h in found] == pytest.approx(by_hand[alpha], abs=1e-4)


@pytest.mark.parametrize("config", [greedy(), DecodeConfig(), sampling(2)], ids=["greedy", "beam", "sample"])
def test_finished_sentences_leave_the_batch(config: DecodeConfig) -> None:
    tables = Tables(torch.full((3, 50, VOCABULARY), -30.0, dtype=torch.float64))
    node = torch.tensor(0)
    for length in range(4):  # model b says word 0 for b steps, and then stops
        for b in range(3):
            tables.logits_BMV[b, node, CONTROL.eos if length >= b else 0] = 0
        node = tables.child(node, torch.tensor(0))
    found, cache = run(tables, config, [9, 9, 9])
    assert [row[0].ids for row in found] == [[], [0], [0, 0]]
    n_rows = rows_per_sentence(config)
    assert cache.rows_seen == [3 * n_rows, 2 * n_rows, 1 * n_rows]


@each("done", ["0", "1", "01", "10", "110", "0110", "10010", "01011101", "11100"])
def test_no_more_sentences_move_than_leave(done: str) -> None:
    leaving, staying = compact([c == "1" for c in done])
    assert leaving == [b for b, c in enumerate(done) if c == "1"]
    assert sorted(leaving + staying) == list(range(len(done)))
    moved = {b: staying[b] for b in range(len(staying)) if staying[b] != b}
    assert set(moved) == {b for b in leaving if b < len(staying)}, "only the indices of those that leave are filled"


@pytest.mark.parametrize("config", [greedy(), DecodeConfig(n_best=4), sampling(4)], ids=["greedy", "beam", "sample"])
def test_a_sentence_does_not_depend_on_its_batch(config: DecodeConfig) -> None:
    tables = random_tables(12, seed=8)
    max_lengths = [1 + b % 7 for b in range(12)]
    together, _ = run(tables, config, max_lengths)
    for b in range(12):
        alone, _ = run(Tables(tables.logits_BMV[[b]]), config, [max_lengths[b]], seeds=[(1, b)])
        assert alone == [together[b]]
    backwards = run(
        Tables(tables.logits_BMV.flip(0)), config, max_lengths[::-1], seeds=[(1, b) for b in reversed(range(12))]
    )[0]
    assert backwards[::-1] == together


@pytest.mark.parametrize("config", [greedy(), DecodeConfig(n_best=4), sampling(4)], ids=["greedy", "beam", "sample"])
def test_pad_and_bos_are_never_generated_but_keep_their_probability(config: DecodeConfig) -> None:
    tables = random_tables(20, seed=9)
    tables.logits_BMV[..., [CONTROL.pad, CONTROL.bos]] += 5
    log_p_BMV = tables.logits_BMV.log_softmax(dim=-1)
    found, _ = run(tables, config, [4] * 20)
    for b, row in enumerate(found):
        for hypothesis in row:
            assert set(hypothesis.ids) <= set(WORDS)
            node, log_prob = torch.tensor(0), 0.0
            for token in [*hypothesis.ids, *([CONTROL.eos] if hypothesis.finished else [])]:
                log_prob += float(log_p_BMV[b, node, token])
                node = tables.child(node, torch.tensor(token))
            assert hypothesis.log_prob == pytest.approx(log_prob, abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_precision_of_logits_is_searched(dtype: torch.dtype) -> None:
    tables = random_tables(10, seed=4, spread=4.0)
    tables.logits_BMV = tables.logits_BMV.round()  # which bfloat16 holds exactly
    expected, _ = run(tables, DecodeConfig(n_best=4), [5] * 10)
    found, _ = run(Tables(tables.logits_BMV.to(dtype)), DecodeConfig(n_best=4), [5] * 10)
    for ours, theirs in zip(itertools.chain(*found), itertools.chain(*expected), strict=True):
        assert ours.log_prob == pytest.approx(theirs.log_prob, abs=1e-5)


@each("config", [greedy(), DecodeConfig(), sampling(2), sampling(2, top_p=0.5, top_k=3)])
@each("bad", [math.nan, math.inf])
def test_logits_that_are_not_numbers_are_refused(config: DecodeConfig, bad: float) -> None:
    tables = random_tables(3, seed=6)
    tables.logits_BMV[..., CONTROL.eos] = -math.inf
    tables.logits_BMV[1, 1:] = bad
    with pytest.raises(CheckpointError, match=r"not numbers .* at token 2 .* use an earlier checkpoint"):
        run(tables, config, [4, 4, 4])


def drawn_tokens(logits_V: Tensor, *, n_sentences: int = 2, **options: float) -> np.ndarray:
    """How often each token came in 1,000 samples of each sentence."""
    tables = Tables(logits_V.repeat(n_sentences, 1, 1))
    found, _ = run(tables, sampling(1000, **options), [1] * n_sentences)
    tokens = [(*h.ids, CONTROL.eos)[0] for row in found for h in row]
    return np.bincount(tokens, minlength=VOCABULARY)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_samples_are_as_frequent_as_the_model_says(temperature: float) -> None:
    logits_V = torch.tensor([1.0, -0.5, 3.0, 2.0, 0.3, 0.8, -1.0], dtype=torch.float64)
    counts = drawn_tokens(logits_V, n_sentences=20, temperature=temperature)
    allowed = [*WORDS, CONTROL.eos]
    expected = 20_000 * (logits_V[allowed] / temperature).softmax(dim=-1).numpy()
    assert counts[[CONTROL.pad, CONTROL.bos]].sum() == 0
    chi_square = ((counts[allowed] - expected) ** 2 / expected).sum()
    assert chi_square < 23.5  # exceeded with a probability of 1e-4 at 4 degrees of freedom


def test_top_k_and_top_p_leave_only_the_likeliest() -> None:
    logits_V = torch.tensor([0.4, 0.1, 0.0, 0.0, 0.3, 0.15, 0.05], dtype=torch.float64).log()
    assert set(drawn_tokens(logits_V, top_k=2).nonzero()[0]) == {0, 4}
    assert set(drawn_tokens(logits_V, top_p=0.39).nonzero()[0]) == {0}
    assert set(drawn_tokens(logits_V, top_p=0.41).nonzero()[0]) == {0, 4}
    assert set(drawn_tokens(logits_V, top_p=0.80).nonzero()[0]) == {0, 4, 5}
    assert set(drawn_tokens(logits_V, top_p=1.0).nonzero()[0]) == {0, 1, 4, 5, 6}
    # Of the two likeliest, 0.4 / 0.7 = 0.57 belongs to the first.
    assert set(drawn_tokens(logits_V, top_k=2, top_p=0.5).nonzero()[0]) == {0}


def test_top_p_reaches_as_far_into_a_large_vocabulary_as_it_must() -> None:
    p_RV = torch.stack([torch.arange(1, 6001), torch.ones(6000)]).double()
    p_RV[1, 7] = 1e6  # the first row needs thousands of tokens, the second one
    kept_RV = sampler.keep_top_p(p_RV, 0.7499) > 0
    # 3001 to 6000 hold 13,501,500 of 18,003,000, which is 0.74996; without 3001 it is 0.74979.
    assert kept_RV[0].nonzero().flatten().tolist() == list(range(3000, 6000))
    assert kept_RV[1].nonzero().flatten().tolist() == [7]


def test_a_draw_never_falls_on_what_is_impossible() -> None:
    p_RV = torch.tensor([[0.0, 0.5, 0.0, 0.5, 0.0]]).expand(4, -1)
    draw_R1 = torch.tensor([[0.0], [0.49], [0.5], [1 - 2**-24]], dtype=torch.float64)
    assert sampler.draw(p_RV, draw_R1).tolist() == [1, 1, 3, 3]


def test_samples_repeat_with_their_seed_and_change_with_another() -> None:
    tables = random_tables(5, seed=7)
    first, again, other = (
        run(tables, sampling(4), [5] * 5, seeds=[(seed, b) for b in range(5)])[0] for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_a_sample_does_not_depend_on_how_many_are_drawn() -> None:
    tables = random_tables(5, seed=7)
    few, many = (run(tables, sampling(n), [5] * 5)[0] for n in (3, 6))
    for b in range(5):
        assert (len(few[b]), len(many[b])) == (3, 6)
        ids_of_many = [h.ids for h in many[b]]
        assert all(h.ids in ids_of_many for h in few[b])
        assert many[b] == sorted(many[b], key=lambda h: (not h.finished, -h.score))


def test_equal_samples_are_no_close_call() -> None:
    tables = Tables(torch.zeros(40, PREFIXES, VOCABULARY, dtype=torch.float64))
    tables.logits_BMV[:, 0, 0] += 0.5 * NEAR_TIE
    tables.logits_BMV[:, 1:, CONTROL.eos] += 30  # after a word
    found, _ = run(tables, sampling(2, length_penalty=0.0), [3] * 40)
    are_equal = [one.ids == other.ids for one, other in found]
    assert [one.is_near_tie for one, _ in found] == [not equal for equal in are_equal]
    assert any(are_equal)
    assert not all(are_equal)


def test_a_cold_sample_is_greedy() -> None:
    tables = random_tables(50, seed=2)
    assert run(tables, sampling(1, temperature=0.001), [5] * 50)[0] == run(tables, greedy(), [5] * 50)[0]
