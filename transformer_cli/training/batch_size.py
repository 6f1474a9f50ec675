"""train.max_tokens_per_microbatch=auto: the largest size that fits the memory and is of use."""

import gc
import sys
import time
from dataclasses import replace
from typing import Any

import torch

from transformer_cli.config.checks import AUTO
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.prepare import Prepared
from transformer_cli.errors import EnvironmentFault
from transformer_cli.logs import LOGGER
from transformer_cli.models.memory import is_out_of_memory
from transformer_cli.system import available_memory
from transformer_cli.training.checkpoints import Checkpoint
from transformer_cli.training.dry_run import DryRun, batch_of, worst_shapes
from transformer_cli.training.ranks import Ranks
from transformer_cli.training.resuming import environment

SMALLEST = 256
ROOM = 1.25  # a batch so many times as large must fit too: evaluation and fragmentation need memory as well
ON_CPU = 2048  # larger ones are no faster there
CPU_SHARE = 1 / 8  # of the memory that is free, for the logits and their gradient
SAMPLED = 100  # updates, for how many tokens there are in one


def resolve_batch_size(
    config: TrainConfig, prepared: Prepared, device: torch.device, ranks: Ranks, checkpoint: Checkpoint | None
) -> TrainConfig:
    """`config` with a number for train.max_tokens_per_microbatch, the same on every rank.

    A run that continues from `checkpoint` on the same device keeps its number, so that dropout stays what it was.
    """
    if config.train.max_tokens_per_microbatch != AUTO:
        return config
    before = _before(checkpoint, environment(device, ranks)) if checkpoint is not None else None
    known = ranks.publish_and_wait("tokens_per_batch", str(before or "") if ranks.is_first else None)
    start = time.perf_counter()
    if known:
        number = int(known)
    else:
        number = ranks.all_reduce_min(fitting_batch_size(config, prepared, device, ranks.world_size))
    how = "as before" if known else f"found in {time.perf_counter() - start:.1f} s"
    LOGGER.info("train.max_tokens_per_microbatch=auto: %d, %s", number, how)
    return with_batch_size(config, number)


def with_batch_size(config: TrainConfig, number: int) -> TrainConfig:
    return replace(config, train=replace(config.train, max_tokens_per_microbatch=number))


def _before(checkpoint: Checkpoint, now: dict[str, Any]) -> int | None:
    then = checkpoint.state["environment"]
    return then["tokens_per_batch"] if then["device"] == now["device"] else None


def fitting_batch_size(config: TrainConfig, prepared: Prepared, device: torch.device, world_size: int) -> int:
    """The batch size that fits this device by itself."""
    if device.type == "cuda":
        dry_run = _warmed_up(with_batch_size(config, SMALLEST), prepared, device)
        found = fitting_compiled(dry_run, largest_fitting(dry_run, useful(dry_run, world_size)))
        del dry_run
        _free(device)  # the run itself begins with all of the memory
        return found
    affordable = int(CPU_SHARE * available_memory() / (2 * 4 * len(prepared.tokenizers.target)))
    return min(max(SMALLEST, min(ON_CPU, affordable)), -(-int(config.train.tokens_per_update) // world_size))


def _warmed_up(config: TrainConfig, prepared: Prepared, device: torch.device) -> DryRun:
    """A dry run after its first update. Raises EnvironmentFault where not even that fits."""
    try:
        dry_run = DryRun(config, prepared, device)
        if dry_run.trainer.compiled is not None:
            dry_run.trainer.compiled.prepare([])  # sizes that no batch will have; see `fitting_compiled`
        dry_run.warm_up()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise EnvironmentFault(
            "train.max_tokens_per_microbatch=auto: the model and its optimizer do not fit into the memory of this"
            " device. Choose a smaller model, or a device with more memory"
        ) from error
    return dry_run


def useful(dry_run: DryRun, world_size: int) -> int:
    """Tokens of the longer side in a rank's share of an update."""
    updates = [dry_run.feed.pairs(1 + n) for n in range(min(SAMPLED, dry_run.feed.plan.updates_per_epoch))]
    most = max(len(ids) for pairs in updates for ids in (pairs.source_ids, pairs.target_ids))
    return -(-most // world_size)


def largest_fitting(dry_run: DryRun, most: int) -> int:
    """The largest number up to `most` that fits with room to spare: doubling, and then halving the gap to a sixteenth.

    SMALLEST where nothing fits: training will split batches, with a warning.
    """
    fitting, size = 0, min(SMALLEST, most)
    while fits(dry_run, size):
        if size == most:
            return most
        fitting, size = size, min(2 * size, most)
    too_large = size
    while too_large - fitting > max(1, fitting // 16):
        size = (fitting + too_large) // 2
        fitting, too_large = (size, too_large) if fits(dry_run, size) else (fitting, size)
    return max(fitting, min(SMALLEST, most))


def fitting_compiled(dry_run: DryRun, found: int) -> int:
    """`found`, or as many eighths of it as fit when they are compiled for, as the batches of the run will be.

    Compiling takes seconds for each size, so that the search itself goes without.
    """
    size = found
    if dry_run.trainer.compiled is not None:
        while size > SMALLEST and not fits(dry_run, size, is_compiled=True):
            size -= -(-found // 8)
            _free(dry_run.device)
    return max(size, min(SMALLEST, found))


def fits(dry_run: DryRun, tokens: int, *, is_compiled: bool = False) -> bool:
    """Whether the memory is large enough for the worst batches of so many tokens and room, and for all gradients."""
    longest = dry_run.feed.longest
    trainer = dry_run.trainer
    try:
        for shape in worst_shapes(longest, int(ROOM * tokens)):
            batch = batch_of(shape, dry_run.corpus, dry_run.tokenizers)
            if is_compiled:
                trainer.expect([batch], longest=longest)
            for _ in range(2):  # the second beside the gradients of the first
                trainer.forward_backward(batch, seed=0, n_tokens=batch.n_target_tokens)
        return True
    except EnvironmentFault as error:
        if not trainer.has_lost_compiler(error):
            raise
        return fits(dry_run, tokens)  # as the run will be computed
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    finally:
        trainer.optimizer.zero_grad(set_to_none=True)
    # Not in the handler: the exception keeps every tensor of what failed alive.
    _free(dry_run.device, keeps_compiled=True)
    return False


def _free(device: torch.device, *, keeps_compiled: bool = False) -> None:
    """Give back what nothing uses: compiled functions hold models, and the memory of their CUDA graphs."""
    if not keeps_compiled and "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
