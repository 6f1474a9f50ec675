"""The reference curve of a reproduction: dev scores of our own runs by step, with which a new run is compared."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean, stdev
from typing import Any

from transformer_cli.addons.reproduction.records import OurRuns
from transformer_cli.logs import LOGGER
from transformer_cli.training.validation import LABELS

# Quantile 0.975 of Student's t by degrees of freedom; from the last one on that of the normal distribution is near.
T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
_FLOOR = {"nll": 0.005, "score": 0.5}  # seeds may agree by chance, and have a BLEU of 0 in the first evaluations
BETWEEN_SEEDS = "the 95 % prediction interval for one more seed, from the deviation between those of the reference"


@dataclass(frozen=True)
class Expected:
    """One dev figure of the reference at a step, and half of the interval in which another run is on track."""

    value: float
    tolerance: float

    def between(self, other: "Expected", weight: float) -> "Expected":
        """The linear interpolation, `weight` of the way to `other`.

        A dev curve is bent: the tolerance grows by up to a quarter of the difference, in the middle, which is as far
        as an exponential that falls to a fifth in this interval is off the line.
        """
        bend = weight * (1 - weight) * abs(other.value - self.value)
        value = self.value + weight * (other.value - self.value)
        return Expected(value, self.tolerance + weight * (other.tolerance - self.tolerance) + bend)


class ReferenceCurve:
    """Logs, after each evaluation, whether a run is on track, behind or ahead.

    With `by_score` False the NLL alone is compared: the scores come from another search, or from other lines.
    """

    def __init__(self, ours: OurRuns, *, by_score: bool = True) -> None:
        self.metric = ours.dev_metric if by_score else None
        self.tolerance = ours.tolerance
        self.reason = BETWEEN_SEEDS if ours.tolerance is None else ours.tolerance.reason
        rows = list(zip(*(curve.points for curve in ours.curves), strict=True))
        self.steps = [int(points[0][0]) for points in rows]
        self.nll = [self._expected([point[1] for point in points], "nll") for points in rows]
        has_scores = self.metric is not None
        self.score = [self._expected([point[2] for point in points], "score") for points in rows] if has_scores else []

    def _expected(self, values: Sequence[float], figure: str) -> Expected:
        if self.tolerance is not None:
            return Expected(mean(values), getattr(self.tolerance, figure))
        n = len(values)
        t = T_975[n - 2] if n - 2 < len(T_975) else 1.96
        return Expected(mean(values), max(t * stdev(values) * math.sqrt(1 + 1 / n), _FLOOR[figure]))

    def observe(self, step: int, scores: Mapping[str, Any]) -> None:
        """Log one line about the dev scores of a step, by their names in metrics.jsonl."""
        LOGGER.info("step %d: %s", step, self.verdict(step, scores))

    def verdict(self, step: int, scores: Mapping[str, Any]) -> str:
        """on track, behind or ahead, with the figures that say so."""
        if not self.steps[0] <= step <= self.steps[-1]:
            return f"no reference: its curve is of the steps {self.steps[0]:,} to {self.steps[-1]:,}"
        found, shown = {}, []
        figures = [("nll", "dev nll", -1, ".3f", self.nll)]
        if self.metric is not None:
            figures.append((self.metric, f"dev {LABELS.get(self.metric, self.metric)}", 1, ".2f", self.score))
        for name, title, sign, form, curve in figures:
            value = scores.get(f"dev_{name}")
            if value is None:
                shown.append(f"no {title} here")
                continue
            expected = self._at(step, curve)
            distance = sign * (value - expected.value)
            is_near = abs(distance) <= expected.tolerance
            found[title] = "on track" if is_near else "ahead" if distance > 0 else "behind"
            shown.append(f"{title} {value:{form}} (reference {expected.value:{form}} ± {expected.tolerance:{form}})")
        return f"{_summary(found)}: {', '.join(shown)}"

    def _at(self, step: int, curve: Sequence[Expected]) -> Expected:
        for (low, before), (high, after) in pairwise(zip(self.steps, curve, strict=True)):
            if low <= step <= high:
                return before.between(after, (step - low) / (high - low))
        return curve[self.steps.index(step)]

    def tally(self, entries: Iterable[Mapping[str, Any]]) -> str:
        """How many evaluations of a run, as the entries of metrics.jsonl, had each verdict."""
        scores = {entry["step"]: entry for entry in entries if entry["kind"] == "dev"}
        verdicts = Counter(self.verdict(step, scores[step]).partition(":")[0] for step in sorted(scores))
        return ", ".join(f"{n} {verdict}" for verdict, n in verdicts.items())


def _summary(found: Mapping[str, str]) -> str:
    """One verdict on all figures: one that is on track does not outweigh another."""
    verdicts = {verdict: title for title, verdict in found.items() if verdict != "on track"}
    if not found:
        return "not comparable"
    if len(verdicts) == 2:
        return f"ahead by {verdicts['ahead']}, behind by {verdicts['behind']}"
    return next(iter(verdicts), "on track")
