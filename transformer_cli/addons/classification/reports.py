"""Reports of labels, for people and programs. No torch is needed."""

import json
from collections.abc import Sequence
from typing import Any, Protocol

from transformer_cli.errors import quoted
from transformer_cli.evaluation.report import Provenance


class LabelReport(Protocol):
    """Scores of labels."""

    def as_dict(self, **facts: Any) -> dict[str, Any]: ...
    def lines(self) -> list[str]: ...


def print_classes(report: LabelReport, provenance: Provenance, *, as_json: bool) -> None:
    """Scores of labels, to stdout."""
    if as_json:
        print(json.dumps(report.as_dict(**provenance.facts()), indent=2))
        return
    print(provenance.headline())
    print("\n".join(report.lines()), flush=True)


def single_answer(answers: Sequence[str], references: Sequence[str]) -> str:
    """A clause for a classifier whose answers are all the same, where those of the test set differ."""
    is_single = len(set(answers)) == 1 < len(set(references))
    return f"all {len(answers):,} answers are {quoted(answers[0])}" if is_single else ""
