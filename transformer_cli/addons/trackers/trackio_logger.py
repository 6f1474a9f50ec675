"""The logger of Trackio."""

import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout

from transformer_cli.config.run_logger import LoggedRun, RunLogger
from transformer_cli.extras import imported

_PROJECT = "tfm"  # unless TRACKIO_PROJECT says otherwise


class TrackioLogger(RunLogger):
    """Writes a run of Trackio, which a resumed run continues by its name; that is kept in the run directory."""

    def __init__(self, run: LoggedRun) -> None:
        super().__init__(run)
        trackio = imported("trackio", needs="train.loggers=[trackio]")
        kept = run.remembered("trackio")
        if not kept:
            kept = {"project": os.environ.get("TRACKIO_PROJECT", _PROJECT), "name": run.name}
            run.remember("trackio", kept)
        with redirect_stdout(sys.stderr):  # which Trackio prints to; results come when the logger is closed
            self._run = trackio.init(
                project=kept["project"], name=kept["name"], resume="allow", config=dict(run.config), embed=False
            )

    def scalars(self, step: int, kind: str, values: Mapping[str, float]) -> None:
        self._run.log({f"{kind}/{name}": value for name, value in values.items()}, step=step)

    def close(self) -> None:
        with redirect_stdout(sys.stderr):
            self._run.finish()
