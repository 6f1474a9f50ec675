"""`tfm rerank`: the best of n-best lists by tuned weights; the line search against trying every value."""

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.support.contract import refused, run
from tests.support.forked import Ran
from tests.toy.models import random_file
from tests.toy.run import MODEL, packed, sentences, tokenizers
from transformer_cli.addons.reranking.nbest import read_nbest
from transformer_cli.addons.reranking.tuning import Lists, best_step, envelope, starting_points, tune

WORDS = ["a", "b", "c", "d", "e", "f", "g", "h"]


def lists_of(n: int, *, seed: int, n_features: int = 2, digits: int | None = None) -> Lists:
    """Lists of 1 to 6 candidates, whose score is the share of counts that match; drawn features, or whole numbers."""
    draw = np.random.default_rng(seed)
    sizes = draw.integers(1, 7, size=n)
    starts = [0, *np.cumsum(sizes).tolist()]
    features = draw.normal(size=(starts[-1], n_features))
    counts = np.stack([draw.integers(0, 9, size=starts[-1]), np.full(starts[-1], 9)], 1).astype(float)
    features = features if digits is None else features.round(digits)
    return Lists(features, counts, starts, lambda sums: sums[0] / sums[1])


# ---- The line search


@pytest.mark.parametrize("seed", range(20))
def test_the_envelope_has_the_highest_line_everywhere(seed: int) -> None:
    draw = random.Random(seed)
    offsets = np.array([draw.choice([-1.0, 0.0, 0.5, draw.random()]) for _ in range(8)])
    slopes = np.array([draw.choice([-1.0, 0.0, 0.5, draw.random()]) for _ in range(8)])
    lines, corners = envelope(offsets, slopes)
    assert corners == sorted(corners)
    for gamma in np.linspace(-30, 30, 1201):
        chosen = lines[sum(corner < gamma for corner in corners)]
        assert offsets[chosen] + gamma * slopes[chosen] == pytest.approx((offsets + gamma * slopes).max())


@pytest.mark.parametrize("digits", [None, 1], ids=["drawn", "with ties"])
@pytest.mark.parametrize("seed", range(10))
def test_no_value_of_a_fine_grid_scores_higher_than_the_step(seed: int, digits: int | None) -> None:
    lists = lists_of(12, seed=seed, digits=digits)
    weights, direction = np.array([1.0, 0.3]), np.array([0.0, 1.0])
    step, score = best_step(lists, weights, direction)
    grid = [lists.score(weights + gamma * direction) for gamma in np.linspace(-40, 40, 4001)]
    assert score >= max(grid) - 1e-12
    if digits is None:  # where candidates tie, the first is taken, which no line search sees
        assert lists.score(weights + step * direction) == pytest.approx(score)


def test_a_step_that_gains_nothing_is_none() -> None:
    lists = lists_of(5, seed=1)
    lists.counts[:] = 1
    assert best_step(lists, np.array([1.0, 0.0]), np.array([0.0, 1.0]))[0] == 0


def test_tuned_weights_are_at_least_as_good_as_the_starts_and_the_same_each_time() -> None:
    lists = lists_of(30, seed=3, n_features=3)
    starts = starting_points(lists.features_CF, np.array([1.0, 0.0, 0.0]), 5, seed=1)
    weights, score = tune(lists, starts)
    assert score == lists.score(weights) >= max(map(lists.score, starts))
    again, same = tune(lists, starting_points(lists.features_CF, np.array([1.0, 0.0, 0.0]), 5, seed=1))
    assert (again == weights).all()
    assert same == score


def test_separable_lists_are_separated() -> None:
    """The best candidates are those with the highest of 2·x - y + 0.5·z, which the search must find from x alone."""
    draw = np.random.default_rng(1)
    features = draw.normal(size=(200, 3))
    starts = list(range(0, 201, 5))
    counts = np.zeros((200, 2))
    counts[:, 1] = 1
    totals = features @ np.array([2.0, -1.0, 0.5])
    for start in starts[:-1]:
        counts[start + int(totals[start : start + 5].argmax()), 0] = 1
    lists = Lists(features, counts, starts, lambda sums: sums[0] / sums[1])
    first = np.array([1.0, 0.0, 0.0])
    assert lists.score(first) < 0.8
    _, score = tune(lists, starting_points(features, first, 20, seed=1))
    assert score == 1.0


