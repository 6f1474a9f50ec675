"""The choice of the best checkpoint and the end by patience, where the dev score is noise; and why a run has ended."""

import json
import logging
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.each import each
from tests.toy.run import CPU, config, prepared, run, run_until, tree
from transformer_cli.config.train import TrainConfig, TrainSettings
from transformer_cli.evaluation.metrics import Score
from transformer_cli.training.progress import Evaluation, Progress, Trust
from transformer_cli.training.run_directory import chosen_before, with_values
from transformer_cli.training.validation import TranslationScores, Validator, make_validator

BY_TRUST = Trust(floor=5.0, noise=0.5)
SETTINGS = TrainSettings(max_steps=10_000, patience=10, keep_best=1)


def after(evaluations: list[tuple[float, float]], trust: Trust | None = BY_TRUST) -> Progress:
    """The progress of a run with these pairs of BLEU and NLL, one a step."""
    progress = Progress()
    for score, nll in evaluations:
        progress.step += 1
        progress.rank((score, -nll), SETTINGS, trust)
    return progress


# ---- Which is the best


def test_a_tiny_score_neither_chooses_nor_ends_a_run_whose_nll_falls() -> None:
    wobbling = [(0.5 + 0.04 * math.cos(n), 8.0 - 0.1 * n) for n in range(30)]
    progress = after(wobbling)
    assert progress.best[0].step == 30
    assert not progress.out_of_patience(SETTINGS)
    assert after(wobbling, None).best[0].step == 1  # by the score alone


def test_of_scores_that_differ_by_noise_the_lower_nll_is_better() -> None:
    assert after([(30.0, 2.0), (29.6, 1.9)]).best[0].step == 2
    assert after([(30.0, 2.0), (30.4, 2.1)]).best[0].step == 1
    assert after([(30.0, 2.0), (29.4, 1.9)]).best[0].step == 1
    assert after([(30.0, 2.0), (30.6, 2.1)]).best[0].step == 2


@each("seed", range(20))
def test_the_best_is_never_further_than_noise_below_the_highest_score(seed: int) -> None:
    draw = random.Random(seed)
    evaluations: list[tuple[float, float]] = []
    for _ in range(40):  # a slow decline of the score, with a falling NLL: many small ties are no tie
        evaluations.append((30 - 0.1 * len(evaluations) + draw.gauss(0, 0.3), 3 - 0.01 * len(evaluations)))
        best = after(evaluations).best[0]
        assert best.rank[0] >= max(score for score, _ in evaluations) - BY_TRUST.noise


def test_patience_counts_evaluations_without_a_higher_score_and_without_a_lower_nll() -> None:
    start = [(30.0, 2.0)]
    assert after([*start, *[(29.0, 2.1)] * 9]).n_without_best == 9
    assert after([*start, *[(29.0, 2.1)] * 10]).out_of_patience(SETTINGS)
    assert after([*start, *[(29.0, 2.1)] * 9, (29.0, 1.99)]).n_without_best == 0  # a lower NLL alone
    assert after([*start, *[(29.0, 2.1)] * 9, (31.0, 2.2)]).n_without_best == 0  # a higher score alone
    assert after([*start, *[(29.0, 2.0 - 1e-5 * n) for n in range(10)]]).out_of_patience(SETTINGS)  # shown as 2.000
    creeping = after([*start, *[(29.0, 2.0 - 4e-4 * n) for n in range(1, 30)]])
    assert not creeping.out_of_patience(SETTINGS)  # small steps that add up


def test_a_number_that_is_none_is_never_best() -> None:
    progress = after([(math.nan, math.nan), (1.0, 2.0), (math.nan, 1.0), (9.0, math.nan)])
    assert (progress.best[0].step, progress.n_without_best) == (2, 2)


# ---- What a checkpoint keeps of it


@each("stopped_after", range(8))
def test_a_resumed_run_ranks_as_one_that_was_never_stopped(stopped_after: int) -> None:
    evaluations = [(1.0, 5.0), (6.0, 4.0), (7.0, 4.2), (6.8, 3.9), (6.1, 3.8), (6.9, 3.85), (5.0, 3.9), (7.2, 3.95)]
    whole, before = after(evaluations), after(evaluations[:stopped_after])
    state = json.loads(json.dumps(before.state(), allow_nan=False))
    resumed = Progress.from_state(state, steps=before.steps())
    for score, nll in evaluations[stopped_after:]:
        resumed.step += 1
        resumed.rank((score, -nll), SETTINGS, BY_TRUST)
    assert replace(resumed, saved=()) == replace(whole, saved=())


