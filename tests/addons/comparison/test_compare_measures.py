"""The measures of a comparison, against hand computations and tables."""

import json
import math
import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.each import each
from transformer_cli.addons.comparison import compare_models
from transformer_cli.addons.comparison.breakdowns import Frequencies, by_frequency, by_length
from transformer_cli.addons.comparison.groups import compare_groups, config_differences, find_groups, welch_p_value
from transformer_cli.addons.comparison.measure import _counts
from transformer_cli.addons.comparison.runs import flat_text, read_curves
from transformer_cli.addons.comparison.systems import is_model, short_names
from transformer_cli.evaluation.metrics import (
    METRICS,
    SENTENCE_METRICS,
    MetricSettings,
    Score,
    SentenceScores,
    Translations,
    bleu,
)
from transformer_cli.evaluation.significance import (
    Draws,
    MetricComparison,
    Resampling,
    SystemScore,
    compare_systems,
    statistics_of,
)
from transformer_cli.evaluation.text_statistics import text_statistics


def two_tailed(t: float, freedom: float) -> float:
    """The p-value by Simpson's rule over the density of Student's t, whose tails are integrated in x = 1 / t."""
    front = math.gamma((freedom + 1) / 2) / math.sqrt(freedom * math.pi) / math.gamma(freedom / 2)

    def tail(x: float) -> float:
        return front * (1 + 1 / (x * x * freedom)) ** (-(freedom + 1) / 2) / (x * x) if x else 0.0

    n, end = 20_000, 1 / t
    weights = [1, *(4 if i % 2 else 2 for i in range(1, n)), 1]
    return 2 * sum(w * tail(end * i / n) for i, w in enumerate(weights)) * end / n / 3


def test_welchs_test_gives_the_quantiles_of_students_table() -> None:
    # Samples of n values with equal variances have 2n - 2 degrees of freedom: t = 2.776 for 4, 2.101 for 18 at 0.05.
    for n, quantile in ((3, 2.776445), (10, 2.100922)):
        ours = [float(i) for i in range(n)]
        error = math.sqrt(2 * (n * (n + 1) / 12) / n)
        assert welch_p_value(ours, [x + quantile * error for x in ours]) == pytest.approx(0.05, abs=1e-6)


def test_welchs_test_of_unequal_variances_is_the_integral_of_the_density() -> None:
    ours, theirs = [27.1, 27.4, 26.9, 27.3], [27.9, 29.5, 28.2]
    errors = [sum((x - sum(v) / len(v)) ** 2 for x in v) / (len(v) - 1) / len(v) for v in (ours, theirs)]
    t = (sum(theirs) / 3 - sum(ours) / 4) / math.sqrt(sum(errors))
    freedom = sum(errors) ** 2 / (errors[0] ** 2 / 3 + errors[1] ** 2 / 2)
    assert welch_p_value(ours, theirs) == pytest.approx(two_tailed(t, freedom), rel=1e-6)


def test_welchs_test_needs_two_values_and_a_variance() -> None:
    assert welch_p_value([1.0], [2.0, 3.0]) is None
    assert welch_p_value([1.0, 1.0], [2.0, 2.0]) is None
    assert welch_p_value([1.0, 2.0], [1.0, 2.0]) == 1


def run_config(seed: int, lr: str = "0.1", name: str = "x") -> dict[str, str]:
    return {"name": name, "seed": str(seed), "schedule.lr": lr}


def test_runs_of_a_group_may_differ_in_place_and_log_but_not_in_what_a_user_may_compare() -> None:
    def groups(key: str, *values: str) -> list[str | None]:
        configs = [{**run_config(seed), key: value} for seed, value in enumerate(values)]
        return list(find_groups(["a1", "a2"], configs).group_of)

    for key in ("train.log_every", "train.samples", "plugins", "comet.python", "data.cache"):
        assert groups(key, "1", "2") == ["a", "a"], key
    for key in ("train.compile", "train.precision", "decode.beam_size", "schedule.options.later"):
        assert groups(key, "1", "2") == [None, None], key


