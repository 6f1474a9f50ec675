"""`tfm train`: prepare, train or resume, and report dev and test scores."""

from transformer_cli.commands.evaluate import report_test_set
from transformer_cli.data.prepare import prepare
from transformer_cli.models.device import choose_device
from transformer_cli.schema import TrainConfig
from transformer_cli.training.loop import train
from transformer_cli.training.run_directory import open_run


def run(config: TrainConfig) -> float:
    """Train `config` in its run directory; return the dev score, which a sweeper optimises."""
    device = choose_device(config.device)  # before the data: a missing GPU should not cost an hour of preparation
    run_dir = open_run(config)
    prepared = prepare(config.data, progress=True)
    result = train(config, prepared, run_dir, device=device)
    if prepared.test is not None:
        name = f"{config.data.name}.test"
        report_test_set(result.model_path, prepared.test, config.decode, name=name, device=device, seed=config.seed)
    return result.dev_score
