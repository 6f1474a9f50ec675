"""What a logger is: where the figures of a run are shown beside metrics.jsonl; and the registry of loggers."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_cli.files import write_whole
from transformer_cli.registry import Registry, check_callable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class LoggedRun:
    """What a logger is opened with."""

    run_dir: Path
    config: Mapping[str, Any]  # as YAML has it
    step: int = 0  # what comes is of later steps: above 0 the run is resumed

    @property
    def name(self) -> str:
        return self.run_dir.resolve().name

    def remembered(self, logger: str) -> dict[str, Any]:
        """What `remember` has kept; empty for a new run, or if it cannot be read."""
        with suppress(OSError, ValueError):
            return dict(json.loads(self._file(logger).read_bytes()))
        return {}

    def remember(self, logger: str, values: Mapping[str, Any]) -> None:
        """Keep what a resumed run needs to write to the same place, as an id."""
        write_whole(self._file(logger), json.dumps(values).encode())

    def _file(self, logger: str) -> Path:
        return self.run_dir / f"logger-{logger}.json"


class RunLogger:
    """A logger: `scalars` is called for each entry of metrics.jsonl, with its numbers.

    Steps may come twice: a run that was killed is resumed from its last checkpoint. What comes later holds. The methods
    are called in a thread of the logger's own, one after another; whatever they raise ends the logger, with a warning,
    and not the training.
    """

    def __init__(self, run: LoggedRun) -> None:
        self.run = run

    def scalars(self, step: int, kind: str, values: Mapping[str, float]) -> None:
        """The numbers of an entry of a `kind`: train, dev, final, spike or rollback."""
        raise NotImplementedError

    def text(self, step: int, tag: str, text: str) -> None:
        """A sample translation."""

    def picture(self, step: int, tag: str, picture: "NDArray[np.uint8]") -> None:
        """Attention weights, grey, [height, width]."""

    def go_back(self, step: int) -> None:
        """What was written of later steps is void: the run goes back to this one."""

    def close(self) -> None:
        """The run ends, or stops."""


LOGGERS: Registry[Callable[[LoggedRun], RunLogger]] = Registry(
    "logger", adopt=lambda name, entry: _adopted(name, entry)
)
# What a logger needs before hours of work are spent: raises TfmError where, say, its package is missing.
LOGGER_NEEDS: Registry[Callable[[], object]] = Registry("logger")


def _adopted(name: str, entry: Any) -> Callable[[LoggedRun], RunLogger]:
    check_callable(entry, what=f"logger `{name}`", arguments="run")
    return entry  # type: ignore[no-any-return]
