"""Entities of BIO labels, and their scores: the expected values are seqeval's, see `seqeval_cases.json`."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.each import each
from transformer_cli.addons.tagging.entities import are_bio, entities, entity_f1, entity_report

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "seqeval_cases.json").read_bytes())["cases"]


@each("case", CASES)
def test_entities_and_scores_are_those_of_seqeval(case: dict[str, Any]) -> None:
    for labels, expected in zip(case["predicted"], case["entities"], strict=True):
        assert entities(labels) == [tuple(entity) for entity in expected]
    report = entity_report(case["predicted"], case["wanted"], seed=1)
    found = {score.type: score for score in report.types} | {"micro avg": report.micro}
    assert found.keys() == case["scores"].keys()
    for kind, (precision, recall, f1, support) in case["scores"].items():
        score = found[kind]
        numbers = score.precision, score.recall, score.f1
        assert numbers == pytest.approx((100 * precision, 100 * recall, 100 * f1)), kind
        assert score.n_entities == support
    assert entity_f1(case["predicted"], case["wanted"]) == report.micro.f1 == report.f1.score


@each(
    "labels, expected",
    [
        ("O I-PER I-PER O", [("PER", 1, 2)]),  # no B
        ("B-PER B-PER", [("PER", 0, 0), ("PER", 1, 1)]),
        ("B-PER I-LOC", [("PER", 0, 0), ("LOC", 1, 1)]),  # another type
        ("I-PER I-PER B-PER I-PER", [("PER", 0, 1), ("PER", 2, 3)]),  # IOB1: B divides neighbours
        ("O O", []),
    ],
)
def test_an_entity_begins_at_b_after_o_and_where_the_type_changes(
    labels: str, expected: list[tuple[str, int, int]]
) -> None:
    assert entities(labels.split()) == expected


def test_only_b_i_and_o_are_bio() -> None:
    assert are_bio(["O", "B-PER", "I-PER"])
    assert not are_bio(["O"])
    assert not are_bio(["O", "B-PER", "E-PER"])
    assert not are_bio(["NOUN", "VERB"])
    assert not are_bio(["O", "B-"])


def test_a_mistyped_label_takes_no_entity_away() -> None:
    assert are_bio(["O", "B-PER", "I-PER", "PERSN"])
    assert are_bio(["O", "B-PER", "I-PER", "-X-"])
    assert not are_bio(["O", "B-PER", "NOUN", "VERB"])  # a tag of words that happens to be called so
    assert not are_bio(["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "S-LOC"])  # BIOES
    odd = ["B-PER", "PERSN", "I-PER", "PERSN"]
    assert entities(odd) == entities(["B-PER", "O", "I-PER", "O"])
    assert entity_f1([["B-PER", "O", "I-PER", "O"]], [odd]) == 100
