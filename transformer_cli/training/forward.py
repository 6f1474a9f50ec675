"""The forward pass of a batch without padding: its tensors and layouts on the device, and the logits.

Shapes: S source and T target tokens of all pairs, D width, V vocabulary.
"""

from dataclasses import replace

import torch
from torch import Tensor

from transformer_cli.data.batching import Batch
from transformer_cli.data.fixed_size import FixedSizeBatch, Sizes, padded
from transformer_cli.data.length_buckets import BucketedBatch, bucketed
from transformer_cli.data.transfer import copies_asynchronously, to_device
from transformer_cli.models.inputs import Inputs
from transformer_cli.models.kernel_choice import PackedKernel
from transformer_cli.models.layouts import Buckets, PackedLayout
from transformer_cli.models.transformer import Model


def ready(batch: Batch, kernel: PackedKernel, device: torch.device) -> Batch:
    """`batch` laid out for `kernel`, in memory that a GPU copies from by itself; any thread may call this."""
    if kernel is PackedKernel.per_length:
        return batch
    if kernel is PackedKernel.varlen:
        sizes = Sizes.of(batch)
        return pinned(FixedSizeBatch.of(batch, sizes, padded(batch, sizes)), device)
    return pinned(bucketed(batch), device)


def pinned(batch: FixedSizeBatch, device: torch.device) -> FixedSizeBatch:
    return replace(batch, memory=batch.memory.pin_memory()) if copies_asynchronously(device) else batch


def inputs(batch: Batch, device: torch.device, kernel: PackedKernel) -> Inputs:
    """`batch` on `device`, by one copy that nothing waits for; it need not be `ready` before."""
    if kernel is PackedKernel.per_length:
        source, target = (
            PackedLayout.of_groups([(run.n_pairs, run[side]) for run in batch.runs], device) for side in (1, 2)
        )
        batch = batch.to(device)
        return Inputs(batch.source_S, source, batch.target_in_T, target, batch.target_out_T)
    if not isinstance(batch, BucketedBatch if kernel is PackedKernel.buckets else FixedSizeBatch):
        batch = ready(batch, kernel, device)
    assert isinstance(batch, FixedSizeBatch)
    batch = replace(batch, memory=to_device(batch.memory, device))
    if not isinstance(batch, BucketedBatch):
        return Inputs.of_memory(batch.memory, batch.sizes)
    source_slots, target_slots = batch.slots
    found = Inputs.of_memory(batch.memory[: -len(source_slots) - len(target_slots)], batch.sizes)

    def with_buckets(layout: PackedLayout, slots: Tensor, side: int) -> PackedLayout:
        shapes = [(bucket.n_pairs, bucket[side]) for bucket in batch.buckets]
        return replace(layout, buckets=Buckets.of(shapes, slots.long()))

    return replace(
        found,
        source=with_buckets(found.source, source_slots, 1),
        target=with_buckets(found.target, target_slots, 2),
    )


def predict_batch(
    model: Model, batch: Batch, device: torch.device, kernel: PackedKernel = PackedKernel.per_length
) -> tuple[Tensor, Tensor]:
    """Logits at the target tokens of a batch on the CPU, [T, V], and those tokens, on `device`."""
    given = inputs(batch, device, kernel)
    return model.logits(given), given.target_out_T
