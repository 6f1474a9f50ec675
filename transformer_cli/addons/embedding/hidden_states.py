"""What the encoder computes at each of its layers: features of tokens and of sentences.

Shapes: B batch, S source, D width, Y layers and the input of the first one.
"""

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from transformer_cli.addons.embedding.pooling import pool, source_layout
from transformer_cli.models.layouts import AttentionLayout
from transformer_cli.models.transformer import Encoder

LayerChoice = int | str  # a layer from 0, "all" or "mean"


class WithEncoder(Protocol):
    """A model with an encoder: a Transformer, Classifier or Tagger."""

    encoder: Encoder
    source_pad_id: int

    def encoder_input(self, source_S: Tensor, source: AttentionLayout) -> Tensor: ...


def hidden_states(model: WithEncoder, source_BS: Tensor, source: AttentionLayout) -> list[Tensor]:
    """Y tensors [B, S, D]: what enters the first layer, and the output of each layer.

    The last is the output of the encoder, so with pre-LN it has the final norm, and the residual sums before it have
    none; `hidden_states` of Hugging Face are the same.
    """
    states: list[Tensor] = []

    def record(_: nn.Module, args: tuple[Any, ...]) -> None:
        states.append(args[0])

    hooks = [layer.register_forward_pre_hook(record) for layer in model.encoder.layers]
    try:
        states.append(model.encoder(model.encoder_input(source_BS, source), source))
    finally:
        for hook in hooks:
            hook.remove()
    return states


def token_vectors(model: WithEncoder, source_BS: Tensor, *, layer: LayerChoice) -> Tensor:
    """The states of a layer, or the mean of all, [B, S, D]; those of all, [B, S, Y, D]."""
    states = hidden_states(model, source_BS, source_layout(source_BS, model.source_pad_id))
    if isinstance(layer, int):
        return states[layer]
    stacked_BSYD = torch.stack(states, dim=2)
    return stacked_BSYD if layer == "all" else stacked_BSYD.mean(dim=2)


def sentence_vectors(model: WithEncoder, source_BS: Tensor, *, layer: LayerChoice, pooling: str) -> Tensor:
    """`token_vectors` of each sentence pooled, [B, D] or [B, Y, D]."""
    x_BSX = token_vectors(model, source_BS, layer=layer)
    pooled_BX = pool(x_BSX.flatten(2), source_layout(source_BS, model.source_pad_id), pooling)
    return pooled_BX.view(len(source_BS), *x_BSX.shape[2:])
