"""The logger of MLflow."""

import os
import re
import time
from collections.abc import Mapping

from transformer_cli.config.difference import flattened
from transformer_cli.config.run_logger import LoggedRun, RunLogger
from transformer_cli.extras import imported

_EXPERIMENT = "tfm"  # unless MLFLOW_EXPERIMENT_NAME says otherwise
_PARAMETERS, _LENGTH = 100, 500  # most that MLflow takes at once, and of a value
_OTHER = re.compile(r"[^\w\-. /]", re.ASCII)  # characters that no name of a metric has there


class MlflowLogger(RunLogger):
    """Writes a run of MLflow; a resumed run continues it by its id, which is in the run directory.

    MLFLOW_TRACKING_URI names the server or folder; MLflow's default is in the working folder.
    """

    def __init__(self, run: LoggedRun) -> None:
        super().__init__(run)
        mlflow = imported("mlflow", needs="train.loggers=[mlflow]")
        self._entities = mlflow.entities
        self._client = mlflow.MlflowClient()
        kept = run.remembered("mlflow")
        if kept:
            self._id = str(kept["run_id"])
            self._client.update_run(self._id, status="RUNNING")
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", _EXPERIMENT)
        experiment = self._client.get_experiment_by_name(name)
        experiment_id = self._client.create_experiment(name) if experiment is None else experiment.experiment_id
        self._id = self._client.create_run(experiment_id, run_name=run.name).info.run_id
        run.remember("mlflow", {"run_id": self._id})
        parameters = [
            self._entities.Param(key, str(value)[:_LENGTH]) for key, value in flattened(dict(run.config)).items()
        ]
        for start in range(0, len(parameters), _PARAMETERS):
            self._client.log_batch(self._id, params=parameters[start : start + _PARAMETERS])

    def scalars(self, step: int, kind: str, values: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        metrics = [
            self._entities.Metric(_OTHER.sub("_", f"{kind}/{name}"), float(value), now, step)
            for name, value in values.items()
        ]
        self._client.log_batch(self._id, metrics=metrics)

    def close(self) -> None:
        self._client.set_terminated(self._id)
