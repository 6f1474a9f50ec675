"""Profiles a few updates: a trace for Perfetto, chrome://tracing and TensorBoard."""

import gzip
import shutil
from pathlib import Path
from types import TracebackType

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from transformer_cli.files import make_folder, temporary_path, writing_whole
from transformer_cli.logs import LOGGER

_FOLDER = "profile"  # in the run directory
_SUFFIX = ".pt.trace.json.gz"  # by which TensorBoard knows a trace
# Updates: those that pay for what is loaded and chosen, those that start the profiler, and those that are traced.
WAIT, WARM_UP, TRACED = 5, 2, 3
N_COSTLIEST = 10  # operations in the table


class Trace:
    """Traces a few of this process's updates; without `enabled` it does nothing at all.

    What could be traced of a run that ends earlier is written too. A full disk is reported; training goes on.
    """

    def __init__(self, run_dir: Path, device: torch.device, *, enabled: bool) -> None:
        self._folder, self._on_gpu = run_dir / _FOLDER, device.type == "cuda"
        self._n_updates = self._step = 0
        self._profiler: profile | None = None
        if enabled:
            self._profiler = profile(
                activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * self._on_gpu],
                schedule=schedule(wait=WAIT, warmup=WARM_UP, active=TRACED, repeat=1),
                on_trace_ready=self._report,
                acc_events=True,  # or torch warns that it forgets those of other cycles, of which there are none
            )

    def __enter__(self) -> "Trace":
        if self._profiler is not None:
            self._profiler.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def advance(self, step: int) -> None:
        """The update of `step` is done."""
        if self._profiler is None:
            return
        self._n_updates, self._step = self._n_updates + 1, step
        if self._n_updates == WAIT + WARM_UP + TRACED:
            self._end()
        else:
            self._profiler.step()

    def _end(self) -> None:
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            profiler.stop()

    def _report(self, profiler: profile) -> None:
        """Writes the trace; torch calls it when the last update is traced, or when the run ends before."""
        n_traced = self._n_updates - WAIT - WARM_UP
        if n_traced < 1:
            return
        file = self._folder / f"step-{self._step:08d}{_SUFFIX}"
        try:
            self._write(profiler, file)
        except OSError as error:
            LOGGER.warning("%s: %s. Training goes on without it", error.filename or file, error.strerror)
            return
        LOGGER.info(
            "%s: open it in https://ui.perfetto.dev, or with tensorboard --logdir %s", file, self._folder.parent
        )
        for line in costliest(profiler, n_updates=n_traced, on_gpu=self._on_gpu):
            LOGGER.info("%s", line)

    def _write(self, profiler: profile, file: Path) -> None:
        make_folder(self._folder)
        plain = temporary_path(file)
        try:
            profiler.export_chrome_trace(str(plain))
            with plain.open("rb") as trace, writing_whole(file) as whole, gzip.open(whole, "wb") as packed:
                shutil.copyfileobj(trace, packed)
        finally:
            plain.unlink(missing_ok=True)


def costliest(profiler: profile, *, n_updates: int, on_gpu: bool) -> list[str]:
    """A table of the operations that took most time on the device by themselves, without what they called."""
    spent_us = {
        op.key: (op.count, op.self_device_time_total if on_gpu else op.self_cpu_time_total)
        for op in profiler.key_averages()
        if op.device_type.name == "CPU" and not op.key.startswith("ProfilerStep")
    }
    total_us = sum(us for _, us in spent_us.values()) or 1
    rows = sorted(spent_us.items(), key=lambda row: row[1][1], reverse=True)[:N_COSTLIEST]
    width = max((len(name) for name, _ in rows), default=0)
    table = [f"{'operation':<{width}} {'calls':>8} {'ms':>9} {'share':>6}   an update"]
    for name, (n_calls, us) in rows:
        table.append(
            f"{name:<{width}} {n_calls / n_updates:>8,.0f} {us / 1000 / n_updates:>9.2f} {us / total_us:>6.1%}"
        )
    return table