def test_runs_that_differ_in_their_seed_alone_are_a_group() -> None:
    names = ["old-seed=1", "old-seed=2", "new_s1", "new_s2", "alone", "file"]
    configs = [run_config(1), run_config(2), run_config(1, "0.2"), run_config(2, "0.2"), run_config(1, "0.3"), None]
    grouping = find_groups(names, configs)
    assert grouping.group_of == ["old", "old", "new", "new", None, None]
    assert grouping.notes[0].startswith("Group old: old-seed=1 (seed 1), old-seed=2 (seed 2)")
    scores = [SystemScore(x, x, 0.0) for x in (30.0, 31.0, 33.0, 34.0, 20.0, 10.0)]
    metric = MetricComparison("BLEU", "", True, scores, [None] * 6)
    groups, comparisons = compare_groups(names, grouping, [metric])
    assert [(one.group, one.n_runs, one.mean, one.lowest) for one in groups[:3]] == [
        ("old", 2, 30.5, 30.0),
        ("new", 2, 33.5, 33.0),
        ("alone", 1, 20.0, 20.0),
    ]
    assert groups[0].deviation == pytest.approx(math.sqrt(0.5))  # of a sample
    assert [(one.group, one.difference, one.p_value is None) for one in comparisons] == [
        ("new", 3.0, False),
        ("alone", -10.5, True),
        ("file", -20.5, True),
    ]


def test_a_copy_of_a_run_is_no_other_run() -> None:
    grouping = find_groups(["a", "copy"], [run_config(1), run_config(1, name="y")])
    assert grouping.group_of == [None, None]
    assert grouping.notes == ["copy has the config and the seed of a, so it is not counted as another run"]


def test_differences_of_configs_name_each_value() -> None:
    (found,) = config_differences(
        [flat_text({"a": {"b": 1}, "name": "x"}), None, flat_text({"a": {"b": [2]}, "name": "y"})]
    )
    assert (found.key, found.values) == ("a.b", ["1", None, "[2]"])


def test_curves_are_the_dev_scores_and_the_last_of_an_update_counts(tmp_path: Path) -> None:
    entries = [
        {"step": 1, "kind": "train", "nll": 3.0},
        {"step": 2, "kind": "dev", "dev_nll": 2.0, "dev_ppl": 7.4, "bleu_signature": "x"},
        {"step": 2, "kind": "dev", "dev_nll": 1.5},
    ]
    text = "".join(f"{json.dumps(entry)}\n" for entry in entries) + '{"step": 3, "ki'
    (tmp_path / "metrics.jsonl").write_text(text)
    (curve,) = read_curves(tmp_path, 4)
    assert (curve.system, curve.metric, curve.points) == (4, "dev_nll", [(2, 1.5)])
    assert read_curves(tmp_path / "nowhere", 0) == []


def test_word_f1_by_frequency_is_the_hand_computed_one() -> None:
    references = [Counter(["the", "cat", "sat", "the"]), Counter(["dog"])]
    system = [Counter(["the", "the", "the", "cat"]), Counter(["cat"])]
    frequencies = Frequencies({"the": 12, "cat": 1, "sat": 1}, "the training text")
    found = by_frequency([system], references, frequencies)
    # `the`: 2 of 3 written are right, 2 of 2 wanted. cat, sat: 1 of 2 written, 1 of 2 wanted. dog: never written.
    assert [(one.label, one.n) for one in found.buckets] == [("0", 1), ("1", 2), ("10-99", 2)]
    scores = [one.scores[0] for one in found.buckets]
    assert scores == pytest.approx([0, 50, 100 * 2 * (2 / 3) * 1 / (2 / 3 + 1)])


def test_scores_by_length_are_those_of_the_lines_of_that_length() -> None:
    draw = random.Random(1)
    lengths = [0, 3, 10, 11, 25, 60, 7]
    references = [" ".join(draw.choices("abcde", k=n)) for n in lengths]
    hypotheses = [line.replace("a b", "b a") for line in references]
    statistics = statistics_of("bleu", [Translations(hypotheses, [references])], MetricSettings())
    found = by_length(statistics, lengths)
    assert [(one.label, one.n) for one in found.buckets] == [
        ("0", 1),
        ("1-10", 3),
        ("11-20", 1),
        ("21-30", 1),
        ("51+", 1),
    ]
    short = [1, 2, 6]
    expected = bleu([hypotheses[i] for i in short], [[references[i] for i in short]]).value
    assert found.buckets[1].scores == [expected]


