"""Records of an explained search as tables, letter for letter."""

from typing import Any

from tests.support.each import each
from transformer_cli.decoding.explain_table import explanation_table

LIKELIEST = [{"token": "▁a", "probability": 0.75}, {"token": "▁b", "probability": 0.0001, "allowed": False}]
STEPS = [
    {"token": "▁a", "probability": 0.75, "token_log_prob": -0.28768, "likeliest": LIKELIEST},
    {"token": "</s>", "probability": 0.5, "token_log_prob": -0.69315, "likeliest": LIKELIEST[:1]},
]


def segment(**changes: Any) -> dict[str, Any]:
    return {"source": ["▁x"], "translation": "a", "steps": STEPS, "hypotheses": [], "path": [], "ranking": []} | changes


def reference(smoothing: float | None) -> dict[str, Any]:
    more = {} if smoothing is None else {"smoothed": 0.9, "loss": 0.5}
    step = {"token": "▁猫", "probability": 0.25, "rank": 2, "token_log_prob": -1.38629, "likeliest": LIKELIEST[:1]}
    end = {"token": "</s>", "probability": 0.5, "rank": 1, "token_log_prob": -0.69315, "likeliest": []}
    return {
        "label_smoothing": smoothing,
        "translation": "猫",
        "steps": [step | more, end | more],
        "log_prob": -2.07944,
        "vocabulary": 8000,
    }


def table(*segments: dict[str, Any], **explanation: Any) -> list[str]:
    return explanation_table(3, "x y", {"segments": list(segments), **explanation}).split("\n")


STEPS_TABLE = [
    "step  token      p   log p  likeliest tokens",
    "   1  ▁a     0.750  -0.288  ▁a 0.750  ▁b 1e-04 (banned)",
    "   2  </s>   0.500  -0.693  ▁a 0.750",
    "sum of log p: -0.981",
]


def test_the_steps_of_a_line() -> None:
    assert table(segment()) == ["line 3: x y", "translation: a", "", *STEPS_TABLE, "", ""]


def test_what_was_drawn_has_a_column() -> None:
    drawn = [STEPS[0] | {"drawn": 0.875}, STEPS[1] | {"drawn": 1.0}]
    assert table(segment(steps=drawn))[3:6] == [
        "step  token      p   log p  drawn with  likeliest tokens",
        "   1  ▁a     0.750  -0.288       0.875  ▁a 0.750  ▁b 1e-04 (banned)",
        "   2  </s>   0.500  -0.693       1.000  ▁a 0.750",
    ]


def test_parts_of_a_line_are_numbered_and_a_blank_line_has_none() -> None:
    lines = table(segment(), segment(source=["▁y", "."], translation="b"))
    assert "translation: a (part 1 of 2: ▁x)" in lines
    assert "translation: b (part 2 of 2: ▁y .)" in lines
    assert table() == ["line 3: x y", "translation: nothing, as the line is blank", "", ""]


def hypothesis(number: int, parent: int, token: str, fate: str, **more: Any) -> dict[str, Any]:
    numbers = {"probability": 0.5, "log_prob": -number / 10, "score": -number / 20}
    return {"id": number, "parent": parent, "step": 1, "token": token, "fate": fate, **numbers, **more}


def test_the_beam_of_each_step_stands_under_what_it_continues() -> None:
    found = [
        hypothesis(1, 0, "▁a", "kept"),
        hypothesis(2, 0, "▁b", "dropped", lacks_terms=True),
        hypothesis(3, 1, "</s>", "finished", step=2),
    ]
    lines = table(segment(hypotheses=found, path=[1, 3]))
    assert lines[8:15] == [
        "hypotheses: + kept, = finished, - dropped, * part of the translation; log p and score are those of the whole"
        " hypothesis",
        "                                 p   log p   score",
        "step 1",
        "  <s>                    #0",
        "  * + ▁a                 #1  0.500  -0.100  -0.050",
        "    - ▁b (lacks a term)  #2  0.500  -0.200  -0.100",
        "step 2",
    ]
    assert lines[15:17] == ["  <s> ▁a                 #1", "  * = </s>               #3  0.500  -0.300  -0.150"]


def ranked(n: int) -> list[dict[str, Any]]:
    more = {"score": -0.5, "log_prob": -1.0, "translation": "a"}
    return [{"hypothesis": i, "finished": i > 1, "returned": i == 1, **more} for i in range(1, n + 1)]


def test_the_ranking_of_several_is_shown_up_to_ten() -> None:
    lines = table(segment(ranking=ranked(12)))
    start = lines.index("final ranking (* is returned):")
    assert lines[start + 1 : start + 4] == [
        "rank        score   log p  translation",
        " 1 *   #1  -0.500  -1.000  a … (not finished)",
        " 2     #2  -0.500  -1.000  a",
    ]
    assert lines[start + 11].split() == ["10", "#10", "-0.500", "-1.000", "a"]
    assert lines[start + 12 :] == ["and 2 more", "", ""]
    assert not any("ranking" in line or "more" in line for line in table(segment(ranking=ranked(1))))
    assert not any("more" in line for line in table(segment(ranking=ranked(10))))


def test_a_reference_has_its_smoothed_targets_where_the_smoothing_is_known() -> None:
    assert table(reference=reference(0.1))[3:] == [
        "reference: 猫",
        "",
        "step  target  one-hot  smoothed      p  rank  -log p   loss  likeliest tokens",
        "   1  ▁猫           1     0.900  0.250     2   1.386  0.500  ▁a 0.750",
        "   2  </s>          1     0.900  0.500     1   0.693  0.500",
        "log-probability of the reference, as `tfm score` gives it: -2.0794",
        "Every other token of the 8,000: one-hot 0, smoothed 1.25e-05 (train.label_smoothing=0.1)",
        "",
        "",
    ]
    assert table(reference=reference(None))[5:9] == [
        "step  target  one-hot      p  rank  -log p  likeliest tokens",
        "   1  ▁猫           1  0.250     2   1.386  ▁a 0.750",
        "   2  </s>          1  0.500     1   0.693",
        "log-probability of the reference, as `tfm score` gives it: -2.0794",
    ]
    assert table(reference=reference(None))[9].startswith("The smoothed targets are not known")


@each("p, shown", [(1.0, "1.000"), (0.0005, "0.001"), (0.00049, "5e-04"), (0.0, "0e+00")])
def test_small_probabilities_keep_a_digit(p: float, shown: str) -> None:
    steps = [STEPS[1] | {"probability": p}]
    assert table(segment(steps=steps))[4].split()[2] == shown