# ---- The command


def candidates(seed: int, n: int = 12) -> tuple[list[list[str]], list[str], list[int]]:
    """Lists of four translations, the references, and which candidate is the reference."""
    draw = random.Random(seed)
    lists, references, places = [], [], []
    for _ in range(n):
        reference = " ".join(draw.choices(WORDS, k=8))
        others = [" ".join(draw.choices(WORDS, k=8)) for _ in range(3)]
        place = draw.randrange(4)
        lists.append([*others[:place], reference, *others[place:]])
        references.append(reference)
        places.append(place)
    return lists, references, places


def write(folder: Path, seed: int = 1) -> list[str]:
    """N-best lists in which the model prefers another translation, and a feature that is highest for the reference."""
    lists, references, places = candidates(seed)
    rows, values = [], []
    draw = random.Random(seed)
    for number, (texts, place) in enumerate(zip(lists, places, strict=True), 1):
        for rank, text in enumerate(texts):
            rows.append(f"{number} ||| {text} ||| {-0.1 * rank:.4f}\n")
            values.append(f"{(rank == place) + draw.random() / 2}\n")
    (folder / "nbest").write_text("".join(rows), encoding="utf-8")
    (folder / "values").write_text("".join(values), encoding="utf-8")
    (folder / "reference").write_text("".join(f"{line}\n" for line in references), encoding="utf-8")
    return references


FEATURE = ("--feature", "good=values")


def rerank(folder: Path, *arguments: str, stdin: bytes = b"") -> Ran:
    ran = run(["rerank", "--nbest", "nbest", *arguments], folder, stdin=stdin)
    assert ran.code == 0, ran.err
    return ran


@pytest.mark.parametrize("metric", ["bleu", "chrf", "ter"])
def test_weights_that_separate_are_found_saved_and_applied(tmp_path: Path, metric: str) -> None:
    references = write(tmp_path)
    ran = rerank(tmp_path, "--reference", "reference", *FEATURE, "--save", "w.json", "--metric", metric)
    best = "0.00" if metric == "ter" else "100.00"
    assert f", {best} reranked".encode() in ran.out
    content = json.loads((tmp_path / "w.json").read_bytes())
    assert content["weights"].keys() == {"score", "length", "good"}
    assert sum(map(abs, content["weights"].values())) == pytest.approx(1)
    assert content["metric"] == metric
    found = rerank(tmp_path, "--weights", "w.json", *FEATURE)
    assert found.out.decode().split("\n")[:-1] == references
    rerank(tmp_path, "--weights", "w.json", *FEATURE, "--output", "out")
    assert (tmp_path / "out").read_bytes() == found.out


def test_the_same_command_finds_the_same_weights(tmp_path: Path) -> None:
    write(tmp_path)
    command = ("--reference", "reference", *FEATURE, "--overwrite", "--save", "w.json")
    rerank(tmp_path, *command)
    first = (tmp_path / "w.json").read_bytes()
    rerank(tmp_path, *command)
    assert (tmp_path / "w.json").read_bytes() == first


def test_equal_candidates_stay_in_the_given_order(tmp_path: Path) -> None:
    (tmp_path / "nbest").write_text("0 ||| a b ||| 0.5\n0 ||| c d ||| 0.5\n1 ||| e ||| 0\n1 ||| f ||| 0\n")
    (tmp_path / "w.json").write_text(
        json.dumps({"format": 1, "metric": "bleu", "weights": {"score": 1.0, "length": 0.5}})
    )
    assert rerank(tmp_path, "--weights", "w.json").out == b"a b\ne\n"


