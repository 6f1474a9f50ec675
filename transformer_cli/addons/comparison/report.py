"""A comparison as people read it in a terminal, and as programs do."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from transformer_cli.addons.comparison.results import Comparison, GroupComparison
from transformer_cli.evaluation.significance import MetricComparison, PairedResult
from transformer_cli.tables import Cell, Column, ResultTable, aligned_lines, cell

_LEVEL = 0.05


LEGEND = (
    "score (mean of the resamples ± half of the 95 % interval); p of bootstrap and randomization;"
    f" *: both below {_LEVEL}"
)

BOLD = "bold: the best score, where the same tests find it different from that of each other system"


def comparison_lines(comparison: Comparison) -> list[str]:
    """The table, the groups, what is known of the search, and a conclusion in words for each system."""
    first, *groups = comparison_tables(comparison)
    lines = [headline(comparison), "", *aligned_lines(first), LEGEND]
    for table in groups:
        lines += ["", *aligned_lines(table)]
    return [*lines, "", *findings(comparison), "", *signature_lines(comparison)]


def comparison_tables(comparison: Comparison) -> list[ResultTable]:
    """The systems; and the groups of runs where there are some."""
    return [_system_table(comparison), *([_group_table(comparison)] if comparison.groups else [])]


def headline(comparison: Comparison) -> str:
    references = f"{comparison.n_references} reference" + ("s" if comparison.n_references > 1 else "")
    return f"{comparison.test_set}, {comparison.n_lines:,} lines, {references}"


def findings(comparison: Comparison) -> list[str]:
    """The conclusions, and the notes below them."""
    notes = ["", *(f"- {note}" for note in comparison.notes)] if comparison.notes else []
    return [*conclusions(comparison), *notes]


def signature_lines(comparison: Comparison) -> list[str]:
    return [
        *(f"{metric.name}  {metric.signature}" for metric in comparison.metrics),
        *(f"{system.name}  {system.search}" for system in comparison.systems if system.search is not None),
    ]


def conclusions(comparison: Comparison) -> list[str]:
    """A sentence for each system but the baseline, and for each group but the baseline's."""
    systems, found = comparison.systems, []
    for number in range(1, len(systems)):
        found.append(_conclusion(comparison, number))
    for result in comparison.group_comparisons:
        metric = next(one for one in comparison.metrics if one.name == result.metric)
        found.append(_group_conclusion(result, metric))
    return found


def _conclusion(comparison: Comparison, number: int) -> str:
    name, baseline = comparison.systems[number].name, comparison.systems[0].name
    if list(comparison.systems[number].translations) == list(comparison.systems[0].translations):
        return f"{name} and {baseline} have the same translations, so there is no difference."
    better, worse, open_ = [], [], []
    for metric in comparison.metrics:
        result = metric.against_baseline[number]
        assert result is not None
        if not result.is_significant(_LEVEL):
            open_.append(metric.name)
        elif (result.difference > 0) == metric.higher_is_better:
            better.append(f"{metric.name} ({_signed(result.difference)})")
        else:
            worse.append(f"{metric.name} ({_signed(result.difference)})")
    if not better and not worse:
        return f"No difference between {name} and {baseline} is shown by {_listed(open_)}: chance may explain it."
    parts = []
    if better:
        parts.append(f"is better than {baseline} by {_listed(better)}")
    if worse:
        parts.append(f"is worse than {baseline} by {_listed(worse)}")
    more = f"; no difference is shown by {_listed(open_)}" if open_ else ""
    group = comparison.systems[number].group
    if group is not None and group == comparison.systems[0].group:
        more += "; both are runs of one config, so this is what a seed does"
    return f"{name} {' but '.join(parts)}{more}."


