"""The logger of Weights & Biases."""

import os
import secrets
from collections.abc import Mapping

from transformer_cli.config.run_logger import LoggedRun, RunLogger
from transformer_cli.extras import imported

_PROJECT = "tfm"  # unless WANDB_PROJECT says otherwise


class WandbLogger(RunLogger):
    """Writes a run of Weights & Biases; a resumed run continues it by its id, which is in the run directory.

    Its own steps only count upwards: the step of an entry is the metric `step`, by which all others are drawn.
    """

    def __init__(self, run: LoggedRun) -> None:
        super().__init__(run)
        wandb = imported("wandb", needs="train.loggers=[wandb]")
        kept = run.remembered("wandb")
        if not kept:
            kept = {"id": secrets.token_hex(4)}
            run.remember("wandb", kept)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            name=run.name,
            id=kept["id"],
            resume="allow",
            dir=str(run.run_dir),
            config=dict(run.config),
            settings=wandb.Settings(console="off", silent=True),
        )
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def scalars(self, step: int, kind: str, values: Mapping[str, float]) -> None:
        self._run.log({**{f"{kind}/{name}": value for name, value in values.items()}, "step": step})

    def close(self) -> None:
        self._run.finish()
