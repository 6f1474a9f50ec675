"""`tfm train`: prepare, train or resume, and report dev and test scores."""

from transformer_cli.commands.evaluate import report_test_set
from transformer_cli.data.prepare import prepare
from transformer_cli.logs import LOGGER
from transformer_cli.models.device import choose_device
from transformer_cli.models.transformer import MODELS
from transformer_cli.schema import TrainConfig
from transformer_cli.training.loop import train
from transformer_cli.training.optimizers import OPTIMIZERS
from transformer_cli.training.run_directory import open_run
from transformer_cli.training.schedules import SCHEDULES


def run(config: TrainConfig) -> float:
    """Train `config` in its run directory; return the dev score, which a sweeper optimises."""
    # Before the data: a missing GPU or a misspelt name should not cost an hour of preparation.
    device = choose_device(config.device)
    MODELS.check(config.model.name)
    SCHEDULES.check(config.schedule.name)
    OPTIMIZERS.check(config.optimizer.name)
    with open_run(config) as run_dir:
        prepared = prepare(config.data, progress=True)
        result = train(config, prepared, run_dir, device=device)
    if prepared.test is None:
        LOGGER.info("no test set, so no scores: name one with data.test, or give tfm evaluate --source and --reference")
    else:
        name = f"{config.data.name}.test"
        report_test_set(result.model_path, prepared.test, config.decode, name=name, device=device, seed=config.seed)
    return result.dev_score
