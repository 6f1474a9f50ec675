"""What both formats ask of a model's weights.

Shapes: D width, Q queries (or keys, or values) of all heads, F feed-forward, V vocabulary.
"""

from collections.abc import Iterator
from typing import NoReturn

import torch
from torch import Tensor

from transformer_cli.config.model import ModelConfig
from transformer_cli.errors import ConfigError
from transformer_cli.models.attention import CrossAttention, SelfAttention
from transformer_cli.models.file import ModelFile
from transformer_cli.models.transformer import Stack, Transformer


def built(model: ModelFile) -> Transformer:
    """The model on the CPU, in the float32 that both formats start from."""
    return model.build(torch.device("cpu")).float()


def stacks(model: Transformer) -> Iterator[tuple[str, Stack]]:
    yield "encoder", model.encoder
    yield "decoder", model.decoder


def projections(attention: SelfAttention | CrossAttention) -> list[tuple[Tensor, Tensor | None]]:
    """Weight and bias that make the queries, the keys and the values of all heads, each [Q, D]."""
    if isinstance(attention, SelfAttention):
        layers = [(attention.to_qkv, attention.widths)]
    else:
        layers = [(attention.to_q, [len(attention.to_q.weight)]), (attention.to_kv, attention.widths)]
    found: list[tuple[Tensor, Tensor | None]] = []
    for layer, widths in layers:
        biases = [None] * len(widths) if layer.bias is None else torch.split(layer.bias.detach(), widths)
        found += zip(torch.split(layer.weight.detach(), widths), biases, strict=True)
    return found


def refuse(key: str, value: object, why: str, instead: str) -> NoReturn:
    """One line that names the option which a format cannot express."""
    raise ConfigError(f"model.{key}={value}: {why}. {instead}")


def check_heads(config: ModelConfig, program: str, instead: str) -> None:
    """Refuse heads whose values are not as wide as their queries, or that are not together as wide as the model."""
    for key, width in (("d_k", config.key_width), ("d_v", config.value_width)):
        if width * config.n_heads != config.d_model:
            refuse(key, width, f"{program} has only heads of width d_model / n_heads", instead)
