"""What this add-on brings: the loggers `wandb`, `mlflow` and `trackio` of train.loggers."""

from functools import partial

from transformer_cli.config.run_logger import LOGGER_NEEDS, LOGGERS, LoggedRun, RunLogger
from transformer_cli.extras import imported

for _name in ("wandb", "mlflow", "trackio"):
    LOGGER_NEEDS.register(_name)(partial(imported, _name, needs=f"train.loggers=[{_name}]"))


@LOGGERS.register("wandb")
def _wandb(run: LoggedRun) -> RunLogger:
    from transformer_cli.addons.trackers.wandb_logger import WandbLogger

    return WandbLogger(run)


@LOGGERS.register("mlflow")
def _mlflow(run: LoggedRun) -> RunLogger:
    from transformer_cli.addons.trackers.mlflow_logger import MlflowLogger

    return MlflowLogger(run)


@LOGGERS.register("trackio")
def _trackio(run: LoggedRun) -> RunLogger:
    from transformer_cli.addons.trackers.trackio_logger import TrackioLogger

    return TrackioLogger(run)
