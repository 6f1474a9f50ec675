"""The forward pass of a batch without padding: its tensors and layouts on the device, and the logits.

Shapes: S source and T target tokens of all pairs, D width, V vocabulary.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from transformer_cli.data.batching import Batch
from transformer_cli.data.fixed_size import FixedSizeBatch, PaddedTensors, Side, Sizes, padded
from transformer_cli.data.length_buckets import BucketedBatch, bucketed
from transformer_cli.data.transfer import copies_asynchronously, to_device
from transformer_cli.models.build import Model
from transformer_cli.models.classifier import Classifier
from transformer_cli.models.kernel_choice import PackedKernel
from transformer_cli.models.language_model import LanguageModel
from transformer_cli.models.layouts import Buckets, PackedLayout
from transformer_cli.models.tagger import Tagger
from transformer_cli.models.transformer import Transformer


@dataclass(frozen=True)
class Inputs:
    """A batch on the device."""

    source_S: Tensor
    source: PackedLayout
    target_in_T: Tensor
    target: PackedLayout
    target_out_T: Tensor

    @classmethod
    def of_memory(cls, memory: Tensor, sizes: Sizes) -> "Inputs":
        """Of what `padded` returned, for variable-length attention."""
        found = PaddedTensors.of(memory, sizes)

        def layout(side: Side) -> PackedLayout:
            return PackedLayout(sizes.longest, side.positions, cu_seqlens_N=side.starts)

        target_out_T = found.target_out_T.long()
        return cls(found.source_S, layout(found.source), found.target_in_T, layout(found.target), target_out_T)

    def twice(self) -> "Inputs":
        """The same sentences followed by themselves, for two passes at once; the targets are there once."""
        return Inputs(
            self.source_S.repeat(2),
            self.source.twice(),
            self.target_in_T.repeat(2),
            self.target.twice(),
            self.target_out_T,
        )


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
    """`batch` on `device`, by one copy that nothing waits for; `ready` has not to be called before."""
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


def predict(model: Model, given: Inputs) -> Tensor:
    """Logits at the target tokens, [T, V]; of a classifier those of each sentence, of a tagger those of each word."""
    if isinstance(model, Classifier):
        return model.predict(given.source_S, given.source)
    if isinstance(model, Tagger):
        return model.predict(given.source_S, given.source, given.target_in_T, given.target)
    if isinstance(model, LanguageModel):
        return model.predict(given.target_in_T, given.target)
    assert isinstance(model, Transformer)
    return model.predict(given.source_S, given.source, given.target_in_T, given.target)


def states(model: Transformer | LanguageModel, given: Inputs) -> Tensor:
    """What the output layer makes logits of, [T, D]."""
    if isinstance(model, LanguageModel):
        return model.decode(given.target_in_T, given.target)
    return model.decode(given.source_S, given.source, given.target_in_T, given.target)


def predict_batch(
    model: Model, batch: Batch, device: torch.device, kernel: PackedKernel = PackedKernel.per_length
) -> tuple[Tensor, Tensor]:
    """Logits at the target tokens of a batch on the CPU, [T, V], and those tokens, on `device`."""
    given = inputs(batch, device, kernel)
    return predict(model, given), given.target_out_T
