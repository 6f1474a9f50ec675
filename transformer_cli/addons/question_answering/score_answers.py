"""The scores of answers that are given in a file: no model, and no torch, is needed."""

from transformer_cli.addons.classification.reports import print_classes
from transformer_cli.addons.question_answering.questions import Question
from transformer_cli.addons.question_answering.scores import answer_report
from transformer_cli.config.evaluate import EvaluateConfig
from transformer_cli.data.lines import Lines
from transformer_cli.evaluation.report import Provenance
from transformer_cli.evaluation.test_sets import check_lines, raw_test_set


def score_answers(config: EvaluateConfig, hypotheses: Lines) -> None:
    """Answers against answers: a line for each question, blank for none."""
    assert config.data is not None
    text = raw_test_set(config.data)
    config.refuse_metrics("these are answers")
    check_lines(hypotheses, len(text), f"data={config.data.name}: its test set", what="the answer")
    wanted = [[answer.text for answer in Question.of(*pair).answers] for pair in text.each()]
    report = answer_report(hypotheses.texts, wanted, seed=config.seed)
    provenance = Provenance(config.data.test_name, len(wanted), hypotheses.name)
    print_classes(report, provenance, as_json=config.json)
