"""`tfm reproduce`: recipes with reference curves, and how a run stands beside one."""

import logging
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.addons.classification.toy_classifier import table
from tests.conftest import ROOT
from tests.support.each import each
from tests.toy import run as toy_run
from transformer_cli.addons.reproduction import reproduce_run
from transformer_cli.addons.reproduction.departures import departures, grouped_lines
from transformer_cli.addons.reproduction.keys import ReproduceConfig
from transformer_cli.addons.reproduction.records import (
    REPRODUCTIONS_FOLDER,
    DevCurve,
    OurRuns,
    Tolerance,
    names,
    read_reproduction,
)
from transformer_cli.addons.reproduction.reference_curve import BETWEEN_SEEDS, ReferenceCurve
from transformer_cli.cli import main
from transformer_cli.command import COMMANDS
from transformer_cli.commands.train.run import Trained
from transformer_cli.config.comet import CometConfig
from transformer_cli.config.compose import load_config
from transformer_cli.config.keys import fields_of
from transformer_cli.config.train import TrainConfig
from transformer_cli.config.yaml_files import choices_of
from transformer_cli.errors import ConfigError
from transformer_cli.models.header import MODEL_FILE
from transformer_cli.training import loop
from transformer_cli.training.main_process import MainProcess
from transformer_cli.training.ranks import Ranks
from transformer_cli.training.signals import StopRequest

VALID = """\
title: a copy of letters
published:
  - {score: 30, metric: BLEU, our_metric: test BLEU, source: a paper}
differs: [all]
ours:
  machine: one core
  torch: 2.13.0
  date: "2026-01-02"
  commit: abc1234
  source: a page
  dev_metric: bleu
  scores: [{score: 29.5, metric: test BLEU, signature: "tok:13a", search: greedy}]
  curves:
    - {seed: 1, points: [[100, 3.0, 10], [200, 2.0, 20]]}
  tolerance: {nll: 0.1, score: 2, reason: a default}
"""


def runs(*curves: list[list[float]], tolerance: Tolerance | None = None, metric: str | None = "bleu") -> OurRuns:
    return OurRuns(
        machine="one core",
        torch="2.13.0",
        date="2026-01-02",
        commit="abc1234",
        source="a page",
        scores=[],
        curves=[DevCurve(seed, points) for seed, points in enumerate(curves, start=1)],
        dev_metric=metric,
        tolerance=tolerance,
    )


ONE = runs([[100, 3.0, 10], [200, 2.0, 20]], tolerance=Tolerance(0.1, 2, "a default"))


# ---- The references that are committed


def test_every_experiment_is_a_reproduction() -> None:
    assert names() == choices_of("experiment")
    assert [read_reproduction(name).name for name in names()] == names()


def test_what_was_never_run_has_no_figures_of_ours_but_an_idea_of_its_cost() -> None:
    never = {name for name in names() if read_reproduction(name).ours is None}
    assert never == {"iwslt14", "multi30k_fr", "paper_base", "paper_big", "tatoeba_en_de", "tatoeba_en_fr"}
    assert all(read_reproduction(name).cost for name in never)


def test_the_scores_of_the_papers_are_those_of_their_tables() -> None:
    scores = {name: [one.score for one in read_reproduction(name).published] for name in names()}
    assert (scores["paper_base"][0], scores["paper_big"][0]) == (27.3, 28.4)  # Vaswani et al. 2017, table 2
    assert (scores["trec"], scores["sst2"]) == ([91.2], [82.7])  # Kim 2014, table 2, CNN-rand
    assert scores["multi30k"] == [41.02]  # Wu et al. 2021


def test_the_curve_of_multi30k_is_that_of_its_page() -> None:
    page = (ROOT / "benchmarks" / "multi30k.md").read_text(encoding="utf-8")
    row = r"^\| ([\d,]+) \| [\d.]+ \| \S+ \| [\d.]+ \| ([\d.]+) \| ([\d.]+) \|$"
    rows = re.findall(row, page.partition("## Curve")[2].partition("# The recipe before")[0], re.MULTILINE)
    ours = read_reproduction("multi30k").ours
    assert ours is not None
    assert ours.curves[0].points == [
        [float(step.replace(",", "")), float(nll), float(bleu)] for step, nll, bleu in rows
    ]
    assert len(rows) == 5


