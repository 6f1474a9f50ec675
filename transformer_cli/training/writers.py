"""What a run reports while it trains: a progress bar, log lines, metrics.jsonl and the loggers."""

import json
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from transformer_cli.config.run_logger import LoggedRun, RunLogger
from transformer_cli.config.train import TENSORBOARD
from transformer_cli.environment import concealed
from transformer_cli.errors import Stopped
from transformer_cli.files import open_own, wrap_os_errors, write_whole
from transformer_cli.logs import LOGGER
from transformer_cli.system import sync as sync_file
from transformer_cli.training.loggers import Loggers

METRICS_FILE = "metrics.jsonl"
SPIKE, ROLLBACK = "spike", "rollback"  # kinds of entries
FIRST_SECONDS = 3.0  # until the first line on how far training is


class _LogFile(logging.FileHandler):
    """A disk that is full for the log does not end the run, and is reported once."""

    _reported = False

    def _open(self) -> TextIOWrapper:
        return open_own(Path(self.baseFilename))

    def format(self, record: logging.LogRecord) -> str:
        return concealed(super().format(record))

    def handleError(self, record: logging.LogRecord) -> None:
        if not self._reported:
            self._reported = True
            LOGGER.warning("%s: %s. Training goes on without it", self.baseFilename, sys.exc_info()[1])


