"""The host reads only every few steps which sentences are done; the result is that of reading it after each step.

Shapes: as in test_search.py.
"""

import ast
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.conftest import slow, slow_but
from tests.decoding.test_search import CONTROL, VOCABULARY, Tables, every_sentence, greedy, random_tables, sampling
from tests.decoding.test_search_options import AttendingTables, asked, attending_tables
from tests.support.each import each
from tests.support.rehearsal import rehearse
from tests.toy.translator import VARIANTS, random_model, toy_tokenizer
from transformer_cli.config.decode import DecodeConfig, LengthNormalization
from transformer_cli.decoding import search
from transformer_cli.decoding.search import SEARCHES, ControlIds, Hypothesis, SearchRequest, loop, rows_per_sentence
from transformer_cli.decoding.search.request import SYNC_INTERVAL
from transformer_cli.errors import CheckpointError
from transformer_cli.inference.incremental import TransformerDecoder
from transformer_cli.inference.kv_cache import by_position, reorder_groups

META = torch.device("meta")
MAX_LENGTHS = [1 + (5 * b) % 11 for b in range(24)]
# Where a search may wait for its device, by function, and how often. A new place needs a reason here.
HOST_SYNCS = {
    "loop.to_host": "at a sync",
    "loop.concatenated": "at the end of a search",
    "loop.hypotheses": "at the end, on the host",
    "loop.rank": "at the end, on the host",
    "loop.__init__": "at the end: the history",
    "loop.run_search": "at the beginning: `max_lengths_B`, which is on the host where `device` is given",
    "request.__post_init__": "at the beginning, as in `run_search`",
    "mbr.mean_chrf": "at the end, in numpy: texts are compared",
    "loop.may_swap": "no tensor",
    "constraints.__init__": "no tensor",
    "steps.take": "on a CPU, or where the host synchronises after each step",
    "trace.end_step": "where a trace is asked for: the host then synchronises after each step",
    "trace._options": "as in `end_step`",
    "trace._add": "as in `end_step`",
    "sampling.keep_top_p": "on a CPU: elsewhere the first round is the last",
}
WAITING = {"tolist", "item", "cpu", "on_host", "numpy", "nonzero", "bool"}

CONFIGS: dict[str, tuple[DecodeConfig, str]] = {
    "greedy": (greedy(), ""),
    **{f"beam {n}": (DecodeConfig(beam_size=n, n_best=n), "") for n in range(1, 6)},
    "one of four": (DecodeConfig(), ""),
    "length penalty": (DecodeConfig(n_best=2, length_penalty=2.5), ""),
    "average": (DecodeConfig(n_best=2, length_normalization=LengthNormalization.average), ""),
    "groups": (DecodeConfig(beam_size=4, n_best=2, diversity_groups=2), ""),
    "sample": (sampling(3), ""),
    "top p": (sampling(3, top_p=0.7, top_k=4, temperature=1.3), ""),
    "coverage": (DecodeConfig(n_best=3, coverage_penalty=0.4), ""),
    "shortest": (DecodeConfig(n_best=3, min_length=3), ""),
    "no repeats": (DecodeConfig(n_best=3, no_repeat_ngram=2), ""),
    "prefix": (DecodeConfig(n_best=3), "prefix"),
    "terms": (DecodeConfig(n_best=3), "terms"),
    "everything": (
        DecodeConfig(n_best=3, coverage_penalty=0.3, no_repeat_ngram=2, min_length=1, length_penalty=1.5),
        "prefix terms",
    ),
}


def all_found(hypotheses: list[list[Hypothesis]]) -> list[list[tuple[Any, ...]]]:
    """The hypotheses with the fields that do not count when they are compared."""
    return [[(h, h.is_near_tie) for h in row] for row in hypotheses]


def run(
    tables: Tables, config: DecodeConfig, max_lengths: list[int], what: str = "", **options: Any
) -> list[list[Hypothesis]]:
    n, sources = len(max_lengths), None
    if isinstance(tables, AttendingTables):
        sources = torch.tensor([2 + b % 3 for b in range(n)])
    constraints = asked(what, n) if what else []
    longest = [max(m, len(c.prefix)) for m, c in zip(max_lengths, constraints or asked("", n), strict=True)]
    request: SearchRequest[Any] = SearchRequest(
        tables.step,
        tables.start(rows_per_sentence(config)),
        CONTROL,
        torch.tensor(longest),
        config,
        [(1, b) for b in range(n)],
        constraints,
        sources,
        **options,
    )
    return SEARCHES[config.search](request)


