"""A comparison as people read it in a terminal, and as programs do."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from transformer_cli.addons.comparison.results import Comparison, GroupComparison
from transformer_cli.evaluation.significance import MetricComparison, PairedResult

_LEVEL = 0.05


def comparison_lines(comparison: Comparison) -> list[str]:
    """The table, the groups, what is known of the search, and a conclusion in words for each system."""
    references = f"{comparison.n_references} reference" + ("s" if comparison.n_references > 1 else "")
    lines = [f"{comparison.test_set}, {comparison.n_lines:,} lines, {references}", ""]
    lines += _aligned(_table(comparison))
    lines.append(
        "score (mean of the resamples ± half of the 95 % interval); p of bootstrap and randomization;"
        f" *: both below {_LEVEL}"
    )
    if comparison.groups:
        lines += ["", *_aligned(_group_table(comparison))]
    lines += ["", *conclusions(comparison)]
    if comparison.notes:
        lines += ["", *(f"- {note}" for note in comparison.notes)]
    lines += ["", *(f"{metric.name}  {metric.signature}" for metric in comparison.metrics)]
    lines += [f"{system.name}  {system.search}" for system in comparison.systems if system.search is not None]
    return lines


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


def _table(comparison: Comparison) -> list[list[str]]:
    rows = [["system"], *([system.name] for system in comparison.systems)]
    for metric in comparison.metrics:
        rows[0] += [metric.name, "", "diff.", "p bs", "p ar", ""]
        for row, score, result in zip(rows[1:], metric.scores, metric.against_baseline, strict=True):
            row += [f"{score.score:.{_digits(score.score)}f}"]
            row += [f"({score.mean:.{_digits(score.score)}f} ± {score.half_width:.{_digits(score.score)}f})"]
            row += _result_cells(result)
    return rows


def _result_cells(result: PairedResult | None) -> list[str]:
    if result is None:
        return [""] * 4
    values = [_p(result.p_bootstrap), _p(result.p_randomization)]
    return [_signed(result.difference), *values, "*" if result.is_significant(_LEVEL) else ""]


def _group_table(comparison: Comparison) -> list[list[str]]:
    rows = [["group", "runs", "metric", "mean", "deviation", "range"]]
    for one in comparison.groups:
        n = _digits(one.mean)
        deviation = f"{one.deviation:.{n}f}" if one.n_runs > 1 else ""
        rows.append(
            [
                one.group,
                str(one.n_runs),
                one.metric,
                f"{one.mean:.{n}f}",
                deviation,
                f"{one.lowest:.{n}f}-{one.highest:.{n}f}",
            ]
        )
    return rows


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *rest in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join([f"{first:<{widths[0]}}", *cells]).rstrip())
    return lines


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
    for system in found["systems"]:
        del system["translations"]
    for made, metric in zip(found["metrics"], comparison.metrics, strict=True):
        for result, of in zip(made["against_baseline"], metric.against_baseline, strict=True):
            if of is not None:
                result["significant"] = of.is_significant(_LEVEL)
    return {**found, "conclusions": conclusions(comparison)}