@contextmanager
def log_file(file: Path) -> Iterator[None]:
    """Keep what is logged meanwhile, and what ends it early: with its traceback, unless the end was asked for.

    Raises EnvironmentFault.
    """
    with wrap_os_errors(file, "write"):
        handler = _LogFile(file, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    LOGGER.addHandler(handler)
    try:
        yield
    except BaseException as error:
        was_asked_for = isinstance(error, Stopped) or not isinstance(error, Exception)
        level, traceback = (logging.INFO, None) if was_asked_for else (logging.ERROR, sys.exc_info())
        what = str(error) if isinstance(error, Stopped) else f"stopped by {type(error).__name__}"
        handler.handle(LOGGER.makeRecord("tfm", level, "", 0, "%s", (what,), traceback))
        raise
    finally:
        LOGGER.removeHandler(handler)
        with suppress(OSError):  # reported already
            handler.close()


class Recorder:
    """Writes to the run directory what happens after `step`, the one that was resumed from; `evaluated` is the last one
    that was evaluated by then. An epoch has `updates_per_epoch` steps. `unit` is what an update counts: target tokens,
    or the sentences of a classification.

    A disk that is full for these files is reported once; training goes on.
    """

    def __init__(
        self,
        run_dir: Path,
        step: int,
        evaluated: int,
        *,
        max_steps: int,
        updates_per_epoch: int,
        unit: str = "tokens",
        log_seconds: float = math.inf,
        rollbacks: Sequence[Mapping[str, Any]] = (),
        loggers: Sequence[str] = (TENSORBOARD,),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.max_steps, self.unit, self._updates_per_epoch = max_steps, unit, updates_per_epoch
        self._broken = False
        self._metrics = run_dir / METRICS_FILE
        with wrap_os_errors(self._metrics, "write"):
            missing = self._forget_after(step, evaluated, rollbacks)
        self._show = Loggers(loggers, LoggedRun(run_dir, config or {}, step), self._safely)
        self._write_lines(missing)
        self._bar = tqdm(
            total=max_steps, initial=step, unit="step", file=sys.stderr, disable=not sys.stderr.isatty(), leave=False
        )
        self._first, self._started = step, time.perf_counter()
        self._clock, self._n_units = self._started, 0
        self._silent_since, self._log_seconds = self._started, log_seconds
        self._longest_silence = min(FIRST_SECONDS, log_seconds)

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.close()
        self._show.close(waits=not isinstance(error, KeyboardInterrupt))

    def advance(self, n_units: int) -> None:
        """One update of so many target tokens, or sentences, is done."""
        self._n_units += n_units
        self._bar.update()

    def is_silent(self) -> bool:
        """Whether it is time for a line, as the last one was long ago."""
        return time.perf_counter() - self._silent_since >= self._longest_silence

    def report_progress(self, step: int, loss: float | None) -> None:
        """A line between those of `train`, by the clock, and so for people only: no metrics are written."""
        speed = self._n_units / (time.perf_counter() - self._clock)
        so_far = "" if loss is None else f"loss {loss:.3f}, "
        LOGGER.info(f"{self._at(step)}: {so_far}{speed:,.0f} {self.unit}/s, about {self._time_left(step)} left")
        self._note_line()

    def _note_line(self) -> None:
        self._silent_since, self._longest_silence = time.perf_counter(), self._log_seconds

    def train(self, step: int, values: dict[str, float]) -> None:
        """The training scalars of the steps since the last call, and how fast they were."""
        speed = self._n_units / (time.perf_counter() - self._clock)
        self._clock, self._n_units = time.perf_counter(), 0
        self._write(step, "train", {**values, f"{self.unit}_per_second": round(speed, 1)})
        alignment = f" alignment {values['alignment_loss']:.3f}," if "alignment_loss" in values else ""
        self._bar.set_postfix_str(f"loss {values['loss']:.3f}, {speed:,.0f} {self.unit}/s", refresh=False)
        LOGGER.info(
            f"{self._at(step)}: loss {values['loss']:.3f}, nll {values['nll']:.3f},{alignment} lr {values['lr']:.2e},"
            f" grad norm {values.get('grad_norm', math.inf):.2f}, {speed:,.0f} {self.unit}/s,"
            f" {values['fill']:.0%} full, {self._time_left(step)} left"
        )
        self._note_line()

    def dev(self, step: int, values: dict[str, Any]) -> None:
        self._write(step, "dev", values)

    def event(self, step: int, kind: str, values: dict[str, Any]) -> None:
        """What has happened at a step beside training and evaluation."""
        self._write(step, kind, values)

    def go_back(self, step: int, evaluated: int, rollbacks: Sequence[Mapping[str, Any]]) -> None:
        """Training goes on from an earlier step, as after a resume."""
        missing: list[str] = []
        self._safely(lambda: missing.extend(self._forget_after(step, evaluated, rollbacks)))
        self._show(lambda logger: logger.go_back(step))
        self._write_lines(missing)
        self._bar.n = step
        self._bar.refresh()
        self._first, self._started = step, time.perf_counter()
        self._clock, self._n_units = self._started, 0

    def final(self, step: int, values: dict[str, Any]) -> None:
        """The last entry. It is synced now: a run that has a result does not write its metrics again."""
        self._write(step, "final", values)
        self._safely(lambda: _sync(self._metrics))

    def text(self, step: int, tag: str, text: str) -> None:
        self._show(lambda logger: logger.text(step, tag, text))

    def picture(self, step: int, tag: str, picture: NDArray[np.uint8]) -> None:
        """`picture` is grey, [height, width]."""
        self._show(lambda logger: logger.picture(step, tag, picture))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time spent here is not training, and does not count in the speed."""
        start = time.perf_counter()
        yield
        self._clock += time.perf_counter() - start

    def _entry(self, step: int, kind: str, values: Mapping[str, Any]) -> str:
        epoch = round(step / self._updates_per_epoch, 4)
        return json.dumps({"step": step, "kind": kind, "epoch": epoch, **values}, allow_nan=False)

    def _write(self, step: int, kind: str, values: dict[str, Any]) -> None:
        self._write_lines([self._entry(step, kind, values)])

    def _write_lines(self, lines: Sequence[str]) -> None:
        """Write entries of metrics.jsonl, and their numbers to the loggers."""
        for line in lines:
            self._safely(partial(append, self._metrics, f"{line}\n"))
            entry = json.loads(line)
            step, kind = entry.pop("step"), entry.pop("kind")
            numbers = {name: value for name, value in entry.items() if isinstance(value, int | float)}
            self._show(partial(_scalars, step=step, kind=kind, numbers=numbers))

    def _forget_after(self, step: int, evaluated: int, rollbacks: Sequence[Mapping[str, Any]]) -> list[str]:
        """Leave out of metrics.jsonl what is written again; the `rollbacks` of the run stay, or are returned."""
        entries = [self._entry(int(one["to"]), ROLLBACK, one) for one in rollbacks]
        return forget_after(self._metrics, step, evaluated, also=entries)

    def _safely(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            if not self._broken:
                LOGGER.warning("%s: %s. Training goes on without it", error.filename or self._metrics, error.strerror)
            self._broken = True

    def _at(self, step: int) -> str:
        epoch, epochs = step / self._updates_per_epoch, self.max_steps / self._updates_per_epoch
        digits = 2 if epochs < 10 else 1
        return f"step {step}/{self.max_steps}, epoch {epoch:.{digits}f}/{epochs:.{digits}f}"

    def _time_left(self, step: int) -> str:
        seconds = (time.perf_counter() - self._started) / (step - self._first) * (self.max_steps - step)
        return tqdm.format_interval(seconds)


def _scalars(logger: RunLogger, *, step: int, kind: str, numbers: Mapping[str, float]) -> None:
    logger.scalars(step, kind, numbers)


def _sync(file: Path) -> None:
    with open_own(file) as handle:
        sync_file(handle.fileno())


def append(file: Path, line: str) -> None:
    with open_own(file) as handle:
        handle.write(line)


def forget_after(file: Path, step: int, evaluated: int, *, also: Sequence[str] = ()) -> list[str]:
    """Leave out of a metrics file what a resumed run will write again: updates after `step`, evaluations after
    `evaluated`, a torn last line, the end.

    Lines in `also` stay; those of them that are missing are returned. Raises OSError.
    """
    if not file.is_file():
        return list(also)
    known = {line.encode() for line in also}
    lines = [line for line in file.read_bytes().split(b"\n") if line in known or _is_before(line, step, evaluated)]
    write_whole(file, b"".join(line + b"\n" for line in lines))
    return [line for line in also if line.encode() not in lines]


def _is_before(line: bytes, step: int, evaluated: int) -> bool:
    try:
        entry = json.loads(line)
        return bool(entry["step"] <= {"train": step, "dev": evaluated, SPIKE: step}.get(entry["kind"], -1))
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
