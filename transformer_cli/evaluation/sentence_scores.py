"""The file of the scores of each line that `--sentence-scores` names."""

from collections.abc import Callable
from pathlib import Path

from transformer_cli.config.evaluate import EvaluateConfig
from transformer_cli.data.lines import shown
from transformer_cli.errors import ConfigError
from transformer_cli.evaluation.metrics import SENTENCE_METRICS, MetricSettings, Translations
from transformer_cli.evaluation.report import sentence_lines
from transformer_cli.evaluation.test_sets import TestSet, reference_files
from transformer_cli.evaluation.translation import evaluate_sentences
from transformer_cli.files import resolve_link, wrap_os_errors, write_whole
from transformer_cli.logs import LOGGER
from transformer_cli.text_io import check_output, same_file


def check_sentence_scores(config: EvaluateConfig) -> None:
    """Refuse a --sentence-scores that would fail, or destroy a file, before anything is scored."""
    if config.sentence_scores is None:
        return
    if not set(config.metrics) & set(SENTENCE_METRICS.names()):
        choices = ", ".join(SENTENCE_METRICS.names())
        raise ConfigError(f"--sentence-scores: none of metrics={','.join(config.metrics)} has any. Choose of {choices}")
    inputs: dict[str, str | None] = {"--source": config.source}
    inputs |= {f"--hypotheses {name}": name for name in config.hypothesis_files}
    inputs |= {f"--reference {name}": name for name in reference_files(config)}
    there = {flag: name for flag, name in inputs.items() if name is not None and Path(name).exists()}
    check_output(Path(config.sentence_scores), "--sentence-scores", there, overwrite=config.overwrite)
    if config.save is not None and same_file(config.save, config.sentence_scores):
        raise ConfigError(f"{config.save}: both --save and --sentence-scores. Choose two files")


def save_sentence_scores(
    config: EvaluateConfig, translations: Translations, test: TestSet, settings_of: Callable[[str], MetricSettings]
) -> dict[str, object]:
    """Write the file that --sentence-scores names, if it does; what is in it, for the report."""
    if config.sentence_scores is None:
        return {}
    scores = evaluate_sentences(translations, test.parts, settings_of, config.metrics)
    file = Path(config.sentence_scores)
    with wrap_os_errors(file, "save the scores of each line"):
        text = "".join(f"{line}\n" for line in sentence_lines(translations, scores))
        write_whole(resolve_link(file), text.encode(), replace=config.overwrite)
    if not config.json:
        for one in scores.values():
            LOGGER.info("%s: %s of each line, %s", shown(file), one.name, one.signature)
    return {"file": str(file), "signatures": {name: one.signature for name, one in scores.items()}}
