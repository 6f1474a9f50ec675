"""The scores of translations that are given in a file: no model, and no torch, is needed."""

from collections.abc import Sequence

from transformer_cli.config.evaluate import EvaluateConfig
from transformer_cli.data.lines import Lines
from transformer_cli.data.tags import split_tags
from transformer_cli.evaluation.metrics import MetricSettings, Translations
from transformer_cli.evaluation.report import Provenance, Report, print_report, print_reports
from transformer_cli.evaluation.sentence_scores import save_sentence_scores
from transformer_cli.evaluation.test_sets import (
    TestSet,
    check_lines,
    language_of_file,
    named_test_sets,
    own_references,
    raw_test_set,
    reference_files,
    tokens_for,
)
from transformer_cli.evaluation.translation import evaluate_parts


def score_files(config: EvaluateConfig, hypotheses: Sequence[Lines]) -> None:
    """Print the scores of one file, or of one for each set of --test-set."""
    if config.test_set:
        score_named_sets(config, hypotheses)
        return
    (lines,) = hypotheses
    if config.data is None:
        test = own_references(config, lines)
    else:
        text = raw_test_set(config.data)
        check_lines(lines, len(text), f"data={config.data.name}: its test set")
        sources = [split_tags(line, config.data.all_tags)[1] for line in text.sources]
        test = TestSet(config.data.test_name, sources, [text.targets], text.parts)
    print_report(_score_translations(config, lines, test), as_json=config.json, table=config.table)


def score_named_sets(config: EvaluateConfig, hypotheses: Sequence[Lines]) -> None:
    """The file of each set, in their order."""
    assert config.languages is not None
    tests = named_test_sets(config.test_set, config.languages)
    for lines, test in zip(hypotheses, tests, strict=True):
        check_lines(lines, len(test.sources), test.name)
    reports = [_score_translations(config, *pair) for pair in zip(hypotheses, tests, strict=True)]
    print_reports(reports, as_json=config.json, table=config.table)


def _score_translations(config: EvaluateConfig, hypotheses: Lines, test: TestSet) -> Report:
    if test.languages is not None:
        source_lang, target_lang = test.languages
    elif config.data is not None:
        source_lang, target_lang = config.data.source_lang, config.data.target_lang
    else:
        source_lang, target_lang = language_of_file(config.source), language_of_file(reference_files(config)[0])

    def settings_of(language: str) -> MetricSettings:
        language = language or target_lang
        return MetricSettings(tokens_for(config, language), source_lang, language, config)

    translations = Translations(hypotheses.texts, test.references, test.sources)
    results = evaluate_parts(translations, test.parts, settings_of, config.metrics, test=test.name)
    sentences = save_sentence_scores(config, translations, test, settings_of)
    provenance = Provenance(test.name, len(hypotheses), hypotheses.name, sentences=sentences)
    return Report(results, provenance)
