"""The memory, the time, the plan and the disk of a run, by a dry run of it."""

import gc
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from transformer_cli.addons.doctor.findings import Section
from transformer_cli.addons.doctor.memory import memory_plan, n_bytes
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.feed import epoch_of
from transformer_cli.data.prepare import Prepared
from transformer_cli.environment import folder_named
from transformer_cli.errors import DivergedError, EnvironmentFault
from transformer_cli.models.file import FILE_BYTES
from transformer_cli.models.memory import gigabytes, is_out_of_memory
from transformer_cli.system import available_memory, forget_peak_memory, peak_memory
from transformer_cli.training.checkpoints import CHECKPOINTS_FOLDER
from transformer_cli.training.dry_run import WORST_SECONDS, BatchShape, DryRun, batch_of, n_tokens_of, worst_shapes
from transformer_cli.training.lora import is_adapter
from transformer_cli.training.plan import MANY_SECONDS, Chosen, plan_warnings, planned
from transformer_cli.training.run_directory import run_folder

TIMED_UPDATES = 5
TIMED_SECONDS = 10.0  # after which no other update is begun
TIGHT = 0.9  # of the memory or the disk


@dataclass(frozen=True)
class Memory:
    """Memory of the GPU or of this machine, in bytes: the peak of the dry run, and what is available."""

    peak: int
    available: int


class MeasuredRun(DryRun):
    """A dry run with the figures that are reported of it."""

    @property
    def device_name(self) -> str:
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type

    @property
    def precision(self) -> str:
        return str(self.trainer.dtype).removeprefix("torch.")

    @property
    def n_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.trainer.model.parameters())

    def run_shape(self, shape: BatchShape) -> float:
        return self.run([batch_of(shape, self.corpus, self.tokenizers)])

    def checkpoint_bytes(self) -> int:
        """Bytes of the tensors that a checkpoint holds: weights, tokenizers, and the state of the optimizer."""
        weights = [one for name, one in self.trainer.model.state_dict().items() if not is_adapter(name)]
        n_weights: int = sum(one.numel() for one in weights)
        state = n_bytes(self.trainer.optimizer_state().values())
        sides = {
            self.tokenizers.source.sha256: self.tokenizers.source,
            self.tokenizers.target.sha256: self.tokenizers.target,
        }
        return FILE_BYTES * n_weights + state + sum(len(tokenizer.model_bytes) for tokenizer in sides.values())

    def least_bytes(self, n_tokens: int) -> int:
        """What an update takes at the very least: weights, gradients, the optimizer's state, the logits with theirs."""
        plan = memory_plan(self.trainer)
        return plan.weights + plan.gradients + plan.optimizer + 2 * n_tokens * self.tokenizers.n_outputs * 4


def check_training(
    config: TrainConfig, prepared: Prepared, device: torch.device, section: Section, *, folder: Path | None = None
) -> None:
    """Findings and figures on memory, time, plan and disk. The run will be in `folder`, if its name is not as usual."""
    meter = _Meter(device)
    try:
        dry_run = MeasuredRun(config, prepared, device)
        dry_run.warm_up()
        section.figures |= {"device": dry_run.device_name, "precision": dry_run.precision}
        section.figures["parameters"] = dry_run.n_parameters
        section.figures["memory_plan"] = asdict(plan := memory_plan(dry_run.trainer))
        section.ok("memory plan", str(plan))
        disk = dry_run.checkpoint_bytes()  # while the optimizer's memory is the same as after any other update
        proven = _check_worst_shapes(dry_run, meter, section)
        if proven:
            _estimate(dry_run, section)
        _, chosen = planned(config, epoch_of(config, prepared), device.type)
        _check_plan(dry_run.config, prepared, section, chosen)
        if not dry_run.is_finite:
            _refuse_divergence(dry_run, section)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        _refuse_model(section, meter)
        return
    _check_disk(config, folder or run_folder(config), disk, section)


# ---- Memory


