"""What a run continues from: which checkpoint, whether it fits, and how it is loaded on every rank."""

import json
import platform
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch

from transformer_cli.config.train import TrainSettings
from transformer_cli.data.alignments import WORD_ALIGNMENT
from transformer_cli.data.prepare import Prepared
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.errors import CheckpointError, DataError, EnvironmentFault, quoted
from transformer_cli.files import follow, wrap_os_errors
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import FILE_BYTES
from transformer_cli.models.linear import prefers_onednn
from transformer_cli.models.locate import exported_for
from transformer_cli.training.checkpoints import CHECKPOINTS_FOLDER, Checkpoint, CheckpointStore, Damage
from transformer_cli.training.dev_metrics import METRIC
from transformer_cli.training.ema import EMA_PREFIX as EMA
from transformer_cli.training.progress import Progress
from transformer_cli.training.ranks import Ranks
from transformer_cli.training.trainer import Trainer, spec_of

RESUME_AUTO = "auto"  # of `resume`


def find_checkpoint(store: CheckpointStore, resume: str) -> Checkpoint | None:
    """The newest sound one of this run; if it has none yet, that of the checkpoint or run directory `resume`.

    Raises CheckpointError.
    """
    checkpoint = store.newest()
    if checkpoint is not None or resume == RESUME_AUTO:
        return checkpoint
    path = follow(Path(resume)).resolve()  # it may be `best` or `latest`, which are links
    if (program := exported_for(path)) is not None:
        raise CheckpointError(
            f"resume={resume}: was exported for {quoted(program)[1:-1]}, and cannot be trained further."
            " Name the run that it was made from"
        )
    other = CheckpointStore(path if (path / CHECKPOINTS_FOLDER).is_dir() else path.parent.parent)
    step = max(other.steps(), default=None) if other.run_dir == path else _step_of(path)
    if step is None or not other.path(step).is_dir():
        raise CheckpointError(
            f"resume={resume}: no checkpoint there. Name a run directory, or a step in its checkpoints"
        )
    try:
        checkpoint = other.load(step)
    except Damage as damage:
        raise CheckpointError(f"{other.path(step)}: {damage}. Name another checkpoint with resume=") from damage
    LOGGER.info("%s: starting from %s", store.run_dir, other.path(step))
    return checkpoint


def _step_of(path: Path) -> int | None:
    digits = path.name.removeprefix("step-")
    return int(digits) if digits.isdecimal() else None


def load_checkpoint(checkpoint: Checkpoint | None, trainer: Trainer, ranks: Ranks) -> dict[str, Any] | None:
    """Load on every rank what the first rank has read; return its state, or None for a new run."""
    header = None
    if ranks.is_first:
        specs = None if checkpoint is None else {name: spec_of(x) for name, x in checkpoint.optimizer.items()}
        header = json.dumps([None if checkpoint is None else checkpoint.state, specs])
    state, specs = json.loads(ranks.publish_and_wait("checkpoint", header))
    if checkpoint is None:
        trainer.load(None, {}, specs)
    else:
        trainer.load(checkpoint.model.weights, checkpoint.optimizer, specs)
    if state is None:
        return None
    trainer.restore(state)
    return dict(state)


def refuse_other_data(came_from: str, checkpoint: Checkpoint, prepared: Prepared, *, force: bool) -> None:
    """Raise DataError, after a table of what has changed: for another vocabulary always, for other text unless `force`.

    Weights address pieces by their ids, which mean others in another vocabulary.
    """
    state, other = checkpoint.state, _other_vocabulary(checkpoint.model.tokenizers, prepared.tokenizers)
    has_same_links = state["inputs"].get(WORD_ALIGNMENT) == prepared.inputs.get(WORD_ALIGNMENT)
    if state["data"] == prepared.fingerprint and has_same_links and not other:
        return
    before, now = (
        {**state["inputs"], "all of it": state["data"]},
        {**prepared.inputs, "all of it": prepared.fingerprint},
    )
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    log_changes([(name, _short(before.get(name)), _short(now.get(name))) for name in changed], "SHA-256 of")
    if other:
        raise DataError(
            f"{came_from}: the checkpoint of step {checkpoint.step} has another vocabulary than these data: {other}."
            " Restore the data and data.tokenizer that it was trained with, or train a new model with another name= and"
            " without resume=. To train a model further on other text, name it with init.from"
        )
    if force:
        LOGGER.warning("%s: going on with other data than before, as force=true says", came_from)
        return
    first = changed[0]
    raise DataError(
        f"{came_from}: was trained on other data: {first} had SHA-256 {_short(before.get(first))}, and now"
        f" {_short(now.get(first))}. Restore it, choose another name=, or go on all the same with force=true"
    )


