"""The configured metrics of translations, with warnings where their numbers would mislead."""

from collections.abc import Sequence
from dataclasses import dataclass

import transformer_cli.evaluation.paper_bleu  # noqa: F401 (registers its metrics)
from transformer_cli.evaluation.metrics import (
    METRICS,
    MetricSettings,
    MetricUnavailable,
    Score,
    Translations,
    check_line_counts,
)
from transformer_cli.evaluation.tokenization import warn_of_script
from transformer_cli.logs import LOGGER

TOKENISED_LINES = 100  # sacrebleu, too, calls a text tokenised from this many lines that end in " ."


@dataclass(frozen=True)
class MetricResults:
    scores: list[Score]
    missing: dict[str, str]  # scores that cannot be computed, and why


def check_metrics(names: Sequence[str]) -> None:
    """Raise ConfigError for a name that is not registered."""
    for name in names:
        METRICS.check(name)


def evaluate_translations(
    translations: Translations, settings: MetricSettings, names: Sequence[str], *, test: str
) -> MetricResults:
    """The scores of the named metrics, in their order; `test` is what a warning calls the references.

    Raises ConfigError for a name that is not registered, DataError when a reference has another number of lines, or
    when there is none.
    """
    check_metrics(names)
    check_line_counts(translations.hypotheses, translations.references)
    warn_tokenised(translations.hypotheses)
    warn_of_script(translations.references, settings.tokens, where=test, key="--tokenize ")
    scores: list[Score] = []
    missing: dict[str, str] = {}
    for name in names:
        try:
            scores += METRICS[name](translations, settings)
        except MetricUnavailable as unavailable:
            missing[unavailable.name] = unavailable.reason
    return MetricResults(scores, missing)


def warn_tokenised(hypotheses: Sequence[str]) -> None:
    n_tokenised = sum(line.rstrip().endswith(" .") for line in hypotheses)
    if n_tokenised >= TOKENISED_LINES:
        LOGGER.warning(
            "%d of %d translations end in ' .' as tokenised text does, which changes BLEU, chrF and TER."
            " Compare these scores only with scores of text in the same form",
            n_tokenised,
            len(hypotheses),
        )
