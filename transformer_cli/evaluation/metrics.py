"""Metrics of translations: functions in a registry, each of which returns scores with the signatures that made them.

A metric is given sources, hypotheses and references, and settings such as the languages. BLEU, chrF and TER are those
of sacrebleu's own command, which is imported when one is computed. Some also score each sentence by itself. A plugin
adds its own with `METRICS.register`, and its sentence-level scores, if there are any, with `SENTENCE_METRICS.register`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from transformer_cli.errors import ConfigError, DataError
from transformer_cli.evaluation.tokenization import FLORES200, PLAIN, Tokenization, tokenization
from transformer_cli.registry import Registry, check_callable, guarded

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric as SacreBLEUMetric
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER


@dataclass(frozen=True)
class Score:
    """A number, in percent for the metrics here, and how it was made."""

    name: str
    value: float
    signature: str
    higher_is_better: bool = True
    digits: int = 2  # decimals, as they are printed


@dataclass(frozen=True)
class SentenceScores:
    """The score of each line by itself, and how it was made."""

    name: str
    values: Sequence[float]
    signature: str
    higher_is_better: bool = True


@dataclass(frozen=True)
class Translations:
    """`references[k][i]` is the k-th reference translation of line i.

    `sources` is empty where only hypotheses and references are given.
    """

    hypotheses: Sequence[str]
    references: Sequence[Sequence[str]]
    sources: Sequence[str] = ()

    def copied(self) -> "Translations":
        """The same lines, in lists that may be changed."""
        return Translations([*self.hypotheses], [[*lines] for lines in self.references], [*self.sources])


@dataclass(frozen=True)
class MetricSettings:
    tokens: Tokenization = PLAIN
    source_lang: str = ""
    target_lang: str = ""
    config: Any = None  # of the command: a metric that has keys of its own finds them there


class MetricUnavailable(Exception):
    """A score that cannot be computed here, and why. It is reported in place of the number."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name, self.reason = name, reason


# A metric that means nothing for the languages returns no scores. It may raise MetricUnavailable.
Metric = Callable[[Translations, MetricSettings], list[Score]]


SentenceMetric = Callable[[Translations, MetricSettings], SentenceScores]


def _adopted(name: str, entry: Any) -> Metric:
    check_callable(entry, what="a metric", arguments="translations, settings")
    return guarded(entry, _fault_of_scores, given=_own_lines)


def _own_lines(translations: Translations, settings: MetricSettings) -> tuple[Translations, MetricSettings]:
    """What a plugin's metric gets: the lines that it changes are not those of the metrics after it."""
    return translations.copied(), settings


def _fault_of_scores(found: object, *_: object) -> str | None:
    if not isinstance(found, list) or not all(isinstance(one, Score) for one in found):
        return f"{found!r:.80}, not a list of Score"
    for one in found:
        if not _is_number(one.value):
            return f"{one!r:.80}, whose value is not a finite number"
        if fault := _fault_of_name(one):
            return f"{one!r:.80}, {fault}"
    return None


def _fault_of_name(found: Score | SentenceScores) -> str | None:
    for what, text in (("name", found.name), ("signature", found.signature)):
        if not isinstance(text, str) or not text.isprintable():
            return f"whose {what} is not text that can be printed on a line"
    return None if found.name.strip() else "whose name is empty"


def _adopted_of_sentences(name: str, entry: Any) -> SentenceMetric:
    check_callable(entry, what="a sentence-level metric", arguments="translations, settings")
    return guarded(entry, _fault_of_sentences, given=_own_lines)


