"""The scores of classes that are given in a file: no model, and no torch, is needed."""

from transformer_cli.addons.classification.labels import real_lines
from transformer_cli.addons.classification.reports import print_classes
from transformer_cli.addons.classification.scores import class_report
from transformer_cli.config.evaluate import EvaluateConfig
from transformer_cli.data.lines import Lines
from transformer_cli.errors import DataError, quoted
from transformer_cli.evaluation.report import Provenance
from transformer_cli.evaluation.test_sets import check_lines, raw_test_set
from transformer_cli.logs import LOGGER


def score_labels(config: EvaluateConfig, hypotheses: Lines) -> None:
    """Labels against labels. The file has one for each line of the test set, or for each that is not blank."""
    assert config.data is not None
    text = raw_test_set(config.data)
    config.refuse_metrics("these are labels")
    name, real = config.data.test_name, real_lines(text)
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
