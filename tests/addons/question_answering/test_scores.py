"""Exact match and F1 against examples computed by hand, and against another implementation where it is installed."""

import random

import pytest

from transformer_cli.addons.question_answering.scores import (
    answer_report,
    exact_match,
    f1,
    mean_scores,
    normalized_answer,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Eiffel Tower.", "eiffel tower"),
        ("An apple, a pear", "apple pear"),
        ("theatre", "theatre"),  # an article within a word is none
        ("U.S.A.", "usa"),  # punctuation goes first, and leaves no space
        ("the", ""),
        ("«été»", "«été»"),  # punctuation is that of ASCII
    ],
)
def test_answers_are_normalized_as_the_script_of_squad_does(text: str, expected: str) -> None:
    assert normalized_answer(text) == expected


@pytest.mark.parametrize(
    ("predicted", "wanted", "em", "word_f1"),
    [
        ("the Eiffel tower", ["Eiffel Tower"], 1, 1),
        ("in the Eiffel Tower", ["Eiffel Tower"], 0, 0.8),  # precision 2/3, recall 1
        ("tower", ["Eiffel Tower", "the tower"], 1, 1),  # the best of several
        ("dog dog", ["dog cat"], 0, 0.5),  # a word counts as often as it is in both: 1/2 and 1/2
        ("cat", ["dog"], 0, 0),
        ("", ["dog"], 0, 0),
        ("", [], 1, 1),  # no answer, and none wanted
        ("dog", [], 0, 0),
        ("the", ["the", "a dog"], 0, 0),  # an answer of articles alone is none
    ],
)
def test_the_scores_are_those_of_the_definition(predicted: str, wanted: list[str], em: float, word_f1: float) -> None:
    assert exact_match(predicted, wanted) == em
    assert f1(predicted, wanted) == pytest.approx(word_f1)


def test_the_report_has_both_kinds_of_questions_apart() -> None:
    report = answer_report(["a dog", "", "cat", "x"], [["dog"], [], ["black cat"], []], seed=1)
    assert report.exact_match.score == 50
    assert report.f1.score == pytest.approx(100 * (1 + 1 + 2 / 3 + 0) / 4)
    assert [(p.part, p.exact_match, p.n_questions) for p in report.parts] == [
        ("with an answer", 50, 2),
        ("without", 50, 2),
    ]
    assert report.exact_match.low <= 50 <= report.exact_match.high
    assert report.lines()[0].startswith("exact match   50.00  [")


def test_the_scores_are_those_of_torchmetrics() -> None:
    metric = pytest.importorskip("torchmetrics.text").SQuAD()
    draw = random.Random(1)
    words = ["The", "a", "dog", "cat,", "Red", "tower.", "1990", "été", "-"]

    def text() -> str:
        # With a word that is left of it: of answers that are articles alone the versions of the definition differ.
        return " ".join([*draw.choices(words, k=draw.randint(0, 4)), draw.choice(words[2:8])])

    predicted = [text() for _ in range(500)]
    wanted = [[text() for _ in range(draw.randint(1, 4))] for _ in predicted]
    found = metric(
        [{"prediction_text": one, "id": str(n)} for n, one in enumerate(predicted)],
        [{"answers": {"answer_start": [0] * len(one), "text": one}, "id": str(n)} for n, one in enumerate(wanted)],
    )
    assert mean_scores(predicted, wanted) == pytest.approx((float(found["exact_match"]), float(found["f1"])), abs=1e-3)