def test_every_rank_hears_all_that_decides() -> None:
    for evaluation in (None, Evaluation((1.5, -2.0), [3], BY_TRUST), Evaluation((-2.0, 0.0), [])):
        assert Evaluation.from_json(Evaluation.to_json(evaluation)) == evaluation


def scripted(monkeypatch: pytest.MonkeyPatch, scores: dict[int, tuple[float, float]]) -> None:
    """Score each evaluation of a run as scripted, by the number of evaluations until now; the last one remains."""
    n_evaluations = 0

    def score(self: Validator, *args: Any) -> TranslationScores:
        nonlocal n_evaluations
        n_evaluations += 1
        bleu, nll = scores[min(n_evaluations, max(scores))]
        return TranslationScores(nll, {"bleu": Score("BLEU", bleu, "scripted")}, [""] * len(self.text))

    monkeypatch.setattr(Validator, "score", score)


def automatic(**settings: Any) -> TrainConfig:
    return config(**{"best_metric": "auto", "eval_every": 1, "max_steps": 9, "average_last": 1, **settings})


@pytest.mark.slow
def test_a_stopped_run_ends_in_the_same_bytes(tmp_path: Path) -> None:
    run(tmp_path / "whole", automatic(patience=2, max_steps=20))
    for step in (3, 6):
        run_until(step, tmp_path / "stopped", automatic(patience=2, max_steps=20))
    run(tmp_path / "stopped", automatic(patience=2, max_steps=20))
    whole, stopped = tree(tmp_path / "whole"), tree(tmp_path / "stopped")
    for name in ("model.safetensors", "result.json"):
        assert whole[name] == stopped[name]


def test_a_run_that_ranks_by_the_score_alone_goes_on_so(tmp_path: Path) -> None:
    before = replace(config(best_metric="bleu"), name="old", runs=str(tmp_path))
    run_until(5, tmp_path / "old", before)
    now = replace(before, train=replace(before.train, best_metric="auto"))
    assert with_values(now, chosen_before(now, tmp_path / "old")) == before
    assert chosen_before(now, tmp_path / "new") == {}


# ---- In a run


def test_a_run_exports_the_lowest_nll_while_bleu_is_tiny_unless_a_metric_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = {n: (2.0 - 0.1 * n, 8.0 - 0.1 * n) for n in range(1, 10)}
    for metric, best in (("auto", 9), ("bleu", 1), ("nll", 9)):
        scripted(monkeypatch, scores)
        run(tmp_path / metric, automatic(best_metric=metric))
        assert (tmp_path / metric / "best").readlink().name == f"step-{best:08d}", metric


@pytest.mark.parametrize(
    ("settings", "scores", "expected"),
    [
        ({}, {1: (1.0, 5.0)}, "ended at step 9 of 9: by train.max_steps=9"),
        ({"max_epochs": 0.5}, {1: (1.0, 5.0)}, "ended at step 5 of 5: by train.max_epochs=0.5"),
        (
            {"patience": 3},
            {1: (20.0, 3.0), 2: (9.0, 2.5), 3: (8.0, 2.6)},
            "ended at step 5 of 9: dev BLEU 20 of step 1 was not exceeded in the last 3 evaluations, and dev nll 2.500"
            " fell no further (train.patience=3)",
        ),
        (
            {"patience": 3, "best_metric": "bleu"},
            {1: (20.0, 3.0), 2: (9.0, 2.5), 3: (8.0, 2.6)},
            "ended at step 4 of 9: dev BLEU 20 of step 1 was not exceeded in the last 3 evaluations (train.patience=3)",
        ),
    ],
)
def test_a_run_says_why_it_has_ended(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    settings: dict[str, Any],
    scores: dict[int, tuple[float, float]],
    expected: str,
) -> None:
    scripted(monkeypatch, scores)
    with caplog.at_level(logging.INFO, logger="tfm"):
        run(tmp_path, automatic(**settings))
    assert [line for line in caplog.messages if line.startswith("ended at step")] == [expected]


@each(
    "metric, n_lines, expected",
    [
        # A tenth of a point of BLEU more or less decides nothing on 400 lines, half a point does on 1,000.
        ("auto", 400, Trust(5.0, 0.5)),
        ("bleu", 400, None),
        ("chrf", 400, None),
        ("nll", 400, None),
    ],
)
def test_noise_falls_with_the_root_of_the_number_of_dev_lines(
    metric: str, n_lines: int, expected: Trust | None
) -> None:
    validator = make_validator(config(best_metric=metric), prepared(n_dev=n_lines), CPU)
    assert validator.trust == expected
