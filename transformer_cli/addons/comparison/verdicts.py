"""A comparison in words: which system is better, by how much, and whether chance explains it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from transformer_cli.addons.comparison.results import Comparison, GroupComparison
from transformer_cli.evaluation.significance import MetricComparison


class VerdictKind(Enum):
    """The result of comparing a system with the baseline by one metric; the values are the words of a table."""

    better = "better"
    worse = "worse"
    no_difference = "no difference shown"
    same = "same translations"
    not_tested = "not tested"


@dataclass(frozen=True)
class Verdict:
    finding: VerdictKind
    claim: str  # a sentence: who is better, by how much
    evidence: str  # a sentence: whether chance explains it


def system_verdict(comparison: Comparison, metric: MetricComparison, system: int) -> Verdict:
    """The verdict on `systems[system]` against the baseline, by one metric."""
    first, other = comparison.systems[0], comparison.systems[system]
    if list(first.translations) == list(other.translations):
        claim = f"{other.name} and {first.name} gave the same translations"
        return Verdict(VerdictKind.same, claim, "Every line is equal, so nothing is left to compare.")
    result = metric.against_baseline[system]
    assert result is not None  # of the baseline alone
    values = [p for p in (result.p_bootstrap, result.p_randomization, result.p_with_ties) if p is not None]
    verdict = _verdict(
        (other.name, first.name),
        (result.difference, max(values, default=None)),
        metric,
        is_significant=result.is_significant(),
        untested="No significance test was made, so chance may explain it.",
    )
    if first.group is not None and first.group == other.group:
        more = "Both are runs of one config, so this is what another seed changes."
        return replace(verdict, evidence=f"{verdict.evidence} {more}")
    return verdict


def group_verdict(result: GroupComparison, metric: MetricComparison) -> Verdict:
    """The verdict on a group of runs against the baseline's group, by the means over their seeds."""
    return _verdict(
        (result.group, result.baseline),
        (result.difference, result.p_value),
        metric,
        is_significant=result.p_value is not None and result.p_value < 0.05,
        untested="A test needs several runs of each config, so chance may explain it.",
        on_average=" on average",
    )


def _verdict(
    names: tuple[str, str],
    result: tuple[float, float | None],
    metric: MetricComparison,
    *,
    is_significant: bool,
    untested: str,
    on_average: str = "",
) -> Verdict:
    (name, baseline), (difference, p_value) = names, result
    amount = f"{abs(difference):.{digits(metric)}f} {metric.name}"
    is_better = (difference > 0) == metric.higher_is_better
    if p_value is None:
        way = "more" if difference > 0 else "less"
        return Verdict(VerdictKind.not_tested, f"{name} has {amount} {way} than {baseline}{on_average}", untested)
    p = f"p = {p_text(p_value)}" if round(p_value, 4) else f"p {p_text(p_value)}"
    p = p.replace(" ", "\N{NO-BREAK SPACE}")
    chance = f"would arise by chance in {_frequency(p_value)} comparisons ({p})"
    if is_significant:
        finding, word = (VerdictKind.better, "better") if is_better else (VerdictKind.worse, "worse")
        claim = f"{name} is {word} than {baseline} by {amount}{on_average}"
        evidence = f"If both were equally good, a difference this large {chance}."
        return Verdict(finding, claim, evidence)
    evidence = f"They are {amount} apart{on_average}, but if both were equally good, a difference this large {chance}."
    return Verdict(VerdictKind.no_difference, f"No difference is shown between {name} and {baseline}", evidence)


def digits(metric: MetricComparison) -> int:
    """Decimals of a score: 2 of one between 0 and 100, 4 of one between 0 and 1, as COMET."""
    return decimals([score.score for score in metric.scores])


def decimals(scores: Sequence[float | None]) -> int:
    return 4 if all(score is None or abs(score) <= 1 for score in scores) else 2


def p_text(p_value: float) -> str:
    """The p-value with four decimals, as sacrebleu prints it, but never as 0."""
    return f"{p_value:.4f}" if round(p_value, 4) else "< 0.0001"


def _frequency(p_value: float) -> str:
    for limit, text in ((0.001, "1 of 1,000"), (0.01, "1 of 100"), (0.05, "1 of 20")):
        if round(p_value, 4) < limit:
            return f"fewer than {text}"
    return f"about {100 * p_value:.0f} of 100" if p_value < 0.995 else "nearly all"
