"""`tfm evaluate` of models: they are opened, and the task that they were trained for scores them."""

from transformer_cli.config.evaluate import EvaluateConfig
from transformer_cli.config.tasks import all_tasks
from transformer_cli.decoding.opening import open_models
from transformer_cli.evaluation.saved import check_save, named_files
from transformer_cli.models.device import choose_device


def evaluate_models(config: EvaluateConfig) -> None:
    """Print the scores of a model on its test set, on another corpus's, or on the user's own files."""
    device = choose_device(config.device)
    check_save(config, named_files(config.checkpoint))
    opened = open_models(
        config.checkpoint,
        runs=config.runs,
        engine=config.engine and config.engine,
        decode=config.decode,
        kinds=[task.model for task in all_tasks()],
    )
    check_save(config, opened.paths)
    opened.task.evaluate(config, opened, device)
