"""What this add-on brings."""

from transformer_cli.addons.parsing import treebank  # noqa: F401
from transformer_cli.evaluation.metrics import (
    METRICS,
    SENTENCE_METRICS,
    MetricSettings,
    Score,
    SentenceScores,
    Translations,
)


@METRICS.register("bracket_f1")
def _bracket_f1(translations: Translations, settings: MetricSettings) -> list[Score]:
    from transformer_cli.addons.parsing.bracket_f1 import bracket_f1

    return bracket_f1(translations, settings)


@SENTENCE_METRICS.register("bracket_f1")
def _bracket_f1_of_sentences(translations: Translations, settings: MetricSettings) -> SentenceScores:
    from transformer_cli.addons.parsing.bracket_f1 import bracket_f1_of_sentences

    return bracket_f1_of_sentences(translations, settings)
