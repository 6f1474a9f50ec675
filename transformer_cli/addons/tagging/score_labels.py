"""The scores of labels of words that are given in a file: no model, and no torch, is needed."""

from transformer_cli.addons.classification.reports import print_classes
from transformer_cli.addons.tagging.entities import OUTSIDE, are_bio, warn_not_bio
from transformer_cli.addons.tagging.word_labels import word_report
from transformer_cli.addons.tagging.words import split_words, words_of_line
from transformer_cli.config.evaluate import EvaluateConfig
from transformer_cli.data.lines import Lines
from transformer_cli.errors import DataError
from transformer_cli.evaluation.report import Provenance
from transformer_cli.evaluation.test_sets import check_lines, raw_test_set


def score_labels(config: EvaluateConfig, hypotheses: Lines) -> None:
    """Labels against labels: a line for each sentence, with the labels of its words."""
    assert config.data is not None
    text = raw_test_set(config.data)
    config.refuse_metrics("these are labels")
    name, wanted = config.data.test_name, [split_words(target) for target in text.targets]
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
