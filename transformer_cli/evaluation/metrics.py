"""Metrics of translations: functions in a registry, each of which returns scores with the signatures that made them.

A metric is given sources, hypotheses and references, and settings such as the languages. BLEU, chrF and TER are those
of sacrebleu's own command. A module that is imported with `--plugin` adds its own with `METRICS.register`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sacrebleu.metrics.base import Metric as SacreBLEUMetric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from transformer_cli.errors import DataError
from transformer_cli.evaluation.tokenization import PLAIN, Tokenization
from transformer_cli.registry import Registry


@dataclass(frozen=True)
class Score:
    """A number, in percent for the metrics here, and how it was made."""

    name: str
    value: float
    signature: str


@dataclass(frozen=True)
class Translations:
    """`references[k][i]` is the k-th reference translation of line i.

    `sources` is empty where only hypotheses and references are given.
    """

    hypotheses: Sequence[str]
    references: Sequence[Sequence[str]]
    sources: Sequence[str] = ()


@dataclass(frozen=True)
class MetricSettings:
    tokens: Tokenization = PLAIN
    source_lang: str = ""
    target_lang: str = ""


class MetricUnavailable(Exception):
    """A score that cannot be computed here, and why. It is reported in place of the number."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name, self.reason = name, reason


# A metric that means nothing for the languages returns no scores. It may raise MetricUnavailable.
Metric = Callable[[Translations, MetricSettings], list[Score]]
METRICS: Registry[Metric] = Registry("metric")


@METRICS.register("bleu")
def bleu_metric(translations: Translations, settings: MetricSettings) -> list[Score]:
    """BLEU, cased."""
    if settings.tokens.missing:
        raise MetricUnavailable("BLEU", settings.tokens.missing)
    return [_score(_bleu(settings.tokens), translations.hypotheses, translations.references)]


@METRICS.register("chrf")
def chrf_metric(translations: Translations, settings: MetricSettings) -> list[Score]:
    """chrF2, which needs no tokens."""
    return [_score(CHRF(), translations.hypotheses, translations.references)]


@METRICS.register("ter")
def ter_metric(translations: Translations, settings: MetricSettings) -> list[Score]:
    """TER, where the target language separates words."""
    if not settings.tokens.ter:
        language = settings.target_lang
        raise MetricUnavailable("TER", f"counts words, and {language} is written without blanks between them")
    # sacrebleu's support of Han characters works on normalised text only.
    is_asian = settings.tokens.ter == "asian"
    metric = TER(normalized=is_asian, asian_support=is_asian)
    return [_score(metric, translations.hypotheses, translations.references)]


def bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]], tokens: Tokenization = PLAIN) -> Score:
    """BLEU alone (cased): fast enough to be computed during training."""
    check_line_counts(hypotheses, references)
    return _score(_bleu(tokens), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """chrF2 alone, which needs no tokens."""
    check_line_counts(hypotheses, references)
    return _score(CHRF(), hypotheses, references)


def check_line_counts(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Raise DataError unless there are lines to score and every reference has as many."""
    if not hypotheses or not references:
        raise DataError(
            f"nothing to score: {len(hypotheses)} translations and {len(references)} references."
            " Name a test set with at least one line"
        )
    for number, reference in enumerate(references, start=1):
        if len(reference) != len(hypotheses):
            raise DataError(
                f"reference {number}: {len(reference)} lines for {len(hypotheses)} translations, so nothing is scored."
                " Make line n of one belong to line n of the other"
            )


def _bleu(tokens: Tokenization) -> BLEU:
    # `force` only silences sacrebleu's advice on tokenised text, which names its own options; ours: translation.py.
    return BLEU(tokenize=tokens.bleu, force=True)


def _score(metric: SacreBLEUMetric, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    result = metric.corpus_score(hypotheses, references)
    return Score(result.name, float(result.score), metric.get_signature().format())