@pytest.mark.slow
def test_our_curves_end_where_the_recipe_does() -> None:
    """A curve of another recipe than the experiment's of today would end elsewhere."""
    for name in names():
        ours = read_reproduction(name).ours
        if ours is None or not ours.curves[0].points or ours.dev_metric is None:
            continue
        last = load_config("train", [f"experiment={name}"]).train.max_steps
        assert {curve.points[-1][0] for curve in ours.curves} == {last}, name


def test_the_figures_of_table_3_are_those_of_its_page() -> None:
    page = (ROOT / "benchmarks" / "table3.md").read_text(encoding="utf-8")
    main_table = re.findall(
        r"^\| (?:\([A-E]\))? +\|(?: [^|]+ \|){2} ([\d.]+) \| ([\d.]+) \| \d* \| ([\d.]+) \| ([\d.]+)", page, re.M
    )
    seeds = re.findall(r"^\| (\w[\w.]*) \| ([\d., ]+) \| ([\d., ]+) \|$", page, re.MULTILINE)
    found = set()
    for name in names():
        if name.startswith("table3_"):
            one = read_reproduction(name)
            assert one.ours is not None
            points = [curve.points[0] for curve in one.ours.curves]
            figures = [(f"{math.exp(nll):.3f}", f"{bleu:.1f}") for _, nll, bleu in points]
            found.add(
                (
                    *figures[0],
                    *(f"{score.score:.{digits}f}" for score, digits in zip(one.published, (2, 1), strict=True)),
                )
            )
            listed = {row: list(zip(ppl.split(", "), bleu.split(", "), strict=True)) for row, ppl, bleu in seeds}
            assert figures == listed.get(name.removeprefix("table3_"), figures[:1])
    assert found == set(main_table)
    assert len(found) == 19


@each("name, n_seeds", [("demo_en_fr", 3), ("demo_fr_en", 3), ("trec", 3), ("sst2", 3)])
def test_our_scores_are_the_means_of_the_runs_on_their_page(name: str, n_seeds: int) -> None:
    page = (ROOT / "benchmarks" / "reproductions.md").read_text(encoding="utf-8")
    (section,) = re.findall(rf"^\| {name}, seed .*?\n\n", page, re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| (\d+) \| [\d.]+ \| ([\d.]+) \| ([\d.]+) \|", section, re.MULTILINE)
    ours = read_reproduction(name).ours
    assert ours is not None
    assert [curve.seed for curve in ours.curves] == [int(row[0]) for row in rows]
    assert len(rows) == n_seeds
    means = [sum(float(row[column]) for row in rows) / n_seeds for column in (1, 2)]
    assert [score.score for score in ours.scores] == pytest.approx(means, abs=0.0051)


# ---- Reading


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("title:", "tittle:", "tittle: unknown key; did you mean `title`?"),
        ("title: a copy of letters\n", "", "title: missing"),
        ("score: 30,", "score: many,", "published.0.score: 'many' is not a number"),
        ("differs: [all]", "differs: all", "differs: 'all' is not a list"),
        ("ours:\n", "ours: 3\nx:\n", "x: unknown key"),
        ("commit: abc1234", "commit: 1234567", "ours.commit: '1234567' is not text"),
        ("[200, 2.0, 20]", "[100, 2.0, 20]", "ours.curves.0.points.1: step 100 after 100"),
        ("[200, 2.0, 20]", "[200, 2.0]", "ours.curves.0.points.1: [200.0, 2.0]: not as [step, dev NLL, dev bleu]"),
        ("[200, 2.0, 20]", "[200, .nan, 20]", "Give 3 finite numbers"),
        (
            "  tolerance: {nll: 0.1, score: 2, reason: a default}\n",
            "",
            "ours.tolerance: not given, and one curve has no",
        ),
        ("reason: a default", "reson: a default", "ours.tolerance.reson: unknown key; did you mean `reason`?"),
        (
            "  tolerance",
            "    - {seed: 2, points: [[100, 1, 1], [300, 1, 1]]}\n  tolerance",
            "ours.curves: have other steps",
        ),
        ("seed: 1, points: [[100, 3.0, 10], [200, 2.0, 20]]", "seed: 1, points: []", "ours.curves.0.points: empty"),
        ("title: a", "title: a\ntitle: a", "stands twice"),
    ],
)
def test_a_reference_that_is_not_as_it_should_be_is_refused_by_file_and_key(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    assert old in VALID
    (tmp_path / "mine.yaml").write_text(VALID.replace(old, new, 1))
    with pytest.raises(ConfigError) as error:
        read_reproduction("mine", tmp_path)
    assert says in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "mine.yaml"))


