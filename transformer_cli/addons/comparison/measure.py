"""Every figure of a comparison, from the translations of the systems."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sacrebleu.metrics.bleu import BLEU

from transformer_cli.addons.comparison.breakdowns import (
    Frequencies,
    Tokenize,
    by_frequency,
    by_length,
    count_words,
    word_counts,
)
from transformer_cli.addons.comparison.groups import Flat, compare_groups, config_differences, find_groups
from transformer_cli.addons.comparison.results import Breakdown, Comparison, Curve, Sentence, System
from transformer_cli.errors import ConfigError
from transformer_cli.evaluation.metrics import (
    SACREBLEU,
    MetricSettings,
    MetricUnavailable,
    Translations,
    sentence_scores,
)
from transformer_cli.evaluation.significance import (
    Draws,
    MetricComparison,
    Resampling,
    Statistics,
    compare_systems,
    statistics_of,
)
from transformer_cli.evaluation.text_statistics import TextStatistics, text_statistics


@dataclass(frozen=True)
class Measures:
    """The metrics and the significance test of a comparison. Metrics are named as in the registry."""

    metrics: Sequence[str]
    sentence_metric: str
    n_sentences: int  # in either direction
    resampling: Resampling
    finds_best: bool = False  # whether the best system is tested against each other one, not the baseline alone


@dataclass(frozen=True)
class TestText:
    """A test set without anything for a model in it, as tags. No sources where there are only references."""

    name: str
    references: Sequence[Sequence[str]]
    sources: Sequence[str] = ()


@dataclass(frozen=True)
class Background:
    """Facts about the runs among the systems: a list with an entry for each system, None if it is no run.

    By system, None for those that are none.
    """

    configs: Sequence[Flat | None] = ()
    curves: Sequence[Curve] = ()
    training_lines: Callable[[], Iterable[str]] | None = None  # of the target language, of one run
    training_text: str = ""  # what they are called
    notes: Sequence[str] = field(default_factory=list)


def compare(
    systems: Sequence[System], test: TestText, settings: MetricSettings, measures: Measures, background: Background
) -> Comparison:
    """Compare the systems, the first of which is the baseline, on the lines of one test set.

    Raises ConfigError for a metric that has no sentence-level scores, and where none can be computed.
    """
    translations = [Translations(system.translations, test.references, test.sources) for system in systems]
    notes = [*background.notes]
    known: dict[str, Statistics] = {}
    for name in measures.metrics:
        try:
            known[name] = statistics_of(name, translations, settings)
        except MetricUnavailable as unavailable:
            notes.append(f"No {unavailable.name}: {unavailable.reason}")
    if not known:
        raise ConfigError(
            f"metrics={','.join(measures.metrics)}: none can be computed ({'; '.join(notes)}). Choose others"
        )
    draws = Draws(len(systems[0].translations), measures.resampling)
    metrics = [compare_systems(statistics, draws) for statistics in known.values()]
    best = {
        metric.name: clear_best(statistics, metric, draws)
        for statistics, metric in zip(known.values(), metrics, strict=True)
        if measures.finds_best
    }

    names = [system.name for system in systems]
    grouping = find_groups(names, background.configs or [None] * len(systems))
    group_scores, group_comparisons = compare_groups(names, grouping, metrics)

    label, scores, higher_is_better = _sentence_scores(measures.sentence_metric, known, translations, settings)
    better, worse = differing_sentences(translations, scores, higher_is_better=higher_is_better, n=measures.n_sentences)
    return Comparison(
        test_set=test.name,
        n_lines=len(systems[0].translations),
        n_references=len(test.references),
        systems=[
            System(**{**vars(system), "group": group}) for system, group in zip(systems, grouping.group_of, strict=True)
        ],
        metrics=metrics,
        sentence_metric=label,
        better=better,
        worse=worse,
        groups=group_scores,
        group_comparisons=group_comparisons,
        breakdowns=_breakdowns(list(known.values()), translations, settings, background),
        curves=background.curves,
        config_differences=config_differences(background.configs),
        statistics=[_counts(text_statistics(one)) for one in translations],
        source_language=settings.source_lang or None,
        target_language=settings.target_lang or None,
        notes=[*notes, *grouping.notes, *_cautions(len(systems), grouping.group_of, measures)],
        clear_best={name: system for name, system in best.items() if system is not None},
    )


def clear_best(statistics: Statistics, found: MetricComparison, draws: Draws) -> int | None:
    """The system with the best score, if it differs significantly from each other one.

    `found` has the tests against the baseline; those against the others are made here, with the same draws.
    """
    scores = [one.score for one in found.scores]
    best = scores.index(max(scores) if found.higher_is_better else min(scores))
    results = found.against_baseline[1:]
    if best > 0:
        against_baseline, others = found.against_baseline[best], [i for i in range(1, len(scores)) if i != best]
        results = [against_baseline]
        if others and against_baseline is not None and against_baseline.is_significant():
            rows = [statistics.rows[i] for i in (best, *others)]
            results += compare_systems(replace(statistics, rows=rows), draws).against_baseline[1:]
    return best if all(result is not None and result.is_significant() for result in results) else None


def _counts(of: TextStatistics) -> dict[str, float | int | None]:
    """Numbers alone, by the names that they have in `tfm evaluate --json`."""
    losses = {"numbers": of.numbers, "urls": of.links}
    return {
        "length_ratio": of.length_ratio,
        "loops": of.n_loops,
        "copies": of.n_copies,
        "empty_but_reference_is_not": of.n_empty_wrongly,
        "unknown_signs": of.n_unknown,
        **{f"lines_with_{name}": it.n_lines for name, it in losses.items()},
        **{f"lines_that_lose_{name}": it.n_lost for name, it in losses.items()},
    }


def _cautions(n_systems: int, group_of: Sequence[str | None], measures: Measures) -> list[str]:
    cautions = []
    if n_systems > 2:
        cautions.append(
            f"{n_systems - 1} systems are tested against the first one, and the p-values are not corrected for that:"
            " of many systems, some differ by chance"
        )
    if measures.resampling.seed is None:
        cautions.append("The tests drew at random, without a seed: p-values will be a little different next time")
    return cautions


def _sentence_scores(
    name: str, known: Mapping[str, Statistics], translations: Sequence[Translations], settings: MetricSettings
) -> tuple[str, list[list[float]], bool]:
    """Name, scores by system and line, and whether higher is better."""
    if name in SACREBLEU:  # from what was counted in each line
        statistics = known.get(name) or statistics_of(name, translations, settings)
        metric = SACREBLEU[name](settings, sentences=True)
        scores = [[float(metric._compute_score_from_stats([*row]).score) for row in rows] for rows in statistics.rows]
        return statistics.name, scores, statistics.higher_is_better
    if name in known:
        statistics = known[name]
        return statistics.name, [[row[0] for row in rows] for rows in statistics.rows], statistics.higher_is_better
    found = [sentence_scores(name, one, settings) for one in translations]
    return found[0].name, [list(one.values) for one in found], found[0].higher_is_better


def _breakdowns(
    known: Sequence[Statistics],
    translations: Sequence[Translations],
    settings: MetricSettings,
    background: Background,
) -> list[Breakdown]:
    tokenize = _tokenizer(settings)
    references = word_counts(translations[0].references[0], tokenize)
    systems = [word_counts(one.hypotheses, tokenize) for one in translations]
    lengths = [line.total() for line in references]
    wanted = {word for lines in (references, *systems) for line in lines for word in line}
    if background.training_lines is not None:
        counts = count_words(background.training_lines(), tokenize, wanted)
        frequencies = Frequencies(counts, background.training_text)
    else:
        found: dict[str, int] = dict.fromkeys(wanted, 0)
        for line in references:
            for word, count in line.items():
                found[word] += count
        frequencies = Frequencies(found, "the references")
    return [*(by_length(statistics, lengths) for statistics in known), by_frequency(systems, references, frequencies)]


def _tokenizer(settings: MetricSettings) -> Tokenize:
    """The words that BLEU counts; where its tokenizer is not there, what stands between blanks."""
    if settings.tokens.missing:
        return str.split
    made = BLEU(tokenize=settings.tokens.bleu, force=True).tokenizer
    return lambda line: made(line.rstrip()).split()


def differing_sentences(
    systems: Sequence[Translations], scores: Sequence[Sequence[float]], *, higher_is_better: bool, n: int
) -> tuple[dict[int, list[Sentence]], dict[int, list[Sentence]]]:
    """System → the `n` lines on which it gains most, and those on which it loses most, the largest difference first.

    `scores` are those of each line, by system; system 0 is the baseline. A line with equal scores is in neither.
    """
    better: dict[int, list[Sentence]] = {}
    worse: dict[int, list[Sentence]] = {}
    sign = 1 if higher_is_better else -1

    def sentence(line: int) -> Sentence:
        return Sentence(
            line + 1,
            systems[0].sources[line] if systems[0].sources else None,
            [reference[line] for reference in systems[0].references],
            [one.hypotheses[line] for one in systems],
            [values[line] for values in scores],
        )

    for system in range(1, len(systems)):
        gains = [sign * (ours - base) for ours, base in zip(scores[system], scores[0], strict=True)]
        order = sorted(range(len(gains)), key=lambda line: -gains[line])
        better[system] = [sentence(line) for line in order[:n] if gains[line] > 0]
        order = sorted(range(len(gains)), key=lambda line: gains[line])
        worse[system] = [sentence(line) for line in order[:n] if gains[line] < 0]
    return better, worse
