"""The scores of a translator on a test set, with the signatures that make them comparable."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from tqdm import tqdm

from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.evaluate import EvaluateConfig
from transformer_cli.config.shared import TORCH
from transformer_cli.config.tasks import BLEU, Reported
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.checks.overlap import warn_of_overlap
from transformer_cli.data.corpus import ParallelText
from transformer_cli.data.prepare import Prepared
from transformer_cli.data.tags import split_tags
from transformer_cli.data.unknown import UnknownCounter
from transformer_cli.decoding.directions import asked_tags
from transformer_cli.decoding.opening import Opened
from transformer_cli.decoding.results import TranslateOptions
from transformer_cli.decoding.translator import Translator
from transformer_cli.errors import ConfigError
from transformer_cli.evaluation.extra_reports import EXTRA_REPORTS, ExtraReport, ReportRequest
from transformer_cli.evaluation.metrics import MetricSettings, Score, Translations, check_line_counts
from transformer_cli.evaluation.model_test_sets import test_sets, warn_of_other_language, warn_of_training_text
from transformer_cli.evaluation.report import Provenance, Report, print_reports
from transformer_cli.evaluation.saved import (
    directions_of_lines,
    language_of_lines,
    place_to_save,
    save,
)
from transformer_cli.evaluation.search_signature import search_name, search_signature
from transformer_cli.evaluation.sentence_scores import save_sentence_scores
from transformer_cli.evaluation.test_sets import TestSet, reference_files, tokens_for
from transformer_cli.evaluation.tokenization import tokenization, tokenizer_in
from transformer_cli.evaluation.translation import evaluate_parts, prepare_metrics
from transformer_cli.evaluation.usable import CHANCE, chance_score, unusable_outputs
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import read_model
from transformer_cli.training.result import TrainResult


def evaluate(config: EvaluateConfig, opened: Opened, device: torch.device) -> None:
    """Print the scores of a model on its test set, on another corpus's, or on the user's own files."""
    paths, models = opened.paths, opened.models
    if config.source is not None and config.reference is None:
        raise ConfigError("--reference: not given, but --source is. A score needs a text and its translation")
    tags = asked_tags(models[0], config.tag, config.source_lang, config.target_lang)
    tests = test_sets(config, models, paths[0], tags)
    of_model = tokenizer_in(models[0].data, paths[0])

    def settings_for(test: TestSet) -> Callable[[str], MetricSettings]:
        own = test.languages or directions_of_lines(test.sources, models[0], tags)
        return lambda language: MetricSettings(
            tokens_for(config, language or own[1], of_model=of_model),
            own[0],
            language or own[1],
            config,
        )

    for test in tests:
        prepare_metrics(config.metrics, settings_for(test)(""))  # refuses before anything is translated
    if config.source is not None:
        languages = directions_of_lines(tests[0].sources, models[0], tags)
        warn_of_other_language(config.source, tests[0].sources, languages[0], "from")
        warn_of_other_language(reference_files(config)[0], tests[0].references[0], languages[1], "into")
    warn_of_training_text(tests, models, paths)
    decode = opened.decode_config(config.decode, device)
    evaluated = [
        evaluate_set(opened, test, settings_for(test), decode, device, config=config, parallel=True, tags=tags)
        for test in tests
    ]
    _show(evaluated, config)


def report(config: TrainConfig, prepared: Prepared, result: TrainResult, device: torch.device) -> Reported:
    """Print the scores of the test set, as `tfm evaluate` does; return them, and why the model is not usable yet."""
    if prepared.test is None:
        LOGGER.info("no test set, so no scores: name one with data.test, or give tfm evaluate --source and --reference")
        is_chance = result.metric == BLEU and result.dev_score < CHANCE["BLEU"]
        return {}, f"dev BLEU is {result.dev_score:.2f}, which is no more than chance" if is_chance else ""
    name = config.data.test_name
    if config.data.test is not None:  # what is held out is in no training pair
        sources = [split_tags(line, config.data.all_tags)[1] for line in prepared.test.sources]
        warn_of_overlap(name, sources, [prepared.test.targets], prepared)
    found = report_test_set(
        result.model_path,
        prepared.test,
        # Of a choice of length penalties the model has the best, as for `tfm evaluate`.
        replace(config.decode, length_penalty=None) if config.train.length_penalties else config.decode,
        name=name,
        device=device,
        seed=config.seed,
        robustness_lines=config.train.robustness_lines,
    )
    return {f"test {score.name}": score.value for score in found.scores}, found.unusable


def report_test_set(
    path: Path,
    test: ParallelText,
    decode: DecodeConfig,
    *,
    name: str,
    device: torch.device,
    seed: int,
    robustness_lines: int,
) -> "TestOutcome":
    """What `tfm train` does at its end: the same scores, of the model file that it shipped.

    The robustness of the model is logged in a few lines, and its table is written to robustness.json beside it.
    """
    models = [read_model(path)]
    test_set = TestSet(name, test.sources, [test.targets], test.parts, contexts=test.contexts)
    opened = Opened([path], models, TORCH)
    decode = opened.decode_config(decode, device)
    of_model = tokenizer_in(models[0].data, path)

    def settings_of(language: str) -> MetricSettings:
        language = language or language_of_lines(test.sources, models[0])
        return MetricSettings(tokenization(language, of_model), models[0].source_lang, language)

    config = EvaluateConfig(seed=seed)
    if robustness_lines:
        config = replace(config, robustness=True, robustness_lines=robustness_lines)
    evaluated = evaluate_set(opened, test_set, settings_of, decode, device, config=config)
    _show([evaluated], config, trained_in=path.parent)
    scores = evaluated.report.results[-1].results.scores
    known = models[0].tokenizers.source.tags
    sources = [split_tags(line, known)[1] for line in test.sources]
    return TestOutcome(scores, unusable_outputs(sources, evaluated.hypotheses) or chance_score(scores))


@dataclass(frozen=True)
class TestOutcome:
    """The scores of the test set at the end of a run, and why the model is not usable yet; empty where it is."""

    scores: list[Score]
    unusable: str


@dataclass(frozen=True)
class Evaluated:
    """The scores of a test set, and what measures the other reports on it, which takes long."""

    report: Report
    hypotheses: list[str]
    extra: Mapping[str, Callable[[], ExtraReport | None]]


def evaluate_set(
    opened: Opened,
    test: TestSet,
    settings_of: Callable[[str], MetricSettings],
    decode: DecodeConfig,
    device: torch.device,
    *,
    config: EvaluateConfig,
    parallel: bool = False,
    tags: tuple[str, ...] = (),
) -> Evaluated:
    """Translate a test set, save the translations, and score them.

    `settings_of` gives the settings for a target language, by its code, or with "" those for the whole.
    """
    check_line_counts(test.sources, test.references)
    options = TranslateOptions(tags=tags)
    translator = opened.translator(decode, device, seed=config.seed, options=options, parallel=parallel)
    search = search_name(decode, seed=config.seed, engine=opened.engine)
    saved_as = place_to_save(config, opened.paths, opened.models, test, search, tags)
    hypotheses = translate(translator, test)
    save(hypotheses, saved_as, "save the translations")
    known = opened.models[0].tokenizers.source.tags
    translations = Translations(hypotheses, test.references, [split_tags(line, known)[1] for line in test.sources])
    results = evaluate_parts(translations, test.parts, settings_of, config.metrics, test=test.name)
    sentences = save_sentence_scores(config, translations, test, settings_of)
    names, hashes = ", ".join(map(str, opened.paths)), opened.sha256()
    search = search_signature(decode, seed=config.seed, engine=opened.engine, models=hashes)
    provenance = Provenance(
        test.name, len(hypotheses), saved_as.file if saved_as else None, names, search, hashes, sentences
    )
    languages = settings_of("").source_lang, settings_of("").target_lang
    request = ReportRequest(translator, test, hypotheses, languages, config)
    extra = {name: partial(EXTRA_REPORTS[name], request) for name in config.reports}
    return Evaluated(Report(results, provenance), hypotheses, extra)


def _show(evaluated: Sequence[Evaluated], config: EvaluateConfig, *, trained_in: Path | None = None) -> None:
    """Print scores, and the other reports; those of a run that was just trained are kept in it."""
    reports = [one.report for one in evaluated]
    if config.json:
        reports = [
            replace(one.report, provenance=replace(one.report.provenance, extra=_measured(one))) for one in evaluated
        ]
    print_reports(reports, as_json=config.json, table=config.table)
    if config.json:
        return
    for report in reports:
        if report.provenance.hypotheses is not None:
            LOGGER.info("translations: %s", report.provenance.hypotheses)
    for one in evaluated:  # after the scores
        for extra in _measured(one).values():
            if trained_in is not None:
                extra.keep(trained_in, one.report.provenance.facts())
            else:
                where = [f"{one.report.provenance.test_set}:"] if len(evaluated) > 1 else []
                lines = "\n".join([*where, *extra.lines()])
                if config.table is None:
                    print(lines, flush=True)
                elif sys.stderr is not None:
                    print(lines, file=sys.stderr, flush=True)


def _measured(evaluated: Evaluated) -> dict[str, ExtraReport]:
    """The other reports of a test set, but for those that have nothing to say."""
    found = {name: measure() for name, measure in evaluated.extra.items()}
    return {name: report for name, report in found.items() if report is not None}


def translate(translator: Translator, test: TestSet) -> list[str]:
    with tqdm(
        total=len(test.sources), unit="line", desc="translate", disable=None, leave=False, file=sys.stderr
    ) as bar:
        results = translator.translate(test.sources, on_progress=bar.update, contexts=test.contexts or None)
    if n_split := sum(result.n_parts > 1 and not result.split for result in results):
        LOGGER.info("%s: %d lines were translated sentence by sentence", test.name, n_split)
    unknown = UnknownCounter()
    for line, result in enumerate(results, start=1):
        unknown.add(line, result.unknown)
    unknown.warn(where=f"{test.name}: ")
    return [result.text for result in results]