def _check_worst_shapes(dry_run: MeasuredRun, meter: "_Meter", section: Section) -> bool:
    """False if the largest batches do not fit into memory."""
    longest = dry_run.feed.longest
    max_tokens = dry_run.config.train.max_tokens_per_microbatch
    shapes = worst_shapes(longest, max_tokens)
    largest = max(shape.tokens for shape in shapes)
    names = " and ".join(map(str, shapes))
    section.figures["worst_shapes"] = [[shape.rows, shape.length] for shape in shapes]
    predicted = 2 * largest * dry_run.seconds_per_token
    may_fit = dry_run.least_bytes(largest) <= meter.available
    if dry_run.device.type == "cpu" and may_fit and predicted > WORST_SECONDS:
        what = f"a largest batch of {names} would take about {duration(predicted)} on this CPU, and was not tried"
        section.warn("memory", what, "Use a GPU, a smaller model, or lower train.max_tokens_per_microbatch")
        return True
    seconds = _try(dry_run, shapes, meter.available)
    memory = meter.read()
    section.figures |= {"peak_bytes": memory.peak, "available_bytes": memory.available}
    if seconds is None:
        _refuse_shape(dry_run, longest, names, memory, section)
        return False
    section.figures["worst_seconds"] = seconds
    what = f"the largest batch, {names}, takes {gigabytes(memory.peak)} of {gigabytes(memory.available)}"
    what += f" with model and optimizer, and {duration(seconds)}"
    if memory.peak > TIGHT * memory.available:
        section.warn("memory", what, f"Lower train.max_tokens_per_microbatch={max_tokens} for room to evaluate in")
    else:
        section.ok("memory", what)
    return True


def _try(dry_run: MeasuredRun, shapes: Sequence[BatchShape], available: int) -> float | None:
    """Seconds of an update with the slowest of `shapes`; None if one of them does not fit into memory."""
    least = max(dry_run.least_bytes(shape.tokens) for shape in shapes)
    if dry_run.device.type == "cpu" and least > available:
        return None  # a system without memory raises no error: it kills
    try:
        return max(dry_run.run_shape(shape) for shape in shapes)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    # Not in the handler: the exception keeps every tensor of the failed update alive.
    dry_run.trainer.optimizer.zero_grad(set_to_none=True)
    gc.collect()
    if dry_run.device.type == "cuda":
        torch.cuda.empty_cache()
    return None


def _refuse_divergence(dry_run: MeasuredRun, section: Section) -> None:
    key = "factor" if dry_run.config.schedule.factor is not None else "lr"
    what = "the loss of the first updates is not a finite number"
    section.error("loss", what, f"Lower schedule.{key}, or set train.clip_norm", DivergedError)


def _refuse_shape(dry_run: MeasuredRun, longest: int, names: str, memory: Memory, section: Section) -> None:
    """Report that the largest batch does not fit, and find a size that does."""
    fitting = dry_run.config.train.max_tokens_per_microbatch // 2
    while fitting >= longest and _try(dry_run, worst_shapes(longest, fitting), memory.available) is None:
        fitting //= 2
    todo = f"Set train.max_tokens_per_microbatch={fitting}, which fits"
    if fitting < longest:
        todo = "Lower data.max_length, or choose a smaller model"
    what = f"the largest batch, {names}, does not fit into {gigabytes(memory.available)}"
    section.error("memory", what, todo, EnvironmentFault)


def _refuse_model(section: Section, meter: "_Meter") -> None:
    what = f"the model with its optimizer does not fit into {gigabytes(meter.available)}"
    section.error("memory", what, "Choose a smaller model, or a device with more memory", EnvironmentFault)


