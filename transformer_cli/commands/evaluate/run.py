"""`tfm evaluate`: the scores of a model, or of a file of translations or labels that is given."""

from pathlib import Path

from transformer_cli.config.evaluate import EvaluateConfig
from transformer_cli.config.tasks import TASKS, all_tasks
from transformer_cli.data.lines import Lines, read_lines, shown
from transformer_cli.data.named_sets import LISTED
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.evaluation.extra_reports import check_reports
from transformer_cli.evaluation.report import print_sets
from transformer_cli.evaluation.sentence_scores import check_sentence_scores
from transformer_cli.evaluation.test_sets import listed_sets
from transformer_cli.evaluation.translation import check_metrics
from transformer_cli.logs import LOGGER
from transformer_cli.standard_streams import require_stdout


def run(config: EvaluateConfig) -> None:
    """Print the scores of the files --hypotheses, which need no torch; without one, those of a model."""
    require_stdout("the scores")
    if config.test_set == [LISTED]:
        if config.table is not None:
            raise ConfigError(
                f"--table {config.table.value}: of scores, and --test-set list prints names. Leave it out"
            )
        print_sets(listed_sets(config.languages), as_json=config.json)
        return
    check_metrics(config.metrics)
    check_reports(config.reports)
    check_sentence_scores(config)
    if config.hypothesis_files:
        hypotheses = [read_hypotheses(Path(file)) for file in config.hypothesis_files]
        task = TASKS["translation"] if config.data is None else config.data.trained
        task.evaluate_files(config, hypotheses)
        return
    evaluate_models(config)


def evaluate_models(config: EvaluateConfig) -> None:
    """Open the models; the task that they were trained for scores them."""
    from transformer_cli.decoding.opening import open_models  # here: files are scored without torch
    from transformer_cli.evaluation.saved import check_save, named_files
    from transformer_cli.models.device import choose_device, tune_cpu_memory

    device = choose_device(config.device)
    tune_cpu_memory()
    check_save(config, named_files(config.checkpoint))
    kinds = [task.model for task in all_tasks()]
    opened = open_models(config.checkpoint, runs=config.runs, engine=config.engine, decode=config.decode, kinds=kinds)
    check_save(config, opened.paths)
    opened.task.evaluate(config, opened, device)


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