def test_the_formats_of_translate_give_the_same_lists(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(packed(random_file(MODEL, tokenizers(), seed=3, data={"name": "copy"})))
    lines = "".join(f"{line}\n" for line in [*sentences(3, seed=1), "", "a b"])
    found = {}
    for form in ("text", "moses", "jsonl"):
        command = ["translate", "--checkpoint", "m", "--device", "cpu", "--engine", "torch", "--n-best", "3"]
        search = ["--beam", "3", "--output-format", form, "decode.max_length=8"]
        ran = run([*command, *search], tmp_path, stdin=lines.encode())
        (tmp_path / form).write_bytes(ran.out)
        found[form] = read_nbest(tmp_path / form)
    assert found["text"].texts == found["moses"].texts == found["jsonl"].texts
    assert found["text"].starts == found["moses"].starts == found["jsonl"].starts
    assert len(found["text"]) == 5
    assert found["text"].features["score"] == pytest.approx(found["jsonl"].features["score"], abs=1e-4)
    assert found["moses"].features["log_prob"] == pytest.approx(found["jsonl"].features["log_prob"], abs=1e-4)
    assert [*found["text"].features] == ["score", "length"]


def test_a_translation_may_hold_the_bars_that_divide_fields(tmp_path: Path) -> None:
    (tmp_path / "nbest").write_text("0 ||| a ||| b ||| lm= -1 2 other= 3 ||| -0.5\n0 ||| c ||| d ||| -1\n")
    with pytest.raises(Exception, match="has the features score, and the first"):
        read_nbest(tmp_path / "nbest")
    (tmp_path / "nbest").write_text("0 ||| a ||| b ||| lm= -1 2 other= 3 ||| -0.5\n")
    found = read_nbest(tmp_path / "nbest")
    assert found.texts == ["a ||| b"]
    assert found.features == {"score": [-0.5], "lm_1": [-1], "lm_2": [2], "other": [3], "length": [3]}


def model_scores(folder: Path, model: str, pairs: Sequence[tuple[str, str]]) -> list[float]:
    text = "".join(f"{source}\t{target}\n" for source, target in pairs)
    ran = run(["score", "--checkpoint", model, "--device", "cpu"], folder, stdin=text.encode())
    return [float(line) for line in ran.out.split()]


def test_models_give_the_scores_of_tfm_score(tmp_path: Path) -> None:
    lines, others = sentences(2, seed=1), sentences(4, seed=2)
    for name, languages, seed in (("m", "en-fr", 3), ("back", "fr-en", 4)):
        (tmp_path / name).write_bytes(packed(random_file(MODEL, tokenizers(), languages, seed=seed)))
    rows = [f"{number} ||| {text} ||| 0\n" for number, text in zip([0, 0, 1, 1], others, strict=True)]
    (tmp_path / "nbest").write_text("".join(rows))
    (tmp_path / "source").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "w.json").write_text(
        json.dumps({"format": 1, "metric": "bleu", "weights": {"reverse": 1.0, "forward": 0.5}})
    )
    ran = rerank(
        tmp_path, "--weights", "w.json", "--source", "source", "--forward", "m", "--reverse", "back", "--device", "cpu"
    )
    pairs = [(lines[n // 2], text) for n, text in enumerate(others)]
    forward = model_scores(tmp_path, "m", pairs)
    reverse = model_scores(tmp_path, "back", [(text, line) for line, text in pairs])
    totals = [r + 0.5 * f for r, f in zip(reverse, forward, strict=True)]
    expected = [others[0 if totals[0] >= totals[1] else 1], others[2 if totals[2] >= totals[3] else 3]]
    assert ran.out.decode().split("\n")[:-1] == expected
    assert b"the weights do not use the features score, length" in ran.err
    assert b"reverse: fr \xe2\x86\x92 en with back" in ran.err


@pytest.mark.parametrize(
    ("files", "arguments", "says"),
    [
        ({"reference": "a\n"}, ["--reference", "reference"], ["reference: has 1 lines", "lists of 12 sentences"]),
        ({"values": "1\n2\n"}, ["--reference", "reference", *FEATURE], ["values: has 2 values", "48 candidates"]),
        ({"values": "1\nx\n"}, ["--reference", "reference", *FEATURE], ["values:2: 'x' is no number"]),
        ({"values": "nan\n" * 48}, ["--reference", "reference", *FEATURE], ["value 1 is nan, not a finite number"]),
        ({"nbest": "0 ||| a ||| nan\n"}, ["--reference", "reference"], ["value 1 is nan"]),
        ({"nbest": "0 ||| a ||| 1\n2 ||| b ||| 1\n"}, ["--reference", "reference"], ["nbest:2", "sentence 1 is next"]),
        ({"nbest": "3 ||| a ||| 1\n"}, ["--reference", "reference"], ["nbest:1", "sentence 3"]),
        ({"nbest": "just text\n"}, ["--reference", "reference"], ["nbest:1: 'just text' is no candidate"]),
        ({"nbest": '{"line": 1}\n'}, ["--reference", "reference"], ["nbest:1: no object of"]),
        ({"nbest": ""}, ["--reference", "reference"], ["nbest: is empty"]),
        ({"w.json": "{}"}, ["--weights", "w.json"], ["w.json: no file of weights"]),
        (
            {"w.json": json.dumps({"format": 1, "metric": "bleu", "weights": {"reverse": 1}})},
            ["--weights", "w.json"],
            ["nbest: has no feature reverse", "features: score, length"],
        ),
        ({}, ["--reference", "reference", "--feature", "score=values"], ["the feature score is there already"]),
        (
            {"nbest": "0 ||| a ||| score= 2 ||| -1\n"},
            ["--reference", "reference"],
            ["nbest:1: has two features score."],
        ),
        ({"nbest": "0 ||| a ||| f= 2 f= 1 ||| -1\n"}, ["--reference", "reference"], ["nbest:1: has two features f."]),
        ({"nbest": "0 ||| a ||| f= 2 3 f_1= 1 ||| -1\n"}, ["--reference", "reference"], ["two features f_1."]),
    ],
)
def test_lists_that_do_not_fit_are_refused(
    tmp_path: Path, files: dict[str, str], arguments: list[str], says: list[str]
) -> None:
    write(tmp_path)
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    refused(["rerank", "--nbest", "nbest", *arguments], tmp_path, code=3, says=says)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--nbest: not given"),
        (["--nbest", "nbest"], "--reference: not given, nor --weights"),
        (["--nbest", "nbest", "--reference", "reference", "--weights", "values"], "Leave one of them out"),
        (["--nbest", "nbest", "--weights", "values", "--save", "x"], "--save x: is for weights that --reference tunes"),
        (["--nbest", "nbest", "--reference", "reference", "--output", "x"], "--output x: is for translations"),
        (["--nbest", "nbest", "--reference", "reference", "--feature", "values"], "Write NAME=FILE"),
        (["--nbest", "nbest", "--reference", "reference", "--reverse", "m"], "--source: not given"),
    ],
)
def test_flags_that_do_not_fit_are_refused(tmp_path: Path, arguments: list[str], says: str) -> None:
    write(tmp_path)
    refused(["rerank", *arguments], tmp_path, code=2, says=[says])


@pytest.mark.slow
def test_the_step_is_exact_for_bleu_of_many_lists() -> None:
    from transformer_cli.evaluation.metrics import MetricSettings, Translations
    from transformer_cli.evaluation.significance import statistics_of

    lists, references, _ = candidates(5, n=150)
    by_rank = [Translations([texts[rank] for texts in lists], [references]) for rank in range(4)]
    statistics = statistics_of("bleu", by_rank, MetricSettings())
    counts = np.array(statistics.rows, dtype=float).transpose(1, 0, 2).reshape(600, -1)
    features = np.random.default_rng(1).normal(size=(600, 2))
    found = Lists(features, counts, list(range(0, 601, 4)), lambda sums: float(statistics.score_of(sums)))
    _, score = best_step(found, np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    corners = np.tan(np.linspace(-math.pi / 2 + 1e-6, math.pi / 2 - 1e-6, 20_001))
    assert score >= max(found.score(np.array([1.0, gamma])) for gamma in corners) - 1e-9
