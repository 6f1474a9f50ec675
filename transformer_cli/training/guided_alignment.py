"""Guided alignment: a head of cross-attention is taught the word alignment of the training pairs.

Chen et al. 2016 (section 4.1) and Garg et al. 2019 (section 4.2): the cross entropy of the attention of the head at the
position that predicts a token, and the source tokens that this one is linked to, each with an equal share. With full
context (section 4.3) the decoder makes a second pass that is not causal, and the position is the one that reads it.

Shapes: S source and T target tokens of all pairs, L links, H heads, E head width; N sentences of a bucket.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from transformer_cli.config.train import TrainSettings
from transformer_cli.data.batching import Batch
from transformer_cli.data.length_buckets import length_buckets, padded_places
from transformer_cli.data.transfer import to_device
from transformer_cli.errors import ConfigError
from transformer_cli.models.attention_kernels import widened
from transformer_cli.models.file import ModelFile
from transformer_cli.models.layouts import Buckets
from transformer_cli.models.transformer import Decoder, Model, Transformer


@dataclass(frozen=True)
class ReferenceAlignment:
    """The word alignment of a batch, on the device: attention is computed with the pairs padded in a few buckets."""

    source: Buckets
    target: Buckets
    links_L: Tensor  # the place of each link among the weights of all buckets, [N, T, S] one after another
    share_L: Tensor  # of its target token; those of a token sum to 1

    @classmethod
    def of(cls, batch: Batch, device: torch.device, *, full_context: bool = False) -> "ReferenceAlignment":
        """The links are of positions that predict tokens; with `full_context` of those that read them, one behind."""
        assert batch.links_2L is not None
        runs = length_buckets(batch.runs)
        places = [torch.from_numpy(of_side).long() for of_side in padded_places(batch.runs, runs)]
        source, target = (
            Buckets.of([(run.n_pairs, run[side]) for run in runs], to_device(places[side - 1], device))
            for side in (1, 2)
        )
        target_L, source_L = (side.numpy() for side in batch.links_2L)
        starts = [list(accumulate((run.n_pairs * run[side] for run in runs), initial=0)) for side in (1, 2)]
        cells = list(accumulate((run.n_pairs * run[1] * run[2] for run in runs), initial=0))
        # EOS, which no position reads, has no links.
        t_L, s_L = places[1].numpy()[target_L + full_context], places[0].numpy()[source_L]
        bucket_L = np.searchsorted(starts[1], t_L, side="right") - 1
        source_lengths = np.array([run.source_length for run in runs])[bucket_L]
        first_t_L, first_s_L = np.array(starts[1])[bucket_L], np.array(starts[0])[bucket_L]
        # A row of weights for each padded target token of a bucket; the columns are the source tokens of its sentence.
        links_L = np.array(cells)[bucket_L] + (t_L - first_t_L) * source_lengths + (s_L - first_s_L) % source_lengths
        n_links_T = np.bincount(target_L, minlength=1)
        share_L = (1 / n_links_T[target_L]).astype(np.float32)
        return cls(source, target, *(to_device(torch.from_numpy(x), device) for x in (links_L, share_L)))

    def cross_entropy(self, q_THE: Tensor, k_SHE: Tensor) -> Tensor:
        """-Σ share · log attention over the links, in nats, of heads that are all taught; in float32 at least."""
        with torch.autocast(q_THE.device.type, enabled=False):
            q_THE, k_SHE = widened(q_THE, k_SHE)
            each = zip(self.target.pad(q_THE), self.source.pad(k_SHE), self.source.masks_N11L(), strict=True)
            log_p = torch.cat([_log_attention(*one).flatten() for one in each])
            return -(log_p.index_select(0, self.links_L) * self.share_L).sum()


def _log_attention(q_NHTE: Tensor, k_NHSE: Tensor, mask_N11S: Tensor) -> Tensor:
    scores_NHTS = q_NHTE @ k_NHSE.mT / math.sqrt(q_NHTE.size(-1))
    return scores_NHTS.masked_fill(~mask_N11S, -math.inf).log_softmax(-1)


@dataclass
class TaughtAttention:
    """Queries and keys of the taught head in a forward pass, one head wide; none where training skips its layer."""

    head: int
    full_context: bool
    recorded: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def record(self, q_THE: Tensor, k_SHE: Tensor) -> None:
        q_T1E, k_S1E = (x_LHE.narrow(-2, self.head, 1) for x_LHE in (q_THE, k_SHE))
        self.recorded = [(q_T1E, k_S1E)]

    def loss(self, batch: Batch, device: torch.device, *, n_passes: int = 1) -> Tensor:
        """The sum over the target tokens that have a link; of several passes in one, their mean."""
        if not self.recorded or batch.links_2L is None or not batch.links_2L.numel():
            return torch.zeros((), device=device)
        reference = ReferenceAlignment.of(batch, device, full_context=self.full_context)
        ((q, k),) = self.recorded
        each = zip(q.chunk(n_passes), k.chunk(n_passes), strict=True)
        losses = [reference.cross_entropy(q_T1E, k_S1E) for q_T1E, k_S1E in each]
        return torch.stack(losses).mean()


@contextmanager
def taught_attention(model: Model) -> Iterator[TaughtAttention]:
    """Records the attention of the taught head of `model` in a forward pass of the block.

    With `full_context_alignment` the decoder makes a second pass after its own.
    """
    assert isinstance(model, Transformer)
    assert model.alignment_head is not None
    layer, head = model.alignment_head
    taught = TaughtAttention(head, model.full_context_alignment)

    def pass_again(decoder: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        assert isinstance(decoder, Decoder)
        taught.record(*decoder.full_context(*args, layer=layer))

    attention = model.decoder.layers[layer].cross_attention
    if taught.full_context:
        with model.decoder.register_forward_hook(pass_again):
            yield taught
        return
    attention.observer = taught.record
    try:
        yield taught
    finally:
        attention.observer = None


def teach(model: Model, settings: TrainSettings) -> None:
    """Choose the head that guided alignment teaches. Raises ConfigError for a model without cross-attention."""
    if not isinstance(model, Transformer):
        weight = settings.guided_alignment
        raise ConfigError(f"train.guided_alignment={weight:g}: the model has no cross-attention. Leave it out")
    model.alignment_head = model.default_alignment_head
    model.full_context_alignment = settings.full_context_alignment


def keep_taught_head(model: Model, before: ModelFile) -> None:
    """Take over the head of the model that training begins with, unless guided alignment teaches one itself."""
    if isinstance(model, Transformer) and model.alignment_head is None:
        is_same_stack = len(model.decoder.layers) == before.config.n_decoder_layers
        if is_same_stack:
            model.alignment_head = before.alignment_head
            model.full_context_alignment = before.full_context_alignment
