"""What can be asked of a search, each option held against all sentences that there are, filtered by its rule.

Shapes: B models, M prefixes, N hypotheses of a model that go on, S source, R = B × N rows, V vocabulary.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.decoding.test_search import (
    CONTROL,
    PREFIXES,
    VOCABULARY,
    WORDS,
    TableCache,
    Tables,
    greedy,
    random_tables,
    sampling,
)
from tests.support.each import each
from transformer_cli.config.decode import DecodeConfig, LengthNormalization
from transformer_cli.decoding.search import (
    SEARCHES,
    Constraints,
    Hypothesis,
    SearchRequest,
    longest_translation,
    rows_per_sentence,
)
from transformer_cli.decoding.search.automaton import automaton
from transformer_cli.decoding.search.constraints import unsatisfied_terms
from transformer_cli.decoding.search.loop import may_swap
from transformer_cli.decoding.search.top_k import CHUNK, FEW, NEAR_TIE, largest, largest_sums, largest_two

NO_CONSTRAINTS = Constraints()
LONGEST = 4  # tokens; an end after at most three words, of which there are four: 85 finished sentences
EVERY = 320  # a beam that loses no end: of at most 4^3 prefixes, with five continuations each


@dataclass
class AttendingTables(Tables):
    """Tables with cross-attention after each prefix."""

    attention_BMS: Tensor

    def step(self, ids_R: Tensor, cache: TableCache) -> Tensor:
        logits_RV = super().step(ids_R, cache)
        attention_RS = self.attention_BMS[cache.owner_R, cache.node_R]
        cache.attention_BNS = attention_RS.view(len(cache.sentence_B), -1, attention_RS.size(1))  # type: ignore[attr-defined]
        return logits_RV


def attending_tables(n_models: int, *, seed: int, source_lengths: list[int]) -> AttendingTables:
    tables = random_tables(n_models, seed=seed)
    generator = torch.Generator().manual_seed(seed + 1)
    logits_BMS = 2 * torch.randn((n_models, PREFIXES, max(source_lengths)), generator=generator, dtype=torch.float64)
    is_padding_BS = torch.arange(max(source_lengths)) >= torch.tensor(source_lengths)[:, None]
    return AttendingTables(tables.logits_BMV, logits_BMS.masked_fill(is_padding_BS[:, None], -math.inf).softmax(dim=-1))


def run(
    tables: Tables,
    config: DecodeConfig,
    max_lengths: list[int],
    *,
    constraints: list[Constraints] | None = None,
    source_lengths: list[int] | None = None,
    numbers: list[int] | None = None,
) -> list[list[Hypothesis]]:
    numbers = list(range(len(max_lengths))) if numbers is None else numbers
    request: SearchRequest[Any] = SearchRequest(
        tables.step,
        tables.start(rows_per_sentence(config)),
        CONTROL,
        torch.tensor(max_lengths),
        config,
        seeds=[(1, b) for b in numbers],
        constraints=constraints or [],
        source_lengths_B=None if source_lengths is None else torch.tensor(source_lengths),
    )
    return SEARCHES[config.search](request)


def every_hypothesis(tables: Tables, b: int, config: DecodeConfig, max_length: int) -> Iterator[Hypothesis]:
    """All that a model can say, scored as Wu et al. 2016, equation 14, write it down."""
    log_p = tables.logits_BMV[b].log_softmax(dim=-1).tolist()
    for n_words in range(max_length + 1):
        for words in itertools.product(WORDS, repeat=n_words):
            for finished in (True, False):
                ids_and_end = [*words, *([CONTROL.eos] if finished else [])]
                if (len(ids_and_end) > max_length) if finished else (len(ids_and_end) != max_length):
                    continue
                nodes = [torch.tensor(0)]
                for token in ids_and_end[:-1]:
                    nodes.append(tables.child(nodes[-1], torch.tensor(token)))
                log_prob = sum(log_p[int(node)][token] for node, token in zip(nodes, ids_and_end, strict=True))
                score = log_prob
                if config.length_normalization is LengthNormalization.gnmt:
                    score /= ((5 + len(ids_and_end)) / 6) ** config.alpha
                elif config.length_normalization is LengthNormalization.average:
                    score /= len(ids_and_end)
                if isinstance(tables, AttendingTables):
                    sums_S = sum(tables.attention_BMS[b, int(node)] for node in nodes)
                    assert isinstance(sums_S, Tensor)
                    score += config.coverage_penalty * sum(math.log(min(x, 1)) for x in sums_S.tolist() if x > 0)
                yield Hypothesis(list(words), score, log_prob, finished)


def is_allowed(hypothesis: Hypothesis, config: DecodeConfig, required: Constraints) -> bool:
    ids, n, n_forced = hypothesis.ids, config.no_repeat_ngram, len(required.prefix)
    if tuple(ids[:n_forced]) != required.prefix[: len(ids)] or (hypothesis.finished and len(ids) < n_forced):
        return False
    if hypothesis.finished and len(ids) < config.min_length:
        return False
    for end in range(max(n or 0, n_forced + 1), len(ids) + 1) if n else ():
        earlier = [ids[i : i + n] for i in range(end - n)]
        if ids[end - n : end] in earlier:
            return False
    return True


def lacking(ids: list[int], terms: tuple[tuple[int, ...], ...]) -> int:
    """How many terms are missing, each as often as it is."""
    text = "".join(map(str, ids))
    counts = Counter("".join(map(str, term)) for term in terms)
    return sum(max(0, n - sum(text.startswith(term, i) for i in range(len(text)))) for term, n in counts.items())


TERMS = [(), ((1,),), ((0, 1),), ((4, 4), (4,)), ((6,), (6,)), ((1, 0), (0, 4)), ((1, 4, 6),), ((0,), (1,), (4,))]
PREFIXES_ASKED = [(), (1,), (4, 4), (), (6, 0, 6)]
OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"length_normalization": LengthNormalization.average}, ""),
    ({"length_normalization": LengthNormalization.none}, ""),
    ({"coverage_penalty": 0.3}, ""),
    ({"coverage_penalty": 2.0, "length_normalization": LengthNormalization.average}, ""),
    ({"no_repeat_ngram": 1}, ""),
    ({"no_repeat_ngram": 2}, ""),
    ({"min_length": 2}, ""),
    ({"no_repeat_ngram": 1, "min_length": 3}, "prefix"),
    ({}, "prefix"),
    ({}, "terms"),
    ({"length_normalization": LengthNormalization.average, "min_length": 2}, "prefix terms"),
    ({"no_repeat_ngram": 2, "coverage_penalty": 0.3}, "terms"),
]


def asked(what: str, n: int) -> list[Constraints]:
    return [
        Constraints(
            prefix=PREFIXES_ASKED[b % len(PREFIXES_ASKED)] if "prefix" in what else (),
            terms=TERMS[b % len(TERMS)] if "terms" in what else (),
        )
        for b in range(n)
    ]


@pytest.mark.parametrize(("options", "what"), OPTIONS, ids=str)
@pytest.mark.parametrize("n_models", [8, pytest.param(200, marks=pytest.mark.nightly)])
def test_an_option_finds_what_trying_every_sentence_finds(n_models: int, options: dict[str, Any], what: str) -> None:
    source_lengths = [2 + b % 3 for b in range(n_models)]
    tables = attending_tables(n_models, seed=n_models, source_lengths=source_lengths)
    config, constraints = DecodeConfig(beam_size=EVERY, n_best=3, **options), asked(what, n_models)
    found = run(tables, config, [LONGEST] * n_models, constraints=constraints, source_lengths=source_lengths)
    for b, required in enumerate(constraints):
        expected = sorted(
            (h for h in every_hypothesis(tables, b, config, LONGEST) if is_allowed(h, config, required)),
            key=lambda h: (not h.finished, lacking(h.ids, required.terms) > 0 and h.finished, -h.score),
        )[:3]
        assert [(h.ids, h.finished) for h in found[b]] == [(h.ids, h.finished) for h in expected]
        assert [len(h.unsatisfied) for h in found[b]] == [lacking(h.ids, required.terms) for h in expected]
        assert [h.log_prob for h in found[b]] == pytest.approx([h.log_prob for h in expected], abs=1e-9)
        assert [h.score for h in found[b]] == pytest.approx([h.score for h in expected], abs=1e-9)


EVERYTHING: dict[str, Any] = {"coverage_penalty": 0.3, "no_repeat_ngram": 2, "min_length": 1}


@each(
    "config, what",
    [
        (DecodeConfig(n_best=4), "prefix terms"),
        (DecodeConfig(beam_size=1, length_penalty=3.0), "terms"),
        (DecodeConfig(beam_size=2, length_penalty=3.0), "terms"),
        (DecodeConfig(n_best=4, **EVERYTHING), "prefix terms"),
        (DecodeConfig(beam_size=6, n_best=4, diversity_groups=3, **EVERYTHING), "prefix"),
        (DecodeConfig(search=greedy().search, beam_size=1, **EVERYTHING), "prefix"),
        (sampling(3, **EVERYTHING), "prefix"),
    ],
)
def test_no_demand_of_a_neighbour_matters(config: DecodeConfig, what: str) -> None:
    max_lengths, source_lengths = [3 + b % 5 for b in range(12)], [2 + b % 3 for b in range(12)]
    tables = attending_tables(12, seed=5, source_lengths=source_lengths)
    constraints = [NO_CONSTRAINTS if b % 3 == 0 else required for b, required in enumerate(asked(what, 12))]
    together = run(tables, config, max_lengths, constraints=constraints, source_lengths=source_lengths)
    for b, required in enumerate(constraints):
        alone = run(
            AttendingTables(tables.logits_BMV[[b]], tables.attention_BMS[[b], :, : source_lengths[b]]),
            config,
            [max_lengths[b]],
            constraints=[required] if required != NO_CONSTRAINTS else None,
            source_lengths=[source_lengths[b]],
            numbers=[b],
        )[0]
        assert [(h.ids, h.log_prob, h.finished, h.unsatisfied) for h in alone] == [
            (h.ids, h.log_prob, h.finished, h.unsatisfied) for h in together[b]
        ]
        assert [h.score for h in alone] == pytest.approx([h.score for h in together[b]], abs=1e-9)


@each("options", [{}, *(options for options, what in OPTIONS if not what)])
def test_D11_a_beam_of_one_is_greedy_search_with_every_option(options: dict[str, Any]) -> None:
    source_lengths = [2 + b % 3 for b in range(20)]
    tables = attending_tables(20, seed=6, source_lengths=source_lengths)
    by_greedy, by_beam = (
        run(tables, config, [7] * 20, constraints=asked("prefix", 20), source_lengths=source_lengths)
        for config in (
            DecodeConfig(search=greedy().search, beam_size=1, **options),
            DecodeConfig(beam_size=1, **options),
        )
    )
    assert by_greedy == by_beam
    for row, required in zip(by_greedy, asked("prefix", 20), strict=True):
        assert tuple(row[0].ids[: len(required.prefix)]) == required.prefix


@pytest.mark.parametrize("beam_size", [1, 2, 4])
def test_every_term_is_met_that_has_room(beam_size: int) -> None:
    constraints = asked("terms", 40)
    lengths = [sum(map(len, required.terms)) + 1 for required in constraints]
    tables = random_tables(40, seed=beam_size)
    tables.logits_BMV[..., CONTROL.eos] += 4  # which would rather say nothing
    for room, required, row in zip(
        lengths,
        constraints,
        run(tables, DecodeConfig(beam_size=beam_size), lengths, constraints=constraints),
        strict=True,
    ):
        assert row[0].finished or not required.terms, room  # without terms it is a beam that may be too small
        assert lacking(row[0].ids, required.terms) == 0
        assert row[0].unsatisfied == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "what"),
    [
        (DecodeConfig(search=greedy().search, beam_size=1), ""),
        (DecodeConfig(beam_size=2, n_best=2), ""),
        (DecodeConfig(beam_size=4), ""),
        (DecodeConfig(beam_size=1), "terms"),
        (DecodeConfig(beam_size=2), "terms"),
        (DecodeConfig(beam_size=4, n_best=2), "terms"),
        (DecodeConfig(beam_size=4, n_best=2, diversity_groups=2), ""),
    ],
    ids=["greedy", "beam of 2", "beam of 4", "terms, 1", "terms, 2", "terms, 4", "groups"],
)
@pytest.mark.parametrize("n_models", [200, pytest.param(5_000, marks=pytest.mark.nightly)])
def test_what_noise_changes_has_been_marked_as_close(n_models: int, config: DecodeConfig, what: str) -> None:
    # All prefixes have the same logits in another order, so that "a b" and "c d" are often as likely as each other.
    generator = torch.Generator().manual_seed(n_models)
    logits_V = torch.tensor([0.0, 0.9, 1.7, 2.3, 2.9, 3.2, 3.5], dtype=torch.float64)
    order_BMV = torch.rand((n_models, PREFIXES, VOCABULARY), generator=generator).argsort(dim=2)
    logits_BMV = logits_V[order_BMV]
    logits_BMV[:, ::16] = logits_BMV[:, ::16].clamp(max=3.2)  # where two tokens are as likely
    found = []
    for _ in range(2):
        # A token's log-probability changes by no more than the noise, and that of four by less than half of NEAR_TIE.
        noise_BMV = NEAR_TIE / 10 * torch.rand(logits_BMV.shape, generator=generator, dtype=torch.float64)
        tables = Tables(logits_BMV + noise_BMV)
        found.append(run(tables, config, [LONGEST] * n_models, constraints=asked(what, n_models)))
    differ, close = 0, 0
    for one, other in zip(*found, strict=True):
        close += one[0].is_near_tie and other[0].is_near_tie
        if [(h.ids, h.finished) for h in one] != [(h.ids, h.finished) for h in other]:
            assert one[0].is_near_tie
            assert other[0].is_near_tie
            differ += 1
    assert 0 < differ <= close < n_models, (differ, close)


def test_only_hypotheses_of_one_rank_can_change_places() -> None:
    def hypothesis(ids: list[int], *, finished: bool = True, unsatisfied: tuple[int, ...] = ()) -> Hypothesis:
        return Hypothesis(ids, -1.0, -1.0, finished, unsatisfied=unsatisfied)

    one = hypothesis([0, 1])
    assert may_swap(one, hypothesis([0, 4]))
    assert not may_swap(one, hypothesis([0, 1]))
    assert not may_swap(one, hypothesis([0, 4], finished=False))
    assert not may_swap(one, hypothesis([0, 4], unsatisfied=(0,)))
    assert not may_swap(hypothesis([0, 4], unsatisfied=(0,)), one)
    assert may_swap(hypothesis([0, 1], unsatisfied=(0,)), hypothesis([0, 4], unsatisfied=(1,)))
    # One that was cut ranks behind the finished ones, whether its terms are met or not.
    assert may_swap(hypothesis([0, 1], finished=False), hypothesis([0, 4], finished=False, unsatisfied=(0,)))


def test_a_term_without_room_is_named_and_the_rest_is_met() -> None:
    constraints = [Constraints(terms=((0, 1, 4, 6), (6,), (6,)))]
    ((best,),) = run(random_tables(1, seed=1), DecodeConfig(), [3], constraints=constraints)
    assert lacking(best.ids, constraints[0].terms) == len(best.unsatisfied) > 0
    assert 0 in best.unsatisfied


@each(
    "ids, terms, expected",
    [
        ([1, 2, 3], [(1, 2), (2, 3)], ()),
        ([1, 1], [(1, 1), (1, 1)], (1,)),
        ([1, 1, 1], [(1, 1), (1, 1)], ()),
        ([1, 9, 2], [(1, 2), (9,)], (0,)),  # half begun and abandoned
        ([1, 1, 2], [(1, 2)], ()),  # begun again
        ([], [(7,)], (0,)),
    ],
)
def test_what_it_is_to_meet_a_term(ids: list[int], terms: list[tuple[int, ...]], expected: tuple[int, ...]) -> None:
    assert unsatisfied_terms(ids, Constraints(terms=tuple(terms))) == expected
    # The automaton that a search goes by counts the same.
    known = automaton(list(dict.fromkeys(terms)))
    times = dict(zip(known.terms, known.counts(ids), strict=True))
    assert sum(max(0, terms.count(term) - n) for term, n in times.items()) == len(expected)


def test_a_hypothesis_with_nothing_left_to_say_ends() -> None:
    config = DecodeConfig(n_best=4, no_repeat_ngram=1, min_length=6)
    for row in run(random_tables(5, seed=3), config, [9] * 5):
        assert [(sorted(h.ids), h.finished) for h in row] == [(list(WORDS), True)] * 4


def test_a_prefix_may_say_what_the_rules_forbid_and_counts_in_them_afterwards() -> None:
    constraints = [Constraints(prefix=(1, 1, 1))]
    config = DecodeConfig(beam_size=EVERY, n_best=20, no_repeat_ngram=1)
    for hypothesis in run(random_tables(1, seed=4), config, [6], constraints=constraints)[0]:
        assert hypothesis.ids[:3] == [1, 1, 1]
        assert sorted(set(hypothesis.ids[3:])) == sorted(hypothesis.ids[3:])
        assert 1 not in hypothesis.ids[3:]


def unhurried_groups(tables: Tables, b: int, config: DecodeConfig, max_length: int) -> list[Hypothesis]:
    """Diverse beam search in plain Python: it sorts every candidate by the rule."""
    log_p = tables.logits_BMV[b].log_softmax(dim=-1).tolist()
    n_groups, size = config.diversity_groups, config.beam_size // config.diversity_groups
    n_wanted = min(config.n_best, size)
    live: list[list[tuple[float, list[int], int]]] = [[(0.0, [], 0)] for _ in range(n_groups)]
    finished: list[list[Hypothesis]] = [[] for _ in range(n_groups)]
    for n_tokens in range(1, max_length + 1):
        heard: Counter[int] = Counter()
        for g in range(n_groups):
            ordered = sorted(
                (-(log_prob + log_p[node][v] - config.diversity_strength * heard[v]), v, beam)
                for beam, (log_prob, _, node) in enumerate(live[g])
                for v in (*WORDS, CONTROL.eos)
            )
            going = []
            for place, (_, v, beam) in enumerate(ordered[: 2 * size]):
                before, ids, node = live[g][beam]
                log_prob = before + log_p[node][v]
                if v == CONTROL.eos:
                    score = log_prob / ((5 + n_tokens) / 6) ** config.alpha
                    if place < size:
                        finished[g].append(Hypothesis(ids, score, log_prob, finished=True))
                else:
                    going.append((log_prob, [*ids, v], int(tables.child(torch.tensor(node), torch.tensor(v)))))
            live[g], finished[g] = going[:size], sorted(finished[g], key=lambda h: -h.score)[: config.n_best]
            best = max((one[0] for one in live[g]), default=-math.inf)
            bound = best / ((5 + max_length) / 6) ** config.alpha
            if len(finished[g]) >= n_wanted and (size == 1 or bound <= finished[g][n_wanted - 1].score):
                live[g] = []
            heard.update(one[1][-1] for one in live[g])
        if not any(live):
            break
    cut = [
        Hypothesis(ids, log_prob / ((5 + n_tokens) / 6) ** config.alpha, log_prob, finished=False)
        for group in live
        for log_prob, ids, _ in group
    ]
    found: list[Hypothesis] = []
    for kind in ([h for group in finished for h in group], cut):
        for hypothesis in sorted(kind, key=lambda h: -h.score):
            if all((h.ids, h.finished) != (hypothesis.ids, hypothesis.finished) for h in found):
                found.append(hypothesis)
    return found[: config.n_best]


@each(
    "n_groups, size, n_best, strength",
    [(2, 1, 2, 0.5), (2, 2, 3, 0.7), (2, 2, 4, 0.2), (3, 2, 3, 3.0), (3, 4, 12, 0.5), (4, 1, 4, 0.0)],
)
def test_groups_differ_as_diverse_beam_search_says(n_groups: int, size: int, n_best: int, strength: float) -> None:
    config = DecodeConfig(
        beam_size=n_groups * size, n_best=n_best, diversity_groups=n_groups, diversity_strength=strength
    )
    tables, max_lengths = random_tables(20, seed=n_groups), [3 + b % 4 for b in range(20)]
    for b, row in enumerate(run(tables, config, max_lengths)):
        expected = unhurried_groups(tables, b, config, max_lengths[b])
        assert [(h.ids, h.finished) for h in row] == [(h.ids, h.finished) for h in expected]
        assert [h.score for h in row] == pytest.approx([h.score for h in expected], abs=1e-9)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_groups_without_strength_find_what_one_of_their_size_finds(size: int) -> None:
    tables, alpha = random_tables(20, seed=9), 3.0
    tables.logits_BMV[..., CONTROL.eos] += 2  # so that many could go on beyond their first end, and gain by it
    grouped = DecodeConfig(
        beam_size=3 * size, n_best=3 * size, length_penalty=alpha, diversity_groups=3, diversity_strength=0.0
    )
    alone = run(tables, DecodeConfig(beam_size=size, n_best=size, length_penalty=alpha), [6] * 20)
    assert [row[:size] for row in run(tables, grouped, [6] * 20)] == alone


@pytest.mark.parametrize(("n_groups", "size", "n_best"), [(2, 4, 4), (4, 2, 2), (3, 5, 5)])
def test_what_several_groups_find_takes_one_place_of_the_best(n_groups: int, size: int, n_best: int) -> None:
    # Without strength all groups find the same, which is as many as one of them finds.
    tables = random_tables(20, seed=12)
    tables.logits_BMV[..., CONTROL.eos] += 2
    config = DecodeConfig(beam_size=n_groups * size, n_best=n_best, diversity_groups=n_groups, diversity_strength=0.0)
    for row in run(tables, config, [6] * 20):
        assert len({(tuple(h.ids), h.finished) for h in row}) == len(row) == n_best


def test_strong_groups_begin_with_different_words() -> None:
    tables = random_tables(20, seed=10)
    config = DecodeConfig(beam_size=4, n_best=4, min_length=6, diversity_groups=4, diversity_strength=50.0)
    for row in run(tables, config, [6] * 20):
        assert sorted(h.ids[0] for h in row) == list(WORDS)


@each("n_vocab", [2 * FEW, 8 * CHUNK + 3, CHUNK * 40 + 7])
@each("distinct", [5, 10**6])
def test_the_largest_are_those_that_a_sort_finds(n_vocab: int, distinct: int) -> None:
    generator = torch.Generator().manual_seed(n_vocab)
    x_RV = torch.randint(distinct, (FEW // n_vocab + 2, n_vocab), generator=generator).float()
    x_RV[0, ::2] = -math.inf
    values_R9, ids_R9 = largest(x_RV, 9)
    assert values_R9.equal(x_RV.sort(dim=1, descending=True).values[:, :9])
    assert values_R9.equal(x_RV.gather(1, ids_R9))
    assert all(len(set(row)) == 9 for row in ids_R9.tolist())


@each("n_vocab", [30, 2 * FEW, 8 * CHUNK, 8 * CHUNK + 3, CHUNK * 40 + 7])
@each("distinct", [2, 10**6])
def test_the_two_largest_are_those_that_a_sort_finds(n_vocab: int, distinct: int) -> None:
    generator = torch.Generator().manual_seed(n_vocab)
    x_RV = torch.randint(distinct, (2 * FEW // n_vocab + 30, n_vocab), generator=generator).float()
    x_RV[0, ::2] = -math.inf
    for row, last in enumerate((1, 2, 3, 4, 15, CHUNK, CHUNK + 1), start=1):  # the largest near the end
        last = min(last, n_vocab // 2)
        x_RV[row, -last], x_RV[row, -2 * last] = 2.0 * distinct, 2.0 * distinct - row
    before_RV = x_RV.clone()
    first_R, second_R, ids_R = largest_two(x_RV)
    assert torch.stack([first_R, second_R], dim=1).equal(x_RV.sort(dim=1, descending=True).values[:, :2])
    assert first_R.equal(x_RV.gather(1, ids_R[:, None]).squeeze(1))
    assert x_RV.equal(before_RV)


@each("n_vocab", [30, 2 * FEW, 8 * CHUNK + 3, CHUNK * 40 + 7])
@each("n_live", [1, 4])
@each("distinct", [5, 10**6])
def test_the_largest_sums_are_those_that_a_sort_finds(n_vocab: int, n_live: int, distinct: int) -> None:
    generator = torch.Generator().manual_seed(n_vocab)
    n_sentences = FEW // (n_vocab * n_live) + 2
    x_RV = torch.randint(distinct, (n_sentences * n_live, n_vocab), generator=generator).float()
    x_RV[0, ::2] = -math.inf
    before_BN = torch.randint(distinct, (n_sentences, n_live), generator=generator).double()
    before_BN[1:, 1:2] = -math.inf
    sum_BM = (before_BN[..., None] + x_RV.view(n_sentences, n_live, n_vocab)).flatten(1)
    sums_B9, ids_B9, beam_B9 = largest_sums(before_BN, x_RV, 9)
    at_B9 = beam_B9 * n_vocab + ids_B9
    assert sums_B9.equal(sum_BM.sort(dim=1, descending=True).values[:, :9])
    assert sums_B9.equal(sum_BM.gather(1, at_B9))
    assert all(len(set(row)) == 9 for row in at_B9.tolist())


@each(
    "options, n_source_tokens, expected",
    [({}, 7, 57), ({"max_length": 20}, 7, 20), ({"max_length": 90}, 7, 57), ({"min_length": 80}, 7, 81)],
)
def test_how_long_a_translation_may_be(options: dict[str, int], n_source_tokens: int, expected: int) -> None:
    assert longest_translation(DecodeConfig(**options), n_source_tokens) == expected


@pytest.mark.parametrize(
    "required", [Constraints(prefix=(0, 1, 4)), Constraints(terms=((),)), Constraints(terms=((CONTROL.eos,),))], ids=str
)
def test_constraints_that_cannot_be_satisfied_are_refused(required: Constraints) -> None:
    with pytest.raises(AssertionError):
        run(random_tables(1, seed=1), DecodeConfig(), [2], constraints=[required])