def test_a_valid_reference_is_read(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(VALID)
    one = read_reproduction("mine", tmp_path)
    assert one.ours is not None
    assert (one.name, one.published[0].score, one.ours.curves) == ("mine", 30.0, ONE.curves)


# ---- The curve


@each(
    "step, nll, bleu, verdict",
    [
        (100, 3.0, 10, "on track"),
        (100, 3.09, 8.1, "on track"),
        (100, 3.11, 10, "behind"),
        (100, 2.89, 10, "ahead"),
        (100, 3.0, 7.9, "behind"),
        (100, 3.11, 7.9, "behind"),
        (200, 1.8, 23, "ahead"),
        (200, 1.8, 15, "ahead by dev nll, behind by dev BLEU"),
        # In the middle: 2.5 and 15; the tolerance grows by a quarter of the differences, to 0.35 and 4.5.
        (150, 2.84, 15, "on track"),
        (150, 2.86, 15, "behind"),
        (150, 2.5, 10.6, "on track"),
        (150, 2.5, 10.4, "behind"),
    ],
)
def test_a_run_stands_beside_the_curve_by_both_figures(step: int, nll: float, bleu: float, verdict: str) -> None:
    assert ReferenceCurve(ONE).verdict(step, {"dev_nll": nll, "dev_bleu": bleu}).split(":")[0] == verdict


@each(
    "step, nll, bleu, by_score, line",
    [
        (
            150,
            2.4,
            16.0,
            True,
            "on track: dev nll 2.400 (reference 2.500 ± 0.350), dev BLEU 16.00 (reference 15.00 ± 4.50)",
        ),
        (99, 1.0, 50.0, True, "no reference: its curve is of the steps 100 to 200"),
        (201, 1.0, 50.0, True, "no reference: its curve is of the steps 100 to 200"),
        (100, 3.0, 1.0, False, "on track: dev nll 3.000 (reference 3.000 ± 0.100)"),  # found by another search
        (100, 3.0, None, True, "on track: dev nll 3.000 (reference 3.000 ± 0.100), no dev BLEU here"),
    ],
)
def test_a_line_has_the_figures_the_reference_and_the_tolerance(
    step: int, nll: float, bleu: float | None, by_score: bool, line: str
) -> None:
    figures = {"dev_nll": nll, **({} if bleu is None else {"dev_bleu": bleu})}
    assert ReferenceCurve(ONE, by_score=by_score).verdict(step, figures) == line


def test_the_tolerance_of_several_seeds_is_the_interval_for_one_more() -> None:
    # By hand: 1, 2 and 3 have a mean of 2 and a deviation of 1; t is 4.303 with 2 degrees of freedom (any table), so
    # half of the interval for a fourth is 4.303 · sqrt(1 + 1/3) = 4.969.
    curve = ReferenceCurve(runs([[10, 1.0, 30]], [[10, 2.0, 20]], [[10, 3.0, 10]]))
    assert (curve.nll[0].value, curve.score[0].value) == (2, 20)
    assert curve.nll[0].tolerance == pytest.approx(4.969, abs=1e-3)
    assert curve.score[0].tolerance == pytest.approx(49.69, abs=1e-2)
    assert curve.reason == BETWEEN_SEEDS


def test_seeds_that_agree_by_chance_leave_some_tolerance() -> None:
    curve = ReferenceCurve(runs([[10, 5.0, 0]], [[10, 5.0, 0]], [[10, 5.0, 0]]))
    assert curve.verdict(10, {"dev_nll": 5.004, "dev_bleu": 0.3}).startswith("on track")


def test_the_verdicts_of_a_run_are_counted_once_for_each_step() -> None:
    entries = [
        {"step": 100, "kind": "dev", "dev_nll": 9.0, "dev_bleu": 10},  # written again after an interruption
        {"step": 100, "kind": "dev", "dev_nll": 3.0, "dev_bleu": 10},
        {"step": 100, "kind": "train", "nll": 3.0},
        {"step": 150, "kind": "dev", "dev_nll": 2.5, "dev_bleu": 15},
        {"step": 200, "kind": "dev", "dev_nll": 2.5, "dev_bleu": 20},
        {"step": 300, "kind": "dev", "dev_nll": 2.5, "dev_bleu": 20},
    ]
    assert ReferenceCurve(ONE).tally(entries) == "2 on track, 1 behind, 1 no reference"


def test_a_language_model_has_the_nll_alone() -> None:
    curve = ReferenceCurve(runs([[100, 3.0]], tolerance=Tolerance(0.1, 0, "a default"), metric=None))
    assert curve.verdict(100, {"dev_nll": 3.2}).startswith("behind")


# ---- Departures


def recipe(**train: Any) -> TrainConfig:
    return toy_run.config(**train)


def found(config: TrainConfig) -> list[str]:
    return grouped_lines(departures(config, recipe()))


NEITHER = "not the recipe; the curve and the scores do not apply"
OF_EXPORT = "not the recipe; its curve applies, the scores of the exported model do not"
NLL_ALONE = "not the recipe; its dev NLL applies, the scores do not"


def test_another_place_device_seed_or_micro_batch_is_no_departure() -> None:
    config = replace(recipe(max_tokens_per_microbatch=8, log_every=3), name="x", runs="elsewhere", seed=5)
    assert found(replace(config, data=replace(config.data, root="corpus"))) == []


def test_what_is_changed_says_what_of_the_reference_applies() -> None:
    assert found(recipe(label_smoothing=0.0)) == [f"train.label_smoothing=0.0: {NEITHER}"]
    assert found(recipe(average_last=1)) == [f"train.average_last=1: {OF_EXPORT}"]
    assert found(recipe(eval_lines=3)) == [f"train.eval_lines=3: {NLL_ALONE}"]
    wider = replace(recipe(), model=replace(toy_run.MODEL, d_model=32, d_ff=64), resume="runs/other")
    assert found(wider) == [f"model.d_ff=64, model.d_model=32, resume=runs/other: {NEITHER}"]


def test_how_files_are_found_and_what_is_measured_besides_is_no_departure() -> None:
    config = recipe(robustness_lines=7, metrics=["bleu", "chrf"])
    moved = replace(config, data=replace(config.data, verify=True), comet=CometConfig(python="python3", trust=True))
    assert found(moved) == []
    assert found(replace(config, comet=CometConfig(model="other"))) == [f"comet.model=other: {NLL_ALONE}"]


def test_a_shorter_run_is_on_the_same_curve_unless_its_rate_falls_earlier() -> None:
    assert found(recipe(max_steps=4)) == [f"train.max_steps=4: {OF_EXPORT}"]  # constant
    linear = replace(recipe().schedule, name="linear")
    long, short = (recipe(max_steps=n, schedule=linear) for n in (12, 4))
    assert grouped_lines(departures(short, long)) == [f"train.max_steps=4: {NEITHER}"]


def test_a_run_that_is_forced_to_go_on_is_no_reproduction() -> None:
    assert found(replace(recipe(), force=True)) == [f"force=true: {NEITHER}"]


# ---- The command


def test_every_evaluation_is_compared_also_after_an_interruption(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("tfm"), "propagate", True)
    caplog.set_level(logging.INFO, "tfm")
    curve = ReferenceCurve(runs([[4, 9.0, 0], [8, 9.0, 0]], tolerance=Tolerance(0.1, 100, "a default")))
    for last in (8, 12):
        process = MainProcess(tmp_path, Ranks(StopRequest()), curve.observe)
        loop.train(recipe(max_steps=last), toy_run.prepared(), process, device=toy_run.CPU)
    said = [line for line in caplog.messages if "ahead" in line or "no reference" in line]
    assert [line.split(": ")[:2] for line in said] == [
        ["step 4", "ahead"],
        ["step 8", "ahead"],
        ["step 12", "no reference"],
    ]


def reproduced(folder: Path, monkeypatch: pytest.MonkeyPatch, *overrides: str) -> list[Any]:
    """Reproduce multi30k with a training that ends at once; the observers that it was given."""
    observers = []

    def train_and_report(config: TrainConfig, observe: Any) -> Trained:
        assert type(config) is TrainConfig
        observers.append(observe)
        (folder / "run").mkdir(exist_ok=True)
        (folder / "run" / MODEL_FILE).write_bytes(toy_run.packed(toy_run.model_file()))
        (folder / "run" / "metrics.jsonl").write_text('{"step": 20, "kind": "train", "tokens": 12345}\n')
        scores: dict[str, float | None] = {"test BLEU": 38.1, "test tokenised BLEU": 38.75, "test TER": 46.0}
        return Trained(folder / "run", 38.1, 20, {}, True, scores)

    monkeypatch.setattr(reproduce_run, "train_and_report", train_and_report)
    flags = {"reproduction": "multi30k", "runs": str(folder / "runs")}
    config = load_config("reproduce", ["device=cpu", *overrides], flags=flags)
    assert isinstance(config, ReproduceConfig)
    reproduce_run.reproduce(config, read_reproduction("multi30k"))
    return observers


def test_at_the_end_the_published_score_stands_beside_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (observer,) = reproduced(tmp_path, monkeypatch, "seed=2")
    assert observer is not None
    printed = capsys.readouterr().out
    assert re.search(r"^ +published +reference +this run$", printed, re.MULTILINE)
    assert re.search(r"^test tokenised BLEU +41\.02 +41\.79 +38\.75$", printed, re.MULTILINE)
    assert re.search(r"^test BLEU +- +41\.41 +38\.10$", printed, re.MULTILINE)
    assert "Wu et al. 2021" in printed
    assert "commit 3a72946" in printed
    assert re.search(r"^this run    20 updates, 12,345 target tokens, torch", printed, re.MULTILINE)
    for word in ("lower-casing", "hardware", "tokens seen", "averaging", "tokenization"):
        assert word in printed
    assert "not the recipe" not in printed


def test_a_run_that_departs_from_the_recipe_is_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduced(tmp_path, monkeypatch, "train.max_steps=20") == [None]
    out = capsys.readouterr().out
    assert "train.max_steps=20: not the recipe, so its scores are not comparable" in out
    assert reproduced(tmp_path, monkeypatch, "decode.beam_size=2")[0].__self__.metric is None


def test_the_recipe_is_the_experiment_of_the_same_name() -> None:
    plain = load_config("train", ["experiment=multi30k", "seed=3"])
    config = load_config("reproduce", ["seed=3"], flags={"reproduction": "multi30k"})
    assert TrainConfig(**{name: getattr(config, name) for name in vars(plain)}) == plain


def test_the_recipe_of_the_demo_is_what_train_does() -> None:
    assert load_config("train", ["experiment=demo_en_fr"]) == load_config("train")


def test_without_a_name_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce"]) == 0
    printed = capsys.readouterr().out
    assert [line.split()[0] for line in printed.split("\n") if line[:1].isalnum()] == names()
    assert printed.count("never run") == 6
    assert "41.02" in printed


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["multi3k"], "no reproduction called `multi3k`; did you mean `multi30k`?"),
        (["zzz"], "no reproduction called `zzz`; `tfm reproduce` lists all"),
        (["../secret"], "no reproduction called `../secret`"),
        (["reproduction=multi3k"], "no reproduction called `multi3k`; did you mean `multi30k`?"),
        (
            ["experiment=sst2"],
            "experiment=sst2: no recipe is named. Name one, as `tfm reproduce multi30k experiment=sst2`",
        ),
        (["multi30k", "experiment=sst2"], "experiment=sst2: multi30k is an experiment itself"),
        (["multi30k", "sst2"], "'sst2': a second reproduction after 'multi30k'"),
        (["multi30k", "train.max_step=3"], "did you mean `train.max_steps`?"),
    ],
)
def test_a_wrong_command_line_is_refused(capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    assert main(["reproduce", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_names_are_completed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--complete", "reproduce", "paper"]) == 0
    assert capsys.readouterr().out == "paper_base\npaper_big\n"


def test_a_whole_run_reports_as_train_does_and_compares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed, (name, n) in enumerate({"train": 60, "dev": 10, "test": 10}.items()):
        (tmp_path / f"{name}.tsv").write_text(table(n, seed=seed))
    small = ["data.tokenizer.vocab_size=30", "train.max_steps=4", "train.eval_every=2", "train.save_every=2"]
    command = ["reproduce", "sst2", "device=cpu", "data.root=.", f"data.cache={tmp_path / 'cache'}", *small]
    for ending in ("ends in", "already finished"):
        assert main(command) == 0
        out, err = capsys.readouterr()
        assert "data.tokenizer.vocab_size=30, train.max_steps=4: not the recipe; the curve and the scores do not" in err
        assert "reference   " in err
        assert "on track:" not in err
        assert re.search(r"^accuracy +[\d.]+ ", out, re.MULTILINE)
        assert re.search(r"^test accuracy +82\.70 +[\d.]+ +[\d.]+$", out, re.MULTILINE)
        assert (ending == "already finished") == (ending in err)


def test_the_folder_of_the_references_has_no_key_s_name() -> None:
    assert not any(
        REPRODUCTIONS_FOLDER in fields_of(schema) for schema in [one.schema for _, one in COMMANDS.items()]
    )  # Hydra would take it for a group
