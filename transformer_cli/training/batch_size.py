"""train.max_tokens_per_microbatch=auto: the largest size that fits the memory and is of use."""

import gc
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
from transformer_cli.training.checkpoints import Checkpoint
from transformer_cli.training.dry_run import Trial, available_memory, batch_of, worst_shapes
from transformer_cli.training.ranks import Ranks
from transformer_cli.training.resuming import environment

SMALLEST = 256
ROOM = 1.25  # a batch so many times as large must fit too: evaluation and what is left in pieces need memory as well
ON_CPU = 2048  # larger ones are no faster there
CPU_SHARE = 1 / 8  # of the memory that is free, for the logits and their gradient
LOOKED_AT = 100  # updates, for how many tokens there are in one


def settled(
    config: TrainConfig, prepared: Prepared, device: torch.device, ranks: Ranks, checkpoint: Checkpoint | None
) -> TrainConfig:
    """`config` with a number for train.max_tokens_per_microbatch, the same on every rank.

    A run that goes on from `checkpoint` on the same device keeps its number, so that dropout stays what it was.
    """
    if config.train.max_tokens_per_microbatch != AUTO:
        return config
    before = _before(checkpoint, environment(device, ranks)) if checkpoint is not None else None
    told = ranks.share("tokens_per_batch", str(before or "") if ranks.is_first else None)
    start = time.perf_counter()
    number = int(told) if told else ranks.least(chosen(config, prepared, device, ranks.world_size))
    how = "as before" if told else f"found in {time.perf_counter() - start:.1f} s"
    LOGGER.info("train.max_tokens_per_microbatch=auto: %d, %s", number, how)
    return with_number(config, number)


def with_number(config: TrainConfig, number: int) -> TrainConfig:
    return replace(config, train=replace(config.train, max_tokens_per_microbatch=number))


def _before(checkpoint: Checkpoint, now: dict[str, Any]) -> int | None:
    then = checkpoint.state.get("environment", {})
    return then.get("tokens_per_batch") if then.get("device") == now["device"] else None


def chosen(config: TrainConfig, prepared: Prepared, device: torch.device, world_size: int) -> int:
    """For this device by itself."""
    if device.type == "cuda":
        trial = _begun(with_number(config, SMALLEST), prepared, device)
        return largest(trial, useful(trial, world_size))
    affordable = int(CPU_SHARE * available_memory() / (2 * 4 * len(prepared.tokenizers.target)))
    return min(max(SMALLEST, min(ON_CPU, affordable)), -(-int(config.train.tokens_per_update) // world_size))


def _begun(config: TrainConfig, prepared: Prepared, device: torch.device) -> Trial:
    """A trial after its first update. Raises EnvironmentFault where not even that fits."""
    try:
        trial = Trial(config, prepared, device)
        trial.warm_up()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise EnvironmentFault(
            "train.max_tokens_per_microbatch=auto: the model and its optimizer do not fit into the memory of this"
            " device. Choose a smaller model, or a device with more memory"
        ) from error
    return trial


def useful(trial: Trial, world_size: int) -> int:
    """Tokens of the longer side in a rank's share of an update."""
    updates = [trial.feed.pairs(1 + n) for n in range(min(LOOKED_AT, trial.feed.plan.updates_per_epoch))]
    most = max(len(ids) for pairs in updates for ids in (pairs.source_ids, pairs.target_ids))
    return -(-most // world_size)


def largest(trial: Trial, most: int) -> int:
    """The largest number up to `most` that fits with room to spare: doubling, and then halving the gap to a sixteenth.

    SMALLEST where nothing fits: training will cut batches, and say so.
    """
    fitting, size = 0, min(SMALLEST, most)
    while fits(trial, size):
        if size == most:
            return most
        fitting, size = size, min(2 * size, most)
    too_large = size
    while too_large - fitting > max(1, fitting // 16):
        size = (fitting + too_large) // 2
        fitting, too_large = (size, too_large) if fits(trial, size) else (fitting, size)
    return max(fitting, min(SMALLEST, most))


def fits(trial: Trial, tokens: int) -> bool:
    """Whether the memory is large enough for the worst batches of so many tokens and room, and for all gradients."""
    longest = trial.feed.longest
    learner = trial.learner
    try:
        for shape in worst_shapes(longest, int(ROOM * tokens)):
            batch = batch_of(shape, trial.corpus, trial.tokenizers)
            for _ in range(2):  # the second beside the gradients of the first
                learner.learn_from(batch, seed=0, n_tokens=batch.n_target_tokens)
        return True
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    finally:
        learner.optimizer.zero_grad(set_to_none=True)
    # Not in the handler: the exception keeps every tensor of what failed alive.
    gc.collect()
    if trial.device.type == "cuda":
        torch.cuda.empty_cache()
    return False
