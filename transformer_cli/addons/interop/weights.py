"""What both formats ask of a model's weights.

Shapes: D width, Q queries (or keys, or values) of all heads, F feed-forward, V vocabulary.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NoReturn

import torch
from torch import Tensor

from transformer_cli.config.model import Autoregression, ModelConfig, Tying
from transformer_cli.errors import ConfigError
from transformer_cli.models.attention import CrossAttention, SelfAttention
from transformer_cli.models.embeddings import NarrowEmbedding
from transformer_cli.models.file import ModelFile
from transformer_cli.models.transformer import Stack, Transformer

_EMBEDDINGS = ("source_embedding", "own_target_embedding")


def built(model: ModelFile) -> Transformer:
    """The model on the CPU, in the float32 that both formats start from."""
    return model.build(torch.device("cpu")).float()


def with_wide_embeddings(model: ModelFile) -> ModelFile:
    """The same model for formats without model.d_embedding: with its projections multiplied into the embeddings.

    Where the output layer was tied it is one of its own: it has another projection.
    """
    config = model.config
    if config.embedding_width == config.d_model:
        return model
    before, tying = model.build(torch.device("cpu")).double(), config.tie_embeddings
    if not tying.has_own_output:
        tying = Tying.source_target if tying.shares_embedding else Tying.none
    weights = {name: weight for name, weight in model.weights.items() if not name.startswith(_EMBEDDINGS)}

    def put(name: str, weight_VD: Tensor) -> None:
        weights[f"{name}.weight"] = weight_VD.detach().to(next(iter(model.weights.values())).dtype)

    scale = config.d_model**0.5 if config.scale_embeddings else 1.0  # which the wide ones are multiplied by
    for name in _EMBEDDINGS:
        embedding = getattr(before, name)
        if isinstance(embedding, NarrowEmbedding):
            put(name, embedding.project_in(embedding.weight * embedding.scale) / scale)
    output = before.output_embedding
    if isinstance(output, NarrowEmbedding):
        assert output.project_out is not None
        put("own_output", output.weight @ output.project_out.weight)
        if output.bias is not None:
            weights["own_output.bias"] = output.bias.detach().float()
    return replace(model, config=replace(config, d_embedding=None, tie_embeddings=tying), weights=weights)


def check_self_attention(config: ModelConfig, program: str, instead: str) -> None:
    """Refuse self-attention that is restricted, and a decoder without it."""
    check_decoder(config, program)
    if config.attention_window is not None:
        refuse_option(
            "attention_window", config.attention_window, f"no restricted self-attention in {program}", instead
        )


def check_decoder(config: ModelConfig, program: str) -> None:
    if config.decoder is Autoregression.ssru:
        refuse_option("decoder", config.decoder.name, f"no such decoder in {program}", "Train with self_attention")


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


def refuse_option(key: str, value: object, why: str, instead: str) -> NoReturn:
    """One line that names the option which a format cannot express."""
    raise ConfigError(f"model.{key}={value}: {why}. {instead}")


def check_heads(config: ModelConfig, program: str, instead: str) -> None:
    """Refuse heads whose values are not as wide as their queries, or that are not together as wide as the model."""
    for key, width in (("d_k", config.key_width), ("d_v", config.value_width)):
        if width * config.n_heads != config.d_model:
            refuse_option(key, width, f"{program} has only heads of width d_model / n_heads", instead)
