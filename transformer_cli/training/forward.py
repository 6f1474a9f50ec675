"""The forward pass of a batch without padding."""

import torch
from torch import Tensor

from transformer_cli.data.batching import Batch
from transformer_cli.models.build import Model
from transformer_cli.models.classifier import Classifier
from transformer_cli.models.language_model import LanguageModel
from transformer_cli.models.layouts import PackedLayout
from transformer_cli.models.transformer import Transformer


def predict_batch(model: Model, batch: Batch, device: torch.device) -> tuple[Tensor, Tensor]:
    """Logits at the target tokens of a batch on the CPU, [T, V], and those tokens, on `device`."""
    source = PackedLayout.of_groups([(run.n_pairs, run.source_length) for run in batch.runs], device)
    target = PackedLayout.of_groups([(run.n_pairs, run.target_length) for run in batch.runs], device)
    batch = batch.to(device)
    if isinstance(model, Classifier):
        return model.predict(batch.source_S, source), batch.target_out_T
    if isinstance(model, LanguageModel):
        return model.predict(batch.target_in_T, target), batch.target_out_T
    assert isinstance(model, Transformer)
    return model.predict(batch.source_S, source, batch.target_in_T, target), batch.target_out_T
