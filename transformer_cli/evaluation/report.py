"""Scores as people and programs read them, with the test set, the model and the search that they belong to."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from transformer_cli.evaluation.extra_reports import ExtraReport
from transformer_cli.evaluation.metrics import Score, SentenceScores, Translations
from transformer_cli.evaluation.translation import PartResults
from transformer_cli.logs import LOGGER
from transformer_cli.tables import Column, ResultTable, TableFormat, aligned_lines, cell, print_tables


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
    extra: Mapping[str, ExtraReport] = field(default_factory=dict)  # other reports, by name

    def headline(self) -> str:
        what = f"hypotheses {self.hypotheses}" if self.model is None else self.model
        return f"{self.test_set}, {self.n_lines:,} lines, {what}"

    def facts(self) -> dict[str, object]:
        """The facts for programs."""
        file = None if self.hypotheses is None else str(self.hypotheses)
        search = {} if self.search is None else {"search": self.search, "model_sha256": list(self.model_sha256)}
        return {
            "model": self.model,
            "test_set": self.test_set,
            "lines": self.n_lines,
            "hypotheses": file,
            **search,
            **({"sentence_scores": self.sentences} if self.sentences else {}),
            **{name: report.as_dict() for name, report in self.extra.items()},
        }


@dataclass(frozen=True)
class Report:
    """The scores of one test set: those of its parts, and in the end those of all its lines."""

    results: Sequence[PartResults]
    provenance: Provenance

    def as_dict(self) -> dict[str, object]:
        """The report for `json.dumps`."""
        *parts, whole = self.results
        facts = self.provenance.facts() | _more(whole)
        if parts:
            facts["parts"] = [
                as_dict(part.results.scores, test_set=part.name, lines=part.n_lines, **_more(part)) for part in parts
            ]
        return as_dict(whole.results.scores, **facts)


def print_report(report: Report, *, as_json: bool, table: TableFormat | None = None) -> None:
    """Scores and search to stdout, those of several parts as a table; what could not be computed, as log lines."""
    if as_json:
        print(json.dumps(report.as_dict(), indent=2))
        return
    rows = [(part.name, part) for part in report.results]
    if table is not None:
        _print_tables(rows, report.provenance.headline(), report.provenance.search, table)
        return
    print(report.provenance.headline())
    if len(report.results) > 1:
        lines = table_lines(rows)
    else:
        lines = [*text_lines(report.results[-1].results.scores), *report.results[-1].statistics.lines()]
    _print_text(lines, report.results, report.provenance.search)


def print_reports(reports: Sequence[Report], *, as_json: bool, table: TableFormat | None = None) -> None:
    """Prints the reports of several test sets, by one model or each in its own file: a table, or a list in JSON."""
    if len(reports) == 1:
        print_report(reports[0], as_json=as_json, table=table)
        return
    if as_json:
        print(json.dumps([report.as_dict() for report in reports], indent=2))
        return
    model = reports[0].provenance.model
    rows = [
        (one.name if model is not None else f"{one.name}, {report.provenance.hypotheses}", one)
        for report in reports
        for one in report.results
    ]
    if table is not None:
        _print_tables(rows, model, reports[0].provenance.search, table)
        return
    if model is not None:
        print(model)
    _print_text(table_lines(rows), [one for _, one in rows], reports[0].provenance.search)


def _print_tables(
    rows: Sequence[tuple[str, PartResults]], headline: str | None, search: str | None, form: TableFormat
) -> None:
    notes = [line for line in (headline, *_signature_lines(rows), search) if line is not None]
    print_tables([score_table(rows)], form, notes=notes, more=_statistics_lines(rows))
    _warn_of_missing([one for _, one in rows])


def _print_text(lines: Sequence[str], results: Sequence[PartResults], search: str | None) -> None:
    print("\n".join(lines), flush=True)  # before a log line follows it
    _warn_of_missing(results)
    if search is not None:
        print(search, flush=True)


def _warn_of_missing(results: Sequence[PartResults]) -> None:
    reasons: dict[tuple[str, str], list[str]] = {}
    for one in results:
        for metric, reason in one.results.missing.items():
            reasons.setdefault((metric, reason), []).append(one.name)
    for (metric, reason), names in reasons.items():
        where = f"{', '.join(names)}: " if len(names) < len(results) else ""
        LOGGER.warning("%sno %s: %s", where, metric, reason)


def table_lines(rows: Sequence[tuple[str, PartResults]]) -> list[str]:
    """A row of each, a column of each metric; below it signatures, with the rows that each is of, and statistics."""
    return [*aligned_lines(score_table(rows)), *_signature_lines(rows), *_statistics_lines(rows)]


def score_table(rows: Sequence[tuple[str, PartResults]]) -> ResultTable:
    """A row of each, a column of each metric, and in CSV one of its signatures."""
    metrics = _metrics(rows)
    columns = [Column("test set", is_text=True), Column("lines"), *(Column(metric) for metric in metrics)]
    columns += [Column(f"{metric} signature", is_shown=False) for metric in metrics]
    cells = []
    for label, row in rows:
        scores = {score.name: score for score in row.results.scores}
        found = [scores.get(metric) for metric in metrics]
        figures = [cell(None, "-") if one is None else cell(one.value, f"{one.value:.{one.digits}f}") for one in found]
        signatures = [cell(None if one is None else one.signature) for one in found]
        cells.append([cell(label), cell(row.n_lines, f"{row.n_lines:,}"), *figures, *signatures])
    return ResultTable(columns, cells)


def _metrics(rows: Sequence[tuple[str, PartResults]]) -> list[str]:
    return list(dict.fromkeys(score.name for _, row in rows for score in row.results.scores))


def _signature_lines(rows: Sequence[tuple[str, PartResults]]) -> list[str]:
    metrics, lines = _metrics(rows), []
    signatures: dict[tuple[str, str], list[str]] = {}
    for label, row in rows:
        for score in row.results.scores:
            signatures.setdefault((score.name, score.signature), []).append(label)
    width = max(map(len, metrics), default=0)
    for (metric, signature), labels in sorted(signatures.items(), key=lambda item: metrics.index(item[0][0])):
        n_scored = sum(len(those) for (name, _), those in signatures.items() if name == metric)
        of = f"  ({', '.join(labels)})" if len(labels) < n_scored else ""
        lines.append(f"{metric:<{width}}  {signature}{of}")
    return lines


def _statistics_lines(rows: Sequence[tuple[str, PartResults]]) -> list[str]:
    return [f"{label}: {line}" for label, row in rows for line in row.statistics.lines()]


def print_sets(sets: Mapping[str, Sequence[str]], *, as_json: bool) -> None:
    """The names of test sets, with their language pairs."""
    if as_json:
        print(json.dumps(sets, indent=2))
        return
    width = max(map(len, sets), default=0)
    print("\n".join(f"{name:<{width}}  {' '.join(pairs)}" for name, pairs in sets.items()), flush=True)


def _more(part: PartResults) -> dict[str, object]:
    missing = {"missing": part.results.missing} if part.results.missing else {}
    return {**missing, "statistics": part.statistics.as_dict()}


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
    """One line a score, in columns: name, value, signature."""
    name_width = max((len(score.name) for score in scores), default=0)
    values = [f"{score.value:.{score.digits}f}" for score in scores]
    value_width = max((len(value) for value in values), default=0)
    return [
        f"{score.name:<{name_width}}  {value:>{value_width}}  {score.signature}"
        for score, value in zip(scores, values, strict=True)
    ]


def as_dict(scores: Sequence[Score], **facts: object) -> dict[str, object]:
    """The report for `json.dumps`: facts about the test, then every score in full precision under sacrebleu's keys."""
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
