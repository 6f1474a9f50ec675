"""Reports that `tfm evaluate` can add to the scores of a test set: add-ons and plugins register them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from transformer_cli.config.checks import check_choice
from transformer_cli.config.evaluate import EvaluateConfig
from transformer_cli.errors import ConfigError
from transformer_cli.registry import Registry, check_callable, guarded, place_of

if TYPE_CHECKING:
    from transformer_cli.decoding.translator import Translator
    from transformer_cli.evaluation.test_sets import TestSet


@dataclass(frozen=True)
class ReportRequest:
    """What a report is about: a test set, its translations, and the translator that has made them."""

    translator: "Translator"
    test: "TestSet"
    hypotheses: list[str]
    languages: tuple[str, str]  # of the lines and of their translations
    config: EvaluateConfig


class ExtraReport(Protocol):
    """What was measured beside the scores."""

    def as_dict(self) -> dict[str, object]:
        """The report for `json.dumps`, under its name."""

    def lines(self) -> list[str]:
        """The report for people."""

    def keep(self, run_dir: Path, provenance: Mapping[str, object]) -> None:
        """Write it beside the model of a run that was just trained, and log it in a few lines.

        `provenance` names the test set, the search and the SHA-256 of the model's file. `tfm train` calls it, and of
        the report `robustness` alone.
        """


# None, with a warning, where there is nothing to say.
Measure = Callable[[ReportRequest], ExtraReport | None]


# Keys of the JSON of `tfm evaluate` beside which a report stands under its name.
_TAKEN = {"model", "test_set", "lines", "hypotheses", "search", "model_sha256", "sentence_scores", "missing"}
_TAKEN |= {"statistics", "parts", "scores"}


def _adopted(name: str, entry: Any) -> Measure:
    if name in _TAKEN:
        raise ConfigError(
            f"{place_of(entry)}: the JSON of tfm evaluate has a key `{name}`. Give the report another name"
        )
    check_callable(entry, what="an extra report", arguments="request")
    return guarded(entry, _fault)


def _fault(report: Any, request: ReportRequest) -> str | None:
    if report is None:
        return None
    if lacks := [method for method in ("as_dict", "lines") if not callable(getattr(report, method, None))]:
        return f"{report!r:.80}, which has no {' and no '.join(lacks)}"
    try:
        json.dumps(report.as_dict())
        "".join(report.lines())
    except (TypeError, ValueError) as error:
        return f"{report!r:.80}, which cannot be written as JSON and as lines ({error})"
    return None


EXTRA_REPORTS: Registry[Measure] = Registry("extra report", adopt=_adopted)


def check_reports(names: Sequence[str]) -> None:
    """Raise ConfigError for a name that is not registered."""
    for name in names:
        check_choice("report", name, EXTRA_REPORTS.names())
