"""The length penalty of a model, chosen on the dev set from `train.length_penalties`.

A higher one costs time, since a search ends only when no longer hypothesis can win. So the lowest is chosen of those
that are not significantly worse than the best, by paired bootstrap resampling (Koehn 2004) at the usual 5 %.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transformer_cli.data.corpus import ParallelText
from transformer_cli.errors import ConfigError
from transformer_cli.evaluation.metrics import MetricSettings, MetricUnavailable, Translations
from transformer_cli.evaluation.significance import Draws, Resampling, compare_systems, statistics_of
from transformer_cli.training.validation import TranslationScores

_SAMPLES, _LEVEL = 1000, 0.05


@dataclass(frozen=True)
class Tried:
    """A length penalty with which the dev set was translated."""

    alpha: float
    scores: TranslationScores
    seconds: float

    def shown(self, metric: str) -> str:
        score = self.scores.as_dict().get(f"dev_{metric}")
        return f"{'none' if score is None else format(score, '.4g')} with {self.alpha:g} in {self.seconds:.1f} s"


def choose(
    tried: Sequence[Tried], metric: str, text: ParallelText, settings: MetricSettings, *, seed: int
) -> tuple[Tried, str]:
    """The choice, and a clause for the log where it is not the best score."""
    best = max(tried, key=lambda one: (one.scores.rank(metric), -one.alpha))
    lower = sorted((one for one in tried if one.alpha < best.alpha), key=lambda one: one.alpha)
    p_values = _p_values([best, *lower], metric, text, settings, seed=seed)
    for one in lower:
        if (p := p_values.get(one.alpha, 0.0)) >= _LEVEL:
            return one, f", as the difference to {best.alpha:g} may be chance (p {p:.2f}) and a search takes less time"
    return best, ""


def _p_values(
    tried: Sequence[Tried], metric: str, text: ParallelText, settings: MetricSettings, *, seed: int
) -> Mapping[float, float]:
    """The p-value of the difference between each length penalty and the first; empty where the metric has no test."""
    if len(tried) < 2:
        return {}
    systems = [Translations(one.scores.translations, [text.targets], text.sources) for one in tried]
    try:
        statistics = statistics_of(metric, systems, settings)
    except (ConfigError, MetricUnavailable):
        return {}
    found = compare_systems(statistics, Draws(len(text), Resampling(seed, samples=_SAMPLES, trials=1))).against_baseline
    pairs = zip(tried, found, strict=True)
    return {one.alpha: result.p_bootstrap for one, result in pairs if result and result.p_bootstrap is not None}
