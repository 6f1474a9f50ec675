"""The forward pass of a batch without padding."""

import torch
from torch import Tensor

from transformer_cli.data.batching import Batch
from transformer_cli.models.build import Model
from transformer_cli.models.layouts import Packed


def predict_batch(model: Model, batch: Batch, device: torch.device) -> tuple[Tensor, Tensor]:
    """Logits at the target tokens of a batch on the CPU, [T, V], and those tokens, on `device`."""
    source = Packed([(run.n_pairs, run.source_length) for run in batch.runs], device)
    target = Packed([(run.n_pairs, run.target_length) for run in batch.runs], device)
    batch = batch.to(device)
    return model.predict(batch.source_S, source, batch.target_in_T, target), batch.target_out_T