def _group_conclusion(result: GroupComparison, metric: MetricComparison) -> str:
    amount = f"{_signed(result.difference)} {metric.name} on average"
    if result.p_value is None:
        return f"{result.group}: {amount} beside {result.baseline}; a test needs two runs or more of each."
    p = f"p = {result.p_value:.4f} of Welch's t-test"
    if result.p_value >= _LEVEL:
        return f"No difference between the groups {result.group} and {result.baseline} is shown: {amount}, {p}."
    word = "better" if (result.difference > 0) == metric.higher_is_better else "worse"
    return f"Group {result.group} is {word} than group {result.baseline}: {amount}, {p}."


def _system_table(comparison: Comparison) -> ResultTable:
    has_groups = any(system.group is not None for system in comparison.systems)
    columns = [Column("system", is_text=True), *([Column("group", is_shown=False)] if has_groups else [])]
    rows = [[cell(one.name), *([cell(one.group)] if has_groups else [])] for one in comparison.systems]
    for metric in comparison.metrics:
        columns += [
            Column(metric.name, "score", ("score",), metric.name),
            Column("", "95 % interval", ("mean", "half_width"), metric.name),
            Column("diff.", None, ("difference",), metric.name),
            Column("p bs", None, ("p_bootstrap",), metric.name),
            Column("p ar", None, ("p_randomization",), metric.name),
            Column("p with ties", None, ("p_with_ties",), metric.name, is_shown=False),
            Column("", "*", ("significant",), metric.name),
            Column("signature", None, ("signature",), metric.name, is_shown=False),
        ]
        for system, (row, score, result) in enumerate(zip(rows, metric.scores, metric.against_baseline, strict=True)):
            n = _digits(score.score)
            row += [
                Cell(f"{score.score:.{n}f}", (score.score,), is_bold=comparison.clear_best.get(metric.name) == system),
                Cell(f"({score.mean:.{n}f} ± {score.half_width:.{n}f})", (score.mean, score.half_width)),
                *_result_cells(result),
                cell(metric.signature),
            ]
    return ResultTable(columns, rows)


def _result_cells(result: PairedResult | None) -> list[Cell]:
    if result is None:
        return [cell(None)] * 5
    values = (result.p_bootstrap, result.p_randomization, result.p_with_ties)
    is_significant = result.is_significant(_LEVEL)
    return [
        cell(result.difference, _signed(result.difference)),
        *(cell(value, _p(value)) for value in values),
        cell(is_significant, "*" if is_significant else ""),
    ]


def _group_table(comparison: Comparison) -> ResultTable:
    rows = []
    for one in comparison.groups:
        n = _digits(one.mean)
        row = [cell(one.group), cell(one.n_runs), cell(one.metric), cell(one.mean, f"{one.mean:.{n}f}")]
        row += [cell(one.deviation, f"{one.deviation:.{n}f}" if one.n_runs > 1 else "")]
        rows.append([*row, Cell(f"{one.lowest:.{n}f}-{one.highest:.{n}f}", (one.lowest, one.highest))])
    columns = [Column("group", is_text=True), *map(Column, ("runs", "metric", "mean", "deviation"))]
    return ResultTable([*columns, Column("range", keys=("lowest", "highest"))], rows)


def _digits(score: float) -> int:
    """Decimals: 2 of a score between 0 and 100, 4 of one between 0 and 1, as COMET."""
    return 4 if abs(score) <= 1 else 2


def _signed(difference: float) -> str:
    return f"{difference:+.{_digits(difference)}f}" if abs(difference) < 0.005 else f"{difference:+.2f}"


def _p(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def comparison_as_dict(comparison: Comparison) -> dict[str, Any]:
    """The report for `json.dumps`: all but the translations, with what is significant, and the conclusions."""
    found: dict[str, Any] = asdict(comparison)
    del found["clear_best"]  # which is tested for a table alone
    for system in found["systems"]:
        del system["translations"]
    for made, metric in zip(found["metrics"], comparison.metrics, strict=True):
        for result, of in zip(made["against_baseline"], metric.against_baseline, strict=True):
            if of is not None:
                result["significant"] = of.is_significant(_LEVEL)
    return {**found, "conclusions": conclusions(comparison)}
