"""`tfm evaluate` of a file of translations or labels, made by anything: no model, and no torch, is needed.

Without such a file the scores are those of a model (evaluate.py).
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from transformer_cli.config.data import Task
from transformer_cli.config.evaluate import EvaluateConfig
from transformer_cli.data.corpus import ParallelText
from transformer_cli.data.labels import real_lines
from transformer_cli.data.lines import Lines, read_lines, shown
from transformer_cli.data.named_sets import LISTED
from transformer_cli.data.tags import split_tags
from transformer_cli.data.words import split_words, words_of_line
from transformer_cli.errors import ConfigError, DataError, EnvironmentFault, quoted
from transformer_cli.evaluation.classification import class_report
from transformer_cli.evaluation.entities import OUTSIDE, are_bio, warn_not_bio
from transformer_cli.evaluation.metrics import CometSettings, MetricSettings, Translations
from transformer_cli.evaluation.report import (
    Provenance,
    Report,
    print_classes,
    print_report,
    print_reports,
    print_sets,
)
from transformer_cli.evaluation.sentence_scores import check_sentence_scores, save_sentence_scores
from transformer_cli.evaluation.test_sets import (
    TestSet,
    check_lines,
    language_of_file,
    listed_sets,
    named_test_sets,
    own_references,
    raw_test_set,
    reference_files,
    tokens_for,
)
from transformer_cli.evaluation.translation import check_metrics, evaluate_parts
from transformer_cli.evaluation.word_labels import word_report
from transformer_cli.logs import LOGGER


def run(config: EvaluateConfig) -> None:
    """Print the scores of the file --hypotheses; without one, those of a model."""
    if sys.stdout is None:
        raise EnvironmentFault("standard output: closed. Open it, for the scores to be printed")
    if config.test_set == [LISTED]:
        print_sets(listed_sets(config.languages), as_json=config.json)
        return
    check_metrics(config.metrics)
    check_sentence_scores(config)
    if not config.hypothesis_files:
        from transformer_cli.commands.evaluate.run import run as evaluate_model  # and torch, which a file does not need

        evaluate_model(config)
        return
    hypotheses, *others = [read_hypotheses(Path(file)) for file in config.hypothesis_files]
    if config.test_set:
        score_named_sets(config, [hypotheses, *others])
        return
    if config.data is None:
        print_report(score_translations(config, hypotheses, own_references(config, hypotheses)), as_json=config.json)
        return
    match config.data.task:
        case Task.translation:
            text = raw_test_set(config.data)
            check_lines(hypotheses, len(text), f"data={config.data.name}: its test set")
            sources = [split_tags(line, config.data.all_tags)[1] for line in text.sources]
            test = TestSet(f"{config.data.title}.test", sources, [text.targets], text.parts)
            print_report(score_translations(config, hypotheses, test), as_json=config.json)
        case Task.classification:
            score_labels(config, hypotheses, raw_test_set(config.data))
        case Task.token_classification:
            score_word_labels(config, hypotheses, raw_test_set(config.data))
        case Task.language_model:
            raise ConfigError(
                f"data={config.data.name}: text for a language model, which translates nothing. Choose parallel text"
            )


def read_hypotheses(file: Path) -> Lines:
    if not file.exists() and not file.is_symlink():
        raise DataError(
            f"{shown(file)}: no such file. --hypotheses is an input, translations that are scored as they are;"
            " --save names a file for those of a model"
        )
    hypotheses = read_lines(file)
    if hypotheses.n_crlf:
        LOGGER.info("%s: %s lines end in \\r\\n; the \\r was left out", shown(file), f"{hypotheses.n_crlf:,}")
    return hypotheses


def score_named_sets(config: EvaluateConfig, hypotheses: Sequence[Lines]) -> None:
    """The file of each set, in their order."""
    assert config.languages is not None
    tests = named_test_sets(config.test_set, config.languages)
    for lines, test in zip(hypotheses, tests, strict=True):
        check_lines(lines, len(test.sources), test.name)
    reports = [score_translations(config, *pair) for pair in zip(hypotheses, tests, strict=True)]
    print_reports(reports, as_json=config.json)


def score_translations(config: EvaluateConfig, hypotheses: Lines, test: TestSet) -> Report:
    if test.languages is not None:
        source_lang, target_lang = test.languages
    elif config.data is not None:
        source_lang, target_lang = config.data.source_lang, config.data.target_lang
    else:
        source_lang, target_lang = language_of_file(config.source), language_of_file(reference_files(config)[0])

    def settings_of(language: str) -> MetricSettings:
        comet = CometSettings.of(config.comet, config.device)
        return MetricSettings(tokens_for(config, language or target_lang), source_lang, language or target_lang, comet)

    translations = Translations(hypotheses.texts, test.references, test.sources)
    results = evaluate_parts(translations, test.parts, settings_of, config.metrics, test=test.name)
    sentences = save_sentence_scores(config, translations, test, settings_of)
    provenance = Provenance(test.name, len(hypotheses), hypotheses.name, sentences=sentences)
    return Report(results, provenance)


def score_labels(config: EvaluateConfig, hypotheses: Lines, text: ParallelText) -> None:
    """Labels against labels. The file has one for each line of the test set, or for each that is not blank."""
    assert config.data is not None
    if config.tokenize is not None:
        raise ConfigError(f"--tokenize {config.tokenize}: for BLEU of translations; these are labels. Leave it out")
    config.refuse_metrics("these are labels")
    name, real = f"{config.data.title}.test", real_lines(text)
    if len(hypotheses) != len(real):
        check_lines(hypotheses, len(text), f"data={config.data.name}: its test set", what="the label")
    has_blank = len(hypotheses) == len(text)
    predicted = [label.strip() for label in hypotheses.texts]
    predicted = [predicted[i] for i in real] if has_blank else predicted
    wanted = [text.targets[i] for i in real]
    if not wanted:
        raise DataError(f"{name}: holds no sentence with a class. Write label<TAB>text")
    known = set(wanted)
    strange = [label for label in predicted if label not in known]
    if strange:
        LOGGER.warning(
            "%s: %d of %d labels are none of the test set's, as %s",
            *(hypotheses.name, len(strange), len(predicted), quoted(strange[0])),
        )
    report = class_report(predicted, wanted, sorted({*predicted, *wanted}), seed=config.seed)
    print_classes(report, Provenance(name, len(predicted), hypotheses.name), as_json=config.json)


def score_word_labels(config: EvaluateConfig, hypotheses: Lines, text: ParallelText) -> None:
    """Labels against labels: a line for each sentence, with the labels of its words."""
    assert config.data is not None
    if config.tokenize is not None:
        raise ConfigError(f"--tokenize {config.tokenize}: for BLEU of translations; these are labels. Leave it out")
    config.refuse_metrics("these are labels")
    name, wanted = f"{config.data.title}.test", [split_words(target) for target in text.targets]
    check_lines(hypotheses, len(wanted), f"data={config.data.name}: its test set", what="the labels")
    predicted = [words_of_line(line) for line in hypotheses.texts]
    for number, (ours, theirs) in enumerate(zip(predicted, wanted, strict=True), 1):
        if len(ours) != len(theirs):
            raise DataError(
                f"{hypotheses.name}:{number}: {len(ours)} labels, but sentence {number} of {name} has {len(theirs)}"
                " words. Write a label for each word, with spaces between them"
            )
    labels = sorted({label for one in (*predicted, *wanted) for label in one})
    decisive = {label for one in wanted for label in one} - {OUTSIDE} or labels
    has_entities = are_bio(decisive)
    if has_entities:
        warn_not_bio(labels, hypotheses.name)
    report = word_report(predicted, wanted, labels, seed=config.seed, has_entities=has_entities)
    print_classes(report, Provenance(name, len(predicted), hypotheses.name), as_json=config.json)
