"""Scores as people and programs read them."""

from collections.abc import Sequence

from transformer_cli.evaluation.metrics import Score


def text_lines(scores: Sequence[Score]) -> list[str]:
    """One line a score, in columns: name, value with two decimals, signature."""
    name_width = max((len(score.name) for score in scores), default=0)
    values = [f"{score.value:.2f}" for score in scores]
    value_width = max((len(value) for value in values), default=0)
    return [
        f"{score.name:<{name_width}}  {value:>{value_width}}  {score.signature}"
        for score, value in zip(scores, values, strict=True)
    ]


def as_dict(scores: Sequence[Score], **facts: object) -> dict[str, object]:
    """What `json.dumps` takes: the facts about the test, then every score in full precision under sacrebleu's keys."""
    listed = [{"name": score.name, "score": score.value, "signature": score.signature} for score in scores]
    return {**facts, "scores": listed}
