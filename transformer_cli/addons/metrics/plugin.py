"""What this add-on brings."""

from functools import partial

from transformer_cli.evaluation.metrics import (
    METRIC_NEEDS,
    METRICS,
    SENTENCE_METRICS,
    MetricSettings,
    Score,
    SentenceScores,
    Translations,
)


@METRICS.register("comet")
def _comet(translations: Translations, settings: MetricSettings) -> list[Score]:
    from transformer_cli.addons.metrics.comet import comet

    return comet(translations, settings)


@SENTENCE_METRICS.register("comet")
def _comet_of_sentences(translations: Translations, settings: MetricSettings) -> SentenceScores:
    from transformer_cli.addons.metrics.comet import sentences

    return sentences(translations, settings)


@METRIC_NEEDS.register("comet")
def _comet_model(settings: MetricSettings) -> None:
    from transformer_cli.addons.metrics.comet import CometSettings, model_of

    model_of(CometSettings.of(settings))


def _rouge(translations: Translations, settings: MetricSettings, *, name: str) -> list[Score]:
    from transformer_cli.addons.metrics.rouge import rouge_scores

    return rouge_scores(translations, settings, name=name)


def _rouge_of_sentences(translations: Translations, settings: MetricSettings, *, name: str) -> SentenceScores:
    from transformer_cli.addons.metrics.rouge import rouge_of_sentences

    return rouge_of_sentences(translations, settings, name=name)


def _rouge_package(settings: MetricSettings, *, name: str) -> None:
    from transformer_cli.addons.metrics.rouge import require_rouge

    require_rouge(name)


for _name in ("rouge1", "rouge2", "rougeL", "rougeLsum"):
    METRICS.register(_name)(partial(_rouge, name=_name))
    SENTENCE_METRICS.register(_name)(partial(_rouge_of_sentences, name=_name))
    METRIC_NEEDS.register(_name)(partial(_rouge_package, name=_name))


@METRICS.register("tokenised_bleu")
def _tokenised_bleu(translations: Translations, settings: MetricSettings) -> list[Score]:
    from transformer_cli.addons.metrics.paper_bleu import tokenised_bleu_metric

    return tokenised_bleu_metric(translations, settings)


@METRICS.register("paper_bleu")
def _paper_bleu(translations: Translations, settings: MetricSettings) -> list[Score]:
    from transformer_cli.addons.metrics.paper_bleu import paper_bleu_metric

    return paper_bleu_metric(translations, settings)
