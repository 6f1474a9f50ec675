"""Scores as people and programs read them, with the test set, the model and the search that they belong to."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from transformer_cli.evaluation.classification import ClassReport
from transformer_cli.evaluation.metrics import Score, SentenceScores, Translations
from transformer_cli.evaluation.translation import MetricResults, PartResults
from transformer_cli.logs import LOGGER


@dataclass(frozen=True)
class Provenance:
    """What was scored: translations or labels of a model, or those of a file."""

    test_set: str
    n_lines: int
    hypotheses: Path | str | None  # the file with what was scored, if there is one
    model: str | None = None
    search: str | None = None  # signature of the search that made the translations, with its engine and model
    model_sha256: Sequence[str] = ()  # of the model's files
    sentences: Mapping[str, object] = field(default_factory=dict)  # the file with the scores of each line, signatures

    def headline(self) -> str:
        what = f"hypotheses {self.hypotheses}" if self.model is None else self.model
        return f"{self.test_set}, {self.n_lines:,} lines, {what}"

    def facts(self) -> dict[str, object]:
        """For programs."""
        file = None if self.hypotheses is None else str(self.hypotheses)
        search = {} if self.search is None else {"search": self.search, "model_sha256": list(self.model_sha256)}
        return {
            "model": self.model,
            "test_set": self.test_set,
            "lines": self.n_lines,
            "hypotheses": file,
            **search,
            **({"sentence_scores": self.sentences} if self.sentences else {}),
        }


def print_scores(results: Sequence[PartResults], provenance: Provenance, *, as_json: bool) -> None:
    """To stdout, those of the whole test set last, and the search; what could not be computed, as log lines."""
    *parts, whole = results
    if as_json:
        facts = provenance.facts() | _missing(whole.results)
        if parts:
            facts["parts"] = [
                as_dict(part.results.scores, test_set=part.name, lines=part.n_lines, **_missing(part.results))
                for part in parts
            ]
        print(json.dumps(as_dict(whole.results.scores, **facts), indent=2))
        return
    for one in results:
        print(replace(provenance, test_set=one.name, n_lines=one.n_lines).headline())
        print("\n".join(text_lines(one.results.scores)), flush=True)  # before a log line follows it
        for name, reason in one.results.missing.items():
            LOGGER.warning("no %s: %s", name, reason)
    if provenance.search is not None:
        print(provenance.search, flush=True)


def _missing(results: MetricResults) -> dict[str, object]:
    return {"missing": results.missing} if results.missing else {}


def print_classes(report: ClassReport, provenance: Provenance, *, as_json: bool) -> None:
    """Scores of labels, to stdout."""
    if as_json:
        print(json.dumps(report.as_dict(**provenance.facts()), indent=2))
        return
    print(provenance.headline())
    print("\n".join(report.lines()), flush=True)


def sentence_lines(translations: Translations, scores: Mapping[str, SentenceScores]) -> list[str]:
    """One JSON object a line of the test set: its number from 1, its texts, and its score by each metric."""
    lines: list[str] = []
    for i, hypothesis in enumerate(translations.hypotheses):
        source = {"source": translations.sources[i]} if translations.sources else {}
        texts = {"hypothesis": hypothesis, "references": [reference[i] for reference in translations.references]}
        of_line = {name: one.values[i] for name, one in scores.items()}
        lines.append(json.dumps({"line": i + 1, **source, **texts, "scores": of_line}, ensure_ascii=False))
    return lines


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
    """For `json.dumps`: the facts about the test, then every score in full precision under sacrebleu's keys."""
    listed = [
        {
            "name": score.name,
            "score": score.value,
            "signature": score.signature,
            "higher_is_better": score.higher_is_better,
        }
        for score in scores
    ]
    return {**facts, "scores": listed}