@pytest.mark.slow
@each("name", CONFIGS)
@each("every", [2, SYNC_INTERVAL])
def test_looking_seldom_finds_what_looking_at_each_step_finds(name: str, every: int) -> None:
    config, what = CONFIGS[name]
    tables = attending_tables(24, seed=len(name), source_lengths=[2 + b % 3 for b in range(24)])
    for exact in (False, True):
        expected = run(tables, config, MAX_LENGTHS, what, exact=exact)
        found = run(tables, config, MAX_LENGTHS, what, exact=exact, sync_interval=every)
        assert all_found(found) == all_found(expected)


@each("name", CONFIGS)
def test_a_sentence_that_is_cancelled_leaves_and_the_others_are_found_as_before(name: str) -> None:
    config, what = CONFIGS[name]
    tables = attending_tables(24, seed=len(name), source_lengths=[2 + b % 3 for b in range(24)])
    n_syncs = 0

    def third_after_two_syncs() -> list[bool]:
        nonlocal n_syncs
        n_syncs += 1
        return [n_syncs > 2 and b % 3 == 0 for b in range(24)]

    expected = all_found(run(tables, config, MAX_LENGTHS, what))
    found = all_found(run(tables, config, MAX_LENGTHS, what, cancelled=third_after_two_syncs))
    assert [one for b, one in enumerate(found) if b % 3] == [one for b, one in enumerate(expected) if b % 3]


@each("name", CONFIGS)
@each("every", [1, SYNC_INTERVAL])
def test_a_sync_ends_a_search_that_is_cancelled(name: str, every: int) -> None:
    config, what = CONFIGS[name]
    tables = attending_tables(24, seed=len(name), source_lengths=[2 + b % 3 for b in range(24)])
    syncs: list[int] = []

    def all_of_them() -> list[bool]:
        syncs.append(1)
        return [True] * 24

    run(tables, config, MAX_LENGTHS, what, sync_interval=every, cancelled=all_of_them)
    assert len(syncs) == 1


@pytest.mark.parametrize("alpha", [0.6, slow(2.5)])
def test_looking_seldom_finds_what_trying_every_sentence_finds(alpha: float) -> None:
    tables, max_lengths = random_tables(20, seed=12), [1 + b % 5 for b in range(20)]
    config = DecodeConfig(beam_size=1000, n_best=8, length_penalty=alpha)
    found = run(tables, config, max_lengths, sync_interval=3)
    for ours, theirs in zip(found, every_sentence(tables, max_lengths, alpha=alpha, n_best=8), strict=True):
        assert [(h.ids, h.finished) for h in ours] == [(h.ids, h.finished) for h in theirs]
        assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], abs=1e-9)


@pytest.mark.parametrize("config", [greedy(), DecodeConfig(n_best=4)], ids=["greedy", "beam"])
def test_equal_candidates_are_put_in_order_or_marked_as_near_ties(config: DecodeConfig) -> None:
    tables = random_tables(60, seed=2)
    tables.logits_BMV.round_()
    expected = run(tables, config, [6] * 60)
    assert run(tables, config, [6] * 60, exact=True) == expected
    assert run(tables, config, [6] * 60, exact=True, sync_interval=SYNC_INTERVAL) == expected
    tables.logits_BMV[..., -1] = tables.logits_BMV[..., 0]  # which the order of columns decides
    expected = run(tables, config, [6] * 60)
    marked = run(tables, config, [6] * 60, sync_interval=SYNC_INTERVAL)
    for one, other in zip(expected, marked, strict=True):
        assert one == other or other[0].is_near_tie


def test_the_tolerance_of_near_ties_is_the_request_s() -> None:
    tables = random_tables(40, seed=3, spread=1.0)
    for config, what in (CONFIGS["greedy"], CONFIGS["beam 3"], CONFIGS["terms"]):
        n_marked = [
            sum(row[0].is_near_tie for row in run(tables, config, [5] * 40, what, near_tie=tolerance))
            for tolerance in (0.0, 0.02, math.inf)
        ]
        assert n_marked[0] == 0 < n_marked[1] < n_marked[2]


@each("name", ["greedy", "beam 4", "sample", "groups"])
def test_the_first_token_that_is_no_number_is_named(name: str) -> None:
    tables = random_tables(3, seed=6)
    tables.logits_BMV[..., CONTROL.eos] = -math.inf
    tables.logits_BMV[1, 1 + VOCABULARY :] = math.nan  # after two tokens
    tables.logits_BMV[2, 1 + VOCABULARY + VOCABULARY**2 :] = math.nan
    for every in (1, SYNC_INTERVAL):
        with pytest.raises(CheckpointError, match="at token 3 of"):
            run(tables, CONFIGS[name][0], [9, 9, 9], sync_interval=every)


