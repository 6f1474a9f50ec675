"""Going back to a checkpoint before a loss spike: which one, and what it says from then on."""

from collections.abc import Collection
from dataclasses import asdict, replace
from typing import Any

from transformer_cli.errors import CheckpointError, EnvironmentFault
from transformer_cli.logs import LOGGER
from transformer_cli.training.checkpoints import Checkpoint, CheckpointStore, Damage
from transformer_cli.training.progress import Progress
from transformer_cli.training.spikes import BEFORE, Spike, with_skip


def go_back(store: CheckpointStore, progress: Progress, spike: Spike, *, most: int) -> Checkpoint | None:
    """The checkpoint to go back to, in the store with the batches that are skipped from now on; None if there is none.

    Once it is there, a run that is killed and resumed skips the same batches. A warning says why there is none.
    """
    n_rollbacks = len(progress.rollbacks)
    if n_rollbacks >= most:
        LOGGER.warning("step %d: not rolled back: train.max_rollbacks=%d of them are done", progress.step, most)
        return None
    try:
        checkpoint = _target(store, progress.steps(), spike.first)
        if checkpoint is None:
            LOGGER.warning("step %d: not rolled back: no checkpoint is older than the spike", progress.step)
            return None
        checkpoint = _with_rollback(checkpoint, progress, spike)
        store.save(checkpoint)
    except (CheckpointError, EnvironmentFault) as error:
        LOGGER.warning("step %d: not rolled back: %s", progress.step, error)
        return None
    skip = checkpoint.state["progress"]["rollbacks"][-1]
    LOGGER.warning(
        "step %d: going back to step %d; %d batches are skipped from step %d on (rollback %d of at most %d)",
        *(progress.step, checkpoint.step, skip["skipped"], skip["skipped_from"], n_rollbacks + 1, most),
    )
    return checkpoint


def _target(store: CheckpointStore, kept: Collection[int], first: int) -> Checkpoint | None:
    """The newest sound one that is `BEFORE` updates older than the spike; else the newest that is older at all.

    A checkpoint that is there only because the run was stopped is not `kept`: a run that was not has none.
    """
    older = sorted((step for step in store.steps() if step in kept and step < first), reverse=True)
    for step in sorted(older, key=lambda step: step > first - BEFORE):
        try:
            return store.load(step)
        except Damage as damage:
            LOGGER.warning("%s: %s", store.path(step), damage)
    return None


def _with_rollback(checkpoint: Checkpoint, progress: Progress, spike: Spike) -> Checkpoint:
    """The checkpoint with all rollbacks until now, and the one because of `spike`."""
    skips = with_skip(progress.skips, spike, since=checkpoint.step)
    rollback: dict[str, Any] = {
        "number": len(progress.rollbacks) + 1,
        "to": checkpoint.step,
        "reached": progress.step,
        **spike.values(),
        "skipped_from": skips[-1].step,
        "skipped": skips[-1].n_batches,
    }
    now = {"skips": [asdict(skip) for skip in skips], "rollbacks": [*progress.rollbacks, rollback]}
    state = checkpoint.state | {"progress": checkpoint.state["progress"] | now}
    return replace(checkpoint, state=state)
