"""The parts of an encoder-decoder by canonical names, which readers and writers of other formats map to theirs.

Names: `encoder.0.self.q.weight`, with side, number of the layer, block (self or rnn, cross, ffn), matrix (q, k, v, o;
input, forget; in, gate, out) or norm, and weight or bias; `encoder.norm.weight` of a final norm (pre-LN);
`encoder.positions` of learned ones; `source_embedding`, `target_embedding`, `output` and `output_bias`. A weight is
[out, in], as in torch.

Our own weights hold queries, keys and values in one matrix, and a tied matrix once.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch
from torch import Tensor

from transformer_cli.addons.interop.weights import built, projections
from transformer_cli.config.model import Activation, Autoregression, ModelConfig, Norm, Positions
from transformer_cli.models.embeddings import LearnedPositions
from transformer_cli.models.file import ModelFile

Fetch = Callable[[str], Tensor | None]  # a part by its name; None for a bias that the other model does not have
Weights = dict[str, Callable[[], Tensor]]  # each is read when it is called

STACKS = ("encoder", "decoder")
_MODULES = {"self": "self_attention", "rnn": "self_attention", "cross": "cross_attention", "ffn": "feed_forward"}


def part_names(config: ModelConfig) -> Iterator[str]:
    """All that a model of this config may have; the biases of `bias=False` and tied matrices among them."""
    yield from ("source_embedding", "target_embedding", "output", "output_bias")
    for side in STACKS:
        if config.positions is Positions.learned:
            yield f"{side}.positions"
        if config.norm is Norm.pre:
            yield from _norm(f"{side}.norm", config)
        for i in range(n_layers(config, side)):
            for block in blocks(config, side):
                for matrix in _matrices(block, config):
                    yield f"{side}.{i}.{block}.{matrix}.weight"
                    if matrix != "input":  # of an SSRU, which has none
                        yield f"{side}.{i}.{block}.{matrix}.bias"
                yield from _norm(f"{side}.{i}.{block}.norm", config)


def blocks(config: ModelConfig, side: str) -> tuple[str, ...]:
    """The blocks of a layer, in order."""
    if side == "encoder":
        return ("self", "ffn")
    return ("rnn" if config.decoder is Autoregression.ssru else "self", "cross", "ffn")


def n_layers(config: ModelConfig, side: str) -> int:
    return config.n_encoder_layers if side == "encoder" else config.n_decoder_layers


def _matrices(block: str, config: ModelConfig) -> tuple[str, ...]:
    if block == "rnn":
        return ("input", "forget")
    if block != "ffn":
        return ("q", "k", "v", "o")
    return ("gate", "in", "out") if config.activation is Activation.swiglu else ("in", "out")


def _norm(name: str, config: ModelConfig) -> list[str]:
    return [f"{name}.weight", *([f"{name}.bias"] if config.norm_kind == "layer" else [])]


def weights_from_parts(config: ModelConfig, fetch: Fetch) -> Weights:
    """Our weights by their names, read part by part when they are asked for, in float32.

    A bias that the other model lacks is zero. Where matrices are tied, only the source embedding (or the target's) is
    read: whether the others equal it is left to the reader.
    """
    found: Weights = {}

    def put(name: str, *parts: str) -> None:
        found[name] = partial(_joined, fetch, parts)

    def put_linear(name: str, prefix: str, matrices: tuple[str, ...]) -> None:
        put(f"{name}.weight", *(f"{prefix}.{matrix}.weight" for matrix in matrices))
        if config.bias:
            put(f"{name}.bias", *(f"{prefix}.{matrix}.bias" for matrix in matrices))

    tying, last = config.tie_embeddings, "source_embedding"
    put("source_embedding.weight", "source_embedding")
    if not tying.shares_embedding:
        last = "own_target_embedding"
        put(f"{last}.weight", "target_embedding")
    if tying.has_own_output:
        last = "own_output"
        put(f"{last}.weight", "output")
    if config.output_bias:
        put(f"{last}.bias", "output_bias")
    for side in STACKS:
        if config.positions is Positions.learned:
            put(f"{side}.positions.weight", f"{side}.positions")
        if config.norm is Norm.pre:
            for part in _norm(f"{side}.norm", config):
                put(part, part)
        for i in range(n_layers(config, side)):
            layer = f"{side}.layers.{i}"
            for block in blocks(config, side):
                theirs, module = f"{side}.{i}.{block}", f"{layer}.{_MODULES[block]}"
                for part in _norm(f"{theirs}.norm", config):
                    put(f"{layer}.around_{_MODULES[block]}.norm.{part.rpartition('.')[2]}", part)
                if block == "rnn":
                    put(f"{module}.to_input.weight", f"{theirs}.input.weight")
                    put_linear(f"{module}.to_forget", theirs, ("forget",))
                    continue
                if block == "self":
                    put_linear(f"{module}.to_qkv", theirs, ("q", "k", "v"))
                elif block == "cross":
                    put_linear(f"{module}.to_q", theirs, ("q",))
                    put_linear(f"{module}.to_kv", theirs, ("k", "v"))
                else:
                    put_linear(f"{module}.to_hidden", theirs, _matrices(block, config)[:-1])
                put_linear(f"{module}.to_out", theirs, ("out",) if block == "ffn" else ("o",))
    return found


def _joined(fetch: Fetch, parts: tuple[str, ...]) -> Tensor:
    tensors = [_part(fetch, part) for part in parts]
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors)


def _part(fetch: Fetch, part: str) -> Tensor:
    found = fetch(part)
    if found is not None:
        return found.float()
    assert part.endswith("bias"), f"no {part}"
    weight = fetch(f"{part.removesuffix('bias')}weight" if part != "output_bias" else "output")
    assert weight is not None
    return torch.zeros(len(weight))


def parts_of(model: ModelFile) -> Mapping[str, Tensor]:
    """The parts of a model in float32, tied matrices under each of their names. Biases that it lacks are left out."""
    transformer, config = built(model), model.config
    output = transformer.output_embedding
    parts: dict[str, Tensor | None] = {
        "source_embedding": transformer.source_embedding.weight,
        "target_embedding": transformer.target_embedding.weight,
        "output": output.weight,
        "output_bias": output.bias,
    }
    for side, stack in zip(STACKS, transformer.stacks, strict=True):
        if isinstance(stack.positions, LearnedPositions):
            parts[f"{side}.positions"] = stack.positions.weight
        if config.norm is Norm.pre:
            parts |= {f"{side}.norm.{name}": weight for name, weight in stack.norm.named_parameters()}
        for i, layer in enumerate(stack.layers):
            for block in blocks(config, side):
                module, name = getattr(layer, _MODULES[block]), f"{side}.{i}.{block}"
                around = getattr(layer, f"around_{_MODULES[block]}")
                parts |= {f"{name}.norm.{kind}": weight for kind, weight in around.norm.named_parameters()}
                if block == "rnn":
                    parts |= {f"{name}.input.weight": module.to_input.weight}
                    parts |= {f"{name}.forget.{kind}": x for kind, x in module.to_forget.named_parameters()}
                    continue
                if block == "ffn":
                    matrices = _matrices(block, config)[:-1]
                    weights = module.to_hidden.weight.chunk(len(matrices))
                    bias = module.to_hidden.bias
                    biases = [None] * len(matrices) if bias is None else bias.chunk(len(matrices))
                    of_matrices = list(zip(weights, biases, strict=True))
                else:
                    matrices, of_matrices = ("q", "k", "v"), projections(module)
                of_matrices.append((module.to_out.weight, module.to_out.bias))
                for matrix, (weight, bias) in zip(_matrices(block, config), of_matrices, strict=True):
                    parts[f"{name}.{matrix}.weight"], parts[f"{name}.{matrix}.bias"] = weight, bias
    return {name: weight.detach() for name, weight in parts.items() if weight is not None}