def test_a_metric_of_sentences_is_tested_by_its_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bootstrap p-value, by its definition, with the resamples of sacrebleu."""

    def length(translations: Translations, settings: MetricSettings) -> SentenceScores:
        return SentenceScores("length", [float(len(line)) for line in translations.hypotheses], "v:1")

    monkeypatch.setattr(METRICS, "_entries", dict(METRICS._entries))
    monkeypatch.setattr(SENTENCE_METRICS, "_entries", dict(SENTENCE_METRICS._entries))
    METRICS.register("length")(lambda translations, settings: [Score("length", 0.0, "v:1")])
    SENTENCE_METRICS.register("length")(length)
    draw = random.Random(1)
    systems = [["x" * draw.randint(1, 9) for _ in range(30)] for _ in range(2)]
    statistics = statistics_of("length", [Translations(one, [one]) for one in systems], MetricSettings())
    draws = Draws(30, Resampling(5, 200, 300))
    found = compare_systems(statistics, draws)
    means = [[sum(len(one[i]) for i in lines) / 30 for lines in draws.resamples.tolist()] for one in systems]
    gaps = [abs(b - a) for a, b in zip(*means, strict=True)]
    observed = abs(sum(map(len, systems[1])) - sum(map(len, systems[0]))) / 30
    expected = (sum(gap - sum(gaps) / 200 > observed for gap in gaps) + 1) / 201
    result = found.against_baseline[1]
    assert result is not None
    assert abs(result.difference) == pytest.approx(observed)
    assert result.p_bootstrap == expected
    assert found.signature == "v:1|seed:5|bs:200|ar:300"


@each(
    "paths, names",
    [
        (["runs/a", "runs/b/model.safetensors"], ["a", "b"]),
        (["x/out.de", "y/out.de", "y/out.fr"], ["x/out.de", "y/out.de", "out.fr"]),
        (["out.de", "x/out.de"], ["out.de", "x/out.de"]),
        (["a", "a", "b"], ["a", "a (2)", "b"]),
    ],
)
def test_names_are_the_shortest_that_differ(paths: list[str], names: list[str]) -> None:
    assert short_names(paths) == names


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("out.de", b"Ein Satz.\n", False),
        ("out.de", "für\n".encode("latin-1"), False),
        ("out.de", b"", False),
        ("model.npz", b"PK\x03\x04 and numbers", True),
        ("anything", b"\x80\x02}q\x00(X\x05\x00\x00\x00modelq", True),
        ("x.safetensors", b"a text", True),
    ],
)
def test_models_are_told_from_texts_by_their_content(tmp_path: Path, name: str, content: bytes, expected: bool) -> None:
    (tmp_path / name).write_bytes(content)
    assert is_model(tmp_path / name) is expected


@pytest.mark.parametrize(
    ("n_lines", "name"),
    [
        (10, "the training text of m"),
        (11, "6 lines of the training text of m"),
        (25, "9 lines of the training text of m"),
    ],
)
def test_words_are_counted_in_a_part_of_a_large_training_text(
    n_lines: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare_models, "MOST_LINES", 10)
    monkeypatch.setattr(compare_models, "prepared_corpus", lambda model: SimpleNamespace(train=range(n_lines)))
    model = SimpleNamespace(is_run=False, run_dir=None, name="m")
    assert compare_models.background_of([None, model]).training_text == name  # type: ignore[list-item]


def test_counts_have_the_names_of_evaluate() -> None:
    found = text_statistics(Translations(["a 1", "b"], [["a 2", "b"]], ["c 1", "d https://x.example"]))
    expected: dict[str, object] = {}
    for name, value in found.as_dict().items():
        if isinstance(value, dict):
            expected |= {f"lines_with_{name}": value["lines"], f"lines_that_lose_{name}": value["lost"]}
        elif name not in ("lines", "length_unit", "empty", "compared_with"):
            expected[name] = value
    assert _counts(found) == expected
    assert expected["lines_that_lose_urls"] == 1