def _fault_of_sentences(found: object, translations: Translations, settings: MetricSettings) -> str | None:
    if not isinstance(found, SentenceScores):
        return f"{found!r:.80}, not SentenceScores"
    if fault := _fault_of_name(found):
        return f"{found!r:.80}, {fault}"
    if len(found.values) != len(translations.hypotheses):
        return f"{len(found.values)} scores for {len(translations.hypotheses)} lines"
    return next(
        (f"{value!r:.80} for a line, not a finite number" for value in found.values if not _is_number(value)), None
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


METRICS: Registry[Metric] = Registry("metric", adopt=_adopted)


SENTENCE_METRICS: Registry[SentenceMetric] = Registry("sentence-level metric", adopt=_adopted_of_sentences)
# What a metric needs before hours of work are spent: raises what the metric itself would raise without any line.
METRIC_NEEDS: Registry[Callable[[MetricSettings], None]] = Registry("metric")


# ---- sacrebleu's own metrics, by the names that they have here


def _bleu(settings: MetricSettings, *, sentences: bool = False) -> "BLEU":
    from sacrebleu.metrics.bleu import BLEU

    if settings.tokens.missing:
        raise MetricUnavailable("BLEU", settings.tokens.missing)
    # `force` only silences sacrebleu's advice on tokenised text, which names its own options; ours: translation.py.
    # Of a sentence, as of sacrebleu's --sentence-level, orders that it is too short for do not count.
    return BLEU(tokenize=settings.tokens.bleu, force=True, effective_order=sentences)


def _spbleu(settings: MetricSettings, *, sentences: bool = False) -> "BLEU":
    tokens = tokenization(settings.target_lang, FLORES200)
    if tokens.missing:
        raise MetricUnavailable("spBLEU", tokens.missing)
    return _bleu(replace(settings, tokens=tokens), sentences=sentences)


def _chrf(settings: MetricSettings, *, sentences: bool = False) -> "CHRF":
    from sacrebleu.metrics.chrf import CHRF

    return CHRF()


def _chrf_pp(settings: MetricSettings, *, sentences: bool = False) -> "CHRF":
    from sacrebleu.metrics.chrf import CHRF

    return CHRF(word_order=2)


def _ter(settings: MetricSettings, *, sentences: bool = False) -> "TER":
    from sacrebleu.metrics.ter import TER

    if not settings.tokens.ter:
        language = settings.target_lang
        raise MetricUnavailable("TER", f"counts words, and {language} is written without blanks between them")
    # sacrebleu's support of Han characters works on normalised text only.
    is_asian = settings.tokens.ter == "asian"
    return TER(normalized=is_asian, asian_support=is_asian)


SACREBLEU: dict[str, Callable[..., "SacreBLEUMetric"]] = {
    "bleu": _bleu,
    "spbleu": _spbleu,
    "chrf": _chrf,
    "chrf++": _chrf_pp,
    "ter": _ter,
}
LOWER_IS_BETTER = ("ter",)


def sacrebleu_metric(name: str, settings: MetricSettings) -> "SacreBLEUMetric":
    """The corpus-level metric of `SACREBLEU` with this name, for sacrebleu's significance tests.

    Raises MetricUnavailable where it cannot be computed for the language, or here.
    """
    return SACREBLEU[name](settings)


def _corpus_metric(name: str) -> Metric:
    def metric(translations: Translations, settings: MetricSettings) -> list[Score]:
        made = sacrebleu_metric(name, settings)
        score = _score(made, translations.hypotheses, translations.references)
        # sacrebleu calls it BLEU, too; its tokenizer is in the signature
        label = "spBLEU" if name == "spbleu" else score.name
        return [replace(score, name=label, higher_is_better=name not in LOWER_IS_BETTER)]

    return metric


def _sentence_metric(name: str) -> SentenceMetric:
    def metric(translations: Translations, settings: MetricSettings) -> SentenceScores:
        made = SACREBLEU[name](settings, sentences=True)
        references = zip(*translations.references, strict=True)
        results = [
            made.sentence_score(hypothesis, of_line)
            for hypothesis, of_line in zip(translations.hypotheses, references, strict=True)
        ]
        label = "spBLEU" if name == "spbleu" else results[0].name
        values = [float(result.score) for result in results]
        return SentenceScores(label, values, made.get_signature().format(), name not in LOWER_IS_BETTER)

    return metric


for _name in SACREBLEU:
    METRICS.register(_name)(_corpus_metric(_name))
    SENTENCE_METRICS.register(_name)(_sentence_metric(_name))


def bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]], tokens: Tokenization = PLAIN) -> Score:
    """BLEU alone (cased). Raises DataError for other numbers of lines."""
    check_line_counts(hypotheses, references)
    return _score(_bleu(MetricSettings(tokens)), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """The score chrF alone, chrF2. Raises DataError for other numbers of lines."""
    check_line_counts(hypotheses, references)
    return _score(_chrf(MetricSettings(PLAIN)), hypotheses, references)


def _score(metric: "SacreBLEUMetric", hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    result = metric.corpus_score(hypotheses, references)
    return Score(result.name, float(result.score), metric.get_signature().format())


def sentence_scores(name: str, translations: Translations, settings: MetricSettings) -> SentenceScores:
    """The scores of each line by the named metric.

    Raises ConfigError for a metric without such scores, DataError for other numbers of lines, MetricUnavailable.
    """
    METRICS.check(name)
    if name not in SENTENCE_METRICS.names():
        choices = ", ".join(SENTENCE_METRICS.names())
        raise ConfigError(f"metrics={name}: has no sentence-level scores. Choose among {choices}")
    check_line_counts(translations.hypotheses, translations.references)
    return SENTENCE_METRICS[name](translations, settings)


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
