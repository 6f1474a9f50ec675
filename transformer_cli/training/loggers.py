"""The loggers of a run, by the names of `train.loggers`: each in a thread, so that none slows or stops it."""

import queue
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from transformer_cli.config.run_logger import LOGGER_NEEDS, LOGGERS, LoggedRun, RunLogger
from transformer_cli.config.train import TENSORBOARD
from transformer_cli.errors import TfmError, quoted
from transformer_cli.logs import LOGGER

QUEUED = 10_000  # calls that a slow logger may be behind
CLOSE_S = 30.0  # that the end of a run waits for it


@LOGGERS.register(TENSORBOARD)
def _tensorboard(run: LoggedRun) -> RunLogger:
    from transformer_cli.training.tensorboard import TensorBoard

    return TensorBoard(run)


def check_loggers(names: Iterable[str]) -> None:
    """Raise ConfigError for a name that is in no registry, and what a logger raises that cannot be used here."""
    for name in names:
        LOGGERS.check(name)
        if name in LOGGER_NEEDS:
            LOGGER_NEEDS[name]()


class BackgroundLogger:
    """A logger in a thread, which training neither waits for nor ends with."""

    def __init__(self, name: str, run: LoggedRun) -> None:
        self.name = name
        self._calls: queue.Queue[Callable[[RunLogger], object] | None] = queue.Queue(QUEUED)
        self._is_off = False
        self._thread = threading.Thread(target=self._work, args=(run,), name=f"tfm-{name}", daemon=True)
        self._thread.start()

    def __call__(self, call: Callable[[RunLogger], object]) -> None:
        """Let the thread call the logger."""
        if self._is_off:
            return
        try:
            self._calls.put_nowait(call)
        except queue.Full:
            self._turn_off(f"is {QUEUED:,} entries behind")

    def close(self, *, waits: bool = True) -> None:
        """End the logger after what it was given, for which `CLOSE_S` are waited at most."""
        with suppress(queue.Full):
            self._calls.put_nowait(None)
        self._thread.join(CLOSE_S if waits else 0)
        if waits and self._thread.is_alive() and not self._is_off:
            self._turn_off(f"has not finished {CLOSE_S:.0f} s after the end")

    def _work(self, run: LoggedRun) -> None:
        try:
            logger = LOGGERS[self.name](run)
            while (call := self._calls.get()) is not None and not self._is_off:
                call(logger)
            logger.close()
        except BaseException as error:  # also SystemExit, which some libraries raise
            what = str(error) if isinstance(error, TfmError) else f"{type(error).__name__}: {quoted(str(error))[1:-1]}"
            self._turn_off(what)

    def _turn_off(self, why: str) -> None:
        if not self._is_off:
            self._is_off = True
            LOGGER.warning("train.loggers: %s: %s. Training goes on without it", self.name, why)


class Loggers:
    """The loggers of a run: TensorBoard is called at once, by `safely`, which catches OSError; others in threads."""

    def __init__(self, names: Iterable[str], run: LoggedRun, safely: Callable[[Callable[[], object]], None]) -> None:
        self._safely = safely
        self._here: list[RunLogger] = []
        self._background: list[BackgroundLogger] = []
        for name in dict.fromkeys(names):
            if name == TENSORBOARD:  # has a thread of its own
                safely(partial(self._open, name, run))
            else:
                self._background.append(BackgroundLogger(name, run))

    def _open(self, name: str, run: LoggedRun) -> None:
        self._here.append(LOGGERS[name](run))

    def __call__(self, call: Callable[[RunLogger], object]) -> None:
        for logger in self._here:
            self._safely(partial(call, logger))
        for background in self._background:
            background(call)

    def close(self, *, waits: bool) -> None:
        for logger in self._here:
            self._safely(logger.close)
        for background in self._background:
            background.close(waits=waits)
