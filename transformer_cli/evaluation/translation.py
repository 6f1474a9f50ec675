"""The configured metrics of translations, with warnings where their numbers would mislead."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from transformer_cli.data.corpus import TextPart
from transformer_cli.errors import ConfigError, quoted
from transformer_cli.evaluation.metrics import (
    METRIC_NEEDS,
    METRICS,
    SENTENCE_METRICS,
    MetricSettings,
    MetricUnavailable,
    Score,
    SentenceScores,
    Translations,
    check_line_counts,
    sentence_scores,
)
from transformer_cli.evaluation.text_statistics import TextStatistics, text_statistics
from transformer_cli.evaluation.tokenization import warn_of_script
from transformer_cli.logs import LOGGER

TOKENISED_LINES = 100  # sacrebleu, too, calls a text tokenised from this many lines that end in " ."


@dataclass(frozen=True)
class MetricResults:
    scores: list[Score]
    missing: dict[str, str]  # scores that cannot be computed, and why


@dataclass(frozen=True)
class PartResults:
    """The scores of a part of a test set, as one of several target languages, and what they do not show."""

    name: str
    n_lines: int
    results: MetricResults
    statistics: TextStatistics


def check_metrics(names: Sequence[str]) -> None:
    """Raise ConfigError for a name that is not registered."""
    for name in names:
        METRICS.check(name)


def prepare_metrics(names: Sequence[str], settings: MetricSettings) -> None:
    """Refuse, before hours of work, what cannot be had: raises what the metrics would raise without any line."""
    check_metrics(names)
    for name in names:
        if name in METRIC_NEEDS:
            METRIC_NEEDS[name](settings)


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
            found = METRICS[name](translations, settings)
            _refuse_taken_names(name, found, scores)
            scores += found
        except MetricUnavailable as unavailable:
            missing[unavailable.name] = unavailable.reason
    return MetricResults(scores, missing)


def _refuse_taken_names(metric: str, found: Sequence[Score], others: Sequence[Score]) -> None:
    """Raise ConfigError for a score whose name another one has: a table would not tell the two apart."""
    names = {one.name.casefold(): one.name for one in others}
    for score in found:
        if (other := names.get(score.name.casefold())) is not None:
            raise ConfigError(
                f"metrics={metric}: its score {quoted(score.name)} has the name of another, {quoted(other)}."
                " Rename a plugin's"
            )


def evaluate_parts(
    translations: Translations,
    parts: Sequence[TextPart],
    settings_of: Callable[[str], MetricSettings],
    names: Sequence[str],
    *,
    test: str,
) -> list[PartResults]:
    """The scores and statistics of each part, with the settings of its target language, and last those of all lines.

    Where BLEU of the languages takes different tokenizers there is none of all lines. Raises what
    `evaluate_translations` does.
    """
    found: list[PartResults] = []
    settings = {part.name: settings_of(part.target_lang) for part in parts}
    for part, of_part in _split(translations, parts):
        name = f"{test} {part.name}"
        results = evaluate_translations(of_part, settings[part.name], names, test=name)
        found.append(PartResults(name, part.n, results, text_statistics(of_part)))
    whole = _common([*settings.values()] or [settings_of("")], settings_of)
    results = evaluate_translations(translations, whole, names, test=test)
    return [*found, PartResults(test, len(translations.hypotheses), results, text_statistics(translations))]


def evaluate_sentences(
    translations: Translations,
    parts: Sequence[TextPart],
    settings_of: Callable[[str], MetricSettings],
    names: Sequence[str],
) -> dict[str, SentenceScores]:
    """The scores of each line, by the name of the metric, with the settings of the part that the line is in.

    A metric without such scores, or that cannot be computed, is left out. Raises what `sentence_scores` does.
    """
    found: dict[str, SentenceScores] = {}
    for name in names:
        if name not in SENTENCE_METRICS.names():
            continue
        try:
            of_parts = [
                sentence_scores(name, of_part, settings_of(part.target_lang))
                for part, of_part in _split(translations, parts)
            ] or [sentence_scores(name, translations, settings_of(""))]
        except MetricUnavailable:  # as the scores of the whole say
            continue
        signature = " and ".join(dict.fromkeys(one.signature for one in of_parts))
        values = [value for one in of_parts for value in one.values]
        found[name] = replace(of_parts[0], values=values, signature=signature)
    return found


def _split(translations: Translations, parts: Sequence[TextPart]) -> Iterator[tuple[TextPart, Translations]]:
    start = 0
    for part in parts:
        rows = slice(start, start + part.n)
        references = [reference[rows] for reference in translations.references]
        yield part, Translations(translations.hypotheses[rows], references, translations.sources[rows])
        start += part.n


def _common(of_parts: Sequence[MetricSettings], settings_of: Callable[[str], MetricSettings]) -> MetricSettings:
    """The settings for all parts together."""
    tokens = list(dict.fromkeys(settings.tokens for settings in of_parts))
    if len(tokens) == 1:
        return replace(settings_of(""), tokens=tokens[0]) if len(of_parts) > 1 else of_parts[0]
    used = " and ".join(dict.fromkeys(one.bleu for one in tokens))
    missing = f"its languages take the tokenizers {used}, so there is no BLEU of all of them together"
    return replace(settings_of(""), tokens=replace(tokens[0], missing=missing))


def warn_tokenised(hypotheses: Sequence[str]) -> None:
    n_tokenised = sum(line.rstrip().endswith(" .") for line in hypotheses)
    if n_tokenised >= TOKENISED_LINES:
        LOGGER.warning(
            "%d of %d translations end in ' .' as tokenised text does, which changes BLEU, chrF and TER."
            " Compare these scores only with scores of text in the same form",
            n_tokenised,
            len(hypotheses),
        )