def _other_vocabulary(before: Tokenizers, now: Tokenizers) -> str:
    """What differs between them; nothing if they are the same."""
    for side in ("source", "target"):
        ours, theirs = getattr(before, side).sha256, getattr(now, side).sha256
        if ours != theirs:
            return f"the {side} tokenizer had SHA-256 {_short(ours)}, and now {_short(theirs)}"
    if before.labels != now.labels:
        return f"its labels were {quoted(', '.join(before.labels))}, and now {quoted(', '.join(now.labels))}"
    return ""


def rank_anew_if_other(checkpoint: Checkpoint, now: Mapping[str, Any], *, steps: Collection[int]) -> None:
    """Discards the checkpoint's ranking, with a warning, where ranks depend `now` on something else than in it.

    `now` is what `Validator.ranked_by` gives; `steps` are those of the checkpoints of this run.
    """
    state = checkpoint.state
    before = state["ranked_by"]
    changed = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    if not changed:
        return
    named = [key for key in changed if key in before and key in now] or changed
    if METRIC in changed:
        named[named.index(METRIC)] = f"{METRIC} ({before[METRIC]}, now {now[METRIC]})"
    LOGGER.warning(
        "step %d: %s changed, so earlier dev scores do not compare with those from now on:"
        " the best checkpoint is chosen, and patience counted, from here",
        *(checkpoint.step, " and ".join(named)),
    )
    progress = Progress.from_state(state["progress"], steps=steps)
    progress.rank_anew()
    state["progress"] = progress.state()


def _short(sha256: str | None) -> str:
    return "none" if sha256 is None else sha256[:12]


def log_changes(rows: list[tuple[str, str, str]], what: str) -> None:
    """Log three columns: what has changed, its value when the run was started, and its value now."""
    table = [(what, "was", "is"), *rows]
    first, second = (max(len(row[column]) for row in table) for column in (0, 1))
    for name, before, now in table:
        LOGGER.warning("%-*s  %-*s  %s", first, name, second, before, now)


def environment(device: torch.device, ranks: Ranks) -> dict[str, Any]:
    """What a run's last bits depend on beside its config and its data."""
    shared = {"torch": torch.__version__, "ranks": ranks.world_size}
    if device.type == "cuda":
        return {**shared, "device": torch.cuda.get_device_name(device), "threads": 0}
    if device.type == "mps":
        return {**shared, "device": "mps", "threads": 0}
    products = "oneDNN" if prefers_onednn() else "MKL"
    return {**shared, "device": platform.machine(), "threads": torch.get_num_threads(), "products": products}


def warn_of_other_environment(state: dict[str, Any], now: dict[str, Any]) -> None:
    """What only one kind of device has is assumed to be unchanged."""
    before = state["environment"]
    changed = [f"{key} was {before[key]}, is {now[key]}" for key in now if before.get(key, now[key]) != now[key]]
    if changed:
        LOGGER.warning("%s: the last bits may differ from those of a run that went on unchanged", "; ".join(changed))


def require_room(store: CheckpointStore, settings: TrainSettings, trainer: Trainer) -> None:
    """Raise EnvironmentFault if the disk has no room for the checkpoints that this run will keep at once."""
    weights = sum(FILE_BYTES * weight.numel() for weight in trainer.whole_model.state_dict().values())
    of_optimizer = sum(x.nbytes for name, x in trainer.optimizer_state().items() if not name.startswith(EMA))
    # Before the first update the optimizer has no state yet: most have two moments, as Adam.
    trained = sum(weight.nbytes for weight in trainer.whole_model.parameters() if weight.requires_grad)
    size = weights + (of_optimizer or 2 * trained) + (weights if settings.ema is not None else 0)
    # One more than is kept, since the old one goes last; and the exported model is smaller than a checkpoint.
    n_missing = max(1, settings.keep_last + settings.keep_best + 1 - len(store.steps()))
    with wrap_os_errors(store.folder, "find the free space of"):
        free = shutil.disk_usage(store.folder).free
    if free < n_missing * size:
        raise EnvironmentFault(
            f"{store.folder}: {n_missing} checkpoints need {n_missing * size / 1e9:.3g} GB, and {free / 1e9:.3g} GB are"
            " free. Make room, lower train.keep_last, or choose another disk with runs="
        )