class _Meter:
    """The highest memory use since it was made."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            self._before = 0
            self.available = torch.cuda.mem_get_info(device)[0]
        elif device.type == "mps":
            torch.mps.empty_cache()
            self._before = torch.mps.driver_allocated_memory()
            self.available = torch.mps.recommended_max_memory() - self._before
        else:
            forget_peak_memory()
            self._before = peak_memory()
            self.available = available_memory()

    def read(self) -> Memory:
        if self._device.type == "cuda":
            return Memory(torch.cuda.max_memory_allocated(self._device), self.available)
        if self._device.type == "mps":  # which keeps all that it has had once
            return Memory(torch.mps.driver_allocated_memory() - self._before, self.available)
        return Memory(peak_memory() - self._before, self.available)


# ---- Time


def _estimate(dry_run: MeasuredRun, section: Section) -> None:
    """How long the run takes, from a few of its updates."""
    settings, plan = dry_run.config.train, dry_run.feed.plan
    seconds, timed = _seconds_per_update(dry_run)
    total, epochs = seconds * settings.max_steps, settings.max_steps / plan.updates_per_epoch
    tokens, task = plan.tokens_per_update, dry_run.config.data.trained
    unit = task.counted if task.has_labels else f"target {task.counted}"
    section.figures |= {
        "seconds_per_update": seconds,
        "timed": timed,
        "tokens_per_second": tokens / seconds,
        "total_seconds": total,
        "updates_per_epoch": plan.updates_per_epoch,
        "epochs": epochs,
    }
    what = f"{duration(seconds)} an update ({timed}), {tokens / seconds:,.0f} {unit}/s: {duration(total)} for"
    what += f" train.max_steps={settings.max_steps}, without evaluation and saving"
    if total > MANY_SECONDS:
        section.warn("time", what, "Lower train.max_steps, or choose a smaller model or a faster device")
    else:
        section.ok("time", what)


def _check_plan(config: TrainConfig, prepared: Prepared, section: Section, chosen: Sequence[Chosen] = ()) -> None:
    """The warnings of the plan, and its number of epochs."""
    epoch = epoch_of(config, prepared)
    found = list(plan_warnings(config, epoch, chosen))
    for warning in found:
        section.warn(warning.check, warning.what, warning.todo)
    if "epochs" not in {warning.check for warning in found}:
        per_epoch = epoch.updates(config.train.tokens_per_update)
        epochs = config.train.max_steps / per_epoch
        shown = f"{epochs:,.0f}" if epochs >= 10 else f"{epochs:.1f}"
        section.ok("epochs", f"train.max_steps={config.train.max_steps} are {shown} epochs of {per_epoch:,} updates")


def _seconds_per_update(dry_run: MeasuredRun) -> tuple[float, str]:
    """Seconds of an update, and what they were taken from: as many as time allows, or else a part of one."""
    batches = dry_run.feed.batches(1)
    predicted = n_tokens_of(batches) * dry_run.seconds_per_token
    if predicted <= TIMED_SECONDS:
        n_updates, start = 0, time.perf_counter()
        while n_updates < TIMED_UPDATES and time.perf_counter() - start < TIMED_SECONDS:
            n_updates += 1
            dry_run.run(dry_run.feed.batches(n_updates), step=n_updates)
        return (time.perf_counter() - start) / n_updates, f"{n_updates} timed"
    n_affordable = int(len(batches) * TIMED_SECONDS / predicted)
    if n_affordable == 0:
        return predicted, "guessed from a few sentences"
    part = batches[:: -(-len(batches) // n_affordable)]  # short and long sentences alike
    seconds = dry_run.run(part) * n_tokens_of(batches) / n_tokens_of(part)
    return seconds, f"from {len(part)} of {len(batches)} batches of one"


def duration(seconds: float) -> str:
    """`seconds` in the two units that say most."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, hours = seconds / 60, seconds / 3600
    if minutes < 60:
        return f"{minutes:.0f} min"
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} days"


# ---- Disk


def _check_disk(config: TrainConfig, folder: Path, checkpoint: int, section: Section) -> None:
    """What the run directory `folder` and the cache will hold, against what is free."""
    settings = config.train
    n_checkpoints = settings.keep_last + settings.keep_best + 1  # one is written before another goes
    there = _folder_bytes(folder / CHECKPOINTS_FOLDER)
    needed = max(0, n_checkpoints * checkpoint - there)
    place = _existing(Path(config.runs))
    free = shutil.disk_usage(place).free
    section.figures |= {"checkpoint_bytes": checkpoint, "needed_bytes": needed, "free_bytes": free}
    what = f"{n_checkpoints} checkpoints of {gigabytes(checkpoint)} need {gigabytes(n_checkpoints * checkpoint)}"
    what += f" ({gigabytes(there)} are there)" if there else ""
    what += f"; {gigabytes(free)} are free at {place}"
    if not os.access(place, os.W_OK | os.X_OK):
        section.error("runs", f"{place} cannot be written", "Set runs to a folder that can", EnvironmentFault)
    elif needed > free:
        section.error("runs", what, "Make room, or lower train.keep_last", EnvironmentFault)
    elif needed > TIGHT * free:
        section.warn("runs", what, "Make room, or lower train.keep_last: little is left for anything else")
    else:
        section.ok("runs", what)
    cache = folder_named(config.data.cache)
    held, free = _folder_bytes(cache / config.data.name), shutil.disk_usage(_existing(cache)).free
    section.figures |= {"cache_bytes": held, "cache_free_bytes": free}
    section.ok("data.cache", f"{gigabytes(held)} are there already, and no more is needed; {gigabytes(free)} are free")


def _folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _existing(path: Path) -> Path:
    """`path`, or the nearest folder above it that is there."""
    path = path.absolute()
    return next(folder for folder in (path, *path.parents) if folder.exists())