@pytest.mark.parametrize("name", ["greedy", "one of four", "sample"])
def test_what_a_model_says_after_the_end_is_not_read(name: str) -> None:
    tables = random_tables(6, seed=7)
    tables.logits_BMV[::2, :, CONTROL.eos] += 1000  # these end at once
    expected = run(tables, CONFIGS[name][0], [9] * 6, sync_interval=1)
    tables.logits_BMV[::2, 1:] = math.nan
    assert run(tables, CONFIGS[name][0], [9] * 6, sync_interval=SYNC_INTERVAL) == expected


def test_the_host_looks_every_few_steps_and_never_past_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    tables, syncs, to_host = random_tables(4, seed=8), [], loop.to_host
    tables.logits_BMV[..., CONTROL.eos] = -math.inf
    monkeypatch.setattr(loop, "to_host", lambda x_X: syncs.append(len(x_X)) or to_host(x_X))
    cache = tables.start(4)
    request: SearchRequest[Any] = SearchRequest(
        tables.step, cache, CONTROL, torch.tensor([21, 30, 21, 9]), DecodeConfig(), sync_interval=8
    )
    SEARCHES["beam"](request)
    assert len(cache.rows_seen) == 30
    assert syncs == [5, 5, 4, 2]  # after 8, 16, 24 and 30 steps; and the number of the broken step


# ---- On an accelerator


class Enough(Exception):
    """The steps that were to be taken are."""


def source(n_sentences: int, longest: int, device: torch.device) -> Tensor:
    return torch.full((n_sentences, longest), 5, device=device)


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(CONFIGS, "greedy"))
def test_no_step_waits_for_an_accelerator(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device "meta" has nothing to read: a step that tries to raises."""
    (config, what), tokenizer = CONFIGS[name], toy_tokenizer()
    model, syncs = random_model(tokenizer, config=VARIANTS["modern"]).to(META), []

    def to_host(x_X: Tensor) -> list[int]:
        syncs.append(len(x_X))
        if len(syncs) == 4:
            raise Enough
        return [*([5] if len(syncs) == 2 else [0]), *[0] * (len(x_X) - 1)]  # the first one leaves at the second sync

    monkeypatch.setattr(loop, "to_host", to_host)
    with rehearse(), torch.inference_mode():
        decoder = TransformerDecoder(model)
        cache = decoder.start(
            source(6, 9, META),
            beam_size=rows_per_sentence(config),
            max_length=40,
            keeps_attention=config.coverage_penalty > 0,
        )
        request: SearchRequest[Any] = SearchRequest(
            decoder.step,
            cache,
            ControlIds.of(tokenizer),
            torch.full((6,), 40),
            config,
            seeds=[(1, b) for b in range(6)],
            constraints=[
                replace(c, prefix=(7, 8)[: len(c.prefix)], terms=((9, 10),) * bool(c.terms)) for c in asked(what, 6)
            ],
            source_lengths_B=torch.full((6,), 9, device=META),
            device=META,
        )
        with pytest.raises(Enough):
            SEARCHES[config.search](request)
    assert cache.length == 4 * SYNC_INTERVAL
    assert syncs == [7, 7, 6, 6]


def test_every_place_that_waits_for_a_device_is_listed() -> None:
    found = set()
    for path in sorted(Path(search.__file__).parent.glob("*.py")):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(function, ast.FunctionDef):
                continue
            for node in ast.walk(function):
                name = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
                if name in WAITING:
                    found.add(f"{path.stem}.{function.name}")
    assert found - HOST_SYNCS.keys() == set()
    assert HOST_SYNCS.keys() - found == set(), "listed for nothing"


@each("from_G", [[0, 1, 2, 3, 4], [2, 0, 0, 1, 4], [4, 1, 3], [0], [1, 1]])
def test_groups_move_alike_with_and_without_waiting(from_G: list[int]) -> None:
    moved = []
    for finds_moved in (True, False):
        layers = [by_position(torch.arange(5.0 * 3 * 8 * 2).view(5, 3, 8, 2)) for _ in range(2)]
        expected = layers[0][from_G]
        reorder_groups([layers], torch.tensor(from_G), finds_moved=finds_moved, used=6)
        assert all(x[:, :, :6].equal(expected[:, :, :6]) for x in layers)
        moved.append(layers)
    assert all(one.equal(other) for one, other in zip(*moved, strict=True))
